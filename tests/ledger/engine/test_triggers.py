"""The triggers: what the database refuses, whatever the program does."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import delete, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core.events import record
from ledger.core.moves import move
from ledger.core.writes import book
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import GrantState, InstanceState, RequestState
from ledger.models import Approval, Event, GrantRow, Instance, LedgerEntry
from tests.support import rows
from tests.support.clock import START

CAT = Actor(ActorKind.SLACK, "UCAT", "T1")


async def one_of_each(tx: AsyncSession) -> None:
    """One row in every append-only table."""
    instance = await rows.instance(tx)
    record(tx, at=START, actor=SYSTEM, subject=instance.id, kind=EventKind.INSTANCE_MOVED)
    await book(tx, key="k", kind=EntryKind.ACCRUE, debit="a", credit="b", amount_usd=Decimal(1), at=START)


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        (LedgerEntry, {"amount_usd": Decimal(2)}, "ledger_entries is append-only"),
        (Event, {"reason": "another"}, "events is append-only"),
        (Approval, {"decision": "reject"}, "approvals is append-only"),
        (GrantRow, {"total_cap_usd": Decimal(9)}, "amounts and origin never change"),
        (GrantRow, {"price_cap_usd_h": Decimal(9)}, "amounts and origin never change"),
        (GrantRow, {"hours": "99"}, "amounts and origin never change"),
        (GrantRow, {"until": START + timedelta(days=9)}, "amounts and origin never change"),
        (GrantRow, {"request_id": "req_other"}, "amounts and origin never change"),
        (GrantRow, {"approval_id": "apr_other"}, "amounts and origin never change"),
        (Instance, {"grant_id": "grt_other"}, "keeps its grant"),
        (Instance, {"label": "another"}, "keeps its grant"),
        (Instance, {"session_id": "ses_other"}, "keeps its grant"),
    ],
)
async def test_no_update(db: Database, model: type, values: dict[str, object], message: str) -> None:
    async with db.write() as tx:
        await one_of_each(tx)
    with pytest.raises(IntegrityError, match=message):
        async with db.write() as tx:
            await tx.execute(update(model).values(**values))


@pytest.mark.parametrize("model", [LedgerEntry, Event, Approval, GrantRow, Instance])
async def test_no_delete(db: Database, model: type) -> None:
    async with db.write() as tx:
        await one_of_each(tx)
    with pytest.raises(IntegrityError, match=r"append-only|never deleted"):
        async with db.write() as tx:
            await tx.execute(delete(model))


@pytest.mark.parametrize("table", ["ledger_entries", "events", "approvals", "grants", "instances"])
async def test_no_truncate_on_postgresql(pg_db: Database, table: str) -> None:
    with pytest.raises(IntegrityError, match=r"append-only|never deleted"):
        async with pg_db.write() as tx:
            await tx.execute(text(f"TRUNCATE {table} CASCADE"))


async def test_replace_does_not_slip_past_the_triggers_on_sqlite(sqlite_db: Database) -> None:
    async with sqlite_db.write() as tx:
        await one_of_each(tx)
    with pytest.raises(IntegrityError, match="ledger_entries is append-only"):
        async with sqlite_db.write() as tx:
            await tx.execute(text("REPLACE INTO ledger_entries SELECT * FROM ledger_entries"))


async def test_a_grant_may_move_and_get_its_session(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED)
        grant = await rows.grant(tx, request)
        session = await rows.session(tx, of=request)
        moved = await move(
            tx, GrantRow, grant.id, GrantState.USED, at=START, actor=SYSTEM, values={"session_id": session.id}
        )
    assert (moved.state, moved.version, moved.session_id) == (GrantState.USED, 2, session.id)


@pytest.mark.parametrize("amount", [0, -1])
async def test_an_entry_moves_a_positive_amount(db: Database, amount: int) -> None:
    with pytest.raises(IntegrityError, match="ck_ledger_entries_amount_positive"):
        async with db.write() as tx:
            tx.add(
                LedgerEntry(
                    id="led_1",
                    key="k",
                    kind=EntryKind.ACCRUE,
                    debit="a",
                    credit="b",
                    amount_usd=Decimal(amount),
                    at=START,
                )
            )


async def test_no_instance_under_a_void_grant(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED)
        void = await rows.grant(tx, request, GrantState.VOID)
        session = await rows.session(tx, of=request)
    with pytest.raises(IntegrityError, match="needs an open or used grant"):
        async with db.write() as tx:
            await rows.instance(tx, InstanceState.READY, of=session, under=void)


async def test_no_instance_under_the_grant_of_another_request(db: Database) -> None:
    async with db.write() as tx:
        other = await rows.grant(tx, await rows.request(tx, RequestState.APPROVED))
        session = await rows.session(tx)
    with pytest.raises(IntegrityError, match="needs an open or used grant of its own request"):
        async with db.write() as tx:
            await rows.instance(tx, InstanceState.READY, of=session, under=other)


async def test_no_instance_without_a_grant(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx)
    with pytest.raises(IntegrityError, match="needs an open or used grant"):
        async with db.write() as tx:
            await rows.instance(tx, InstanceState.READY, of=session, under=GrantRow(id="grt_none"))


async def test_one_open_instance_row_per_grant(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx)
        first = await rows.instance(tx, InstanceState.REJECTED, of=session)
        grant = await tx.get_one(GrantRow, first.grant_id)
        await rows.instance(tx, InstanceState.UNKNOWN, of=session, under=grant, n=2)
    with pytest.raises(IntegrityError, match=r"uq_instances_open_grant|instances\.grant_id"):
        async with db.write() as tx:
            await rows.instance(tx, InstanceState.READY, of=session, under=grant, n=3)


async def test_a_grant_needs_as_many_approvers_as_the_request_asks_for(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING, required_approvals=2)
        first = await rows.approval(tx, request)
    with pytest.raises(IntegrityError, match="enough approvals"):
        async with db.write() as tx:
            await rows.grant(tx, request, by=first)
    async with db.write() as tx:
        second = await rows.approval(tx, request, CAT)
        assert (await rows.grant(tx, request, by=second)).approval_id == second.id


async def test_approvals_of_an_older_quote_do_not_count(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING, required_approvals=2)
        await rows.approval(tx, request)
        newer = await rows.approval(tx, request, CAT, quote_version=2)
    with pytest.raises(IntegrityError, match="enough approvals"):
        async with db.write() as tx:
            await rows.grant(tx, request, by=newer)


async def test_a_rejection_of_the_same_quote_forbids_a_grant(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING)
        approved = await rows.approval(tx, request)
        await rows.approval(tx, request, CAT, decision="reject")
    with pytest.raises(IntegrityError, match="no rejection"):
        async with db.write() as tx:
            await rows.grant(tx, request, by=approved)


async def test_a_rejection_of_an_older_quote_does_not(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING, quote_version=2)
        await rows.approval(tx, request, CAT, decision="reject", quote_version=1)
        assert (await rows.grant(tx, request)).state is GrantState.OPEN


async def test_a_rejection_is_no_authority(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING)
        rejected = await rows.approval(tx, request, decision="reject")
    with pytest.raises(IntegrityError, match="enough approvals"):
        async with db.write() as tx:
            await rows.grant(tx, request, by=rejected)


async def test_the_approval_of_another_request_is_no_authority(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING)
        other = await rows.approval(tx, await rows.request(tx, RequestState.PENDING))
    with pytest.raises(IntegrityError, match="enough approvals"):
        async with db.write() as tx:
            await rows.grant(tx, request, by=other)


async def test_a_requester_who_may_approve_is_an_approver_like_any_other(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING)
        own = await rows.approval(tx, request, rows.ADA)
        assert (await rows.grant(tx, request, by=own)).state is GrantState.OPEN
