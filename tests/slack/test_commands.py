"""The smaller commands and the home tab, as people see them."""

from __future__ import annotations

import re

import pytest

from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, buttons
from bot.rules.nodes.authorized_keys import fingerprint
from bot.rules.values.phrases import usd
from bot.services.billing.metering import cost_now
from bot.services.sessions.service import history, team
from bot.slack.blocks.progress import request_result
from ledger.core.writes import amend
from ledger.engine.db import Database
from ledger.kernel.ids import short_id
from ledger.kernel.states import SessionState
from ledger.models import Instance
from ledger.queries.views import session_view
from tests.api.generated.ownership import read_rows
from tests.slack.conftest import Stage, staged, words_before_the_buttons
from tests.support.clock import SteppedClock

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBpYRlvm0dvKqjKmzqQ8mDqyNLlH4CSp9nTgQH8dDGIH ada@laptop"
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY----- b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAA -----END OPENSSH PRIVATE KEY-----"


def private(stage: Stage, who: str) -> ChatMessage:
    """The last thing that only this person was told."""
    return stage.ws.ephemerals(who)[-1]


def header_of(message: ChatMessage) -> str:
    """The title of a card."""
    return str(next(block for block in message.blocks if block["type"] == "header")["text"]["text"])


async def running(stage: Stage) -> ChatMessage:
    """A request whose session runs."""
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(60)
    return message


async def test_list(stage: Stage) -> None:
    await stage.command("alice", "/gpu list")
    assert "You have no sessions or requests" in private(stage, "alice").text
    await running(stage)
    await stage.ask("/gpu provision 1x4090 3h")
    await stage.command("alice", "/gpu list")
    told = all_text(private(stage, "alice"))
    assert "1× RTX4090" in told
    assert "running" in told
    assert "1× RTX4090 for 3 hours" in told
    await stage.command("dave", "/gpu list")
    assert "You have no sessions or requests" in private(stage, "dave").text
    await stage.command("bob", "/gpu list")
    waits = all_text(private(stage, "bob"))
    assert ("Needs you" in waits, "1× RTX4090 for 3 hours" in waits) == (True, True)
    assert "Nothing" not in waits


async def test_the_list_of_the_team_is_for_approvers(stage: Stage) -> None:
    for who in ("alice", "dave"):
        for command in ("list", "history"):
            await stage.command(who, f"/gpu {command} team")
            assert private(stage, who).text.startswith("Only approvers can see everybody's sessions: <@U0BOB>")
    await stage.command("bob", "/gpu list team")
    assert private(stage, "bob").text == "The team has no sessions."
    await running(stage)
    (view,) = (await stage.w.books()).sessions
    stage.w.clock.advance(1_500)
    await stage.command("bob", "/gpu list team")
    told = all_text(private(stage, "bob"))
    now = stage.w.clock.now()
    so_far = usd(cost_now(stage.ctx, (await team(stage.ctx))[0], now))
    assert re.search(rf"\*Team\*: 1 session at \$0\.\d+/h, {re.escape(so_far)} so far", told)
    line = next(one for one in told.splitlines() if view.short_id in one and "ends" in one)
    assert ("<@U0ALICE>" in line, f"{so_far} so far" in line, "left)" in line) == (True, True, True)


async def test_a_request_that_waits_has_a_short_status(stage: Stage) -> None:
    await stage.ask("/gpu provision 1x4090 20h")
    (asked, *_) = (await stage.w.books()).requests
    await stage.command("alice", f"/gpu status {short_id(asked.id)}")
    shown = private(stage, "alice")
    assert words_before_the_buttons(shown) <= 40, all_text(shown)
    assert buttons(shown) == []
    told = all_text(shown)
    for part in (
        "is *waiting for approval*",
        "about $",
        "never more than $",
        "Needs 1 approval from <@U0BOB>",
        "expires",
    ):
        assert part in told, part
    assert "Above the 12-hour limit" in told
    assert short_id(asked.id) in told


