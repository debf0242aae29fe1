"""Our costs as other tools read them, theirs beside ours, and sums that must agree."""

from __future__ import annotations

import asyncio
from dataclasses import astuple
from datetime import timedelta
from decimal import Decimal
from typing import Any

from bot.services.billing.rollup import entry_hash
from ledger.core.writes import Tx, book
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InstanceState, OrphanState, SessionState
from ledger.models import Orphan
from ledger.queries.access import Whose
from ledger.queries.rollup import fold
from ledger.queries.shared_ledger import (
    Totals,
    add_externals,
    booked_of_tools,
    chain,
    charges,
    entries_of,
    externals_known,
    live_instances,
    others_entries,
    own_entries,
    totals,
)
from ledger.queries.spend import EVERYBODY, Purse
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import somebody_waits

HOUR = timedelta(hours=1)
ADA, BEN = rows.ADA.ref, rows.BEN.ref


async def cost(tx: Tx, key: str, usd: str, skill: str = "storage", owner: str = ADA) -> dict[str, Any]:
    """The row of another tool's cost, with the entry that books it."""
    await book(
        tx, key=f"external/{key}", kind=EntryKind.EXTERNAL, debit="external:s3", credit="payable:s3",
        amount_usd=abs(Decimal(usd)), at=START,
    )  # fmt: skip
    (entry_id,) = (await entries_of(tx, [f"external/{key}"])).values()
    return {
        "entry_id": entry_id, "key": key, "skill": skill, "provider": "s3", "action": "store", "owner": owner,
        "amount_usd": Decimal(usd), "at": START, "added_at": START, "notes": "",
    }  # fmt: skip


async def test_another_tools_cost_is_known_by_its_key(db: Database) -> None:
    async with db.write() as tx:
        first, second, refund = [await cost(tx, *one) for one in (("a", "3"), ("b", "2"), ("c", "-0.5"))]
        foreign = [await cost(tx, "d", "7", owner=BEN), await cost(tx, "e", "11", "search")]
        assert await add_externals(tx, [first, second]) == {"a", "b"}
        assert await add_externals(tx, [second | {"amount_usd": Decimal(99)}, refund, *foreign]) == {"c", "d", "e"}
        assert await add_externals(tx, []) == set()
    # More keys than one query takes.
    keys = ["a", *(f"no{n}" for n in range(500)), "c"]
    async with db.write() as tx:
        assert await externals_known(tx, keys) == {"a": first["entry_id"], "c": refund["entry_id"]}
        assert await externals_known(tx, []) == {}
        assert [one.key for one in await others_entries(tx, None)] == ["a", "b", "c", "d", "e"]
        assert await others_entries(tx, START + HOUR) == []
        assert await entries_of(tx, ["external/a", "external/none"]) == {"external/a": first["entry_id"]}
        assert await booked_of_tools(tx, {"storage", "unused"}, ADA) == {"storage": Decimal("4.5"), "unused": 0}
        assert await booked_of_tools(tx, ["search"], ADA) == {"search": Decimal(11)}
        assert await booked_of_tools(tx, ["storage", "search"], BEN) == {"storage": Decimal(7), "search": 0}


async def test_two_callers_for_one_tool_count_one_after_the_other(pg_db: Database) -> None:
    async def count(owner: str) -> Decimal:
        async with pg_db.write() as tx:
            return (await booked_of_tools(tx, ["a", "storage"], owner))["storage"]

    async with pg_db.write() as tx:
        assert await booked_of_tools(tx, ["storage"], ADA) == {"storage": 0}
        counting = asyncio.create_task(count(ADA))
        await somebody_waits(pg_db, counting)
        await add_externals(tx, [await cost(tx, "a", "3")])
    assert await counting == 3


