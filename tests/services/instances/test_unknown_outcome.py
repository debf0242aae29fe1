"""How long an unclear create is searched for, and that operators are notified also while the clock is in doubt."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from bot.rules.policy.timing import Timing
from bot.services.billing import true_up
from bot.services.instances import launch
from bot.services.instances.unknown_outcome import IN_DOUBT, UNCLEAR, quarantine
from bot.services.notifications.clock_check import clock_check_due
from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, NotificationKind
from providers.capabilities import Capabilities
from providers.contract import Listing, NotSeen, ObservedInstance, Provider
from providers.errors import Unavailable
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import InFront, alive, dying
from tests.support.world import World, checked_world

HOUR = timedelta(hours=1)
YEAR = timedelta(days=365)


class Dark(InFront):
    """A cloud that cannot be reached, so its answers show no time either."""

    async def find(self, label: str) -> tuple[ObservedInstance, ...] | NotSeen:
        raise Unavailable(self.inner.name, "There is no connection.")

    async def list(self) -> Listing:
        raise Unavailable(self.inner.name, "There is no connection.")


def darken(w: World) -> None:
    w.use({name: cast("Provider", Dark(one)) for name, one in w.ctx.providers.items()})


async def lighten(w: World) -> None:
    """The clouds answer again, and the machine's clock is right."""
    w.machine.off = timedelta()
    w.use({name: alive(one) for name, one in w.ctx.providers.items()})
    assert isinstance(w.ctx.clock, GuardedClock)
    w.ctx.clock.note_date("vast", w.clock.now(), 0.1)
    await clock_check_due(w.ctx)


def start_again(w: World) -> None:
    """Another process starts on the same machine."""
    w.ctx = replace(w.ctx, clock=GuardedClock(w.machine, confirm_s=CONFIRM_S), undecided_since_s={})


async def pages(w: World, request_id: str) -> list[str]:
    """The texts of the pages about the only create of a request."""
    (instance,) = (await w.view(request_id)).instances
    notes = [one for one in (await w.books()).notifications if one.kind == NotificationKind.OPERATOR_PAGE]
    return [one.body["text"] for one in notes if one.subject == instance.id]


async def state(w: World, request_id: str) -> InstanceState:
    (instance,) = (await w.view(request_id)).instances
    return instance.state


async def unknown(w: World, fault: str) -> str:
    """A request whose create has an unknown outcome."""
    w.arm(fault, "vast")
    request_id = await w.approved(candidates=("vast",))
    await launch.send_due(w.ctx)
    assert await state(w, request_id) is InstanceState.UNKNOWN
    return request_id


def test_a_cloud_that_shows_instances_late_is_searched_longer() -> None:
    able = Capabilities(stop=True, spot=False, labels=True, balance=True, charges=True, logs=True, visibility_lag_s=60)
    assert quarantine(able, Timing()) == timedelta(seconds=600)
    assert quarantine(able, Timing(quarantine_floor_s=900)) == timedelta(seconds=900)
    assert quarantine(able, Timing(quarantine_lags=20)) == timedelta(seconds=1200)


async def paged_later(w: World, request_id: str) -> str:
    """The one page about a create, which comes after more than four minutes and within eight."""
    await w.run(240, 60)
    assert await pages(w, request_id) == []
    await w.run(240, 60)
    (text,) = await pages(w, request_id)
    return text


@pytest.mark.parametrize("off", [-HOUR, YEAR])
async def test_operators_are_notified_of_an_unknown_outcome_while_the_clock_is_wrong_and_no_cloud_answers(
    w: World, off: timedelta
) -> None:
    request_id = await unknown(w, "create_lost_reply")
    darken(w)
    w.machine.off = off
    assert UNCLEAR in await paged_later(w, request_id)
    assert await state(w, request_id) is InstanceState.UNKNOWN
    await lighten(w)
    await w.run(120)
    assert await state(w, request_id) is InstanceState.LIVE


async def test_a_create_that_no_cloud_shows_is_announced_in_doubt_and_given_up_by_a_trusted_clock(w: World) -> None:
    request_id = await unknown(w, "create_lost_request")
    w.machine.off = YEAR
    await w.run(480, 60)
    (text,) = await pages(w, request_id)
    assert text.endswith(f"{UNCLEAR} {IN_DOUBT}")
    assert await state(w, request_id) is InstanceState.UNKNOWN
    w.machine.off = timedelta()
    await w.run(120)
    assert await state(w, request_id) is InstanceState.TOMBSTONE


@pytest.mark.parametrize("off", [-HOUR, timedelta(), YEAR])
async def test_a_process_that_starts_while_no_cloud_answers_notifies_operators_of_an_unknown_outcome(
    w: World, off: timedelta
) -> None:
    """An hour behind, it finds no create due."""
    request_id = await unknown(w, "create_lost_reply")
    darken(w)
    w.machine.off = off
    start_again(w)
    await w.run(480, 60)
    assert len(await pages(w, request_id)) == 1
    await lighten(w)
    await w.run(120)
    assert await state(w, request_id) is InstanceState.LIVE


@pytest.mark.parametrize("off", [-HOUR, timedelta(), YEAR])
@pytest.mark.slow
async def test_a_create_whose_sender_died_is_announced_while_no_cloud_answers(
    sqlite_db: Database, clock: SteppedClock, off: timedelta
) -> None:
    """On SQLite, because a PostgreSQL server shows the real time, by which the simulated one stays in doubt."""
    async with checked_world(sqlite_db, clock) as w:
        w.wrap("vast", dying(after=True))
        request_id = await w.approved(candidates=("vast",))
        with suppress(asyncio.CancelledError):
            await launch.send_due(w.ctx)
        assert await state(w, request_id) is InstanceState.SENDING
        w.use({**w.ctx.providers, "vast": alive(w.ctx.providers["vast"])})
        darken(w)
        w.machine.off = off
        start_again(w)
        assert (await paged_later(w, request_id)).endswith(IN_DOUBT)
        await lighten(w)
        await w.run(300)
        assert await state(w, request_id) is InstanceState.LIVE


async def test_what_is_found_after_its_end_was_ordered_is_booked_at_the_rate_that_its_cloud_bills(w: World) -> None:
    w.arm("price_higher_than_quoted", "lambda")
    w.arm("create_lost_reply", "lambda")
    request_id = await w.approved(candidates=("lambda",))
    await launch.send_due(w.ctx)
    approved_usd_h = (await w.view(request_id)).instances[0].price_usd_h
    await w.end(request_id)
    await w.run(180, 15)
    row = (await w.view(request_id)).instances[0]
    assert (row.state, row.price_usd_h > approved_usd_h) == (InstanceState.GONE, True)
    between = true_up.bounds(w.ctx, row)
    assert between is not None
    assert between[0] <= w.bill() <= between[1]
