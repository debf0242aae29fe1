"""A person asks again and again: the channel has one message, which shows the newest request and only its buttons."""

from __future__ import annotations

import pytest

from bot.practice.reader import all_text, buttons
from bot.slack import render
from ledger.kernel.ids import short_id
from ledger.kernel.states import RequestState
from ledger.models import Mark, Request
from tests.slack.conftest import Stage

PAIRS = 125


async def newest(stage: Stage) -> Request:
    return (await stage.w.books()).requests[-1]


async def test_125_pairs_of_request_and_cancel_make_one_message_in_the_channel(stage: Stage) -> None:
    for number in range(PAIRS):
        await stage.as_("alice").command("/gpu provision 1x4090 2h")
        await stage.door.idle()
        if number % 8 == 0:
            await stage.w.tick()
        await stage.as_("alice").command(f"/gpu cancel {(await newest(stage)).id}")
        await stage.door.idle()
        stage.w.clock.advance(0.12)
        if number % 8 == 0:
            await stage.w.tick()
    await stage.settle()
    assert len((await stage.w.books()).requests) == stage.ctx.policy.max_requests_per_hour
    (message,) = stage.ws.channel_messages()
    assert "*Cancelled*" in all_text(message)
    assert buttons(message) == []
    assert len(stage.calls("chat.postMessage")) <= 12  # The message, and replies in its thread.
    refused = stage.ws.ephemerals("alice")
    assert any("You made 60 requests within an hour" in one.text for one in refused)


async def test_the_message_shows_the_new_request_and_old_buttons_do_nothing(stage: Stage) -> None:
    first = await stage.ask()
    old = await newest(stage)
    stale, button = stage.ws.now(first), stage.approve_button(first)
    await stage.command("alice", f"/gpu cancel {old.id}")
    assert buttons(stage.ws.now(first)) == []
    second = await stage.ask('/gpu provision 2x4090 3h for="fine-tune"')
    new = await newest(stage)
    assert second.ts == first.ts
    text = all_text(second)
    assert "2× RTX4090" in text
    assert f"Replaces `{short_id(old.id)}`, which ended undecided." in text
    (notice,) = [one for one in stage.ws.thread(second) if "has a new request" in one.text]
    assert "<@U0BOB>" in notice.text
    await stage.click("bob", stale, button)
    assert (await stage.w.view(new.id)).request.state is RequestState.PENDING
    await stage.click("bob", second, stage.approve_button(second))
    assert (await stage.w.view(new.id)).request.state is RequestState.APPROVED
    assert (await stage.w.view(old.id)).request.state is RequestState.CANCELLED
    assert "Approved* by" in all_text(stage.ws.now(second))
    assert len(stage.ws.channel_messages()) == 1


async def test_an_edit_that_slack_loses_still_ends_with_the_newest_request(stage: Stage) -> None:
    first = await stage.ask()
    stage.fault("chat.update", "http_500", times=3)
    await stage.command("alice", f"/gpu cancel {(await newest(stage)).id}")
    await stage.command("alice", '/gpu provision 2x4090 3h for="fine-tune"')
    new = await newest(stage)
    await stage.w.run(60)
    shown = stage.ws.now(first)
    assert short_id(new.id) in all_text(shown)
    await stage.click("bob", shown, stage.approve_button(shown))
    assert (await stage.w.view(new.id)).request.state is RequestState.APPROVED
    assert len(stage.ws.channel_messages()) == 1


async def test_a_deleted_message_is_posted_again_with_the_newest_request(stage: Stage) -> None:
    first = await stage.ask()
    await stage.command("alice", f"/gpu cancel {(await newest(stage)).id}")
    posted = stage.practice.workspace.find_message(first.channel, first.ts)
    assert posted is not None
    posted.deleted = True
    again = await stage.ask()
    assert again.ts != first.ts
    assert short_id((await newest(stage)).id) in all_text(again)
    assert len(stage.ws.channel_messages()) == 1


