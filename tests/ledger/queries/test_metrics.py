"""How much work waits."""

from __future__ import annotations

from decimal import Decimal

from ledger.core.moves import move
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InboxState, InstanceState, OrphanState, RequestState, SessionState
from ledger.models import Inbox, Orphan
from ledger.queries.metrics import Figures, figures, waiting_rows
from tests.support import rows
from tests.support.clock import START


async def test_how_much_work_waits(db: Database) -> None:
    async with db.read() as tx:
        assert await waiting_rows(tx) == {"inbox": 0, "quotes": 0, "creates": 0, "outbox": 0}
    async with db.write() as tx:
        await rows.request(tx, RequestState.QUOTING)
        await rows.request(tx, RequestState.PENDING)
        await rows.instance(tx, InstanceState.READY)
        stray = await rows.stray(tx)
        await move(tx, Orphan, stray.id, OrphanState.CONDEMNED, at=START, actor=SYSTEM)
        for key, state in (("k1", InboxState.NEW), ("k2", InboxState.NEW), ("k3", InboxState.DONE)):
            tx.add(Inbox(key=key, kind="command", body={}, answer={}, state=state, received_at=START))
    async with db.read() as tx:
        assert await waiting_rows(tx) == {"inbox": 2, "quotes": 1, "creates": 1, "outbox": 1}


async def test_what_has_not_ended_and_what_it_costs(db: Database) -> None:
    async with db.read() as tx:
        assert await figures(tx) == Figures({}, {}, {}, {}, Decimal(0))
    async with db.write() as tx:
        for state in RequestState:
            await rows.request(tx, state)
        await rows.request(tx, RequestState.PENDING)
        for session_state in SessionState:
            await rows.session(tx, session_state)
        session = await rows.session(tx, SessionState.RUNNING)
        found = [await rows.instance(tx, InstanceState.LIVE, of=session)]
        for instance_state in InstanceState:
            found.append(await rows.replacement(tx, found[-1], instance_state, price_usd_h=Decimal("0.7")))
        found.append(await rows.replacement(tx, found[-1], InstanceState.STOPPED, cloud="lambda"))
        await rows.entry(tx, found[0], "1.25")
        await rows.entry(tx, found[-1], "0.5")
        await rows.entry(tx, found[0], "40", kind=EntryKind.RESERVE)
    async with db.read() as tx:
        found_now = await figures(tx)
        assert found_now.requests == {"waiting": 1, "quoting": 1, "pending": 2}
        assert found_now.sessions == {
            "queued": 1, "provisioning": 1, "running": 2, "stopped": 1, "terminating": 1
        }  # fmt: skip
        one_each = ("ready", "sending", "unknown", "stopped", "terminating")
        assert found_now.instances == {
            **{("vast", state): 1 for state in one_each},
            ("vast", "live"): 2,
            ("lambda", "stopped"): 1,
        }
        assert found_now.usd_per_hour == {"vast": Decimal("1.1")}
        assert found_now.booked_usd == Decimal("1.75")