async def loss(tx: Tx, of: Orphan, usd: str, at_h: int, note: str = "") -> None:
    sides = {"debit": f"loss:{of.id}", "credit": "payable:vast:acct-1"}
    if Decimal(usd) < 0:
        sides = {"debit": sides["credit"], "credit": sides["debit"]}
    kind, at = EntryKind.LOSS, START + at_h * HOUR
    await book(tx, key=f"l{at_h}", kind=kind, amount_usd=abs(Decimal(usd)), at=at, note=note, **sides)


async def test_our_entries_hour_by_hour(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.TERMINATED, gpu="H100", gpu_count=2)
        over = START + 2 * HOUR
        row = await rows.instance(tx, InstanceState.GONE, of=session, ended_at=over, sent_at=START - HOUR)
        booked_hours: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("1.5", "gpu/h0", {}),
            ("0.25", "storage/h1", {"component": "storage"}),
            ("1.5", "gpu/h1", {}),
            ("0.75", "gpu/final", {}),
            ("0.125", "storage/final", {"component": "storage"}),
            ("-0.5", "true-up/1", {"kind": EntryKind.TRUE_UP, "note": "billed less"}),
            ("0.0625", "disk/1/h0", {"component": "storage"}),
            ("0.03125", "gpu/stop-9000", {}),
            ("80", "reserve", {"kind": EntryKind.RESERVE}),
        )
        for hour, (usd, key, values) in enumerate(booked_hours):
            await rows.entry(tx, row, usd, key=f"{row.id}/{key}", at=START + hour * HOUR, **values)
        live = await rows.instance(tx)
        never = await rows.instance(tx, InstanceState.REJECTED)
        earlier = await rows.instance(tx, InstanceState.GONE, ended_at=over - timedelta(seconds=1), cloud="lambda")
        orphan = await rows.stray(tx, OrphanState.GONE, cloud="runpod")
        for usd, at_h, note in (("2", 1, "running"), ("-0.5", 2, ""), ("1", 3, "")):
            await loss(tx, orphan, usd, at_h, note)
    async with db.read() as tx:
        booked = await entries_of(tx, [f"{row.id}/true-up/1", "l1", "l2", "l3"])
        found = await own_entries(tx, over)
        by_name = {one.id: one for one in await own_entries(tx, None)}
    what, cloud, hours = "2x H100", "vast", ("1.5", "0.25", "1.5", "0", "0", "0", "0.0625", "0.03125")
    mine = [
        (f"{row.id}/created", cloud, "instance_created", Decimal(0), START - HOUR, what),
        # What one hour cost is one entry, whichever hour of its own each component counts.
        *(
            (f"{row.id}/h{n}", cloud, "instance_hour", Decimal(usd), START + n * HOUR, what)
            for n, usd in enumerate(hours)
        ),
        (f"{row.id}/terminated", cloud, "instance_terminated", Decimal("0.875"), over, what),
        (booked[f"{row.id}/true-up/1"], cloud, "correction", Decimal("-0.5"), START + 5 * HOUR, "billed less"),
    ]
    started = (f"{live.id}/created", cloud, "instance_created", Decimal(0), START, "1x RTX 4090")
    lost = [
        (booked["l2"], "runpod", "loss", Decimal("-0.5"), START + 2 * HOUR, "no session"),
        (booked["l3"], "runpod", "loss", Decimal(1), START + 3 * HOUR, "no session"),
    ]
    both = [*mine, started] if row.id < live.id else [started, *mine]
    assert [astuple(one) for one in found] == [*both, *lost]
    assert by_name.keys() - {one.id for one in found} == {
        f"{earlier.id}/created",
        f"{earlier.id}/terminated",
        booked["l1"],
    }
    assert by_name[booked["l1"]].notes == "running"
    assert not any(name.startswith(never.id) for name in by_name)


async def test_instances_that_may_exist(db: Database) -> None:
    async with db.write() as tx:
        bens = await rows.session(tx, of=await rows.request(tx, requester=BEN))
        ready, live = await rows.instance(tx, InstanceState.READY), await rows.instance(tx, of=bens)
        await rows.instance(tx, InstanceState.GONE)
    async with db.read() as tx:
        found = [(row.id, session.owner) for row, session in await live_instances(tx, None)]
        assert found == [(ready.id, ADA), (live.id, BEN)]
        mine = [(row.id, session.id) for row, session in await live_instances(tx, Whose.of([rows.BEN]))]
        assert mine == [(live.id, bens.id)]


