"""A request that waits, by REST: the same words, limits and sentences, and repeating a request."""

from __future__ import annotations

from ledger.engine.db import Database
from tests.api.door import Door, code_of, opened
from tests.support.clock import SteppedClock
from tests.support.world import BOB, checked_world

WAITS = {"below": "$0.01/h", "budget": "$50", "until": "6h"}


async def _waiting(door: Door, key: str, **changes: object) -> str:
    body = {"resources": {"gpu": "4090"}, "hours": 2, **WAITS, **changes}
    answer = await door.call("POST", "/sessions", key, json=body)
    assert answer.status_code == 202, answer.text
    assert " waits for 1× RTX4090 at $0.010/h or less until " in answer.json()["sentence"]
    return str(answer.json()["request_id"])


async def test_limits_are_approved_in_advance_and_revoked_by_rest(db: Database, clock: SteppedClock) -> None:
    async with checked_world(db, clock) as w:
        w.tune(approvers=(BOB.id, "operator:ben"))
        async with opened(w) as door:
            atlas, ben = await door.key("atlas"), await door.key("operator:ben")
            request_id = await _waiting(door, atlas)
            shown = await door.request(ben, request_id)
            assert (shown["state"], shown["waiting"]) == ("waiting", None)
            assert shown["wait"]["sentence"].startswith("It waits for 1× RTX4090 at $0.010/h or less until ")
            assert (shown["wait"]["total_cap_usd"], shown["wait"]["in_advance"]) == ("50", [])
            refused = await door.call("POST", f"/requests/{request_id}/revoke", ben)
            assert (refused.status_code, code_of(refused)) == (409, "not_in_advance")
            done = await door.call("POST", f"/requests/{request_id}/approve", ben, json={})
            assert (done.status_code, done.json()["code"]) == (200, "in_advance"), done.text
            (given,) = (await door.request(ben, request_id))["wait"]["in_advance"]
            assert (given["approver"], given["total_cap_usd"]) == ("operator:ben", "50")
            revoked = await door.call("POST", f"/requests/{request_id}/revoke", ben)
            assert (revoked.status_code, revoked.json()["code"]) == (200, "revoked")
            listed = (await door.call("GET", "/requests?waiting=true", ben)).json()["items"]
            assert [one["state"] for one in listed] == ["waiting"]


async def test_without_a_price_limit_and_with_wrong_times_it_is_refused(db: Database, clock: SteppedClock) -> None:
    async with checked_world(db, clock) as w:
        w.tune(approvers=(BOB.id, "operator:ben"))
        async with opened(w) as door:
            atlas, ben = await door.key("atlas"), await door.key("operator:ben")
            plain = {"resources": {"gpu": "4090"}, "hours": 2}
            late = await door.call("POST", "/sessions", atlas, json={**plain, "retry": True, "until": "900h"})
            assert (late.status_code, code_of(late)) == (422, "bad_wait"), late.text
            wrong = await door.call("POST", "/sessions", atlas, json={**plain, "at": "soon"})
            assert "“soon” is not a moment; write at=20:00 (UTC)" in wrong.text
            made = await door.call("POST", "/sessions", atlas, json={**plain, "at": "1h"})
            request_id = made.json()["request_id"]
            refused = await door.call("POST", f"/requests/{request_id}/approve", ben, json={})
            assert (refused.status_code, code_of(refused)) == (409, "no_limit"), refused.text


async def test_a_request_is_repeated_once_for_each_key(db: Database, clock: SteppedClock) -> None:
    async with checked_world(db, clock) as w, opened(w) as door:
        atlas, other = await door.key("atlas"), await door.key("borg")
        none = await door.call("POST", "/requests/again", atlas, json={}, headers={"Idempotency-Key": "a"})
        assert (none.status_code, code_of(none)) == (404, "nothing_to_repeat"), none.text
        first = await door.asked(atlas)
        body = {"request": first}
        made = await door.call("POST", "/requests/again", atlas, json=body, headers={"Idempotency-Key": "b"})
        same = await door.call("POST", "/requests/again", atlas, json=body, headers={"Idempotency-Key": "b"})
        assert made.status_code == 202, made.text
        assert made.json()["request_id"] == same.json()["request_id"] != first
        hidden = await door.call("POST", "/requests/again", other, json=body, headers={"Idempotency-Key": "c"})
        assert (hidden.status_code, code_of(hidden)) == (404, "unknown_id")
