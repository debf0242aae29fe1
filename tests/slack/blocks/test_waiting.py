"""A request that waits, in Slack: its card and buttons, who sees it where, and what each answer is."""

from __future__ import annotations

from bot.practice.reader import all_text, buttons
from bot.slack.blocks.elements import when
from ledger.kernel.ids import short_id
from ledger.kernel.states import RequestState
from ledger.models import Request
from tests.slack.conftest import Stage
from tests.slack.test_commands import private

LINE = '/gpu provision 1x4090 2h below=$0.01/h max=$50 until=6h for="when it is cheap"'


async def request(stage: Stage) -> Request:
    return (await stage.w.books()).requests[-1]


async def test_the_card_says_for_what_it_waits_and_an_approver_approves_in_advance(stage: Stage) -> None:
    card = await stage.ask(LINE)
    row = await request(stage)
    assert row.state is RequestState.WAITING
    said = all_text(card)
    assert f"It waits for 1× RTX4090 at $0.010/h or less until {when(row.expires_at)}." in said
    assert "It never costs more than $50.00. Until then it buys nothing." in said
    assert "<@U0BOB>" in said
    assert "can approve its limits in advance" in said
    assert [one["text"]["text"] for one in buttons(card)] == ["Approve in advance", "Reject…", "Cancel"]
    await stage.click("bob", card, "approve")
    after = stage.ws.now(card)
    assert "Approved in advance by <@U0BOB> up to $50.00" in all_text(after)
    assert "Revoke" in [one["text"]["text"] for one in buttons(after)]
    await stage.click("bob", after, "revoke")
    assert "You revoked your approval in advance of request " in all_text(private(stage, "bob"))
    assert "Approved in advance" not in all_text(stage.ws.now(card))
    await stage.click("alice", card, "approve")
    assert "You can't approve your own request" in all_text(private(stage, "alice"))
    await stage.click("alice", card, "cancel")
    assert (await request(stage)).state is RequestState.CANCELLED
    assert "*Cancelled* by <@U0ALICE>" in all_text(stage.ws.now(card))


async def test_it_is_listed_for_its_owner_and_needs_its_approvers(stage: Stage) -> None:
    await stage.ask(LINE)
    short = short_id((await request(stage)).id)
    await stage.command("alice", "/gpu list")
    assert "waiting for an offer" in all_text(private(stage, "alice"))
    await stage.command("bob", "/gpu list")
    assert "Needs you" in all_text(private(stage, "bob"))
    await stage.command("alice", f"/gpu status {short}")
    assert "It waits for 1× RTX4090" in all_text(private(stage, "alice"))
    await stage.command("bob", f"/gpu revoke {short}")
    assert "You have no open approval in advance of request" in all_text(private(stage, "bob"))
    await stage.command("bob", f"/gpu why {short}")
    assert "It is waiting for an offer." in all_text(private(stage, "bob"))


async def test_above_the_amount_the_total_is_typed_in_a_dialog(stage: Stage) -> None:
    card = await stage.ask("/gpu provision 1x4090 2h below=$90/h max=$120 at=6h")
    await stage.click("bob", card, "approve")
    await stage.submit("bob", {"amount": "120", "cap": "110"})
    assert "Approved in advance by <@U0BOB> up to $110.00" in all_text(stage.ws.now(card))


async def test_again_repeats_the_newest_and_a_named_one(stage: Stage) -> None:
    await stage.ask('/gpu provision 1x4090 3h for="first"')
    first = short_id((await request(stage)).id)
    await stage.ask('/gpu provision 1x4090 4h for="second"')
    await stage.command("alice", "/gpu again")
    await stage.settle()
    await stage.command("alice", f"/gpu again {first}")
    await stage.settle()
    rows = (await stage.w.books()).requests
    assert [row.reason for row in rows] == ["first", "second", "second", "first"]
    await stage.command("alice", "/gpu again zzzz")
    assert "zzzz" in all_text(private(stage, "alice"))
    await stage.command("carol", "/gpu again")
    assert "You have no earlier request." in all_text(private(stage, "carol"))
