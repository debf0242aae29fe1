"""The warning before an end and its buttons, as the owner, an approver and others see them."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, buttons
from bot.rules.values.phrases import usd
from bot.slack.blocks.elements import when
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import SessionState
from ledger.models import Session
from tests.slack.conftest import Stage, words_before_the_buttons
from tests.slack.test_commands import private, running


async def session(stage: Stage) -> Session:
    return (await stage.w.books()).sessions[0]


async def before_the_end(stage: Stage, minutes: int) -> ChatMessage:
    """Go to so long before the end; the newest direct message to alice."""
    row = await session(stage)
    assert row.deadline is not None
    stage.w.clock.advance(row.deadline - timedelta(minutes=minutes) - stage.w.clock.now())
    await stage.settle()
    return stage.ws.dm_messages("alice")[-1]


def card_times(stage: Stage, *said: str) -> list[str]:
    """The first moment in the line of the card with each of these words."""
    steps = stage.message().blocks[2]["text"]["text"].split("\n")
    found = [re.search(r"<!date[^>]*>", next(one for one in steps if word in one)) for word in said]
    return [one[0] for one in found if one is not None]


def action(message: ChatMessage, verb: str) -> str:
    return next(str(b["action_id"]) for b in buttons(message) if str(b["action_id"]).startswith(f"{verb}:"))


async def test_more_time_from_the_button_to_the_new_end(stage: Stage) -> None:
    await running(stage)
    warning = await before_the_end(stage, 60)
    assert "(1 h 00 min left)" in all_text(warning)
    old = (await session(stage)).deadline
    await stage.click("alice", warning, action(warning, "extend"))
    await stage.submit("alice", {"hours": "2h", "for": "one more epoch"})
    assert "waits for an approval" in all_text(stage.ws.now(warning))
    asked = stage.message()
    assert "2 h more for 1× RTX4090" in all_text(asked)
    assert "the current end stays" in all_text(asked)
    await stage.click("bob", asked, "change")
    await stage.submit("bob", {"hours": "90m"})
    less = "1.5 hours instead of 2 hours"
    assert "*Approved* by <@U0BOB>" in all_text(stage.ws.now(asked))
    assert less in all_text(stage.ws.now(asked))
    row = await session(stage)
    assert old is not None
    assert row.deadline == old + timedelta(minutes=90)
    assert "now ends" in all_text(stage.ws.now(warning))
    assert buttons(stage.ws.now(warning)) == []
    assert f"1.5 hours more ({less})" in all_text(stage.ws.dm_messages("alice")[-1])
    # A person who still has the old message on the screen changes nothing with it.
    await stage.click("alice", warning, action(warning, "terminate"))
    assert "nothing was changed" in stage.ws.dm_messages("alice")[-1].text
    assert (await session(stage)).state is SessionState.RUNNING


async def test_the_ready_message_asks_for_more_and_the_card_says_the_new_end_and_total(stage: Stage) -> None:
    await running(stage)
    ready = next(one for one in stage.ws.dm_messages("alice") if "is ready" in one.text)
    assert [b["text"]["text"] for b in buttons(ready)] == ["More time…", "End it now", "Details"]
    old, row = (await session(stage)).deadline, await session(stage)
    hours, before = Decimal(row.hours), await stage.w.session(row.id)
    await stage.click("alice", ready, action(ready, "extend"))
    dialog = stage.ws.view("alice")
    assert dialog is not None
    assert dialog.body["callback_id"] == "extend"
    await stage.submit("alice", {"hours": "14h", "for": "one more epoch"})
    card = stage.message()
    (asked,) = [one for one in (await stage.w.books()).requests if one.kind is RequestKind.EXTEND]
    (option,) = (await stage.w.view(asked.id)).options
    assert old is not None
    total, most = hours + 14, usd(before.cap_usd + option.worst_usd)
    assert f"New end: {when(old + timedelta(hours=14))}" in all_text(card)
    assert f"Session in all: {total} h, never more than {most}" in all_text(card)
    assert f"*{total} h in all is above the 12-hour limit*: approving includes the override." in all_text(card)
    assert words_before_the_buttons(card) <= 60
    await stage.click("bob", card, stage.approve_button(card))
    now = all_text(stage.ws.now(card))
    assert "12-hour override by <@U0BOB>." in now
    end = (await session(stage)).deadline
    assert end == old + timedelta(hours=14)
    assert f"The session now ends {when(end)}: {total} h, never more than {most} in all." in now


async def test_it_is_done_and_words(stage: Stage) -> None:
    await running(stage)
    row = await session(stage)
    await stage.command("dave", f"/gpu extend {row.id[-6:]} 1h")
    assert "Only its owner" in private(stage, "dave").text
    await stage.command("alice", f'/gpu extend {row.id[-6:]} 1h for="one more epoch"')
    assert "waits" not in private(stage, "alice").text
    assert "Until it's approved, the session still ends" in private(stage, "alice").text
    await stage.command("alice", f"/gpu status {row.id[-6:]}")
    told = all_text(private(stage, "alice"))
    assert "min left)" in told
    await stage.click("alice", private(stage, "alice"), "Details")
    told = all_text(private(stage, "alice"))
    assert "warning 1 hour, 30 minutes, 10 minutes and 2 minutes before" in told
    warning = await before_the_end(stage, 10)
    await stage.click("alice", warning, action(warning, "done"))
    assert ((await session(stage)).state, (await session(stage)).end_code) == (SessionState.TERMINATING, "completed")
    assert "is ending" in all_text(stage.ws.now(warning))
    await stage.command("alice", f"/gpu done {row.id[-6:]} failed destroy")
    assert "is ending already" in private(stage, "alice").text


async def test_done_without_a_word_about_the_disk_asks_once(stage: Stage) -> None:
    await running(stage)
    row = await session(stage)
    await stage.command("dave", f"/gpu done {row.short_id}")
    assert "Only its owner or an approver" in private(stage, "dave").text
    await stage.command("alice", f"/gpu done {row.short_id} failed")
    question = private(stage, "alice")
    for part in (" failed: end it? *1× RTX4090* at ", "so far", "min left", "will be deleted"):
        assert part in question.text
    assert [b["text"]["text"] for b in buttons(question)] == ["Delete the disk and end", "Keep the disk"]
    assert all("confirm" not in one for one in buttons(question))
    assert (await session(stage)).state is SessionState.RUNNING
    assert stage.w.alive()
    await stage.click("alice", question, "Delete the disk and end")
    assert "Ending session" in private(stage, "alice").text
    ending = await session(stage)
    assert (ending.state, ending.end_code) == (SessionState.TERMINATING, "work_failed")
    await stage.command("alice", f"/gpu done {row.short_id}")
    assert "is ending already" in private(stage, "alice").text


async def test_the_question_about_done_can_keep_the_disk_and_a_word_asks_nothing(stage: Stage) -> None:
    await running(stage)
    short = (await session(stage)).short_id
    await stage.command("alice", f"/gpu done {short}")
    assert f"The work of `{short}` is done" in private(stage, "alice").text
    await stage.click("alice", private(stage, "alice"), "Keep the disk")
    assert "The work is done. " in private(stage, "alice").text
    await stage.w.run(60, 20)
    assert (await session(stage)).state is SessionState.STOPPED
    await stage.command("alice", f"/gpu done {short} destroy")
    assert "Ending session" in private(stage, "alice").text
    assert (await session(stage)).end_code == "completed"


async def test_what_lies_inside_the_approval_is_kept_with_one_click(stage: Stage) -> None:
    await running(stage)
    row = await session(stage)
    assert row.deadline is not None
    await stage.w.shorten(row.id, timedelta(hours=1))
    warning = await before_the_end(stage, 30)
    assert [b["text"]["text"] for b in buttons(warning)] == ["Keep 1 hour", "It is done", "End it now"]
    await stage.click("alice", warning, action(warning, "keep"))
    assert (await session(stage)).deadline == row.deadline
    assert "covered by the approval" in stage.ws.dm_messages("alice")[-1].text


async def test_stop_and_start_say_what_happens_to_the_meter(stage: Stage) -> None:
    await running(stage)
    row = await session(stage)
    short = row.id[-6:]
    (instance,) = (await stage.w.books()).instances
    can = stage.ctx.providers[instance.cloud].capabilities
    assert can.stop
    assert not can.billing.gpu_while_stopped
    await stage.command("dave", f"/gpu stop {short}")
    assert "Only its owner or an approver can stop" in private(stage, "dave").text
    await stage.command("alice", f"/gpu start {short}")
    assert "so you can't start it" in private(stage, "alice").text
    confirmed, reachable, ready = card_times(stage, "confirmed instance", "Reachable over SSH", "*Ready*")
    stage.w.clock.advance(180)
    await stage.command("alice", f"/gpu done {short} success preserve")
    assert "From now on" in private(stage, "alice").text
    await stage.w.run(60, 20)
    (stopped,) = card_times(stage, "*Stopped*")
    first = next(one for one in stage.ws.dm_messages("alice") if " is stopped, so only its disk is billed." in one.text)
    assert "ssh -p" not in all_text(stage.ws.now(first))
    assert max(confirmed, reachable, ready) < stopped
    await stage.command("alice", f"/gpu status {short}")
    assert "*stopped*" in all_text(private(stage, "alice"))
    stage.w.clock.advance(180)
    await stage.command("alice", f"/gpu start {short}")
    assert "Its owner is notified when it answers." in private(stage, "alice").text
    await stage.w.run(120, 20)
    assert (await session(stage)).state is SessionState.RUNNING
    # A start rewrites no earlier time.
    assert card_times(stage, "confirmed instance", "Reachable over SSH", "*Ready*") == [confirmed, reachable, ready]
    assert f"Stopped {stopped}, started again <!date" in all_text(stage.message())
    again = stage.ws.dm_messages("alice")[-1]
    assert " is ready." in stage.ws.now(first).text
    (instance,) = (await stage.w.books()).instances
    assert again.text.startswith(f":rocket: Ready again; the address changed: `ssh -p {instance.ssh_port} root@")
    await stage.click("alice", again, "Details")
    assert f"port `{instance.ssh_port}`" in stage.ws.dm_messages("alice")[-1].text
    await stage.command("alice", f"/gpu terminate {short} now")
    await stage.w.run(200)
    over = stage.ws.now(again)
    assert (over.text, buttons(over)) == ("Your *1× RTX4090* was ready again.", [])
