"""Clouds' bills beside what is booked."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from ledger.core.writes import Tx, book
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InstanceState, OrphanState, SessionState
from ledger.models import Instance, Orphan
from ledger.queries.cloud_bills import (
    BillSubject,
    account_of,
    accounts,
    corrected,
    earliest,
    keep_lines,
    subject_of,
    used_by,
)
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import somebody_waits

HOUR = timedelta(hours=1)
MINE = ("vast", "acct-1")


async def gone(tx: Tx, **values: Any) -> Instance:
    return await rows.instance(tx, InstanceState.GONE, **({"ended_at": START + HOUR} | values))


def line(name: str, ref: str, usd: str, account: str = "acct-1", component: str = "gpu") -> dict[str, Any]:
    return {
        "cloud": "vast", "account": account, "line_id": name, "ref": ref, "component": component,
        "amount_usd": Decimal(usd), "begins": START, "ends": START + HOUR, "read_at": START + HOUR,
    }  # fmt: skip


async def loss(tx: Tx, of: Orphan, key: str, usd: str, component: str) -> None:
    sides = {"debit": f"loss:{of.id}", "credit": "payable:vast:acct-1"}
    if Decimal(usd) < 0:
        sides = {"debit": sides["credit"], "credit": sides["debit"]}
    kind, amount_usd = EntryKind.LOSS, abs(Decimal(usd))
    await book(tx, key=key, kind=kind, amount_usd=amount_usd, at=START, component=component, **sides)


async def test_what_ended_in_an_account_with_what_is_booked_and_what_is_billed(db: Database) -> None:
    since = START + HOUR
    async with db.write() as tx:
        row = await gone(tx, ref="7", storage_usd_h=Decimal("0.05"))
        for usd, values in (
            ("1.5", {}),
            ("-0.25", {"kind": EntryKind.TRUE_UP}),
            ("0.125", {"component": "storage"}),
            ("9", {"kind": EntryKind.RESERVE}),
        ):
            await rows.entry(tx, row, usd, **values)
        bare = await gone(tx, ref="8", storage_usd_h=Decimal(1), ended_at=START + 2 * HOUR)
        await gone(tx, ref="9", ended_at=since - timedelta(seconds=1))
        await gone(tx, ref=None)
        await gone(tx, ref="7", account="acct-2")
        await gone(tx, ref="7", cloud="runpod")
        await rows.instance(tx, InstanceState.TERMINATING, ref="10", ended_at=since)
        # It was taken for gone and came back as an orphan: one bill, on the row.
        same = await rows.stray(tx, OrphanState.GONE, ref="7", ended_at=since)
        orphan = await rows.stray(tx, OrphanState.GONE, ref="20", ended_at=since, billing_from=START)
        await rows.stray(tx, OrphanState.GONE, ref="21", ended_at=START)
        await rows.stray(tx, OrphanState.CONDEMNED, ref="22", ended_at=since)
        await rows.stray(tx, OrphanState.GONE, ref="20", ended_at=since, account="acct-2")
        await loss(tx, same, "l1", "0.5", "stray")
        await loss(tx, orphan, "l2", "0.75", "stray")
        await loss(tx, orphan, "l3", "-0.25", "gpu")
        await loss(tx, orphan, "l4", "0.1", "storage")
        await keep_lines(tx, [line("a", "7", "1"), line("b", "7", "0.2", component="storage"), line("c", "20", "3")])
        await keep_lines(tx, [line("d", "7", "50", "acct-2"), line("a", "7", "1.25")])
        await keep_lines(tx, [])
    async with db.read() as tx:
        found = await accounts(tx, [MINE], since)
        assert [one.id for one in found] == [*sorted([row.id, bare.id]), orphan.id]
        by_id = {one.id: one for one in found}
        mine, others, lost = by_id[row.id], by_id[bare.id], by_id[orphan.id]
        assert mine.booked_usd == {"gpu": Decimal("1.75"), "storage": Decimal("0.125")}
        assert {one.line_id: one.amount_usd for one in mine.lines} == {"a": Decimal("1.25"), "b": Decimal("0.2")}
        assert (mine.holder, mine.subject, mine.session_id) == (
            f"session:{row.session_id}",
            row.session_id,
            row.session_id,
        )
        assert (mine.ref, mine.instance_id, mine.gpu_usd_h) == ("7", row.id, Decimal("0.35"))
        assert (others.booked_usd, others.lines, others.gpu_usd_h) == ({}, [], Decimal(0))
        assert (others.billing_from, others.ended_at) == (START, START + 2 * HOUR)
        assert lost.booked_usd == {"gpu": Decimal("0.5"), "storage": Decimal("0.1")}
        assert [one.line_id for one in lost.lines] == ["c"]
        assert (lost.holder, lost.subject, lost.session_id, lost.instance_id) == (
            f"loss:{orphan.id}",
            orphan.id,
            None,
            None,
        )
        assert (lost.gpu_usd_h, lost.billing_from, lost.ended_at) == (Decimal("0.40"), START, since)


async def test_an_orphan_whose_bill_a_row_carries_meanwhile_is_left_to_that_row(db: Database) -> None:
    async with db.write() as tx:
        row = await gone(tx, ref="7")
        orphan = await rows.stray(tx, OrphanState.GONE, ref="8", ended_at=START + HOUR)
        of_row, of_orphan = await accounts(tx, [MINE], START)
    async with db.write() as tx:
        await rows.entry(tx, row, "2")
        await loss(tx, orphan, "l1", "3", "stray")
    async with db.write() as tx:
        for before, usd in ((of_row, Decimal(2)), (of_orphan, Decimal(3))):
            now = await account_of(tx, before)
            assert now is not None
            assert (now.id, before.booked_usd, now.booked_usd) == (before.id, {}, {"gpu": usd})
    async with db.write() as tx:
        await gone(tx, ref="8")
    async with db.write() as tx:
        assert await account_of(tx, of_orphan) is None


@pytest.mark.parametrize("of_session", [True, False])
async def test_one_correction_at_a_time(pg_db: Database, of_session: bool) -> None:
    async with pg_db.write() as tx:
        if of_session:
            await gone(tx)
        else:
            await rows.stray(tx, OrphanState.GONE, ended_at=START + HOUR)
        (subject,) = await accounts(tx, [MINE], START)

    async def correct(usd: str) -> int:
        async with pg_db.write() as tx:
            assert await account_of(tx, subject) is not None
            return await _correct(tx, subject, usd)

    async with pg_db.write() as tx:
        await account_of(tx, subject)
        correcting = asyncio.create_task(correct("2"))
        await somebody_waits(pg_db, correcting)
        assert await _correct(tx, subject, "1") == 0
    assert await correcting == 1


async def _correct(tx: Tx, of: BillSubject, usd: str) -> int:
    """Book the next correction of an instance; how many there were."""
    before = await corrected(tx, of)
    await book(
        tx, key=f"{of.id}/true-up/{before}", kind=EntryKind.TRUE_UP if of.session_id else EntryKind.LOSS,
        debit=of.holder, credit="payable:vast:acct-1", amount_usd=Decimal(usd), at=START,
        session_id=of.session_id, instance_id=of.instance_id,
    )  # fmt: skip
    return before


async def test_corrections_are_counted_of_one_instance_alone(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.TERMINATED)
        first = await gone(tx, of=session, ref="1")
        second = await rows.replacement(tx, first, InstanceState.GONE, ref="2", ended_at=START + HOUR)
        orphan = await rows.stray(tx, OrphanState.GONE, ref="3", ended_at=START + HOUR)
        for usd, kind in (("1", EntryKind.TRUE_UP), ("-1", EntryKind.TRUE_UP), ("5", EntryKind.ACCRUE)):
            await rows.entry(tx, first, usd, kind=kind)
        await rows.entry(tx, second, "1", kind=EntryKind.TRUE_UP)
        await loss(tx, orphan, f"{orphan.id}/true-up/0", "1", "stray")
        await loss(tx, orphan, f"{orphan.id}/h1", "1", "stray")
    async with db.read() as tx:
        found = {one.id: await corrected(tx, one) for one in await accounts(tx, [MINE], START)}
        assert found == {first.id: 2, second.id: 1, orphan.id: 1}


async def test_what_ended_sessions_have_used_by_instance(db: Database) -> None:
    over: dict[str, Any] = {"ended_at": START + HOUR}
    async with db.write() as tx:
        ended = await rows.session(tx, SessionState.TERMINATED, **over)
        mine = await gone(tx, of=ended)
        await rows.entry(tx, mine, "2")
        await rows.entry(tx, mine, "-0.5", kind=EntryKind.TRUE_UP)
        await rows.entry(tx, mine, "7", kind=EntryKind.RESERVE)
        await rows.entry(tx, mine, "0.25", instance_id=None)
        unused = await rows.instance(tx, InstanceState.REJECTED, of=await rows.session(tx, SessionState.FAILED, **over))
        running = await rows.instance(tx, of=await rows.session(tx, SessionState.RUNNING))
        foreign = await gone(tx, of=await rows.session(tx, SessionState.TERMINATED, **over))
        for other in (running, foreign):
            await rows.entry(tx, other, "3")
    async with db.read() as tx:
        found, used = await used_by(tx, [ended.id, unused.session_id, running.session_id])
        assert [row.id for row in found] == sorted([mine.id, unused.id])
        assert used == {ended.id: {mine.id: Decimal("1.5"), None: Decimal("0.25")}}
        assert used[unused.session_id] == {}
        assert await used_by(tx, [running.session_id]) == ([], {})
        assert await used_by(tx, []) == ([], {})


async def test_the_oldest_that_ended_and_one_by_its_id(db: Database) -> None:
    async with db.read() as tx:
        assert await earliest(tx, [MINE, ("vast", "acct-2")], START) == {}
    async with db.write() as tx:
        ended = await gone(tx, sent_at=START + HOUR / 2)
        live = await rows.instance(tx)
        orphan = await rows.stray(tx, OrphanState.GONE, at=START, ended_at=START + HOUR)
        seen = await rows.stray(tx)
    async with db.read() as tx:
        assert await earliest(tx, [MINE, ("vast", "acct-2")], START) == {MINE: START}
        assert await earliest(tx, [MINE], START + 2 * HOUR) == {}
        assert await earliest(tx, [], START) == {}
        assert await accounts(tx, [], START) == []
        found = [await subject_of(tx, one) for one in (ended.id, live.id, orphan.id, seen.id, "ins_none")]
    assert [one and one.ref for one in found] == [ended.ref, None, orphan.ref, None, None]


async def test_lines_of_another_account_are_on_no_bill_of_an_orphan(db: Database) -> None:
    async with db.write() as tx:
        orphan = await rows.stray(tx, OrphanState.GONE, ref="20", ended_at=START + HOUR)
        away = await rows.stray(tx, OrphanState.GONE, ref="20", ended_at=START + HOUR, account="acct-2")
        await keep_lines(tx, [line("a", "20", "3"), line("b", "20", "7", "acct-2")])
        for of, usd in ((orphan, "0.5"), (away, "9")):
            await loss(tx, of, f"l{usd}", usd, "stray")
    async with db.read() as tx:
        (subject,) = await accounts(tx, [MINE], START)
        assert (subject.id, [bill.line_id for bill in subject.lines]) == (orphan.id, ["a"])
        assert subject.booked_usd == {"gpu": Decimal("0.5")}


async def test_an_instance_existed_while_it_was_an_orphan_of_the_same_account(db: Database) -> None:
    async with db.write() as tx:
        row = await gone(tx, ref="7", sent_at=START)
        for account, hours in (("acct-1", 3), ("acct-2", 9)):
            times: dict[str, Any] = {"billing_from": START - hours * HOUR, "ended_at": START + hours * HOUR}
            await rows.stray(tx, OrphanState.GONE, ref="7", account=account, at=START - hours * HOUR, **times)
    async with db.read() as tx:
        (subject,) = await accounts(tx, [MINE], START)
        assert subject.id == row.id
        assert (subject.existed_from, subject.existed_until) == (START - 3 * HOUR, START + 3 * HOUR)
        # What is booked of it is as before.
        assert (subject.billing_from, subject.ended_at) == (START, START + HOUR)
