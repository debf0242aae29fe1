"""What was acknowledged is done once: replays, crashes between the acknowledgement and the work, and failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.practice.reader import all_text
from bot.slack.app import NOT_STORED, SlackApp, process
from bot.slack.handler_context import HandlerContext, HandlerJob
from bot.slack.inbound import InboundKind, InboundMessage
from bot.slack.worker import TRIES_MAX, Worker
from ledger.core.claims import Claim
from ledger.core.inbox import Inbound, InboxWriter
from ledger.engine.db import Database
from ledger.kernel.states import InboxState
from ledger.models import Inbox
from tests.slack import signing
from tests.slack.conftest import Stage
from tests.support.matrix import examples

COMMAND = signing.command_body('provision 1x4090 2h for="once"')


async def send(stage: Stage, body: bytes, sent: dict[str, str] | None = None, **how: Any) -> Any:
    """One signed request straight to the door."""
    return await signing.post(stage.door.asgi, body, sent or signing.headers(body, stage.w.clock, **how))


async def rows(stage: Stage) -> tuple[Inbox, ...]:
    """The inbox as it is on disk."""
    await stage.ctx.inbox.drain()
    return (await stage.w.books()).inbox


def handler_of(stage: Stage) -> HandlerContext:
    """The handler context of the stage, for a worker of the test's own."""
    return stage.door._handler


async def test_a_replay_gets_the_same_answer_and_asks_once(stage: Stage) -> None:
    sent = signing.headers(COMMAND, stage.w.clock)
    answers = await asyncio.gather(*(send(stage, COMMAND, sent) for _ in range(5)))
    later = await send(stage, COMMAND, sent)
    assert {a.status_code for a in (*answers, later)} == {200}
    assert {a.text for a in (*answers, later)} == {later.text}
    assert f"Asking {len(stage.ctx.providers)} clouds" in later.text
    await stage.settle()
    assert len((await stage.w.books()).requests) == 1
    assert len(stage.ws.channel_messages()) == 1


async def test_the_row_is_on_disk_before_the_answer(stage: Stage) -> None:
    await send(stage, COMMAND)
    (row,) = (await stage.w.books()).inbox
    assert row.kind == InboundKind.COMMAND
    assert row.key.startswith("v0=")
    stored = json.dumps(row.body)
    for secret in ("verification-token", "hooks.slack.com", "1.2.3"):
        assert secret not in stored
    await stage.settle()
    assert (await rows(stage))[0].state is InboxState.DONE


async def test_what_needs_no_work_leaves_no_row(stage: Stage) -> None:
    for text in ("help", "", "provision nonsense", "key add -----BEGIN RSA PRIVATE KEY-----"):
        assert (await send(stage, signing.command_body(text))).status_code == 200
    link = {"type": "button", "action_id": "link"}
    unknown = signing.payload_body({"type": "block_actions", "user": {"id": "U1"}, "actions": [link]})
    assert (await send(stage, unknown)).text == ""
    assert await rows(stage) == ()


async def test_the_same_form_sent_twice_asks_once(stage: Stage) -> None:
    values = {"typed": {"in": {"value": "4090"}}, "hours": {"in": {"value": "2h"}}}
    view = {
        "id": "V1",
        "hash": "h",
        "type": "modal",
        "callback_id": "provision",
        "private_metadata": "C0GPU",
        "state": {"values": values},
    }
    payload = {"type": "view_submission", "team": {"id": "T0PRACTICE"}, "user": {"id": "U0ALICE"}, "view": view}
    for trigger in ("1", "2"):
        assert (await send(stage, signing.payload_body({**payload, "trigger_id": trigger}))).status_code == 200
    await stage.settle()
    assert len((await stage.w.books()).requests) == 1


async def acknowledged_and_crashed(stage: Stage, body: bytes = COMMAND) -> None:
    """The row is on disk and acknowledged, and the process ends before the work."""
    crashed = SlackApp(stage.ctx, stage.settings)  # It is never started, so nothing works on its queue.
    answer = await signing.post(crashed.asgi, body, signing.headers(body, stage.w.clock))
    assert answer.status_code == 200
    assert crashed.backlog == 1
    await crashed.stop()


