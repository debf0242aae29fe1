"""What an error of Slack's means for a message: wait, go elsewhere, post again, or give up with a clear reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import update

from bot.blockkit import validate_message
from bot.practice.reader import all_text, buttons
from bot.rules.budgets.budget import Period
from bot.services.notifications.interruption import notify_interruption
from bot.services.runtime.ports import DeliveryFailed
from bot.slack.blocks import money
from bot.slack.blocks.elements import section
from ledger.core.events import announce
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import InstanceState, NotificationKind, NotificationState, OrphanState
from ledger.models import Instance, Notification
from tests.api.door import opened
from tests.slack.conftest import Stage, answers, staged
from tests.support import rows
from tests.support.clock import START, SteppedClock

APPROVER = Actor(ActorKind.SLACK, "U0BOB", "T0PRACTICE")


async def tell(stage: Stage, kind: NotificationKind, subject: str, destination: str, **body: Any) -> Notification:
    """Announce something and return its row, as the outbox would hand it over."""
    now = stage.w.clock.now()
    async with stage.ctx.db.write() as tx:
        await announce(tx, at=now, kind=kind, subject=subject, destination=destination, body=body)
    return next(n for n in (await stage.w.books()).notifications if n.subject == subject and n.kind is kind)


async def row_of(stage: Stage, kind: NotificationKind) -> Notification:
    """The newest row of a kind."""
    return [n for n in (await stage.w.books()).notifications if n.kind is kind][-1]


async def test_posts_do_not_unfurl_and_name_nobody(stage: Stage) -> None:
    await stage.ask()
    (sent,) = stage.calls("chat.postMessage")
    assert sent["unfurl_links"] is False
    assert sent["unfurl_media"] is False
    assert sent["link_names"] is False
    assert validate_message(sent) == []


async def test_an_edit_has_new_block_ids(stage: Stage) -> None:
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    before = {block["block_id"] for block in message.blocks}
    assert before.isdisjoint(block["block_id"] for block in stage.ws.now(message).blocks)


async def test_a_rate_limit_is_waited_out(stage: Stage) -> None:
    stage.fault("chat.postMessage", "rate_limited", seconds=30)
    await stage.command("alice", "/gpu provision 1x4090 2h")
    assert stage.ws.channel_messages() == []
    row = await row_of(stage, NotificationKind.REQUEST_MESSAGE)
    assert row.due_at is not None
    assert row.due_at - stage.w.clock.now() >= timedelta(seconds=30)
    await stage.w.run(35)
    assert len(stage.ws.channel_messages()) == 1


@pytest.mark.parametrize("kind", ["http_500", "lose_reply"])
async def test_no_answer_never_touches_the_state(stage: Stage, kind: str) -> None:
    message = await stage.ask()
    stage.fault("chat.update", kind, times=2)
    await stage.click("bob", message, stage.approve_button(message))
    assert (await stage.w.books()).approvals
    await stage.w.run(30)
    assert "Approved* by" in all_text(stage.ws.now(message))
    assert stage.ws.duplicates() == []


async def test_a_deleted_message_is_posted_again_with_what_is_true_now(stage: Stage) -> None:
    message = await stage.ask()
    posted = stage.practice.workspace.find_message(message.channel, message.ts)
    assert posted is not None
    posted.deleted = True
    (request,) = (await stage.w.books()).requests
    await tell(stage, NotificationKind.REQUEST_MESSAGE, request.id, "C0GPU")
    await stage.settle()
    (again,) = stage.ws.channel_messages()
    assert again.ts != message.ts
    await stage.click("bob", again, stage.approve_button(again))
    assert "Approved* by" in all_text(stage.ws.now(again))


async def test_a_channel_without_the_app(stage: Stage) -> None:
    await stage.command("alice", "/gpu provision 1x4090 2h", "#general")
    assert stage.ws.channel_messages("#general") == []
    direct = stage.ws.dm_messages("alice")[-1]
    assert "I could not post this in <#C0GENERAL> (not_in_channel)" in direct.text
    assert "/invite" in all_text(direct)
    assert buttons(direct)
    stage.w.clock.advance(stage.ctx.policy.request_ttl_s + 1)
    await stage.settle()
    assert "*Expired*" in all_text(stage.ws.now(direct))
    assert "nobody approved it in time" in stage.ws.thread(direct)[-1].text
    await stage.command("alice", "/gpu list", "#general")
    assert "You have no sessions or requests" in stage.ws.dm_messages("alice")[-1].text


async def test_blocks_that_slack_refuses_give_way_to_the_text(stage: Stage) -> None:
    stage.fault("chat.postMessage", "error", error="invalid_blocks")
    await stage.command("alice", "/gpu provision 1x4090 2h")
    (message,) = stage.ws.channel_messages()
    assert message.blocks == []
    assert "about $" in message.text


async def test_a_chart_that_slack_does_not_know_is_drawn(stage: Stage) -> None:
    days = [(START, Decimal(3)), (START + timedelta(days=1), Decimal(5))]
    (chart,) = money.spend_chart("Dollars per day", days, Period.DAILY)
    row = await tell(stage, NotificationKind.REPLY, "k", "C0GPU", text="costs", blocks=[chart, section("more")])
    stage.fault("chat.postMessage", "error", error="invalid_blocks")
    await stage.door.messenger.deliver(row)
    said = stage.ws.channel_messages()
    assert [one.text for one in said] == ["costs", "Dollars per day"]
    assert [block["type"] for block in said[0].blocks] == ["section"]
    assert said[1].files


async def test_a_message_that_does_not_fit_is_cut(stage: Stage) -> None:
    block = {"type": "section", "text": {"type": "mrkdwn", "text": "x" * 4_000}}
    row = await tell(stage, NotificationKind.REPLY, "k", "C0GPU/U0ALICE", text="y" * 9_000, blocks=[block])
    await stage.door.messenger.deliver(row)
    told = stage.ws.ephemerals("alice")[-1]
    assert len(told.text) <= 4_000
    assert all_text(told).endswith("…")


async def test_operators_hear_of_strays_and_pages(sqlite_db: Database, clock: SteppedClock) -> None:
    async with staged(sqlite_db, clock, operators_channel="C0GPU") as stage:
        async with stage.ctx.db.write() as tx:
            stray = await rows.stray(tx, OrphanState.CONDEMNED, reason="a duplicate <!here>")
        await tell(stage, NotificationKind.ORPHAN_FOUND, stray.id, "channel:operators")
        await tell(stage, NotificationKind.OPERATOR_PAGE, "page-1", "channel:operators", text="look <!here>")
        await stage.settle()
        told = "\n".join(m.text for m in stage.ws.channel_messages())
        assert "is being terminated" in told
        assert ":rotating_light: look &lt;!here&gt;" in told or "🚨 look &lt;!here&gt;" in told
        await tell(stage, NotificationKind.OPERATOR_PAGE, "page-1", "channel:operators", text="still")
        await stage.settle()
        # The stray's account is not set up here, which is told, too.
        assert len([m for m in stage.ws.channel_messages() if "is set up here" not in m.text]) == 2


async def test_without_an_operators_channel_the_row_says_so(stage: Stage) -> None:
    row = await tell(stage, NotificationKind.OPERATOR_PAGE, "page-1", "channel:operators", text="look")
    with pytest.raises(DeliveryFailed, match="no Slack channel is set up for channel:operators") as failed:
        await stage.door.messenger.deliver(row)
    assert failed.value.permanent


async def test_what_does_not_exist_is_given_up(stage: Stage) -> None:
    for kind in (NotificationKind.REQUEST_MESSAGE, NotificationKind.SESSION_READY, NotificationKind.ORPHAN_FOUND):
        row = await tell(stage, kind, "req_nothing", "C0GPU")
        with pytest.raises(DeliveryFailed) as failed:
            await stage.door.messenger.deliver(row)
        assert failed.value.permanent


async def test_a_result_waits_for_its_message(stage: Stage) -> None:
    async with stage.ctx.db.write() as tx:
        request = await rows.request(tx, channel="C0GPU")
    await tell(stage, NotificationKind.REQUEST_MESSAGE, request.id, "C0GPU")
    result = await tell(stage, NotificationKind.REQUEST_RESULT, f"{request.id}/expired", "C0GPU")
    with pytest.raises(DeliveryFailed, match="is not shown yet") as failed:
        await stage.door.messenger.deliver(result)
    assert not failed.value.permanent
    await stage.settle()
    await stage.w.run(10)
    (message,) = stage.ws.channel_messages()
    assert len(stage.ws.thread(message)) == 1


async def test_a_reply_does_not_depend_on_what_it_replies_to(stage: Stage) -> None:
    message = await stage.ask()
    (row,) = [one for one in (await stage.w.books()).notifications if one.kind is NotificationKind.REQUEST_MESSAGE]
    request_id = row.subject
    stage.fault("chat.postMessage", "error", error="thread_not_found")
    result = await tell(stage, NotificationKind.REQUEST_RESULT, f"{request_id}/expired", "C0GPU")
    await stage.door.messenger.deliver(result)
    assert stage.ws.thread(message) == []
    assert len(stage.ws.channel_messages()) == 2
    async with stage.ctx.db.write() as tx:  # Its message cannot be rendered, and is tried for ever.
        other = await rows.request(tx, channel="C0GPU")
        waits = {"state": NotificationState.PENDING, "error": "it could not be rendered: KeyError", "tries": 9}
    await tell(stage, NotificationKind.REQUEST_MESSAGE, other.id, "C0GPU")
    async with stage.ctx.db.write() as tx:
        await tx.execute(update(Notification).where(Notification.subject == other.id).values(**waits))
    result = await tell(stage, NotificationKind.REQUEST_RESULT, f"{other.id}/expired", "C0GPU")
    await stage.door.messenger.deliver(result)
    assert len(stage.ws.channel_messages()) == 3


async def test_a_result_without_a_message_stands_alone(stage: Stage) -> None:
    async with stage.ctx.db.write() as tx:
        request = await rows.request(tx, channel="C0GPU", due_at=None)
    for reached in ("expired", str(InstanceState.TOMBSTONE), "failed", "terminated"):
        await tell(stage, NotificationKind.REQUEST_RESULT, f"{request.id}/{reached}", "C0GPU")
    reminder = await tell(stage, NotificationKind.REQUEST_REMINDER, f"{request.id}/1", "C0GPU")
    await stage.door.messenger.deliver(reminder)
    await stage.settle()
    told = [m.text for m in stage.ws.channel_messages()]
    assert len(told) == 6
    assert any("outcome unknown, not provisioned" in text for text in told)
    assert any("for approval" in text for text in told)


async def test_those_who_decide_are_reminded_in_the_thread(stage: Stage) -> None:
    message = await stage.ask()
    await stage.w.run(900, 900)
    (told,) = answers(stage, message)
    assert told.text.startswith(":bell: <@U0BOB> or <@U0CAROL>: <@U0ALICE> has waited 15 min for approval; it expires")


async def test_those_who_decided_hear_that_they_are_asked_again(stage: Stage) -> None:
    message = await stage.ask()
    (request,) = (await stage.w.books()).requests
    for option in (await stage.w.view(request.id)).options:
        stage.w.clouds[option.cloud].withdraw(option.offer_key)
    await stage.click("bob", message, stage.approve_button(message))
    told = next(reply.text for reply in stage.ws.thread(message) if "new decision" in reply.text)
    assert told.startswith(":arrows_counterclockwise: <@U0BOB> or <@U0CAROL>: the request of <@U0ALICE>")
    assert "for sale" in told


async def test_a_reminder_that_comes_too_late_is_not_shown(stage: Stage) -> None:
    message = await stage.ask()
    await stage.w.run(5)  # Its details are in the thread.
    stage.fault("chat.postMessage", "http_500")
    await stage.w.run(900, 900)
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(30)
    assert (await row_of(stage, NotificationKind.REQUEST_REMINDER)).state is NotificationState.DEAD
    assert not any("for approval" in reply.text for reply in stage.ws.thread(message))


@pytest.mark.parametrize("destination", ["C0NOWHERE", "C0NOWHERE/U0NOBODY", "U0NOBODY"])
async def test_nobody_to_tell_is_given_up(stage: Stage, destination: str) -> None:
    row = await tell(stage, NotificationKind.REPLY, "k", destination, text="hello")
    with pytest.raises(DeliveryFailed) as failed:
        await stage.door.messenger.deliver(row)
    assert failed.value.permanent


async def test_slack_being_away_is_tried_again(stage: Stage) -> None:
    away = replace(stage.settings, base_url="http://127.0.0.1:9/api/", timeout_s=2)
    stage.settings = away
    row = await tell(stage, NotificationKind.REPLY, "k", "C0GPU/U0ALICE", text="hello")
    await stage.restart(stage.ctx)
    with pytest.raises(DeliveryFailed, match="no_answer") as failed:
        await stage.door.messenger.deliver(row)
    assert not failed.value.permanent


async def test_a_row_that_cannot_be_rendered_does_not_harm_the_others(stage: Stage) -> None:
    row = await tell(stage, NotificationKind.REPLY, "k", "C0GPU/U0ALICE", text="hello", blocks=5)
    with pytest.raises(DeliveryFailed, match="could not be rendered"):
        await stage.door.messenger.deliver(row)
    await stage.command("alice", "/gpu list")
    assert "You have no sessions or requests" in stage.ws.ephemerals("alice")[-1].text
    assert (await row_of(stage, NotificationKind.REPLY)).state is not NotificationState.DEAD


async def rented(stage: Stage, requester: Actor) -> str:
    """A session whose instance is ready, which Bob approved. Returns the request's id."""
    request_id = str((await stage.w.ask(requester, candidates=("vast",))).data["request_id"])
    await stage.w.settle()
    assert (await stage.w.decide(request_id, APPROVER)).ok
    await stage.w.settle()
    await stage.w.run(40, 20)
    return request_id


