"""Which rows of a session are machines."""

from __future__ import annotations

from typing import Any

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import GrantRow, Instance, Session
from ledger.queries.lookups import grants_of_session
from ledger.queries.runs.machines import machines, machines_of_session
from tests.support import rows

REFUSED = InstanceState.REJECTED


async def create(tx: Tx, of: Session, n: int, state: InstanceState, under: GrantRow, **values: Any) -> Instance:
    """A create of one and the same offer."""
    return await rows.instance(tx, state, of=of, under=under, n=n, **({"option_id": "opt_1"} | values))


async def test_a_refused_create_that_was_sent_again_is_no_machine(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.PROVISIONING)
        refused = await rows.instance(tx, REFUSED, of=session, n=1, option_id="opt_1")
        (under,) = await grants_of_session(tx, session.id)
        again = await create(tx, session, 2, REFUSED, under)
        last = await create(tx, session, 3, InstanceState.LIVE, under)
        other_offer = await create(tx, session, 4, REFUSED, under, option_id="opt_2")
        other_grant = await rows.replacement(tx, other_offer, REFUSED, option_id="opt_1")
        elsewhere = await rows.instance(tx, REFUSED, option_id="opt_1", n=9)
    async with db.read() as tx:
        session_rows = [refused, again, last, other_offer, other_grant]
        kept = await machines_of_session(tx, session.id)
        assert [row.id for row in kept] == [last.id, other_offer.id, other_grant.id]
        # The order in which rows come changes nothing but the order of the machines.
        assert [row.id for row in machines(reversed([*session_rows, elsewhere]))] == [
            elsewhere.id,
            other_grant.id,
            other_offer.id,
            last.id,
        ]
        assert await machines_of_session(tx, "ses_none") == []


async def test_each_place_of_a_set_is_a_machine_of_its_own(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.PROVISIONING, nodes=2)
        first = await rows.instance(tx, REFUSED, of=session, n=1, option_id="opt_1", node_rank=0)
        (under,) = await grants_of_session(tx, session.id)
        refused = await create(tx, session, 2, REFUSED, under, node_rank=1)
        again = await create(tx, session, 3, REFUSED, under, node_rank=1)
    async with db.read() as tx:
        kept = await machines_of_session(tx, session.id)
        assert refused.id not in {row.id for row in kept}
        assert [row.id for row in kept] == [first.id, again.id]


async def test_a_create_that_was_not_refused_stays_a_machine(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        gone = await rows.instance(tx, InstanceState.GONE, of=session, n=1, option_id="opt_1")
        (under,) = await grants_of_session(tx, session.id)
        live = await create(tx, session, 2, InstanceState.LIVE, under)
    async with db.read() as tx:
        assert [row.id for row in await machines_of_session(tx, session.id)] == [gone.id, live.id]
