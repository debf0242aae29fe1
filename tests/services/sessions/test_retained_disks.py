"""Disks whose machine stands still: a row, its price, its end, and word before it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from bot.rules.access.sight import Sight
from bot.rules.instances.power import PowerAction
from bot.rules.reports.digest import day_before
from bot.rules.values.phrases import rate, retained_disk
from bot.services.checkpoints import hold
from bot.services.instances.power import switch
from bot.services.reports import digest
from bot.services.runtime.commands import FinishSession, Switch
from bot.services.sessions import expiration, retained_disks
from bot.services.sessions.service import done, listing
from bot.services.sessions.service import status as status_of
from bot.slack.blocks.elements import when
from bot.slack.blocks.listing import listing as said
from bot.slack.blocks.request import CardFacts
from bot.slack.blocks.session.status import status
from ledger.engine.db import Database
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.models import Disk
from ledger.queries.retained_disks import add_disk, open_disks
from tests.services.checkpoints.test_verification import near_its_end, told
from tests.support.clock import SteppedClock
from tests.support.world import ALICE, DAVE, World, checked_world, facts


async def kept(w: World) -> list[Disk]:
    await retained_disks.disks_due(w.ctx)
    async with w.ctx.db.read() as tx:
        return await open_disks(tx)


async def surcharge(w: World) -> Decimal:
    return sum((e.amount_usd for e in (await w.books()).entries if "/disk/" in e.key), Decimal(0))


async def shown_as_a_disk(w: World, disk: Disk, state: str = "only its disk is left") -> None:
    """The list, the status and the digest say that a disk is left: nothing runs, ends or costs what a GPU costs."""
    now, overview = w.clock.now(), await listing(w.ctx, ALICE)
    line = said(overview, {}, "/gpu", now).text
    for part in (state, f"{rate(disk.price_usd_h)} for its disk", f"deleted {when(disk.until)}"):
        assert part in line
    assert not {"terminating", "ending"} & set(line.split())
    found = await status_of(w.ctx, disk.session_id)
    told_of = status(found, w.ctx.policy, CardFacts(), now, Sight.OWN, mine=True).text
    assert (retained_disk(disk.price_usd_h, disk.until) in told_of, "Connect" in told_of) == (True, False)
    assert not [part for part in ("still lists it", "Ends ") if part in told_of]
    if state == "stopped":
        return
    async with w.ctx.db.read() as tx:
        window = day_before(now.date(), "UTC")
        document = await digest.digest(w.ctx, tx, window, weekly=False)
    assert (document.running_in_all, document.running_usd_h, document.disks_in_all) == (0, Decimal(0), 1)


async def test_a_stopped_machine_has_a_disk_that_is_paid_until_it_starts_or_ends(w: World) -> None:
    request_id = await w.running(candidates=("runpod",), hours=Decimal(8))
    assert await kept(w) == []
    wished = await done(w.ctx, FinishSession(request_id, facts(ALICE), preserve=True))
    assert wished.code == "preserving"
    await w.run(60, 30)
    (disk,) = await kept(w)
    assert rate(disk.price_usd_h) in wished.sentence  # What is promised is what is booked.
    session = (await w.books()).sessions[0]
    row = (await w.books()).instances[0]
    assert (disk.owner, disk.price_usd_h) == (ALICE.ref, hold.disk_rate(row))
    assert session.deadline is not None
    assert session.deadline < disk.until <= session.deadline + hold.LONGEST
    view = await w.session(session.id)
    assert view.disk is not None
    assert view.disk.id == disk.id
    async with w.ctx.db.write() as tx:  # Another replica has the same thought.
        twin = {name: getattr(disk, name) for name in ("session_id", "instance_id", "owner", "cloud", "price_usd_h")}
        assert not await add_disk(tx, id="dsk_2", since=disk.since, until=disk.until, booked_h=0, **twin)
    w.clock.advance(2 * 3600)
    await retained_disks.disks_due(w.ctx)
    assert await retained_disks.disks_due(w.ctx) == 0  # Nothing is written while nothing is new.
    above = disk.price_usd_h - row.storage_usd_h
    assert above > 0  # A stopped volume costs more than a running one.
    assert await surcharge(w) == above * 2
    await w.shorten(session.id, timedelta(hours=1))
    assert (await kept(w))[0].until == disk.until - timedelta(hours=1)
    assert (await switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.START))).ok
    await w.run(60, 30)
    assert await kept(w) == []
    assert above * 2 < await surcharge(w) < above * Decimal("2.1")
    assert [e.kind for e in (await w.books()).events if e.kind.startswith("disk.")] == ["disk.kept", "disk.over"]
    await w.end(request_id)
    await w.run(120, 30)


async def test_a_disk_that_the_gate_keeps_is_announced_before_it_is_deleted_and_lives_longer_when_paid(
    w: World,
) -> None:
    async with near_its_end(w, "runpod") as (_, request_id):
        await w.settle()
        w.clock.advance(601)
        await w.settle()
        await w.run(60, 30)
        (disk,) = await kept(w)
        row = (await w.books()).instances[0]
        assert (disk.until, told(w, row, hold.DISK)) == (row.checkpoint_until, [])
        w.clock.advance(disk.until - w.clock.now() - timedelta(hours=20))
        await retained_disks.disks_due(w.ctx)
        await w.settle()
        assert told(w, row, hold.DISK) == [ALICE.id]
        asked = await w.more(request_id, "48", reason="the upload comes on Monday")
        assert asked.code == "extension_requested", asked
        assert (await w.decide(str(asked.data["request_id"]))).code == "approved"
        (longer,) = await kept(w)
        assert longer.until == disk.until + timedelta(hours=48)
        assert (await w.end(request_id)).code == "released"
        await w.settle()
        assert (await kept(w), w.alive()) == ([], [])
        await w.run(90, 30)


async def test_a_disk_that_its_owner_wants_kept_outlives_the_approved_end_and_goes_when_the_amount_is_used_up(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    """There is no checkpoint to look at, and the policy may destroy what is not verified: the wish was said."""
    async with checked_world(sqlite_db, clock) as w:
        w.tune(checkpoint_unverified="destroy")
        request_id = await w.running(candidates=("vast",), hours=Decimal(2))
        wished = await done(w.ctx, FinishSession(request_id, facts(ALICE), preserve=True))
        await w.run(60, 30)
        session = (await w.books()).sessions[0]
        assert session.deadline is not None
        (first,) = await kept(w)
        view = await w.session(session.id)
        # It has one end, long before its approved end as after it, and everywhere.
        assert session.deadline < first.until <= session.deadline + hold.LONGEST
        assert view.retained_disk is not None
        assert (wished.code, wished.sentence.count(" UTC")) == ("preserving", 1)
        promised = datetime.strptime(wished.sentence.split(" at about ")[1], "%Y-%m-%d %H:%M UTC.").replace(tzinfo=UTC)
        assert abs(promised - first.until) <= timedelta(minutes=30)  # What the GPU costs until it has stopped.
        await shown_as_a_disk(w, first, state="stopped")
        w.clock.advance(session.deadline - w.clock.now() - timedelta(seconds=10))
        await w.settle()
        (before,) = await kept(w)
        w.clock.advance(11)
        await expiration.deadlines_due(w.ctx)
        assert [one.id for one in await kept(w)] == [before.id]  # Between the order and the gate's word it stays.
        await w.settle()
        row = (await w.books()).instances[0]
        assert (row.checkpoint_step, row.status, len(w.alive())) == (CheckpointStep.HELD, "stopped", 1)
        (disk,) = await kept(w)
        assert disk.id == before.id
        assert w.clock.now() < disk.until <= w.clock.now() + hold.LONGEST
        assert abs(disk.until - first.until) <= retained_disks.MOVED
        await shown_as_a_disk(w, disk)
        w.clock.advance(disk.until - w.clock.now() - timedelta(minutes=5))
        await retained_disks.disks_due(w.ctx)
        await w.settle()
        assert told(w, row, hold.DISK) == [ALICE.id]
        w.clock.advance(301)
        await w.settle()
        assert w.alive() == []
        await w.run(120, 60)
        assert (await kept(w), w.bill() <= (await w.books()).grants[0].total_cap_usd) == ([], True)
        twice = await w.running(candidates=("vast",), hours=Decimal(2))
        # A stop that was ordered for another reason, before the wish and while it stands still.
        assert (await switch(w.ctx, Switch(twice, facts(ALICE), PowerAction.STOP))).ok
        wish = FinishSession(twice, facts(ALICE), preserve=True)
        assert (await done(w.ctx, wish)).code == "preserving"
        await w.run(60, 30)
        assert (await done(w.ctx, FinishSession(twice, facts(DAVE), preserve=True))).code == "not_yours"
        assert (await done(w.ctx, wish)).code == "preserving"
        assert (await w.books()).sessions[1].preserve is True
        assert (await done(w.ctx, replace(wish, session="zzzzzz"))).code == "unknown_id"
        assert (await done(w.ctx, FinishSession(twice, facts(ALICE)))).code == "terminating"
        await w.settle()
        assert w.alive() == []