async def test_what_a_program_requested_is_said_to_its_person(stage: Stage) -> None:
    atlas = Actor(ActorKind.CONSUMER, "atlas")
    async with opened(stage.w) as door:
        await door.key("atlas", "slack:U0ALICE")
    request_id = await rented(stage, atlas)
    ready = [message.text for message in stage.ws.dm_messages("alice")]
    assert len(ready) == 1
    assert "ssh" in ready[0]
    (row,) = (await stage.w.books()).instances
    async with stage.ctx.db.write() as tx:
        found = await tx.get_one(Instance, row.id)
        await notify_interruption(tx, stage.ctx.policy, found, stage.w.clock.now())
    await stage.w.end(request_id, atlas)
    await stage.w.run(120, 30)
    direct = [message.text for message in stage.ws.dm_messages("alice")]
    assert any("Your *1× RTX4090*" in text for text in direct), direct
    assert (await row_of(stage, NotificationKind.SESSION_ENDED)).state is NotificationState.SENT


async def test_the_channel_alone_says_what_an_operator_without_slack_requested(stage: Stage) -> None:
    ada = Actor(ActorKind.OPERATOR, "ada")
    request_id = await rented(stage, ada)
    await stage.w.end(request_id, APPROVER)
    await stage.w.run(120, 30)
    row = await row_of(stage, NotificationKind.SESSION_READY)
    assert (row.state, row.error) == (
        NotificationState.DEAD,
        "operator:ada has no Slack account; same_person in the policy can name it",
    )
    assert any("is being ended by" in message.text for message in stage.ws.channel_messages())
