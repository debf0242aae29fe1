"""A post whose outcome nobody noted is looked for before it is sent again: people see every message once.

And a command whose COMMIT loses its connection twice may be stored or not, and its sender reads exactly that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.practice import messages
from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, button_texts, buttons
from bot.services.outbox import dispatch
from bot.services.reports import digest
from bot.services.requests import quoting
from bot.services.runtime.ports import Delivered, Messenger
from bot.slack.app import MAY_BE_STORED, SlackApp
from ledger.core.inbox import InboxWriter
from ledger.engine.db import Database
from ledger.kernel.states import NotificationKind, NotificationState
from ledger.models import Notification
from tests.scenarios.kills.commit_cuts import Way, commit_cuts
from tests.slack import signing
from tests.slack.conftest import Stage, answers

POST = "chat.postMessage"


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Crashing:
    """Shows a message for real, and dies before anybody can note it."""

    real: Messenger
    shown: list[Delivered] = field(default_factory=list)

    async def deliver(self, notification: Notification) -> Delivered:
        self.shown.append(await self.real.deliver(notification))
        raise Crash


async def quoted(stage: Stage, channel: str = "#gpu") -> None:
    """Ask; the offers are there and nothing is shown yet."""
    await stage.as_("alice").command("/gpu provision 1x4090 2h", channel)
    await stage.door.idle()
    await stage.ctx.inbox.drain()
    await quoting.quote_due(stage.ctx)


async def message_row(stage: Stage, kind: NotificationKind = NotificationKind.REQUEST_MESSAGE) -> Notification:
    return [n for n in (await stage.w.books()).notifications if n.kind is kind][-1]


async def one(stage: Stage, channel: str = "#gpu") -> ChatMessage:
    """The only message in a channel, noted where it is."""
    (message,) = stage.ws.channel_messages(channel)
    row = await message_row(stage)
    assert (row.state, row.channel, row.ts) == (NotificationState.SENT, message.channel, message.ts)
    return message


async def test_a_crash_between_the_post_and_its_note_shows_nothing_twice(stage: Stage) -> None:
    await quoted(stage)
    crashing = Crashing(stage.door.messenger)
    with pytest.raises(Crash):
        await dispatch.deliver_due(stage.ctx, crashing)
    assert crashing.shown
    await stage.restart(stage.ctx)
    await stage.w.run(stage.ctx.timing.claim_ttl_s + 1)
    message = await one(stage)
    assert len(stage.calls("conversations.history")) == 1
    await stage.click("bob", message, stage.approve_button(message))
    assert "Approved* by <@U0BOB>" in all_text(stage.ws.now(message))
    assert len(stage.calls("conversations.history")) == 1


async def test_a_crash_before_the_post_loses_nothing(stage: Stage) -> None:
    await quoted(stage)
    stage.fault(POST, "http_500")
    with pytest.raises(Crash):
        await dispatch.deliver_due(stage.ctx, _Dead())
    await stage.w.run(stage.ctx.timing.claim_ttl_s + 1)
    await stage.w.run(10)
    assert buttons(await one(stage))


class _Dead:
    async def deliver(self, notification: Notification) -> Delivered:
        raise Crash


async def test_a_digest_whose_process_is_killed_while_it_is_posted_is_shown_once(stage: Stage) -> None:
    await stage.replaced(digest_channel="C0GPU", digest_weekly="")
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    stage.w.clock.advance(86_400)
    await stage.settle()
    assert await digest.digest_due(stage.ctx) == 1
    with pytest.raises(Crash):
        await dispatch.deliver_due(stage.ctx, Crashing(stage.door.messenger))
    await stage.restart(stage.ctx)
    assert await digest.digest_due(stage.ctx) == 0
    await stage.w.run(stage.ctx.timing.claim_ttl_s + 1, stage.ctx.timing.claim_ttl_s + 1)
    assert len([m for m in stage.ws.channel_messages() if "GPU costs of" in all_text(m)]) == 1


async def test_a_lost_answer_shows_nothing_twice(stage: Stage) -> None:
    stage.fault(POST, "lose_reply")
    await quoted(stage)
    await stage.settle()
    await stage.w.run(10)
    await one(stage)


async def test_what_was_shown_is_brought_up_to_date_when_it_is_found(stage: Stage) -> None:
    stage.fault(POST, "lose_reply")
    await quoted(stage)
    await dispatch.deliver_due(stage.ctx, stage.door.messenger)
    (lost,) = stage.ws.channel_messages()
    await stage.click("bob", lost, stage.approve_button(lost))
    await stage.w.run(10)
    assert "Approved* by <@U0BOB>" in all_text(await one(stage))
    assert button_texts(await one(stage)) == []


async def test_a_reply_in_a_thread_is_found_there(stage: Stage) -> None:
    message = await stage.ask()
    await stage.w.run(5)  # Its details are in the thread.
    stage.fault(POST, "lose_reply")
    await stage.w.run(900, 900)
    await stage.w.run(10)
    assert len(answers(stage, message)) == 1
    assert (await message_row(stage, NotificationKind.REQUEST_REMINDER)).state is NotificationState.SENT


async def test_a_direct_message_is_found_with_its_owner(stage: Stage) -> None:
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    before = len(stage.ws.dm_messages("alice"))
    stage.fault(POST, "lose_reply", times=2)
    await stage.w.run(120)
    assert len(stage.ws.dm_messages("alice")) == before + 1
    assert (await message_row(stage, NotificationKind.SESSION_READY)).state is NotificationState.SENT


async def test_what_went_to_a_person_because_the_channel_is_closed_is_found_with_that_person(stage: Stage) -> None:
    stage.fault(POST, "lose_reply", times=2)
    await quoted(stage, "#general")
    await stage.settle()
    await stage.w.run(30)
    assert stage.ws.channel_messages("#general") == []
    direct = [m for m in stage.ws.dm_messages("alice") if buttons(m)]
    assert len(direct) == 1
    assert (await message_row(stage)).ts == direct[0].ts


async def test_a_look_that_is_not_answered_is_taken_again(stage: Stage) -> None:
    stage.fault(POST, "lose_reply")
    stage.fault("conversations.history", "http_500", times=2)
    await quoted(stage)
    await stage.settle()
    await stage.w.run(60)
    await one(stage)
    assert len(stage.calls("conversations.history")) > 1


async def test_a_token_that_is_replaced_while_a_reply_is_lost_shows_nothing_twice(stage: Stage) -> None:
    stage.fault(POST, "lose_reply")
    await quoted(stage)
    await stage.settle()
    space, right = stage.practice.workspace, stage.practice.workspace.bot_token
    space.bot_token = "xoxb-another-token"
    await stage.w.run(60)
    space.bot_token = right
    await stage.w.run(stage.ctx.timing.outbox_retry_max_s + 60)
    await one(stage)


async def test_an_app_that_may_not_look_posts_again(stage: Stage) -> None:
    scopes = stage.practice.workspace.manifest.scopes
    assert scopes is not None
    object.__setattr__(stage.practice.workspace.manifest, "scopes", scopes - {"channels:history"})
    scopes = stage.practice.workspace.manifest.scopes
    assert scopes is not None
    object.__setattr__(stage.practice.workspace.manifest, "scopes", {s for s in scopes if not s.endswith(":history")})
    stage.fault(POST, "lose_reply")
    await quoted(stage)
    await stage.settle()
    await stage.w.run(10)
    shown = stage.ws.channel_messages()
    assert len(shown) == 2
    assert (await message_row(stage)).ts == shown[-1].ts


async def test_it_is_found_behind_much_talk(stage: Stage) -> None:
    stage.fault(POST, "lose_reply")
    await quoted(stage)
    await dispatch.deliver_due(stage.ctx, stage.door.messenger)
    space = stage.practice.workspace
    for number in range(450):
        content = {"text": f"talk {number}", "blocks": [], "attachments": []}
        messages.post(space, space.channels["C0GPU"], content, user="U0ALICE")
    await stage.w.run(10)
    ours = [m for m in stage.ws.channel_messages() if m.bot_id]
    assert len(ours) == 1
    assert (await message_row(stage)).ts == ours[0].ts
    assert len(stage.calls("conversations.history")) == 3


async def test_a_clear_refusal_is_not_looked_for(stage: Stage) -> None:
    stage.fault(POST, "rate_limited", seconds=5)
    await quoted(stage)
    await stage.settle()
    await stage.w.run(10)
    await one(stage)
    assert stage.calls("conversations.history") == []


@pytest.mark.slow
async def test_a_database_that_goes_away_at_the_commit_leaves_it_open_whether_a_command_is_done(
    stage: Stage, pg_db_url: str, tmp_path: Path
) -> None:
    async with commit_cuts(pg_db_url, tmp_path / "pg") as (url, cuts):
        behind = Database(url)
        door = SlackApp(replace(stage.ctx, inbox=InboxWriter(behind, timedelta(seconds=60))), stage.settings)
        command = signing.command_body("provision 1x4090 2h")
        cuts.choose = lambda _wrote: Way.UNANSWERED
        answer = await signing.post(door.asgi, command, signing.headers(command, stage.w.clock))
        assert answer.json()["text"] == MAY_BE_STORED
        await door.stop()
        await behind.close()
