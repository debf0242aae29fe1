"""Guarded writes that are not moves."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import func, select

from bot.rules.jobs.stored import stored_job
from ledger.core.writes import Tx, add_request, amend, book
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, RequestState
from ledger.models import Instance, LedgerEntry, Orphan, Request
from tests.support import rows
from tests.support.clock import START


async def booked(db: Database, amount: str, key: str = "k", **values: Any) -> bool:
    async with db.write() as tx:
        return await book(
            tx,
            key=key,
            kind=EntryKind.ACCRUE,
            debit="spent",
            credit="vast",
            amount_usd=Decimal(amount),
            at=START,
            **values,
        )


async def balance_of(tx: Tx, account: str) -> Decimal:
    """Debits minus credits, in dollars."""
    debit = await tx.scalar(select(func.sum(LedgerEntry.amount_usd)).where(LedgerEntry.debit == account))
    credit = await tx.scalar(select(func.sum(LedgerEntry.amount_usd)).where(LedgerEntry.credit == account))
    return (debit or Decimal(0)) - (credit or Decimal(0))


async def test_an_entry_is_booked_once_per_key(db: Database) -> None:
    assert await booked(db, "1.25", session_id="ses_1", component="gpu", note="first hour")
    assert not await booked(db, "9.99")
    async with db.read() as tx:
        entry = (await tx.scalars(select(LedgerEntry))).one()
        assert (entry.amount_usd, entry.component, entry.note) == (Decimal("1.25"), "gpu", "first hour")
        assert await balance_of(tx, "spent") == Decimal("1.25")
        assert await balance_of(tx, "vast") == Decimal("-1.25")
        assert await balance_of(tx, "nobody") == 0


@pytest.mark.parametrize(("amount", "stored"), [("0.0000005", "0.000001"), ("0.0000014999", "0.000001")])
async def test_amounts_are_whole_micro_dollars(db: Database, amount: str, stored: str) -> None:
    assert await booked(db, amount)
    async with db.read() as tx:
        assert await tx.scalar(select(func.sum(LedgerEntry.amount_usd))) == Decimal(stored)


@pytest.mark.parametrize("amount", ["0", "0.0000004999"])
async def test_nothing_is_not_booked(db: Database, amount: str) -> None:
    assert not await booked(db, amount)
    assert await booked(db, "1")  # The key is still free.


async def test_a_negative_amount_is_refused(db: Database) -> None:
    with pytest.raises(ValueError, match="in the other direction"):
        await booked(db, "-1")


async def test_sums_are_exact(db: Database) -> None:
    async with db.write() as tx:
        for n in range(100):
            await book(
                tx,
                key=f"k{n}",
                kind=EntryKind.ACCRUE,
                debit="spent",
                credit="vast",
                amount_usd=Decimal("0.1"),
                at=START,
            )
    async with db.read() as tx:
        assert await balance_of(tx, "spent") == Decimal(10)


async def test_amend_holds_its_guards(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.LIVE, claim_token="mine")

    async def tried(**values: Any) -> bool:
        async with db.write() as tx:
            return await amend(tx, Instance, row.id, **values)

    assert not await tried(claim="another", status="a")
    assert not await tried(version=2, status="b")
    assert await tried(claim="mine", version=1, status="c", price_usd_h=Decimal("0.5"))
    assert await tried(status_text="d\x00")
    async with db.read() as tx:
        kept = await tx.get_one(Instance, row.id)
    assert (kept.status, kept.status_text, kept.price_usd_h) == ("c", "d\ufffd", Decimal("0.5"))
    # Only what was written under a version raised it.
    assert (kept.state, kept.version) == (InstanceState.LIVE, 2)


async def test_of_two_replicas_that_read_the_same_absences_one_writes_and_the_other_reads_again(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.LIVE)
    other = Database(db.url.render_as_string(hide_password=False))

    async def read(replica: Database) -> tuple[int, list[str]]:
        async with replica.read() as tx:
            seen = await tx.get_one(Instance, row.id)
        return seen.version, seen.absent_at

    async def counted(replica: Database, seen: tuple[int, list[str]], at: str) -> bool:
        async with replica.write() as tx:
            return await amend(tx, Instance, row.id, version=seen[0], absent_at=[*seen[1], at])

    try:
        first, second = await read(db), await read(other)
        assert await counted(db, first, "9:00")
        assert not await counted(other, second, "9:01")
        assert not await counted(db, first, "9:00")
        assert await counted(other, await read(other), "9:01")
        assert (await read(db))[1] == ["9:00", "9:01"]
    finally:
        await other.close()


async def test_amend_knows_no_row_and_sets_no_state(db: Database) -> None:
    async with db.write() as tx:
        stray = await rows.stray(tx)
        assert await amend(tx, Orphan, stray.id, reason="seen twice")
        assert not await amend(tx, Request, "req_none", outcome="x")
        with pytest.raises(TypeError, match=r"only by ledger\.core\.moves\.move"):
            await amend(tx, Orphan, stray.id, state="gone")


async def test_one_message_asks_once(db: Database) -> None:
    facts: dict[str, Any] = {
        "kind": RequestKind.PROVISION, "state": RequestState.QUOTING, "requester": rows.ADA.ref, "inbox_key": "message",
        "job": stored_job(rows.JOB), "channel": rows.CHANNEL, "expires_at": START, "created_at": START,
    }  # fmt: skip
    async with db.write() as tx:
        assert await add_request(tx, id="req_1", **facts)
        assert not await add_request(tx, id="req_2", **facts | {"requester": rows.BEN.ref})
        assert await add_request(tx, id="req_3", **facts | {"inbox_key": "another"})
    async with db.read() as tx:
        found = {one.id: (one.requester, one.job, one.version) for one in await tx.scalars(select(Request))}
        assert found == dict.fromkeys(("req_1", "req_3"), (rows.ADA.ref, stored_job(rows.JOB), 1))
