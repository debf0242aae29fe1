"""A repeated request is shown in the message of the earlier one, if nobody decided that one; and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.services.approvals import decisions
from bot.services.notifications.repeated_request import SHOWS_FURTHER
from bot.services.requests import submit
from bot.services.runtime.commands import Decide
from ledger.core.outbox import message_of
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import NotificationKind, RequestState
from ledger.models import Request
from ledger.queries.people.request_cards import shown_before, shown_in
from tests.services.requests.test_submit import provision
from tests.support.world import ALICE, BOB, CHANNEL, World, facts

REMINDER = NotificationKind.REQUEST_REMINDER


async def asked(w: World, actor: Actor = ALICE, **changes: object) -> str:
    """A request that waits for a decision."""
    reply = await w.ask(actor, **changes)
    assert reply.ok, reply
    await w.settle()
    return str(reply.data["request_id"])


async def cards(w: World) -> list[str]:
    """The requests under whose ids the outbox has messages, in their order."""
    notes = (await w.books()).notifications
    return [one.subject for one in notes if one.kind is NotificationKind.REQUEST_MESSAGE]


async def card_of(w: World, request_id: str) -> str | None:
    return (await w.view(request_id)).request.card_of


@pytest.mark.both_databases
async def test_a_withdrawn_request_and_its_repeats_have_one_message(w: World) -> None:
    asks = [await asked(w)]
    for hours in (2, 3, 4):
        await w.cancel(asks[-1])
        asks.append(await asked(w, hours=Decimal(hours)))
    assert await cards(w) == asks[:1]
    rows = [(await w.view(one)).request for one in asks]
    assert [(row.card_of, row.card_turn) for row in rows] == [(None, None), *((asks[0], n) for n in (1, 2, 3))]
    async with w.ctx.db.read() as tx:
        assert await shown_in(tx, asks[0]) == asks[-1]
        assert [await shown_before(tx, row) for row in rows] == [None, *asks[:-1]]
        messages = [await message_of(tx, one, CHANNEL) for one in asks]
    assert len({message.id for message in messages if message is not None}) == 1
    assert None not in messages


async def test_the_buttons_of_the_earlier_request_never_decide_the_new_one(w: World) -> None:
    first = await asked(w)
    approve, reject = await w.token(first), await w.token(first, "reject")
    await w.cancel(first)
    second = await asked(w)
    for token in (approve, reject):
        reply = await decisions.decide(w.ctx, Decide(token, facts(BOB), "late"))
        assert (reply.ok, reply.code) == (False, "already_cancelled")
    assert (await w.view(second)).request.state is RequestState.PENDING
    assert (await w.decide(second, BOB)).code == "approved"
    assert (await w.view(first)).request.state is RequestState.CANCELLED


async def test_an_expired_one_and_one_without_offers_are_replaced_too(w: World) -> None:
    w.tune(request_ttl_s=300)
    first = await asked(w)
    await w.run(400, 100)
    assert (await w.view(first)).request.state is RequestState.EXPIRED
    nothing = await asked(w, max_price_usd_h=Decimal("0.001"))
    assert (await w.view(nothing)).request.state is RequestState.UNAVAILABLE
    third = await asked(w)
    assert await cards(w) == [first]
    assert [await card_of(w, one) for one in (nothing, third)] == [first, first]


async def test_what_somebody_decided_keeps_its_message(w: World) -> None:
    rejected = await asked(w)
    await w.decide(rejected, BOB, "reject", reason="not now")
    by_approver = await asked(w)
    assert (await w.cancel(by_approver, BOB)).ok
    w.tune(two_approvers_above_usd=Decimal("0.01"))
    voted = await asked(w)
    assert (await w.decide(voted, BOB)).code == "first_of_two"
    await w.cancel(voted)
    last = await asked(w)
    assert await cards(w) == [rejected, by_approver, voted, last]


async def test_what_is_open_or_somebody_elses_or_elsewhere_keeps_its_message(w: World) -> None:
    first, second = await asked(w), await asked(w)
    assert await cards(w) == [first, second]
    await w.cancel(first)
    others = await asked(w, BOB)
    elsewhere = await submit.submit(w.ctx, replace(provision("other channel"), channel="C0OTHER"))
    await w.settle()
    assert await cards(w) == [first, second, others, str(elsewhere.data["request_id"])]
    # An open request doesn't keep the message of the other one from being used.
    third = await asked(w)
    assert await card_of(w, third) == first


async def test_keeping_another_request_open_makes_no_message_for_each_repeat(w: World) -> None:
    open_one = await asked(w)
    for _ in range(6):
        following = await asked(w)
        await w.cancel(open_one)
        open_one = following
    assert len(await cards(w)) == 2


async def test_a_linked_name_repeats_in_the_same_message(w: World) -> None:
    alice = Actor(ActorKind.OPERATOR, "alice")
    w.tune(same_person=((ALICE.id, alice.ref),))
    first = await asked(w)
    await w.cancel(first, alice)
    second = await asked(w, alice)
    await w.cancel(second)
    assert await cards(w) == [first]


async def test_after_a_while_a_repeat_has_a_message_that_notifies_people(w: World) -> None:
    first = await asked(w)
    made_at = (await w.view(first)).request.created_at
    await w.cancel(first)
    w.clock.advance((made_at + SHOWS_FURTHER - w.clock.now() - timedelta(seconds=5)).total_seconds())
    second = await asked(w)
    await w.cancel(second)
    w.clock.advance(10)
    third = await asked(w)
    assert await cards(w) == [first, third]


async def test_approvers_are_notified_once_that_a_message_shows_another_request(w: World) -> None:
    asks = [await asked(w)]
    for _ in range(3):
        await w.cancel(asks[-1])
        asks.append(await asked(w))
    assert [one.subject for one in (await w.books()).notifications if one.kind is REMINDER] == [f"{asks[1]}/1.0"]


async def test_more_time_that_is_asked_for_again_edits_its_message(w: World) -> None:
    request_id = await w.running(hours=Decimal(6))
    asks: list[str] = []
    for _ in range(3):
        asks.append(str((await w.more(request_id)).data["request_id"]))
        await w.settle()
        await w.cancel(asks[-1])
    assert await cards(w) == [request_id, asks[0]]
    reminders = [one.subject for one in (await w.books()).notifications if one.kind is REMINDER]
    assert reminders == [f"{asks[1]}/1.0"]
    async with w.ctx.db.read() as tx:
        last = await tx.get_one(Request, asks[-1])
    assert (last.card_of, last.card_turn) == (asks[0], 2)
