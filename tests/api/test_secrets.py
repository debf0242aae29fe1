"""Secrets over REST: for the calling person only, and no answer has a value."""

from __future__ import annotations

from tests.api.door import Door, code_of

VALUE = "hf_canary\nsecond line"


async def test_a_caller_stores_lists_and_deletes_their_own_secrets(door: Door) -> None:
    eve, ben = await door.key("operator:eve"), await door.key("operator:ben")
    assert (await door.call("GET", "/secrets", eve)).json() == []
    stored = await door.call("PUT", "/secrets/HF_TOKEN", eve, json={"value": VALUE})
    assert (stored.status_code, stored.json()["code"], stored.json()["name"]) == (200, "secret_stored", "HF_TOKEN")
    (one,) = (await door.call("GET", "/secrets", eve)).json()
    assert sorted(one) == ["created_at", "name", "updated_at"]
    assert (await door.call("GET", "/secrets/HF_TOKEN", eve)).json() == one
    assert (await door.call("GET", "/secrets", ben)).json() == []
    for method in ("GET", "DELETE"):
        answer = await door.call(method, "/secrets/HF_TOKEN", ben)
        assert (answer.status_code, code_of(answer)) == (404, "no_secret")
    assert (await door.call("DELETE", "/secrets/HF_TOKEN", eve)).json()["code"] == "secret_deleted"
    assert (await door.call("GET", "/secrets", eve)).json() == []


async def test_a_wrong_secret_is_refused_and_no_answer_repeats_the_value(door: Door) -> None:
    eve = await door.key("operator:eve")
    for name, body in (
        ("PATH", {"value": VALUE}),
        ("hf_token", {"value": VALUE}),
        ("HF_TOKEN", {"value": VALUE * 1000}),
        ("HF_TOKEN", {"value": ["hf_canary"]}),
        ("HF_TOKEN", {"value": VALUE, "hf_canary": VALUE}),
        ("HF_TOKEN", {"val": VALUE}),
        ("HF_TOKEN", "hf_canary"),
    ):
        answer = await door.call("PUT", f"/secrets/{name}", eve, json=body)
        assert answer.status_code == 422, answer.text
        assert "canary" not in answer.text or ("hf_canary" in body and "hf_canary is no field" in answer.text)
    assert (await door.call("GET", "/secrets", eve)).json() == []
