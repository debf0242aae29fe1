"""Whatever is signed is answered: no payload, however odd, makes the door fail."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.slack.guard import problem
from tests.slack import signing
from tests.slack.conftest import Stage
from tests.support.matrix import examples

Json = dict[str, Any]
Path = tuple[Any, ...]

ACTION: Json = {
    "type": "block_actions",
    "user": {"id": "U0BOB", "team_id": "T0PRACTICE"},
    "team": {"id": "T0PRACTICE"},
    "enterprise": {"id": "E1"},
    "channel": {"id": "C0GPU"},
    "trigger_id": "1.2",
    "actions": [{"type": "button", "action_id": "approve:1", "block_id": "b", "value": "tok"}],
    "container": {"type": "message", "channel_id": "C0GPU"},
    "message": {"ts": "1.1", "user": "U0GPUBOT"},
    "response_urls": [{"response_url": "https://hooks.slack.com/1"}],
}
VIEW: Json = {
    "type": "view_submission",
    "user": {"id": "U0BOB", "team_id": "T0PRACTICE"},
    "team": {"id": "T0PRACTICE"},
    "view": {
        "id": "V1",
        "type": "modal",
        "callback_id": "provision",
        "private_metadata": "C0GPU",
        "hash": "h",
        "state": {"values": {"gpu": {"in": {"type": "plain_text_input", "value": "4090"}}}},
    },
}
EVENT: Json = {
    "type": "event_callback",
    "team_id": "T0PRACTICE",
    "event_id": "Ev1",
    "event": {"type": "app_home_opened", "user": "U0ALICE", "tab": "home", "channel": "D1", "item": {"channel": "D1"}},
    "authorizations": [{"team_id": "T0PRACTICE", "user_id": "U1", "is_bot": True, "enterprise_id": None}],
    "is_ext_shared_channel": True,
}
TYPES = [
    "shortcut",
    "message_action",
    "block_suggestion",
    "dialog_suggestion",
    "interactive_message",
    "dialog_submission",
    "dialog_cancellation",
    "workflow_step_edit",
    "view_closed",
    "function_executed",
    "url_verification",
    "app_rate_limited",
]


def paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """The way to each part of a payload."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*before, key)
        yield from paths(part, (*before, key))


def _has(part: Any, key: Any) -> bool:
    if isinstance(part, list):
        return isinstance(key, int) and key < len(part)
    return isinstance(part, dict) and key in part


def put(body: Json, path: Path, value: Any) -> Json:
    """A copy with one part replaced; a part that another change took away stays away."""
    changed = copy.deepcopy(body)
    at: Any = changed
    for key in path[:-1]:
        at = at[key] if _has(at, key) else {}
    if _has(at, path[-1]):
        at[path[-1]] = value
    return changed


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "type", "user", "a"]), inner),
    max_leaves=4,
)


@st.composite
def payloads(draw: st.DrawFn) -> Json:
    """A good payload with one or two parts that are not, or one of a type that this app does not listen to."""
    body = draw(st.sampled_from([ACTION, VIEW, EVENT]))
    for path in draw(st.lists(st.sampled_from(list(paths(body))), min_size=1, max_size=2)):
        body = put(body, path, draw(JUNK))
    if draw(st.booleans()):
        extra = ("callback_id", "action_id", "challenge", "workflow_step", "function_data", "bot_access_token", "item")
        body = {**body, "type": draw(st.sampled_from(TYPES)), draw(st.sampled_from(extra)): draw(JUNK)}
    return body


def _deep(levels: int) -> Json:
    body: Json = {"type": "x"}
    for _ in range(levels):
        body = {"type": "event_callback", "event": body}
    return body


@example(body=put(EVENT, ("event", "user"), 5))
@example(body=put(EVENT, ("event", "channel"), 5))
@example(body=put(EVENT, ("event", "item", "channel"), 5))
@example(body=put(EVENT, ("authorizations", 0, "team"), 5))
@example(body={"type": "interactive_message", "callback_id": "a"})
@example(body={"type": "dialog_submission", "callback_id": 5})
@example(body={"type": "dialog_cancellation", "callback_id": 5})
@example(body={"type": "workflow_step_edit", "callback_id": 5})
@example(body={"type": "workflow_step_edit", "callback_id": "a"})
@example(body=_deep(300))
@given(body=payloads())
@settings(max_examples=examples(120), deadline=None)
def sent(body: Json, stage: Stage, loop: asyncio.AbstractEventLoop) -> None:
    raw, clock = signing.payload_body(body), stage.ctx.clock
    for signed, kind in ((raw, signing.FORM), (json.dumps(body).encode(), "application/json")):
        posting = signing.post(stage.door.asgi, signed, signing.headers(signed, clock, content_type=kind))
        answer = asyncio.run_coroutine_threadsafe(posting, loop).result(30)  # What fails there is raised here.
        assert answer.status_code in (200, 401, 404), answer.text


async def test_no_signed_payload_makes_the_door_fail(stage: Stage) -> None:
    await asyncio.to_thread(sent, stage=stage, loop=asyncio.get_running_loop())
    await stage.settle()


@pytest.mark.parametrize("body", [ACTION, VIEW, EVENT, {"type": "url_verification", "challenge": "c"}])
def test_what_slack_sends_gets_through(body: Json) -> None:
    assert problem(body) == ""
