"""What is booked of single sessions, and what extensions add."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import GrantState, InstanceState, SessionState
from ledger.models import Approval, GrantRow, Request
from ledger.queries.session_costs import NOTHING, Booked, booked, booked_of, extension_cap, extension_caps, spent_before
from tests.support import rows
from tests.support.clock import START

MINUTE = timedelta(minutes=1)


async def test_whole_hours_by_component_and_dollars_of_each_instance(db: Database) -> None:
    async with db.write() as tx:
        first = await rows.instance(tx, InstanceState.GONE)
        row = await rows.replacement(tx, first)
        other = await rows.instance(tx)
        prefix = f"{row.id}/gpu"
        for minute, (usd, key, component, kind) in enumerate(
            (
                ("0.5", f"{prefix}/h1", "gpu", EntryKind.ACCRUE),
                ("0.5", f"{prefix}/h2", "gpu", EntryKind.ACCRUE),
                ("0.25", f"{prefix}/final", "gpu", EntryKind.ACCRUE),
                ("-0.125", f"{row.id}/true-up/h1", "gpu", EntryKind.TRUE_UP),
                ("0.0625", f"{row.id}/storage/h1", "storage", EntryKind.ACCRUE),
                # A retained disk counts its own hours.
                ("0.03125", f"{row.id}/disk/h1", "storage", EntryKind.ACCRUE),
                ("9", f"reserve/{row.grant_id}", "", EntryKind.RESERVE),
            )
        ):
            await rows.entry(tx, row, usd, key=key, component=component, kind=kind, at=START - minute * MINUTE)
        await rows.entry(tx, first, "2", key=f"{first.id}/gpu/h1")
        await rows.entry(tx, other, "4", key=f"{other.id}/gpu/h1")
    async with db.read() as tx:
        of_row = Booked(Decimal("1.21875"), {"gpu": 2, "storage": 1}, START)
        of_first = Booked(Decimal(2), {"gpu": 1}, START)
        found = await booked_of(tx, [row.session_id, "ses_none"])
        assert found == {row.session_id: {row.id: of_row, first.id: of_first}}
        assert await booked(tx, row) == of_row
        assert {*await booked_of(tx, [row.session_id, other.session_id])} == {row.session_id, other.session_id}


async def test_extensions_add_to_the_grant_of_a_running_instance(db: Database) -> None:
    async with db.write() as tx:
        row, other, bare = [await rows.instance(tx) for _ in range(3)]
        for of, kind, state, usd, is_released in (
            (row, GrantKind.EXTEND, GrantState.USED, "1.5", False),
            (row, GrantKind.EXTEND, GrantState.OPEN, "0.25", False),
            (row, GrantKind.EXTEND, GrantState.VOID, "10", False),
            (row, GrantKind.EXTEND, GrantState.USED, "20", True),
            (row, GrantKind.START, GrantState.USED, "40", False),
            (other, GrantKind.EXTEND, GrantState.USED, "80", False),
        ):
            old = await tx.get_one(GrantRow, of.grant_id)
            asked, by = await tx.get_one(Request, of.request_id), await tx.get_one(Approval, old.approval_id)
            seq = int(Decimal(usd) * 4)
            given = await rows.grant(
                tx, asked, state, by=by, kind=kind, seq=seq, session_id=of.session_id, total_cap_usd=Decimal(usd)
            )
            if is_released:
                await rows.entry(tx, of, usd, key=f"release/{given.id}", kind=EntryKind.RELEASE)
    async with db.read() as tx:
        caps = await extension_caps(tx, [row.session_id, other.session_id, bare.session_id])
        assert caps == {row.session_id: Decimal("1.75"), other.session_id: Decimal(80)}
        assert await extension_cap(tx, row.session_id) == Decimal("1.75")
        assert await extension_cap(tx, bare.session_id) == 0
        assert await booked(tx, bare) == NOTHING


async def test_what_earlier_attempts_of_a_request_cost(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.GONE, of=await rows.session(tx, SessionState.QUEUED))
        await rows.entry(tx, row, "0.75")
        await rows.entry(tx, row, "9", kind=EntryKind.RESERVE)
        await rows.entry(tx, await rows.instance(tx), "5")
        again = await tx.get_one(Request, row.request_id)
        fresh = await rows.request(tx)
        assert await spent_before(tx, again) == Decimal("0.75")
        assert await spent_before(tx, fresh) == 0
        again.quote_version = 0
        assert await spent_before(tx, again) == 0