async def test_the_reminder_of_a_repeated_request_is_in_the_thread_of_its_message(stage: Stage) -> None:
    first = await stage.ask()
    await stage.command("alice", f"/gpu cancel {(await newest(stage)).id}")
    await stage.ask()
    await stage.w.run(stage.ctx.policy.remind_after_s + 60, 60)
    assert any("has waited" in one.text for one in stage.ws.thread(first))
    assert len(stage.ws.channel_messages()) == 1


async def test_a_repeat_never_follows_an_earlier_message_into_the_direct_messages_of_its_person(stage: Stage) -> None:
    await stage.command("alice", "/gpu provision 1x4090 2h", "#general")
    await stage.command("alice", f"/gpu cancel {(await newest(stage)).id}", "#general")
    (general,) = [one for one in stage.practice.workspace.channels.values() if one.name == "general"]
    general.members.add("U0GPUBOT")  # Somebody invites the app, as its direct message asks.
    await stage.command("alice", "/gpu provision 2x4090 3h", "#general")
    new, (message,) = await newest(stage), stage.ws.channel_messages("#general")
    assert (new.card_of, short_id(new.id) in all_text(message)) == (None, True)
    await stage.click("bob", message, stage.approve_button(message))
    assert (await stage.w.view(new.id)).request.state is RequestState.APPROVED


async def test_who_can_approve_limits_in_advance_is_notified_of_a_repeat_that_waits(stage: Stage) -> None:
    first = await stage.ask()
    await stage.command("alice", f"/gpu cancel {(await newest(stage)).id}")
    waits = "retry=yes at=20:00 max-price=5 budget=50"
    await stage.command("alice", f'/gpu provision 2x4090 3h {waits} for="fine-tune"')
    new = await newest(stage)
    assert (new.state, new.card_id) == (RequestState.WAITING, (await stage.w.books()).requests[0].id)
    notices = [one.text for one in stage.ws.thread(first) if "has a new request" in one.text]
    assert ["<@U0BOB>" in one for one in notices] == [True]
    # Its offers are shown in the same message, about which approvers were notified already.
    start = stage.w.clock.now().replace(hour=20, minute=1)
    await stage.w.run((start - stage.w.clock.now()).total_seconds(), 600)
    assert (await newest(stage)).state is RequestState.PENDING
    assert len([one for one in stage.ws.thread(first) if "has a new request" in one.text]) == 1


@pytest.fixture
def release_before(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Show what the release before this one shows: the request under whose id the message is stored."""

    async def first(_tx: object, request_id: str) -> str:
        return request_id

    monkeypatch.setattr(render, "shown_in", first)
    return monkeypatch


async def test_while_a_replica_of_the_release_before_runs_a_repeat_has_a_message_of_its_own(
    stage: Stage, release_before: pytest.MonkeyPatch
) -> None:
    await stage.ask()
    await stage.command("alice", f"/gpu cancel {(await newest(stage)).id}")
    async with stage.ctx.db.write() as tx:
        tx.add(Mark(name="replica/before", value="", at=stage.w.clock.now()))
    second, new = await stage.ask(), await newest(stage)
    assert (len(stage.ws.channel_messages()), short_id(new.id) in all_text(second)) == (2, True)
    await stage.click("bob", second, stage.approve_button(second))
    assert (await stage.w.view(new.id)).request.state is RequestState.APPROVED


async def test_what_a_replica_of_the_release_before_showed_is_right_again_with_the_next_reminder(
    stage: Stage, release_before: pytest.MonkeyPatch
) -> None:
    first = await stage.ask()
    await stage.command("alice", f"/gpu cancel {(await newest(stage)).id}")
    await stage.command("alice", "/gpu provision 2x4090 3h")
    assert buttons(stage.ws.now(first)) == []
    release_before.undo()
    await stage.w.run(stage.ctx.policy.remind_after_s + 60, 60)
    shown = stage.ws.now(first)
    assert short_id((await newest(stage)).id) in all_text(shown)
    assert stage.approve_button(shown)
