"""Accounts at clouds, and rows that move to another key's account."""

from __future__ import annotations

from dataclasses import astuple
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import select

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, OrphanState
from ledger.models import BillLine, Event, Instance, Orphan
from ledger.queries.cloud_accounts import (
    accounts_in_use,
    listing_times,
    move_account,
    note_listing,
    open_there,
    rows_named,
)
from ledger.queries.cloud_bills import keep_lines
from tests.support import rows
from tests.support.clock import START

HOUR = timedelta(hours=1)


async def test_what_is_open_in_each_account_and_since_when(db: Database) -> None:
    async with db.write() as tx:
        live = await rows.instance(tx, InstanceState.LIVE, at=START + 2 * HOUR)
        of_ben = await rows.session(tx, of=await rows.request(tx, requester=rows.BEN.ref))
        sending = await rows.instance(tx, InstanceState.SENDING, of=of_ben, at=START + HOUR)
        await rows.instance(tx, InstanceState.READY)
        await rows.instance(tx, InstanceState.GONE)
        other = await rows.instance(tx, InstanceState.UNKNOWN, account="acct-2")
        elsewhere = await rows.instance(tx, cloud="runpod", account="acct-2")
        orphan = await rows.stray(tx, at=START - HOUR)
        young = await rows.stray(tx, OrphanState.QUARANTINED, at=START + 3 * HOUR)
        await rows.stray(tx, OrphanState.GONE, at=START - 9 * HOUR)
    async with db.read() as tx:
        assert [astuple(one) for one in await accounts_in_use(tx)] == [
            ("runpod", "acct-2", 1, START),
            ("vast", "acct-1", 4, START - HOUR),
            ("vast", "acct-2", 1, START),
        ]
        # Not every cloud with every account: only these pairs.
        found = await open_there(tx, [("vast", "acct-1"), ("runpod", "acct-2"), ("lambda", "acct-1")])
        ada, ben = rows.ADA.ref, rows.BEN.ref
        assert [(row.id, owner) for row, owner in found] == [
            (elsewhere.id, ada),
            (sending.id, ben),
            (live.id, ada),
            (orphan.id, ""),
            (young.id, ""),
        ]
        assert await open_there(tx, []) == []
        named = await rows_named(tx, [young.id, other.id, orphan.id, sending.id, "none"])
        assert [row.id for row in named] == [*sorted([other.id, sending.id]), *sorted([young.id, orphan.id])]


def line(account: str, name: str, usd: str = "1") -> dict[str, object]:
    times = {"begins": START, "ends": START + HOUR, "read_at": START + HOUR}
    return {
        "cloud": "vast", "account": account, "line_id": name, "ref": "7", "component": "gpu",
        "amount_usd": Decimal(usd), **times,
    }  # fmt: skip


async def test_rows_move_to_another_account_with_their_history_and_bills(db: Database) -> None:
    async with db.write() as tx:
        seen: dict[str, Any] = {"absent_at": [START.isoformat()]}
        moved: list[Instance | Orphan] = [
            await rows.instance(tx, InstanceState.LIVE, **seen),
            await rows.instance(tx, InstanceState.READY, account="acct-2"),
            await rows.instance(tx, InstanceState.GONE, ended_at=START),
            await rows.stray(tx, OrphanState.QUARANTINED, **seen),
        ]
        await rows.stray(tx, OrphanState.SEEN, account="new", ref="twice")
        left: list[Instance | Orphan] = [
            await rows.instance(tx, InstanceState.GONE, ended_at=START - timedelta(seconds=1)),
            await rows.instance(tx, InstanceState.LIVE, account="acct-3"),
            await rows.instance(tx, InstanceState.LIVE, cloud="runpod"),
            await rows.stray(tx, OrphanState.GONE),
            await rows.stray(tx, OrphanState.SEEN, cloud="runpod"),
            await rows.stray(tx, OrphanState.SEEN, ref="twice"),
        ]
        await keep_lines(tx, [line("acct-1", "a"), line("acct-2", "b"), line("acct-3", "c"), line("new", "d", "5")])
        await keep_lines(tx, [line("acct-1", "d"), line("acct-1", "e") | {"cloud": "runpod"}])
        before = {row.id: row.account for row in left}

    async def move(tx: Tx, after: str = "new") -> int:
        return await move_account(
            tx, "vast", ["acct-1", "acct-2"], after, ended_since=START, at=START + HOUR, actor=SYSTEM, reason="new key"
        )

    async with db.write() as tx:
        assert await move(tx) == 3
    async with db.write() as tx:
        assert await move(tx) == 0
    async with db.read() as tx:
        found = {row.id: row for row in [*await tx.scalars(select(Instance)), *await tx.scalars(select(Orphan))]}
        assert [(found[row.id].account, found[row.id].version, found[row.id].absent_at) for row in moved] == [
            ("new", 2, [])
        ] * 4
        assert {row_id: (found[row_id].account, found[row_id].version) for row_id in before} == {
            row_id: (account, 1) for row_id, account in before.items()
        }
        events = {event.subject: event for event in await tx.scalars(select(Event))}
        assert {row.id: (events[row.id].before, events[row.id].after) for row in moved} == {
            row.id: (row.account, "new") for row in moved
        }
        assert {event.kind for event in events.values()} == {
            EventKind.INSTANCE_ACCOUNT_MOVED,
            EventKind.ORPHAN_ACCOUNT_MOVED,
        }
        assert len(events) == len(moved)
        assert events[moved[0].id].reason == "new key"
        lines = {(one.cloud, one.line_id, one.account): one.amount_usd for one in await tx.scalars(select(BillLine))}
        assert lines == {
            ("vast", "a", "new"): 1,
            ("vast", "b", "new"): 1,
            ("vast", "c", "acct-3"): 1,
            ("vast", "d", "new"): 5,
            ("vast", "d", "acct-1"): 1,
            ("runpod", "e", "acct-1"): 1,
        }


async def test_the_newest_complete_listing_of_each_account(db: Database) -> None:
    async with db.write() as tx:
        await note_listing(tx, "vast", "acct-1", START + HOUR)
        await note_listing(tx, "vast", "acct-1", START)  # A slower replica notes an older one.
        await note_listing(tx, "vast", "acct-2", START)
        await note_listing(tx, "vast", "acct-2", START + 2 * HOUR)
    async with db.read() as tx:
        asked = [("vast", "acct-1"), ("vast", "acct-2"), ("runpod", "acct-1")]
        assert await listing_times(tx, asked) == {
            ("vast", "acct-1"): START + HOUR,
            ("vast", "acct-2"): START + 2 * HOUR,
        }
        assert await listing_times(tx, []) == {}
