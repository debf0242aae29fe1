"""What was spent, and what may still be spent."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import select

from bot.services.billing.rollup import entry_hash
from ledger.core.writes import Tx, book
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InstanceState, RollupTier, SessionState
from ledger.models import ExternalCost, Instance, LedgerEntry
from ledger.queries.access import Whose
from ledger.queries.rollup import fold
from ledger.queries.spend import (
    Purse,
    approved_since,
    buckets,
    budgets_set,
    costs,
    counted,
    outcomes,
    put_budget,
    started_alone,
    thresholds_set,
)
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
ADAS = Purse(Whose.of([rows.ADA]))


async def of_tool(tx: Tx, tool: str, usd: str, at: datetime = START) -> None:
    """What another tool says it spent; a refund is negative."""
    key, amount = f"{tool}/{usd}/{at:%H}", Decimal(usd)
    sides = {"debit": f"external:{tool}", "credit": f"payable:{tool}"}
    if amount < 0:
        sides = {"debit": sides["credit"], "credit": sides["debit"]}
    await book(tx, key=key, kind=EntryKind.EXTERNAL, amount_usd=abs(amount), at=at, **sides)
    entry_id = (await tx.scalars(select(LedgerEntry.id).where(LedgerEntry.key == key))).one()
    facts = {"skill": tool, "provider": "s3", "action": "store", "owner": rows.ADA.ref, "added_at": at, "at": at}
    tx.add(ExternalCost(entry_id=entry_id, key=key, amount_usd=amount, **facts))
    await tx.flush()


async def of_label(tx: Tx, label: str | None, usd: str, at: datetime = START) -> Instance:
    row = await rows.instance(tx, of=await rows.session(tx, SessionState.RUNNING, label=label))
    await rows.entry(tx, row, usd, at=at)
    return row


async def test_a_refund_to_a_tool_lowers_no_other_cost_in_a_budget(db: Database) -> None:
    async with db.write() as tx:
        row = await of_label(tx, "moe", "2")
        await rows.entry(tx, row, "-0.5", kind=EntryKind.TRUE_UP)
        await of_label(tx, "moe", "100", START - SECOND)
        for tool, usd in (("storage", "3"), ("storage", "-1"), ("search", "-7")):
            await of_tool(tx, tool, usd)
    for folded in (0, 9):
        async with db.write() as tx:
            await fold(tx, folded, entry_hash)
        async with db.read() as tx:
            assert await counted(tx, Purse(), START) == Decimal("3.5")
            assert await counted(tx, Purse(label="moe"), START) == Decimal("1.5")
            assert await counted(tx, Purse(), None) == Decimal("103.5")
            assert await counted(tx, Purse(label="none"), None) == 0


async def test_dollars_by_when_they_were_spent_and_whose_they_are(db: Database) -> None:
    day = START.replace(hour=0)
    async with db.write() as tx:
        await of_label(tx, "moe", "1", START + HOUR - SECOND)
        await of_label(tx, None, "2", START + HOUR)
        bens = await rows.session(tx, of=await rows.request(tx, requester=rows.BEN.ref), label="moe")
        await rows.entry(tx, await rows.instance(tx, of=bens), "4", at=START)
        await of_label(tx, "moe", "16", START - SECOND)
        back = await of_label(tx, "else", "32", START - 2 * HOUR)
        await rows.entry(tx, back, "-32", kind=EntryKind.TRUE_UP, at=START - 2 * HOUR)
    for folded in (0, 4, 9):  # Nothing, a part and everything is in the rollup.
        async with db.write() as tx:
            await fold(tx, folded, entry_hash)
        async with db.read() as tx:
            hour = RollupTier.HOUR
            assert await buckets(tx, Purse(), hour, START, START + 2 * HOUR) == {START: 5, START + HOUR: 2}
            assert await buckets(tx, ADAS, hour, START, START + HOUR) == {START: 1}
            assert await buckets(tx, Purse(ADAS.whose, "moe"), hour, START - HOUR, START + 2 * HOUR) == {
                START - HOUR: 16,
                START: 1,
            }
            assert await buckets(tx, Purse(label="moe"), RollupTier.DAY, day, day + 24 * HOUR) == {day: 21}
            assert await costs(tx, Purse(), START, START, by=("gpu",)) == {"gpu": []}
            # What was given back whole is no cost any more.
            assert await costs(tx, Purse(), START - 9 * HOUR, START - HOUR, by=("cloud",)) == {"cloud": []}
            assert await costs(tx, Purse(label="moe"), START, None, by=("label", "tool")) == {
                "label": [("moe", Decimal(5))],
                "tool": [("", Decimal(5))],
            }


async def test_how_sessions_ended_and_what_they_cost(db: Database) -> None:
    async with db.write() as tx:
        for code, ended_at, usd, label in (
            ("idle", START, ("1", "2"), "moe"),
            ("idle", START + HOUR - SECOND, (), None),
            ("lost", START, ("4",), "moe"),
            ("asked", START, ("8",), "moe"),
            ("idle", START - SECOND, ("16",), "moe"),
            ("idle", START + HOUR, ("32",), "moe"),
        ):
            of = await rows.session(tx, SessionState.TERMINATED, end_code=code, ended_at=ended_at, label=label)
            row = await rows.instance(tx, InstanceState.GONE, of=of)
            await rows.entry(tx, row, "64", kind=EntryKind.RESERVE)
            for one in usd:
                await rows.entry(tx, row, one)
    async with db.read() as tx:
        found = await outcomes(tx, Purse(), ["idle", "lost"], START, START + HOUR)
        assert sorted(found) == [("idle", Decimal(0)), ("idle", Decimal(3)), ("lost", Decimal(4))]
        assert sorted(await outcomes(tx, Purse(label="moe"), ["idle"], START, START + HOUR)) == [("idle", Decimal(3))]
        assert await outcomes(tx, Purse(Whose.of([rows.BEN])), ["idle"], START, START + HOUR) == []
        assert await outcomes(tx, Purse(), [], START, START + HOUR) == []


async def test_what_was_approved_without_a_second_person(db: Database) -> None:
    async with db.write() as tx:
        assert await approved_since(tx, "slack:", START) == 0
        assert await started_alone(tx, Whose.of([rows.ADA]), "1_", START) == 0
        for usd, values in (
            ("1", {"rule": "1_ up to $5", "approver": rows.ADA.ref}),
            ("2", {"rule": "1_ up to $5", "approver": rows.ADA.ref}),
            ("4", {"rule": "10 up to $5", "approver": rows.ADA.ref}),  # The underscore is no wildcard.
            ("8", {"rule": "1_ up to $5"}),
            ("16", {"rule": "1_ up to $5", "approver": rows.ADA.ref, "decision": "reject"}),
            ("32", {"rule": "1_ up to $5", "approver": rows.ADA.ref, "at": START}),
            ("64", {"rule": "1_ up to $5", "approver": "system:policy"}),
        ):
            facts: dict[str, Any] = {"at": START + SECOND, "total_cap_usd": Decimal(usd)} | values
            await rows.approval(tx, await rows.request(tx), **facts)
    async with db.read() as tx:
        assert await started_alone(tx, Whose.of([rows.ADA]), "1_", START) == 3
        assert await started_alone(tx, Whose.of([rows.ADA, rows.BEN]), "1_", START) == 11
        assert await approved_since(tx, "slack:", START) == 15
        assert await approved_since(tx, "system:", START) == 64
        assert await approved_since(tx, "slack:", START + SECOND) == 0


async def test_a_limit_is_set_changed_and_deleted_alone(db: Database) -> None:
    async with db.write() as tx:
        assert await budgets_set(tx) == {}
        for scope, period, usd in (("team", "month", "900"), ("team", "day", "50"), ("user:UADA", "day", "20")):
            await put_budget(tx, scope, period, Decimal(usd), "operator:root", START)
    async with db.write() as tx:
        await put_budget(tx, "team", "day", Decimal("60.5"), "operator:eve", START)
        await put_budget(tx, "user:UADA", "month", None, "operator:eve", START)  # There is none.
    async with db.read() as tx:
        assert await budgets_set(tx) == {
            "team": {"day": Decimal("60.5"), "month": Decimal(900)},
            "user:UADA": {"day": Decimal(20)},
        }
    async with db.write() as tx:
        await put_budget(tx, "team", "month", None, "operator:eve", START)
        await put_budget(tx, "user:UADA", "day", None, "operator:eve", START)
        assert await budgets_set(tx) == {"team": {"day": Decimal("60.5")}}


async def test_thresholds_that_were_set_with_a_limit(db: Database) -> None:
    shares = (Decimal("0.5"), Decimal("0.95"))
    async with db.write() as tx:
        assert await thresholds_set(tx) == {}
        await put_budget(tx, "team", "month", Decimal(900), "operator:root", START, shares)
        await put_budget(tx, "team", "day", Decimal(50), "operator:root", START)
        await put_budget(tx, "user:UADA", "day", Decimal(20), "operator:root", START, ())
    async with db.write() as tx:
        # No threshold at all is not the same as those of the policy.
        assert await thresholds_set(tx) == {("team", "month"): shares, ("user:UADA", "day"): ()}
        await put_budget(tx, "team", "month", Decimal(800), "operator:eve", START)
        await put_budget(tx, "team", "day", Decimal(50), "operator:eve", START, shares[:1])
    async with db.read() as tx:
        assert await thresholds_set(tx) == {("team", "day"): shares[:1], ("user:UADA", "day"): ()}