async def test_the_card_of_two_gpus_names_the_one_that_was_approved(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 1x4090,3090 2h")
    assert header_of(message) == "1× RTX4090 or RTX3090 for 2 hours"
    offered = (await stage.w.books()).options[0].offer["gpu"]
    await stage.click("bob", message, stage.approve_button(message))
    await stage.w.run(60)
    await stage.settle()
    assert header_of(stage.ws.now(message)) == f"1× {offered} for 2 hours"
    (request,) = (await stage.w.books()).requests
    told = request_result(await stage.w.view(request.id), SessionState.RUNNING).text
    assert f"1× {offered} for 2 hours is ready at " in told


async def test_other_offers_name_their_gpus_where_they_differ(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 4xA100-80GB 6h")
    gpus = [option.offer["gpu"] for option in (await stage.w.books()).options]
    assert len(set(gpus)) > 1
    await stage.click("bob", message, "offers")
    dialog = stage.ws.view("bob")
    assert dialog is not None
    assert [all_text(dialog).count(f"4× {gpu} · ") for gpu in set(gpus)] == [gpus.count(gpu) for gpu in set(gpus)]


async def test_history_lists_what_ended_with_its_time_total_and_reason(stage: Stage) -> None:
    await running(stage)
    await stage.command("alice", "/gpu history")
    assert private(stage, "alice").text == "None of your sessions has ended yet."
    (view,) = (await stage.w.books()).sessions
    stage.w.clock.advance(1_500)
    await stage.command("alice", f"/gpu terminate {view.id} now")
    await stage.w.run(200)
    (past,) = await history(stage.ctx, None, 9)
    total = usd(cost_now(stage.ctx, past, stage.w.clock.now()))
    for who, line, owner in (("alice", "/gpu history", False), ("bob", "/gpu history team", True)):
        await stage.command(who, line)
        told = all_text(private(stage, who))
        assert re.search(
            rf"`{view.short_id}` 1× RTX4090 · .* · ran \d+ min · {re.escape(total)} · ended on request", told
        )
        assert ("<@U0ALICE>" in told) is owner
    await stage.command("dave", "/gpu history")
    assert private(stage, "dave").text == "None of your sessions has ended yet."
    await stage.command("bob", "/gpu list team")
    assert private(stage, "bob").text == "The team has no sessions."


async def test_status(stage: Stage) -> None:
    await running(stage)
    (view,) = (await stage.w.books()).sessions
    await stage.command("alice", f"/gpu status {view.id[-6:]}")
    mine = all_text(private(stage, "alice"))
    assert "Connect: `ssh -p" in mine
    shown = private(stage, "alice")
    assert [b["text"]["text"] for b in buttons(shown)] == ["End it now", "Details"]
    assert words_before_the_buttons(shown) <= 40
    await stage.command("dave", f"/gpu status {view.id[-6:]}")
    theirs = private(stage, "dave")
    assert "Connect" not in all_text(theirs)
    assert [b["text"]["text"] for b in buttons(theirs)] == ["Details"]
    await stage.click("dave", theirs, "Details")
    assert "Host" not in private(stage, "dave").text
    await stage.command("alice", "/gpu status zzzz99")
    assert "There is no request or session" in private(stage, "alice").text


async def test_a_host_key_is_shown_by_the_button_of_the_ready_message_while_the_session_runs(stage: Stage) -> None:
    await running(stage)
    (session,) = (await stage.w.books()).sessions
    key = f"ssh-ed25519 {'A' * 68}"
    async with stage.ctx.db.write() as tx:
        view = await session_view(tx, session.id)
        assert view.instance is not None
        await amend(tx, Instance, view.instance.id, host_key=key)
    (ready,) = [one for one in stage.ws.dm_messages("alice") if "is ready" in one.text]
    for machinery in ("Host key", "known_hosts", "A" * 68):
        assert machinery not in all_text(ready)
    await stage.click("alice", ready, "Details")
    told = stage.ws.dm_messages("alice")[-1].text
    for part in ("Host `", "port `", fingerprint(key), key, "It ends at its approved time"):
        assert part in told
    await stage.command("alice", f"/gpu terminate {session.id[-6:]} now")
    await stage.w.run(200)
    assert buttons(stage.ws.now(ready)) == []


async def test_only_the_owner_and_approvers_end_a_session(stage: Stage) -> None:
    await running(stage)
    (session,) = (await stage.w.books()).sessions
    await stage.command("dave", f"/gpu terminate {session.id[-6:]}")
    assert "Only its owner or an approver" in private(stage, "dave").text
    assert stage.w.alive()
    await stage.command("bob", f"/gpu terminate {session.id[-6:]}")
    question = private(stage, "bob")
    for part in ("1× RTX4090* at ", " of <@U0ALICE> · running", "so far", "min left", "will be deleted"):
        assert part in question.text
    (button,) = buttons(question)
    assert "has cost" in button["confirm"]["text"]["text"]
    assert "will be deleted" in button["confirm"]["text"]["text"]
    assert stage.w.alive()
    await stage.click("bob", question, "End it now")
    assert "Ending session" in private(stage, "bob").text
    await stage.command("bob", f"/gpu terminate {session.id[-6:]}")
    assert "is ending already" in private(stage, "bob").text
    await stage.w.run(200)
    assert stage.w.alive() == []
    await stage.command("alice", f"/gpu status {session.id[-6:]}")
    over = private(stage, "alice").text
    assert buttons(private(stage, "alice")) == []
    assert words_before_the_buttons(private(stage, "alice")) <= 40
    assert "Ended " in over
    assert "It cost $" in over
    assert "Cost so far" not in over


async def test_now_ends_it_unasked_and_what_cannot_be_ended_is_not_asked_about(stage: Stage) -> None:
    await stage.ask()
    (request,) = (await stage.w.books()).requests
    await stage.command("alice", f"/gpu terminate {request.id[-6:]}")
    assert "has no session yet" in private(stage, "alice").text
    await stage.command("alice", "/gpu terminate zzzz99")
    assert "There is no request or session" in private(stage, "alice").text
    await running(stage)
    session = (await stage.w.books()).sessions[-1]
    await stage.command("alice", f"/gpu terminate {session.id[-6:]} now")
    assert "Ending session" in private(stage, "alice").text


async def test_cancel(stage: Stage) -> None:
    message = await stage.ask()
    (request,) = (await stage.w.books()).requests
    await stage.command("dave", f"/gpu cancel {request.id[-6:]}")
    assert "Only the requester or an approver" in private(stage, "dave").text
    await stage.command("alice", f"/gpu cancel {request.id[-6:]}")
    assert "*Cancelled* by <@U0ALICE>" in all_text(stage.ws.now(message))
    assert buttons(stage.ws.now(message)) == []


async def test_keys(stage: Stage) -> None:
    await stage.command("alice", "/gpu key list")
    assert "no SSH key" in private(stage, "alice").text
    await stage.command("alice", f"/gpu key add {KEY}")
    assert "is registered" in private(stage, "alice").text
    await stage.command("alice", "/gpu key list")
    assert "SHA256:" in private(stage, "alice").text
    await stage.command("alice", "/gpu key remove")
    assert "is removed" in private(stage, "alice").text
    await stage.command("alice", "/gpu key add ssh-ed25519 nonsense")
    assert "can't be read" in private(stage, "alice").text


async def test_a_private_key_leaves_no_trace(stage: Stage) -> None:
    await stage.as_("alice").command(f"/gpu key add {PRIVATE}")
    await stage.settle()
    assert "make a new pair" in private(stage, "alice").text
    books = await stage.w.books()
    assert "b3BlbnNzaC1rZXktdjE" not in repr([vars(row) for row in books.inbox])


async def test_inventory_shows_ids_that_can_be_asked_for(stage: Stage) -> None:
    await stage.command("alice", "/gpu inventory 4090")
    answer = private(stage, "alice")
    told = all_text(answer)
    assert "Request one with `/gpu provision offer=" in told
    offer = told.split("offer=")[1].split()[0]
    assert f"`{offer}`" in told
    message = await stage.ask(f"/gpu provision 1x4090 offer={offer} 1h")
    assert offer.partition(":")[0] in all_text(message).lower()
    await stage.command("alice", "/gpu inventory 4090 price=$0.001")
    assert "No offer fits now" in private(stage, "alice").text


async def test_compare_answers_with_the_table_that_people_print(stage: Stage) -> None:
    await stage.command("alice", "/gpu compare budget=500 hours=1")
    told = all_text(private(stage, "alice"))
    for word in ("Spot $/Run", "On-Demand Runs", "RTX4090", "Hugging Face Spaces", "gpu-shopper compare --markdown"):
        assert word in told
    await stage.command("alice", "/gpu compare budget=lots")
    assert "not an amount of money" in private(stage, "alice").text


async def test_a_profile_says_what_stops_the_meter(stage: Stage) -> None:
    await stage.command("alice", "/gpu profile runpod")
    told = all_text(private(stage, "alice"))
    assert "*runpod*: Terminate stops all billing. It can't be undone." in told
    assert "keeps billing the volume" in told
    assert "`RP1`" in told
    assert "gpu-shopper profiles show runpod" in told


async def test_help_and_unknown_words(stage: Stage) -> None:
    await stage.as_("alice").command("/gpu")
    assert "provision" in all_text(private(stage, "alice"))
    await stage.as_("alice").command("/gpu lsit")
    told = all_text(private(stage, "alice"))
    assert "Did you mean list" in told
    assert "^^^^" in told


async def test_the_home_tab(stage: Stage) -> None:
    await stage.as_("alice").open_home()
    await stage.settle()
    home = await stage.ws.until(lambda: stage.ws.home("alice"))
    assert home is not None
    assert "You have no sessions" in all_text(home)
    await running(stage)
    await stage.ask("/gpu provision 1x4090 3h")
    await stage.as_("alice").open_home()
    shown = await stage.ws.until(lambda: (v := stage.ws.home("alice")) and "running" in all_text(v) and v)
    assert shown
    assert [b["text"]["text"] for b in buttons(shown)] == ["More time…", "End it now"]
    assert "1 h 5" in all_text(shown)  # The countdown.
    await stage.as_("bob").open_home()
    decides = await stage.ws.until(lambda: stage.ws.home("bob"))
    assert decides is not None
    told = all_text(decides)
    assert "*Needs you* (1)" in told
    assert "*Team spend*: $0.0" in told
    assert re.search(r"\$0\.\d\d █{12}\n?```", told), told  # Today's bar is the longest one, and the last.
    assert "*Team*" in told  # What alice runs, with its owner, its end and its cost.
    assert re.search(r"<@U0ALICE> · \$0\.\d\d so far · ends", told)
    (approve, reject) = buttons(decides)
    assert (approve["text"]["text"][:9], reject["text"]["text"]) == ("Approve $", "Reject…")
    await stage.as_("dave").open_home()
    outside = await stage.ws.until(lambda: stage.ws.home("dave"))
    assert outside is not None
    assert not [part for part in ("Needs you", "*Team*") if part in all_text(outside)]
    assert "█" not in all_text(outside)  # Dave spent nothing.


async def test_a_button_of_the_home_tab_works(stage: Stage) -> None:
    await running(stage)
    await stage.as_("alice").open_home()
    shown = await stage.ws.until(lambda: stage.ws.home("alice"))
    assert shown is not None
    await stage.click("alice", shown, "End it now")
    assert "Ending session" in stage.ws.dm_messages("alice")[-1].text


async def test_requests_go_to_the_approvals_channel(sqlite_db: Database, clock: SteppedClock) -> None:
    async with staged(sqlite_db, clock, approvals_channel="C0GPU") as stage:
        await stage.command("alice", "/gpu provision 1x4090 2h", "@gpu")
        assert "<@U0ALICE>" in stage.message().text
        assert any("is shown in <#C0GPU>" in m.text for m in stage.ws.dm_messages("alice"))


async def test_too_many_requests_are_refused_privately(stage: Stage) -> None:
    for _ in range(stage.ctx.policy.max_open_requests_per_user):
        await stage.ask("/gpu provision 1x4090 2h")
    await stage.command("alice", "/gpu provision 1x4090 2h")
    assert "5 open requests" in private(stage, "alice").text


async def test_nothing_is_asked_where_nobody_who_decides_can_see_it(stage: Stage) -> None:
    alone = stage.ws.dm_id("alice")
    for times, line in enumerate(("/gpu provision 1x4090 2h", "/gpu provision"), 1):
        await stage.command("alice", line, alone)
        told = [m.text for m in (*stage.ws.ephemerals("alice"), *stage.ws.dm_messages("alice"))]
        assert sum("No approver can see this conversation" in text for text in told) == times, told
    assert stage.ws.view("alice") is None
    assert (await stage.w.books()).requests == ()


async def test_a_direct_message_asks_in_the_approvals_channel(sqlite_db: Database, clock: SteppedClock) -> None:
    async with staged(sqlite_db, clock, approvals_channel="C0GPU") as stage:
        await stage.command("alice", "/gpu provision 1x4090 2h", stage.ws.dm_id("alice"))
        assert stage.approve_button(stage.message())


async def test_who_has_no_key_is_told_before_anything_is_bought_and_when_it_is_ready(stage: Stage) -> None:
    message = await running(stage)
    assert "<@U0ALICE> has no SSH key yet" in str(message.blocks)
    (ready,) = [m.text for m in stage.ws.dm_messages("alice") if "is ready" in m.text]
    assert "you have no SSH key here" in ready
    await stage.command("alice", f"/gpu key add {KEY}")
    again = await stage.ask("/gpu provision 1x4090 3h")
    assert "no SSH key" not in str(again.blocks)


@pytest.mark.parametrize(
    "line",
    ['provision 1x4090 2h run="HF_TOKEN={} python x.py"', "extend abcdef 2h for={}", "break-glass abcdef {} leaked"],
)
async def test_a_command_with_a_secret_is_refused_and_stored_nowhere(stage: Stage, line: str) -> None:
    token = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    outcome = await stage.command("alice", f"/gpu {line.format(token)}")
    said = str(outcome.response)
    assert "contains a Hugging Face token." in said
    assert "secrets=NAME" in said
    assert token not in said + str(await read_rows(stage.ctx.db))
