"""What was approved and used of whole runs, whichever requests they were made of."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.models import GrantRow
from ledger.queries.runs.authority import (
    ApprovedAmount,
    RunSession,
    UsedTime,
    approved_amounts,
    sessions_of_runs,
    used_times,
)
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)


async def test_a_run_has_the_sessions_of_its_first_request_and_of_those_that_continue_it(db: Database) -> None:
    async with db.write() as tx:
        first = await rows.request(tx, RequestState.APPROVED)
        moved = await rows.request(tx, RequestState.APPROVED, run_id=first.id, quote_version=3)
        await rows.request(tx, RequestState.PENDING, run_id=first.id)  # It has no session yet.
        other = await rows.request(tx, RequestState.APPROVED)
        unread = await rows.request(tx, RequestState.APPROVED)
        await rows.session(tx, of=unread)
        # The later request's session is stored first.
        second = await rows.session(tx, SessionState.RUNNING, of=moved, hours="1.5")
        begun = await rows.session(tx, SessionState.TERMINATED, of=first)
        alone = await rows.session(tx, SessionState.STOPPED, of=other)
    approved = RequestState.APPROVED
    run = [
        RunSession(first.id, first.id, approved, 1, begun.id, SessionState.TERMINATED, Decimal(2)),
        RunSession(first.id, moved.id, approved, 3, second.id, SessionState.RUNNING, Decimal("1.5")),
    ]
    lone = RunSession(other.id, other.id, approved, 1, alone.id, SessionState.STOPPED, Decimal(2))
    async with db.read() as tx:
        assert await sessions_of_runs(tx, [other.id, first.id]) == [*run, lone]
        assert await sessions_of_runs(tx, [first.id]) == run
        # The request that continues a run is not the run.
        assert await sessions_of_runs(tx, [moved.id]) == run[1:]
        assert await sessions_of_runs(tx, []) == []


async def test_each_approval_that_bought_time_counts_once(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED)
        session = await rows.session(tx, SessionState.RUNNING, of=request)
        option = await rows.option(tx, await rows.quote(tx, request), expected_usd=Decimal("1.25"))
        by = await rows.approval(tx, request, option_id=option.id)
        for seq in (1, 2, 3):
            await rows.grant(tx, request, GrantState.USED, by=by, seq=seq, session_id=session.id)
        # What replaces or holds a machine spends what is approved already.
        for kind in (GrantKind.REPLACE, GrantKind.START, GrantKind.HOLD):
            later = await rows.approval(tx, request, rows.ADA, quote_version=9 + len(kind))
            await rows.grant(tx, request, by=later, kind=kind, session_id=session.id)
        longer = await rows.request(tx, RequestState.APPROVED, parent_id=request.id, quote_version=4)
        more = await rows.approval(tx, longer, at=START + HOUR, total_cap_usd=Decimal("0.75"))
        extend: dict[str, Any] = {"kind": GrantKind.EXTEND, "session_id": session.id}
        await rows.grant(tx, longer, GrantState.USED, by=more, **extend)
        # An extension that was withdrawn bought nothing; a create that was withdrawn may have been sent.
        undone = await rows.approval(tx, longer, rows.ADA, at=START + HOUR)
        await rows.grant(tx, longer, GrantState.VOID, by=undone, seq=2, **extend)
        again = await rows.approval(tx, request, rows.ADA, total_cap_usd=Decimal(3))
        await rows.grant(tx, request, GrantState.VOID, by=again, seq=4, session_id=session.id)
        unread = await rows.session(tx, SessionState.RUNNING)
        await rows.instance(tx, of=unread)
    async with db.read() as tx:
        amounts = await approved_amounts(tx, [session.id])
        assert sorted(amounts, key=lambda amount: amount.approval_id) == sorted(
            [
                ApprovedAmount(session.id, by.id, START, 1, Decimal(2), Decimal("1.25")),
                # An extension is approved at a version of its own request, not of the session's.
                ApprovedAmount(session.id, more.id, START + HOUR, None, Decimal("0.75"), Decimal("0.75")),
                ApprovedAmount(session.id, again.id, START, 1, Decimal(3), Decimal(3)),
            ],
            key=lambda amount: amount.approval_id,
        )
        assert await approved_amounts(tx, []) == []


@pytest.mark.parametrize(
    ("cap_usd", "expected_usd", "total", "expected"),
    [
        # What is expected is never more than what was approved.
        (Decimal(2), Decimal("2.5"), Decimal(2), Decimal(2)),
        (Decimal(2), Decimal(0), Decimal(2), Decimal(0)),
        # An approval without a total covers nothing.
        (None, Decimal("2.5"), Decimal(0), Decimal(0)),
        (None, None, Decimal(0), Decimal(0)),
        (Decimal(2), None, Decimal(2), Decimal(2)),
    ],
    ids=str,
)
async def test_what_is_expected_of_an_approval(
    db: Database, cap_usd: Decimal | None, expected_usd: Decimal | None, total: Decimal, expected: Decimal
) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED)
        session, option_id = await rows.session(tx, of=request), None
        if expected_usd is not None:
            option = await rows.option(tx, await rows.quote(tx, request), expected_usd=expected_usd)
            option_id = option.id
        by = await rows.approval(tx, request, option_id=option_id, total_cap_usd=cap_usd)
        await rows.grant(tx, request, by=by, session_id=session.id, total_cap_usd=Decimal(2))
    async with db.read() as tx:
        assert await approved_amounts(tx, [session.id]) == [
            ApprovedAmount(session.id, by.id, START, 1, total, expected)
        ]


async def test_what_each_instance_used_under_its_approval(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        first = await rows.instance(
            tx, InstanceState.GONE, of=session, billing_until=START + HOUR, ended_at=START + 2 * HOUR
        )
        second = await rows.replacement(tx, first, InstanceState.GONE, ended_at=START + 3 * HOUR)
        third = await rows.replacement(tx, second, price_usd_h=Decimal("0.55"))
        by = (await tx.get_one(GrantRow, first.grant_id)).approval_id
        # Corrections count, also those that give money back; what is reserved or lost by an orphan does not.
        await rows.entry(tx, first, "0.50", at=START + HOUR)
        await rows.entry(tx, first, "-0.20", at=START + 2 * HOUR, kind=EntryKind.TRUE_UP)
        for kind in set(EntryKind) - {EntryKind.ACCRUE, EntryKind.TRUE_UP}:
            await rows.entry(tx, first, "7", at=START + 9 * HOUR, kind=kind)
        await rows.entry(tx, third, "0.10")
        unread = await rows.instance(tx)
        await rows.entry(tx, unread, "4")
    async with db.read() as tx:
        used = await used_times(tx, [session.id])
        assert sorted(used, key=lambda time: time.booked_usd, reverse=True) == [
            UsedTime(session.id, by, START, START + HOUR, Decimal("0.40"), Decimal("0.30"), START + 2 * HOUR),
            UsedTime(session.id, by, START, None, Decimal("0.55"), Decimal("0.10"), START),
            UsedTime(session.id, by, START, START + 3 * HOUR, Decimal("0.40"), Decimal(0), None),
        ]
        assert await used_times(tx, []) == []


@pytest.mark.parametrize("state", InstanceState)
async def test_only_what_a_cloud_may_have_billed_is_used(db: Database, state: InstanceState) -> None:
    never = {InstanceState.READY, InstanceState.REJECTED, InstanceState.TOMBSTONE}
    async with db.write() as tx:
        row = await rows.instance(tx, state)
    async with db.read() as tx:
        used = await used_times(tx, [row.session_id])
        assert [time.session_id for time in used] == ([] if state in never else [row.session_id])
