"""What is kept of a payload, what makes it unique, and what never gets into the inbox."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.slack.inbound import KEY_MAX, WITHHELD, InboundKind, InboundMessage, key_of, read_payload, trigger_of

COMMAND = {
    "token": "verification",
    "team_id": "T1",
    "channel_id": "C1",
    "user_id": "U1",
    "command": "/gpu",
    "text": "list",
    "response_url": "https://hooks.slack.com/x",
    "trigger_id": "1.2.3",
}
ACTION: dict[str, Any] = {
    "type": "block_actions",
    "token": "verification",
    "response_url": "https://hooks.slack.com/x",
    "team": {"id": "T1"},
    "user": {"id": "U1", "team_id": "T1"},
    "channel": {"id": "C1"},
    "trigger_id": "9.9.9",
    "actions": [{"action_id": "approve:1", "value": "token-1", "type": "button"}],
}
VIEW: dict[str, Any] = {
    "type": "view_submission",
    "team": {"id": "T1"},
    "user": {"id": "U1"},
    "trigger_id": "7.7.7",
    "view": {
        "id": "V1",
        "hash": "h1",
        "callback_id": "provision",
        "private_metadata": "C1",
        "state": {
            "values": {
                "gpu": {"in": {"type": "static_select", "selected_option": {"value": "RTX4090"}}},
                "count": {"in": {"type": "plain_text_input", "value": None}},
                "clouds": {"in": {"selected_options": [{"value": "vast"}, {"value": "runpod"}]}},
                "spot": {"in": {"type": "static_select", "selected_option": None}},
                "hours": {"in": {"type": "plain_text_input", "value": "6h"}},
            }
        },
    },
}
HOME = {
    "type": "event_callback",
    "event_id": "Ev1",
    "team_id": "T1",
    "event": {"type": "app_home_opened", "tab": "home", "user": "U1"},
}


def test_a_command() -> None:
    assert read_payload(COMMAND) == InboundMessage(InboundKind.COMMAND, "U1", "T1", channel="C1", text="list")


def test_a_click() -> None:
    assert read_payload(ACTION) == InboundMessage(
        InboundKind.ACTION, "U1", "T1", channel="C1", action="approve:1", value="token-1"
    )
    without = {key: value for key, value in ACTION.items() if key != "channel"}
    assert read_payload({**without, "container": {"channel_id": "C2"}}).channel == "C2"
    assert read_payload({**ACTION, "actions": []}).action == ""


def test_a_form() -> None:
    heard = read_payload(VIEW)
    assert (heard.kind, heard.view, heard.view_id, heard.meta) == (InboundKind.VIEW, "provision", "V1", "C1")
    assert heard.values == {"gpu": "RTX4090", "count": "", "clouds": ["vast", "runpod"], "spot": "", "hours": "6h"}


def test_the_home_tab() -> None:
    assert read_payload(HOME) == InboundMessage(InboundKind.HOME, "U1", "T1")
    messages = {**HOME, "event": {**HOME["event"], "tab": "messages"}}  # type: ignore[dict-item] # It is a dict.
    assert read_payload(messages).kind is InboundKind.OTHER


def test_no_token_and_no_response_url_is_stored() -> None:
    for body in (COMMAND, ACTION, VIEW, HOME):
        stored = json.dumps(read_payload(body).to_json())
        assert "verification" not in stored
        assert "hooks.slack.com" not in stored
        assert "9.9.9" not in stored


def test_what_is_stored_comes_back() -> None:
    for body in (COMMAND, ACTION, VIEW, HOME):
        heard = read_payload(body)
        assert InboundMessage.from_json({**json.loads(json.dumps(heard.to_json())), "later": 1}) == heard


@pytest.mark.parametrize(
    "key",
    [
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----",
        "key add -----BEGIN RSA PRIVATE KEY----- MIIE",
        "key add b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ",
    ],
)
def test_a_private_key_is_never_stored(key: str) -> None:
    assert read_payload({**COMMAND, "text": key}).text == WITHHELD
    form = json.loads(json.dumps(VIEW))
    form["view"]["state"]["values"]["for"] = {"in": {"value": key}}
    assert read_payload(form).values["for"] == WITHHELD


def test_text_that_a_database_refuses_is_cleaned() -> None:
    heard = read_payload({**COMMAND, "text": "a\x00b\ud800c" + "x" * 20_000})
    assert heard.text.startswith("ab?cxxx")
    assert len(heard.text) == 8_000


def test_the_signature_is_the_key_and_a_socket_has_others() -> None:
    assert key_of(COMMAND, "v0=" + "a" * 64) == "v0=" + "a" * 64
    assert key_of(COMMAND, None) == "trigger:1.2.3"
    assert key_of(ACTION, None) == "trigger:9.9.9"
    assert key_of(VIEW, None) == "view:V1:h1"
    assert key_of(HOME, None) == "event:Ev1"
    long = key_of({"trigger_id": "x" * 500}, None)
    assert long.startswith("sha256:")
    assert len(long) <= KEY_MAX
    assert len(key_of(COMMAND, "v0=" + "a" * 500)) <= KEY_MAX


def test_the_trigger() -> None:
    assert trigger_of(ACTION) == "9.9.9"
    assert trigger_of(HOME) == ""


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "type",
    "user",
    "team",
    "actions",
    "view",
    "channel",
    "container",
    "event",
    "command",
    "trigger_id",
    "event_id",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES))
def test_no_payload_raises(body: dict[str, Any]) -> None:
    heard = read_payload(body)
    assert InboundMessage.from_json(heard.to_json()) == heard
    assert len(key_of(body, None)) <= KEY_MAX
    assert isinstance(trigger_of(body), str)
