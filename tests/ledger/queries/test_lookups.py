"""Rows by what they belong to."""

from __future__ import annotations

from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, OrphanState, SessionState
from ledger.models import Approval, Request, SshKey
from ledger.queries.cloud_accounts import accounts_in_use
from ledger.queries.lookups import (
    grants_of_session,
    instances_by_label,
    instances_of_session,
    next_numbers,
    open_grants,
    open_instances,
    open_instances_of_session,
    public_key,
)
from ledger.queries.metering import billable_ids
from ledger.queries.orphans import open_orphans
from tests.support import rows
from tests.support.clock import START


async def test_rows_of_a_session(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.PROVISIONING)
        gone = await rows.instance(tx, InstanceState.GONE, of=session, n=1)
        grant = (await grants_of_session(tx, session.id))[0]
        ready = await rows.instance(tx, InstanceState.READY, of=session, under=grant, n=2)
        spare = await rows.grant(
            tx,
            await tx.get_one(Request, session.request_id),
            by=await tx.get_one(Approval, grant.approval_id),
            seq=2,
        )
    async with db.read() as tx:
        assert [i.id for i in await instances_of_session(tx, session.id)] == [gone.id, ready.id]
        assert [i.id for i in await open_instances_of_session(tx, session.id)] == [ready.id]
        assert [g.id for g in await open_grants(tx, session.request_id)] == [spare.id]
        assert await next_numbers(tx, session.request_id, "create") == (3, 3)
        assert await next_numbers(tx, session.request_id, "extend") == (1, 3)
        assert await open_instances(tx, "vast") == []  # One was never sent, the other is gone.
        assert await billable_ids(tx) == []


async def test_rows_of_a_cloud(db: Database) -> None:
    async with db.write() as tx:
        live = await rows.instance(tx, InstanceState.LIVE)
        other = await rows.instance(tx, InstanceState.LIVE, account="acct-2")
        unknown = await rows.instance(tx, InstanceState.UNKNOWN)
        stray = await rows.stray(tx, of=live)
        await rows.stray(tx, OrphanState.GONE)
        foreign = await rows.stray(tx, account="acct-2")
    async with db.read() as tx:
        assert {i.id for i in await open_instances(tx, "vast")} == {live.id, other.id, unknown.id}
        assert len(await billable_ids(tx)) == 2
        assert {s.id for s in await open_orphans(tx, "vast")} == {stray.id, foreign.id}
        assert [(one.account, one.count) for one in await accounts_in_use(tx)] == [("acct-1", 3), ("acct-2", 2)]
        assert set(await instances_by_label(tx, [live.label, "none"])) == {live.label}
        assert await instances_by_label(tx, []) == {}


async def test_whose_key_it_is(db: Database) -> None:
    async with db.write() as tx:
        tx.add(SshKey(owner=rows.ADA.ref, public_key="ssh-ed25519 AAAA", fingerprint="SHA256:x", created_at=START))
    async with db.read() as tx:
        key = await public_key(tx, rows.ADA.ref)
        assert key is not None
        assert key.fingerprint == "SHA256:x"
        assert await public_key(tx, rows.BEN.ref) is None