async def test_the_chain_is_read_in_order_and_sums_agree_while_entries_wait(db: Database) -> None:
    async with db.read() as tx:
        assert await totals(tx) == Totals(0, 0, 0, *[Decimal(0)] * 4)
        assert [link async for link in chain(tx)] == []
    async with db.write() as tx:
        row = await rows.instance(tx)
        for n in range(5):
            await rows.entry(tx, row, "1.5", key=f"k{n}", at=START + n * HOUR)
        await rows.entry(tx, row, "-0.5", key="k5", kind=EntryKind.TRUE_UP, at=START + 5 * HOUR)
        await rows.entry(tx, row, "40", key="k6", kind=EntryKind.RESERVE, at=START + 6 * HOUR)
    async with db.write() as tx:
        await fold(tx, 4, entry_hash)
    async with db.read() as tx:
        first = await totals(tx)
        assert (first.entries, first.hashed, first.waiting, first.accounts_usd) == (7, 4, 3, Decimal(0))
        assert (first.raw_usd, first.rolled_usd, first.waiting_usd) == (Decimal(7), Decimal(6), Decimal(1))
        for batch in (1, 2, 3, 4, 5):
            links = [link async for link in chain(tx, batch)]
            assert [(number, entry["key"]) for number, _, entry in links] == [(n + 1, f"k{n}") for n in range(4)]
            before = ""
            for _, sealed, entry in links:
                assert sealed == entry_hash(before, entry)
                before = sealed
    async with db.write() as tx:
        await fold(tx, 9, entry_hash)
        second = await totals(tx)
    assert (second.hashed, second.waiting) == (7, 0)
    assert (second.rolled_usd, second.waiting_usd) == (Decimal(7), Decimal(0))


async def test_charges_come_in_pages_with_what_they_were_spent_on(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        mine = await rows.instance(tx, InstanceState.LIVE, of=session)
        for hour in range(4):
            await rows.entry(tx, mine, "0.5", at=START + hour * HOUR)
        await rows.entry(tx, mine, "-0.1", kind=EntryKind.TRUE_UP, at=START + HOUR)
        await rows.entry(tx, mine, "9", kind=EntryKind.RESERVE, at=START + HOUR)
        await add_externals(tx, [await cost(tx, "a", "3", owner=BEN)])
    async with db.read() as tx:
        # The start is left out and the end is in it, because an entry's time is the end of what it books.
        inside = await charges(tx, EVERYBODY, START, START + 2 * HOUR)
        assert [(one.at, one.amount_usd) for one in inside if one.kind is EntryKind.ACCRUE] == [
            (START + HOUR, Decimal("0.5")),
            (START + 2 * HOUR, Decimal("0.5")),
        ]
        assert [one.amount_usd for one in inside if one.kind is EntryKind.TRUE_UP] == [Decimal("-0.1")]
        everything = await charges(tx, EVERYBODY, START - HOUR, START + 9 * HOUR)
        paged, last = [], None
        while page := await charges(tx, EVERYBODY, START - HOUR, START + 9 * HOUR, last, limit=2):
            paged += page
            last = page[-1]
        assert paged == everything
        assert len(everything) == 6
        (theirs,) = await charges(tx, Purse(Whose(frozenset({BEN}))), START - HOUR, START)
        assert (theirs.tool, theirs.cloud, theirs.account, theirs.gpu_count) == ("storage", "s3", "", 1)
        first = next(one for one in everything if one.session_id)
        assert (first.owner, first.cloud, first.account) == (session.owner, mine.cloud, mine.account)
        assert (first.price_usd_h, first.region, first.spot) == (mine.price_usd_h, mine.offer.get("region", ""), False)
