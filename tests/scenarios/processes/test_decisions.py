"""Decisions that need more than a click: amounts, prices that move, offers that go, time that passes, overrides."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from bot.practice.faults import SlackFault
from bot.practice.reader import all_text, button_texts
from ledger.kernel.states import GrantState, InstanceState, RequestState
from tests.support.script import Play

#: The whole product serves in this process, at the pace of the real clock.
pytestmark = pytest.mark.slow
DEAR = '/gpu provision 8xH100 12h for="pre-training"'
LONG = '/gpu provision 1x4090 20h for="overnight"'
TTL_S = 7200.0


async def test_more_than_100_dollars_asks_for_the_amount(p: Play) -> None:
    offers = await p.asked(DEAR)
    bob = p.ws.as_("bob")
    await bob.click(offers, "approve:1")
    dialog = await bob.view()
    option = (await p.books()).options[0]
    amount = f"{option.expected_usd.quantize(Decimal('0.01')):,}"
    assert f"Type ${amount} to confirm" in all_text(dialog)
    assert "an amount of money" in (await bob.submit(dialog, {"amount": "much"})).errors["amount"]
    assert (await bob.submit(dialog, {"amount": "100"})).ok
    again = await bob.view()
    assert "You typed $100.00, but the expected total is" in all_text(again)
    assert p.creates == []
    assert (await p.books()).approvals == ()

    limit = option.expected_usd.quantize(Decimal(1)) + 1
    assert (await bob.submit(again, {"amount": amount, "cap": f"${limit}"})).ok
    shown = await p.screens.shows(offers, "*Approved* by <@U0BOB>")
    assert f"never more than ${limit}.00" in all_text(shown)
    await p.screens.wrote("alice", "ssh -p")
    (grant,) = (await p.books()).grants
    assert grant.total_cap_usd == limit
    await p.ended()


async def test_a_price_that_moved_beyond_the_cover_asks_again(p: Play) -> None:
    offers = await p.asked()
    option = (await p.books()).options[0]
    p.running.clouds[option.cloud].reprice(option.offer_key, Decimal("1.5"))
    await p.ws.as_("bob").click(offers, "approve:1")
    again = await p.screens.shows(offers, "*Asked again*")
    again = await p.screens.shows(again, "*Waiting for approval*")
    assert any(text.startswith("Approve $") for text in button_texts(again))
    assert p.creates == []
    assert [grant.state for grant in (await p.books()).grants] == [GrantState.VOID]

    await p.ws.as_("carol").click(offers, "approve:1")
    await p.screens.told("carol", "The offers of this request have changed")
    await p.ws.as_("carol").click(again, "approve:1")
    await p.screens.shows(offers, "*Approved* by <@U0CAROL>")
    await p.screens.wrote("alice", "ssh -p")
    assert len(p.alive()) == 1
    await p.ended()
    assert len(p.ws.channel_messages()) == 1


async def test_a_price_that_moved_within_the_cover_goes_on(p: Play) -> None:
    offers = await p.asked()
    option = (await p.books()).options[0]
    p.running.clouds[option.cloud].reprice(option.offer_key, Decimal("1.08"))
    await p.ws.as_("bob").click(offers, "approve:1")
    await p.screens.wrote("alice", "ssh -p")
    (row,) = (await p.books()).instances
    assert option.price_usd_h < row.price_usd_h <= option.price_usd_h * Decimal("1.10")
    await p.ended()


async def test_an_offer_that_is_gone_is_followed_by_the_next_one(p: Play) -> None:
    offers = await p.asked()
    option = (await p.books()).options[0]
    assert p.running.clouds[option.cloud].withdraw(option.offer_key) == 1
    await p.ws.as_("bob").click(offers, "approve:1")
    shown = await p.screens.shows(offers, "did not launch it")
    await p.screens.wrote("alice", "ssh -p")
    books = await p.books()
    assert [row.state for row in books.instances] == [InstanceState.REJECTED, InstanceState.LIVE]
    assert books.instances[1].price_usd_h <= books.grants[0].price_cap_usd_h
    assert len(p.creates) == 1
    assert button_texts(shown) == []
    await p.ended()


async def test_offers_that_are_all_gone_ask_again(p: Play) -> None:
    offers = await p.asked()
    for option in (await p.books()).options:
        assert p.running.clouds[option.cloud].withdraw(option.offer_key) == 1
    await p.ws.as_("bob").click(offers, "approve:1")
    await p.screens.shows(offers, "*Asked again*")
    again = await p.screens.shows(offers, "*Waiting for approval*")
    assert p.creates == []
    await p.ws.as_("bob").click(again, "approve:1")
    await p.screens.wrote("alice", "ssh -p")
    await p.ended()


async def test_nobody_decides_and_the_buttons_go(p: Play) -> None:
    offers = await p.asked()
    await p.ws.travel(TTL_S + 1)
    expired = await p.screens.shows(offers, "*Expired*")
    assert button_texts(expired) == []
    await p.screens.replied(offers, "nobody approved it in time")
    await p.ws.as_("bob").click(offers, "approve:1")
    await p.screens.told("bob", "This request has expired")
    assert p.creates == []
    assert [row.state for row in (await p.books()).requests] == [RequestState.EXPIRED]


async def test_the_approved_time_is_announced_and_enforced(p: Play) -> None:
    offers = await p.asked()
    await p.ws.as_("bob").click(offers, "approve:1")
    await p.screens.wrote("alice", "ssh -p")
    await p.ws.travel(TTL_S - 500)
    await p.screens.wrote("alice", "Save what you need")
    assert len(p.alive()) == 1
    await p.ws.travel(510)
    await p.screens.wrote("alice", "* ended.")
    session = (await p.books()).sessions[0]
    assert "have ended" in session.end_reason
    assert session.ended_at is not None
    assert session.deadline is not None
    assert session.ended_at - session.deadline < timedelta(minutes=2)


async def test_more_than_twelve_hours_is_one_decision_on_the_same_card(p: Play) -> None:
    ws, screens = p.ws, p.screens
    await ws.as_("alice").command(LONG)
    card = await screens.posted("is above the 12-hour limit*")
    assert button_texts(card)[0].startswith("Approve 20 h ($")
    await ws.as_("alice").click(card, "approve:1")
    await screens.told("alice", "You can't approve your own request")
    await ws.as_("dave").click(card, "approve:1")
    await screens.told("dave", "Only approvers can do this")
    assert p.creates == []
    await ws.as_("carol").click(card, "approve:1")
    await screens.wrote("alice", "ssh -p")
    books = await p.books()
    assert [Decimal(one.hours) for one in books.sessions] == [20]
    assert len({vote.request_id for vote in books.approvals}) == 2
    assert len(ws.channel_messages()) == 1
    await p.ended()


async def test_a_rejection_closes_the_request_with_its_override(p: Play) -> None:
    ws, screens = p.ws, p.screens
    await ws.as_("alice").command(LONG)
    card = await screens.posted("is above the 12-hour limit*")
    bob = ws.as_("bob")
    await bob.click(card, "Reject…")
    await bob.submit(await bob.view(), {"reason": "Split the run."})
    closed = await screens.shows(card, "*Rejected* by <@U0BOB>")
    assert button_texts(closed) == []
    assert {row.state for row in (await p.books()).requests} == {RequestState.REJECTED}


async def test_everything_twice_is_once(p: Play) -> None:
    """The platform delivers a command, a click and a form twice; the network loses the answer to a post."""
    faults = p.running.practice.workspace.faults
    faults.add(SlackFault("delivery", "slash_commands", "duplicate"))
    offers = await p.asked()
    faults.add(SlackFault("delivery", "block_actions", "duplicate", times=2))
    faults.add(SlackFault("delivery", "view_submission", "duplicate"))
    await p.ws.as_("dave").click(offers, "approve:1")
    await p.screens.told("dave", "Only approvers can do this")
    await p.ws.as_("bob").click(offers, "approve:1")
    await p.screens.wrote("alice", "ssh -p")
    books = await p.books()
    assert (len(books.requests), len(books.approvals), len(books.instances)) == (1, 1, 1)
    assert len(p.ws.ephemerals("dave")) == 1
    assert len(p.creates) == 1
    await p.ended()
    assert len(p.ws.channel_messages()) == 1