async def test_a_crash_after_the_acknowledgement_is_made_up_for(stage: Stage) -> None:
    await acknowledged_and_crashed(stage)
    assert await stage.door.recover(stage.w.clock.now()) == 0
    stage.w.clock.advance(stage.ctx.timing.claim_ttl_s + 1)
    assert await stage.door.recover(stage.w.clock.now()) == 1
    assert await stage.door.recover(stage.w.clock.now()) == 0
    await stage.settle()
    assert "once" in all_text(stage.message())
    assert [row.state for row in await rows(stage)] == [InboxState.DONE]


async def test_two_replicas_recover_it_once(stage: Stage) -> None:
    await acknowledged_and_crashed(stage)
    stage.w.clock.advance(stage.ctx.timing.claim_ttl_s + 1)
    other = SlackApp(stage.ctx, stage.settings)
    now = stage.w.clock.now()
    assert sorted(await asyncio.gather(stage.door.recover(now), other.recover(now))) == [0, 1]
    await other.stop()
    await stage.settle()
    assert len((await stage.w.books()).requests) == 1


async def test_a_dialog_cannot_be_recovered_and_says_so(stage: Stage) -> None:
    await acknowledged_and_crashed(stage, signing.command_body("provision"))
    stage.w.clock.advance(stage.ctx.timing.claim_ttl_s + 1)
    await stage.door.recover(stage.w.clock.now())
    await stage.settle()
    assert "could not be opened in time" in stage.ws.ephemerals("alice")[-1].text


def job_of(row: Inbox, token: str = "") -> HandlerJob:
    """The job behind a stored row."""
    return HandlerJob(
        row.key, Claim(row.key, row.claim_token or token), InboundMessage.from_json({**row.body, "kind": row.kind})
    )


async def test_processing_twice_answers_once(stage: Stage) -> None:
    await send(stage, signing.command_body("list"))
    await stage.settle()
    (row,) = await rows(stage)
    told = len(stage.ws.ephemerals("alice"))
    await process(handler_of(stage), job_of(row))
    await stage.settle()
    assert len(stage.ws.ephemerals("alice")) == told


