"""The rollup is the raw sum at every moment: while entries wait, half folded, and folded; on both databases."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from bot.services.billing.rollup import entry_hash
from ledger.core.writes import book
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.calendar_spans import begin, spans
from ledger.kernel.entry_kind import SPENT
from ledger.kernel.states import InstanceState, RollupTier
from ledger.models import ExternalCost, LedgerEntry
from ledger.queries.access import Whose
from ledger.queries.calendar_costs import by_borders, costs_within
from ledger.queries.rollup import AMOUNT, FACETS, daily, fold, raw
from ledger.queries.spend import Purse, costs, spent, sums
from tests.support import rows

AT = datetime(2026, 1, 30, 21, 17, tzinfo=UTC)
MOMENTS = st.integers(0, 150 * 86_400).map(lambda s: datetime(2025, 11, 1, tzinfo=UTC) + timedelta(seconds=s))


@given(MOMENTS | st.none(), MOMENTS | st.none(), MOMENTS)
def test_spans_cover_a_time_exactly_once_and_lie_on_the_borders_of_their_tier(
    since: datetime | None, until: datetime | None, at: datetime
) -> None:
    found = spans(since, until)
    inside = (since is None or at >= since) and (until is None or at < until)
    covering = [s for s in found if (s.since is None or s.since <= at) and (s.until is None or at < s.until)]
    assert len(covering) == inside
    assert [s.since for s in found][1:] == [s.until for s in found][:-1]
    for span in found:
        if span.tier is not None:
            assert all(end is None or begin(span.tier, end) == end for end in (span.since, span.until))
    assert len(found) <= 7


async def _entries(db: Database, draw: random.Random) -> None:
    """Two months of entries of several people at several clouds, corrections, losses and other tools' costs."""
    program = Actor(ActorKind.CONSUMER, "trainer")
    async with db.write() as tx:
        held = []
        whose = ((rows.ADA, "moe", "H100", "vast"), (rows.BEN, "", "RTX 4090", "runpod"), (program, None, "", "lambda"))
        for owner, label, gpu, cloud in whose:
            asked = await rows.request(tx, requester=owner.ref)
            mine = await rows.session(tx, of=asked, label=label, gpu=gpu)
            held.append((mine, await rows.instance(tx, InstanceState.LIVE, of=mine, cloud=cloud)))
        stray = await rows.stray(tx, cloud="tensordock")
        for number in range(60):
            session, instance = draw.choice(held)
            at = AT + timedelta(seconds=draw.randrange(40 * 86_400))
            kind = draw.choice(("accrue", "accrue", "accrue", "true_up", "loss", "external", "reserve"))
            debit, credit = f"session:{session.id}", f"payable:{instance.cloud}:acct-1"
            debit = f"loss:{stray.id}" if kind == "loss" else debit
            if kind in ("true_up", "loss") and draw.random() < 0.5:
                debit, credit = credit, debit
            booked: dict[str, Any] = {
                "key": f"k{number}",
                "kind": kind,
                "debit": debit,
                "credit": credit,
                "amount_usd": Decimal(draw.randrange(1, 9_000_000)) / 1_000_000,
                "at": at,
            }
            if kind not in ("loss", "external"):
                booked |= {"session_id": session.id, "instance_id": instance.id}
            assert await book(tx, **booked)
            if kind == "external":
                await _external(tx, number, at)


async def _external(tx: rows.Tx, number: int, at: datetime) -> None:
    entry = (await tx.scalars(select(LedgerEntry).where(LedgerEntry.key == f"k{number}"))).one()
    values = {"skill": "storage", "provider": "s3", "action": "store", "amount_usd": entry.amount_usd, "at": at}
    tx.add(ExternalCost(entry_id=entry.id, key=f"x{number}", owner=rows.BEN.ref, added_at=at, notes="", **values))
    await tx.flush()


