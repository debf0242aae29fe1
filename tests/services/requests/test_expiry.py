"""Reminders: one message each, in the channel of the request, after pauses that double, and none once it is decided."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from bot.services.requests import expiry
from ledger.core.claims import wake
from ledger.kernel.states import RequestState
from ledger.models import Request
from tests.support.world import CHANNEL, World


async def asked(w: World, **changes: Any) -> str:
    """A request that waits for a decision."""
    reply = await w.ask(**changes)
    await w.settle()
    return str(reply.data["request_id"])


def reminders(w: World) -> list[tuple[str, int]]:
    """`(subject, version)` of every reminder that was shown, in order."""
    return [
        (subject, version)
        for kind, subject, destination, version in w.board.shown
        if kind == "request.reminder" and destination == CHANNEL
    ]


async def pass_time(w: World, seconds: float) -> None:
    w.clock.advance(seconds)
    await w.settle()


async def test_a_request_that_nobody_decides_is_brought_up_until_it_expires(w: World) -> None:
    request_id = await asked(w)
    await pass_time(w, 899)
    assert reminders(w) == []
    await pass_time(w, 1)
    assert reminders(w) == [(f"{request_id}/1.1", 1)]
    await pass_time(w, 1799)
    assert len(reminders(w)) == 1
    await pass_time(w, 1)
    await pass_time(w, 3600)
    assert reminders(w) == [(f"{request_id}/1.{number}", 1) for number in (1, 2, 3)]
    await pass_time(w, 900)
    assert (await w.view(request_id)).request.state is RequestState.EXPIRED
    # Nobody is reminded of it again, and each reminder is edited to what became of the request.
    assert sorted(reminders(w)[3:]) == [(f"{request_id}/1.{number}", 2) for number in (1, 2, 3)]


async def test_nobody_is_reminded_of_what_is_decided(w: World) -> None:
    approved, rejected = await asked(w), await asked(w)
    assert (await w.decide(approved)).code == "approved"
    assert (await w.decide(rejected, action="reject", reason="not now")).code == "rejected"
    await pass_time(w, 1000)
    await pass_time(w, 3000)
    assert reminders(w) == []


async def test_reminders_missed_while_nothing_ran_are_one(w: World) -> None:
    request_id = await asked(w)
    await pass_time(w, 3000)
    assert reminders(w) == [(f"{request_id}/1.2", 1)]


@pytest.mark.both_databases
async def test_replicas_remind_once(w: World) -> None:
    request_id = await asked(w)
    replicas = [w.replica() for _ in range(3)]
    w.clock.advance(900)
    await asyncio.gather(*(expiry.expire_due(one.ctx) for one in (w, *replicas)))
    for one in replicas:
        await one.ctx.db.close()
    await w.settle()
    assert reminders(w) == [(f"{request_id}/1.1", 1)]


async def test_a_request_that_is_looked_at_early_is_not_brought_up_again(w: World) -> None:
    request_id = await asked(w)
    for seconds, expected in ((300, 0), (600, 1), (300, 1)):
        w.clock.advance(seconds)
        async with w.ctx.db.write() as tx:
            await wake(tx, Request, request_id, w.clock.now())
        await w.settle()
        assert len(reminders(w)) == expected


async def test_a_request_with_an_override_has_the_reminders_of_both(w: World) -> None:
    request_id = await asked(w, hours=Decimal(24), candidates=("vast",))
    override = (await w.view(request_id)).override
    assert override is not None
    await pass_time(w, 900)
    assert reminders(w) == [(f"{request_id}/1.1", 1)]
    assert (await w.decide(override.id)).code == "approved"
    await pass_time(w, 1800)
    assert reminders(w)[1:] == [(f"{request_id}/1.2", 1)]


async def test_a_request_that_is_asked_again_is_brought_up_anew(w: World) -> None:
    request_id = await asked(w, candidates=("vast",))
    await pass_time(w, 900)
    for option in (await w.view(request_id)).options:
        w.withdraw(option)
    assert (await w.decide(request_id)).code == "approved"
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    await pass_time(w, 900)
    shown = [("1.1", 1), ("1.1", 2), ("2.0", 1), ("2.1", 1)]  # The first one is edited when the request is approved.
    assert reminders(w) == [(f"{request_id}/{number}", version) for number, version in shown]


async def test_asking_again_tells_those_who_are_asked_at_once(w: World) -> None:
    request_id = await asked(w)
    for option in (await w.view(request_id)).options:
        w.clouds[option.cloud].withdraw(option.offer_key)
    assert (await w.decide(request_id)).code == "approved"
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert reminders(w) == [(f"{request_id}/2.0", 1)]
    await pass_time(w, 900)
    assert reminders(w) == [(f"{request_id}/2.0", 1), (f"{request_id}/2.1", 1)]