class Failing:
    """A handler that fails some times before it works."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.done = 0

    async def __call__(self, handler: HandlerContext, job: HandlerJob) -> None:
        if self.left:
            self.left -= 1
            raise RuntimeError("secret-detail-of-a-bug")
        self.done += 1


async def retried(stage: Stage, handler: Failing) -> Worker:
    """A stored message, worked on by `handler` until no try is left."""
    await acknowledged_and_crashed(stage, signing.command_body("list"))
    worker = Worker(handler_of(stage), handler)
    for _ in range(TRIES_MAX + 2):
        stage.w.clock.advance(timedelta(minutes=20))
        await worker.recover(stage.w.clock.now())
    await stage.settle()
    return worker


async def test_a_failure_is_tried_again(stage: Stage) -> None:
    handler = Failing(TRIES_MAX - 1)
    await retried(stage, handler)
    assert handler.done == 1
    (row,) = await rows(stage)
    assert row.state is InboxState.DONE
    assert row.tries == TRIES_MAX - 1
    assert stage.ws.ephemerals("alice") == []


async def test_after_the_last_try_the_person_is_told_an_incident(stage: Stage) -> None:
    handler = Failing(99)
    await retried(stage, handler)
    assert handler.left == 99 - TRIES_MAX
    (row,) = await rows(stage)
    assert (row.state, row.tries) == (InboxState.FAILED, TRIES_MAX)
    assert row.error.endswith("RuntimeError")
    (told,) = stage.ws.ephemerals("alice")
    assert row.error.split()[0] in told.text
    assert "secret-detail" not in told.text + row.error


async def test_the_pause_between_tries_grows(stage: Stage) -> None:
    await acknowledged_and_crashed(stage, signing.command_body("list"))
    worker = Worker(handler_of(stage), Failing(99))
    stage.w.clock.advance(stage.ctx.timing.claim_ttl_s + 1)
    await worker.recover(stage.w.clock.now())
    (row,) = await rows(stage)
    assert row.due_at is not None
    first = row.due_at - stage.w.clock.now()
    assert await worker.recover(stage.w.clock.now()) == 0
    stage.w.clock.advance(first)
    await worker.recover(stage.w.clock.now())
    (row,) = await rows(stage)
    assert row.due_at is not None
    assert row.due_at - stage.w.clock.now() > first


async def test_a_live_failure_is_noted_on_the_row(stage: Stage) -> None:
    worker = Worker(handler_of(stage), Failing(1))
    worker.start()
    await acknowledged_and_crashed(stage, signing.command_body("list"))
    (row,) = await rows(stage)
    worker.submit(replace(job_of(row), since=stage.w.clock.monotonic()), urgent=False)
    await worker.idle()
    await worker.stop()
    (row,) = await rows(stage)
    assert (row.state, row.tries) == (InboxState.NEW, 1)


async def test_a_failure_that_cannot_be_noted_does_not_stop_the_worker(stage: Stage) -> None:
    handler = Failing(1)
    worker = Worker(handler_of(stage), handler)
    worker.start()
    lost = HandlerJob(
        "no-such-row", Claim("no-such-row", "t"), InboundMessage(InboundKind.OTHER, "U1", "T1"), since=0.0
    )
    worker.submit(lost, urgent=False)
    await worker.idle()
    worker.submit(lost, urgent=False)
    await worker.idle()
    await worker.stop()
    assert handler.done == 1


async def test_a_message_that_waited_too_long_is_left_to_the_worker_that_claimed_it(stage: Stage) -> None:
    handler = Failing(0)
    worker = Worker(handler_of(stage), handler)
    worker.submit(
        HandlerJob("key", Claim("key", "t"), InboundMessage(InboundKind.OTHER, "U1", "T1"), since=0.0), urgent=True
    )
    stage.w.clock.advance(stage.ctx.timing.claim_ttl_s + 1)
    worker.start()
    await worker.idle()
    await worker.stop()
    assert handler.done == 0


async def test_a_full_queue_and_a_slow_stop_leave_the_rest_to_the_inbox(stage: Stage) -> None:
    context = replace(handler_of(stage), settings=replace(stage.settings, queue_max=1))
    worker = Worker(context, Failing(0))
    job = HandlerJob("key", Claim("key", "t"), InboundMessage(InboundKind.OTHER, "U1", "T1"))
    worker.submit(job, urgent=False)
    worker.submit(job, urgent=False)
    assert worker.backlog == 1
    await worker.stop()

    async def endless(_handler: HandlerContext, _job: HandlerJob) -> None:
        await asyncio.Event().wait()

    stuck = Worker(handler_of(stage), endless)
    stuck.start()
    stuck.submit(replace(job, since=stage.w.clock.monotonic()), urgent=False)
    await stuck.stop(patience_s=0.01)


async def test_rows_of_other_doors_are_left_alone(stage: Stage) -> None:
    other = Inbound("rest-1", "api.idempotency", {}, {}, stage.w.clock.now())
    await stage.ctx.inbox.put(other)
    stage.w.clock.advance(stage.ctx.timing.claim_ttl_s + 1)
    assert await stage.door.recover(stage.w.clock.now()) == 0
    assert [row.state for row in await rows(stage)] == [InboxState.NEW]


@pytest.fixture
async def without_a_ledger(stage: Stage, tmp_path: Path) -> AsyncIterator[SlackApp]:
    """A door whose inbox cannot be written: its database has no tables."""
    empty = Database(f"sqlite+aiosqlite:///{tmp_path}/empty.db")
    door = SlackApp(replace(stage.ctx, inbox=InboxWriter(empty, timedelta(seconds=60))), stage.settings)
    yield door
    await door.stop()
    await empty.close()


async def test_what_cannot_be_stored_is_not_acknowledged_as_done(stage: Stage, without_a_ledger: SlackApp) -> None:
    answer = await signing.post(without_a_ledger.asgi, COMMAND, signing.headers(COMMAND, stage.w.clock))
    assert answer.json()["text"] == NOT_STORED
    button = {"type": "button", "action_id": "approve:1", "value": "t"}
    click = signing.payload_body({"type": "block_actions", "user": {"id": "U0BOB"}, "actions": [button]})
    refused = await signing.post(without_a_ledger.asgi, click, signing.headers(click, stage.w.clock))
    assert refused.status_code == 500  # Slack then tells the person that it did not work; nothing was recorded.
    assert without_a_ledger.backlog == 0


async def test_slack_checks_the_address(stage: Stage) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "c123", "token": "t"}).encode()
    answer = await send(stage, body, content_type="application/json")
    assert answer.json() == {"challenge": "c123"}


async def test_unknown_commands_are_not_found(stage: Stage) -> None:
    assert (await send(stage, signing.command_body("x", command="/other"))).status_code == 404


KEYS = st.sampled_from(["id", "type", "callback_id", "action_id", "value", "block_id"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "type", "0"]), inner, max_size=2)
    ),
    max_leaves=5,
)
SHAPES = st.dictionaries(
    st.sampled_from(["type", "user", "team", "actions", "view", "event", "authorizations", "enterprise", "channel"]),
    VALUES,
    min_size=1,
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=SHAPES, kind=st.sampled_from(["block_actions", "view_submission", "event_callback", ""]))
async def test_no_signed_payload_is_a_500(stage: Stage, payload: dict[str, Any], kind: str) -> None:
    typed = {**payload, "type": kind} if kind else payload
    body = signing.payload_body(typed)
    assert (await send(stage, body)).status_code in (200, 401, 404)
    body = json.dumps(typed).encode()
    assert (await send(stage, body, content_type="Application/JSON")).status_code in (200, 401, 404)


async def test_a_dialog_that_slack_refuses_is_explained(stage: Stage) -> None:
    stage.fault("views.open", "error", error="expired_trigger_id")
    await stage.command("alice", "/gpu provision")
    assert "could not be opened in time" in stage.ws.ephemerals("alice")[-1].text
    message = await stage.ask()
    stage.fault("views.open", "error", error="expired_trigger_id")
    await stage.click("bob", message, "reject")
    assert "click *Reject* again" in stage.ws.ephemerals("bob")[-1].text


async def test_a_policy_that_changed_since_the_acknowledgement_is_followed(stage: Stage) -> None:
    await acknowledged_and_crashed(stage, signing.command_body("provision 4x4090 2h"))
    await stage.replaced(max_gpus=2)
    stage.w.clock.advance(stage.ctx.timing.claim_ttl_s + 1)
    await stage.door.recover(stage.w.clock.now())
    await stage.settle()
    assert "above the limit of 2" in stage.ws.ephemerals("alice")[-1].text
    assert (await stage.w.books()).requests == ()


async def test_the_home_tab_that_is_switched_off_is_no_failure(stage: Stage) -> None:
    stage.fault("views.publish", "error", error="not_enabled")
    await stage.as_("alice").open_home()
    await stage.ws.until(lambda: stage.calls("views.publish"))
    await stage.settle()
    assert [row.state for row in await rows(stage)] == [InboxState.DONE]


async def test_slack_away_at_the_start_does_not_keep_the_door_shut(stage: Stage) -> None:
    stage.fault("auth.test", "http_500", times=1)
    await stage.restart(stage.ctx)
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    assert "Approved* by" in all_text(stage.ws.now(message))


async def test_nobody_is_obeyed_before_slack_has_said_which_workspace_this_is(stage: Stage) -> None:
    asked = await stage.ask()
    before = len(await rows(stage))
    stage.fault("auth.test", "http_500", times=3)
    await stage.restart(stage.ctx)
    await stage.command("alice", "/gpu provision 1x4090 2h")
    assert "confirmed this workspace" in stage.ws.ephemerals("alice")[-1].text
    clicked = await stage.as_("bob").click(asked, stage.approve_button(asked))
    assert not clicked.ok
    await stage.settle()
    assert len(await rows(stage)) == before
    await stage.click("bob", asked, stage.approve_button(asked))
    assert "Approved* by" in all_text(stage.ws.now(asked))


async def test_the_door_speaks_http_only(stage: Stage) -> None:
    async def nothing(*_: Any) -> Any:
        raise AssertionError("nothing is read or sent")

    with pytest.raises(ValueError, match="HTTP only"):
        await stage.door.asgi({"type": "websocket"}, nothing, nothing)