async def _raw(db: Database, since: datetime | None, until: datetime | None) -> dict[tuple[str, ...], Decimal]:
    found: defaultdict[tuple[str, ...], Decimal] = defaultdict(Decimal)
    async with db.read() as tx:
        every = await tx.execute(raw(LedgerEntry.at, AMOUNT, *FACETS.values()).where(LedgerEntry.kind.in_(SPENT)))
        for at, amount_usd, *names in every:
            if (since is None or at >= since) and (until is None or at < until):
                found[tuple(names)] += amount_usd
    return dict(found)


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_rollup_and_what_waits_are_the_raw_sum(db: Database, seed: int) -> None:
    draw = random.Random(seed)
    await _entries(db, draw)
    edges = [AT + timedelta(seconds=draw.randrange(-86_400, 41 * 86_400)) for _ in range(8)]
    times = [(None, None), (AT, None), (None, AT + timedelta(days=9)), *zip(edges, edges[4:], strict=False)]
    for folded in (0, 20, 500):
        async with db.write() as tx:
            await fold(tx, folded, entry_hash)
        for since, until in times:
            async with db.read() as tx:
                ours = dict(await sums(tx, Purse(), tuple(FACETS), since, until))
                total = await spent(tx, Purse(), since, until)
                of_ben = await spent(tx, Purse(Whose.of([rows.BEN])), since, until)
                of_label = await spent(tx, Purse(label="moe"), since, until)
            true = await _raw(db, since, until)
            assert {k: v for k, v in ours.items() if v} == {k: v for k, v in true.items() if v}, (folded, since, until)
            assert total == sum(true.values(), Decimal(0))
            assert of_ben == sum((v for k, v in true.items() if k[0] == rows.BEN.ref), Decimal(0))
            assert of_label == sum((v for k, v in true.items() if k[3] == "moe"), Decimal(0))


async def test_costs_by_everything_and_by_the_day_agree(db: Database) -> None:
    await _entries(db, random.Random(3))
    first, last = begin(RollupTier.MONTH, AT), AT.replace(month=4, day=1, hour=0, minute=0)
    async with db.write() as tx:
        await fold(tx, 30, entry_hash)
    async with db.read() as tx:
        by = await costs(tx, Purse(), first, last)
        total = await spent(tx, Purse(), first, last)
        days = await daily(tx, RollupTier.DAY, first, last)
        months = await daily(tx, RollupTier.MONTH, first, last, Purse().on_facets(), Purse().on_entries())
    assert total > 0
    assert {name: sum((usd for _, usd in found), Decimal(0)) for name, found in by.items() if name != "consumer"} == (
        dict.fromkeys(FACETS, total)
    )
    assert [name for name, _ in by["consumer"]] == ["consumer:trainer"]
    assert {"vast", "runpod", "lambda", "tensordock", "s3"} == {name for name, _ in by["cloud"]}
    assert ("storage" in dict(by["tool"])) is True
    assert sum(days.values()) == sum(months.values()) == total
    assert len(days) > 20


@pytest.mark.parametrize("ahead", [0, 1, -8, 5.5])
async def test_days_of_any_zone_are_the_raw_sums(db: Database, ahead: float) -> None:
    await _entries(db, random.Random(4))
    async with db.write() as tx:
        await fold(tx, 40, entry_hash)
    first = begin(RollupTier.DAY, AT) - timedelta(hours=ahead)
    borders = [first + timedelta(days=n) for n in range(12)]
    async with db.read() as tx:
        found = await by_borders(tx, borders)
        windows = [
            (borders[0], borders[1]),
            (borders[2], borders[9]),
            (borders[9], borders[9]),
            (borders[0], borders[11]),
        ]
        shares = await costs_within(tx, windows, tuple(FACETS))
        alone = await costs_within(tx, windows[1:2], tuple(FACETS))
    # An hour counts for the day that it begins in.
    late = timedelta(minutes=30) if ahead % 1 else timedelta(0)
    for amount, since, until in zip(found, borders, borders[1:], strict=False):
        assert amount == sum((await _raw(db, since + late, until + late)).values(), Decimal(0))
    for by, (since, until) in zip(shares, windows, strict=True):
        true = await _raw(db, since + late, until + late)
        for n, name in enumerate(FACETS):
            of_value: defaultdict[str, Decimal] = defaultdict(Decimal)
            for names, amount in true.items():
                of_value[names[n]] += amount
            assert by[name] == sorted(
                ((value, amount) for value, amount in of_value.items() if amount), key=lambda one: (-one[1], one[0])
            )
    assert sum(dict(shares[3]["tool"]).values()) > 0
    assert alone == shares[1:2]
