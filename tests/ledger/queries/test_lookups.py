"""Rows by what they belong to."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.jobs.stored import stored_job
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import new_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import GrantState, InstanceState, OrphanState, RequestState, SessionState
from ledger.models import AdvanceApproval, Approval, GrantRow, Request, SshKey, WaitLimits
from ledger.queries.access import Whose
from ledger.queries.cloud_accounts import accounts_in_use
from ledger.queries.lookups import (
    OpenInstance,
    advances_of,
    billed_since,
    failed_machines,
    grants_of_session,
    instances_by_label,
    instances_of_session,
    is_label_taken,
    jobs_of,
    latest_request,
    limits_of,
    lives_of,
    next_numbers,
    open_advances,
    open_grants,
    open_instances,
    open_instances_of,
    open_instances_of_session,
    open_starts,
    past_on_hosts,
    public_keys,
    session_and_its_bill,
    session_states,
    undecided_creates,
    waiting_extensions,
    waiting_jobs,
)
from ledger.queries.metering import billable_ids
from ledger.queries.orphans import open_orphans
from tests.support import rows
from tests.support.clock import START

DAY = timedelta(days=1)


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
        assert await is_label_taken(tx, gone.label)
        assert not await is_label_taken(tx, f"{gone.label}x")
        assert await open_instances(tx, "vast", 9) == ([], False)  # One was never sent, the other is gone.
        assert await billable_ids(tx) == []


async def test_what_waits_for_a_session_and_when_it_was_billed(db: Database) -> None:
    minute = timedelta(minutes=1)
    async with db.write() as tx:
        refused = await rows.instance(tx, InstanceState.REJECTED)
        request = await tx.get_one(Request, refused.request_id)
        never = await rows.replacement(tx, refused, InstanceState.TOMBSTONE, at=START + minute)
        gone = await rows.replacement(
            tx, never, InstanceState.GONE, at=START + 2 * minute, ended_at=START + 9 * minute,
            billing_until=START + 8 * minute,
        )  # fmt: skip
        lost = await rows.replacement(tx, gone, InstanceState.GONE, at=START + 3 * minute, ended_at=START + 9 * minute)
        live = await rows.replacement(tx, lost, InstanceState.LIVE, at=START + 4 * minute)
        await rows.replacement(tx, live, InstanceState.READY, at=START + 5 * minute)
        other = await rows.instance(tx, at=START - minute)
        grant = await tx.get_one(GrantRow, live.grant_id)
        by = await tx.get_one(Approval, grant.approval_id)
        starts = [
            await rows.grant(tx, request, state, by=by, kind=kind, seq=seq, session_id=of)
            for seq, state, kind, of in (
                (1, GrantState.OPEN, GrantKind.START, refused.session_id),
                (2, GrantState.USED, GrantKind.START, refused.session_id),
                (3, GrantState.OPEN, GrantKind.START, other.session_id),
                (4, GrantState.OPEN, GrantKind.EXTEND, refused.session_id),
            )
        ]
        waits = await rows.request(tx, kind=RequestKind.EXTEND, parent_id=request.id)
        for state, kind, parent_id in (
            (RequestState.APPROVED, RequestKind.EXTEND, request.id),
            (RequestState.PENDING, RequestKind.OVERSPEND, request.id),
            (RequestState.PENDING, RequestKind.EXTEND, other.request_id),
        ):
            await rows.request(tx, state, kind=kind, parent_id=parent_id)
    async with db.read() as tx:
        assert [one.id for one in await waiting_extensions(tx, request.id)] == [waits.id]
        assert [one.id for one in await open_starts(tx, refused.session_id)] == [starts[0].id]
        assert await billed_since(tx, refused.session_id) == START + 2 * minute
        assert await billed_since(tx, "ses_none") is None
        found, began_at = await session_and_its_bill(tx, refused.session_id)
        assert (found.id, began_at) == (refused.session_id, START + 2 * minute)
        assert await session_states(tx, [request.id, "req_none"]) == {request.id: found.state}
        assert await session_states(tx, []) == {}
        assert sorted(await lives_of(tx, refused.session_id), key=lambda one: one[1]) == [
            (by.id, START + 2 * minute, START + 8 * minute),
            (by.id, START + 3 * minute, START + 9 * minute),
            (by.id, START + 4 * minute, None),
        ]


async def test_a_cloud_without_an_open_orphan_says_so(db: Database) -> None:
    async with db.write() as tx:
        live = await rows.instance(tx, InstanceState.LIVE)
        await rows.stray(tx, OrphanState.GONE)
        await rows.stray(tx, cloud="runpod")
    async with db.read() as tx:
        assert await open_instances(tx, "runpod", 9) == ([], True)
        found, orphans = await open_instances(tx, "vast", 9)
    assert ([one.id for one in found], orphans) == ([live.id], False)


async def test_rows_of_a_cloud(db: Database) -> None:
    async with db.write() as tx:
        live = await rows.instance(tx, InstanceState.LIVE)
        other = await rows.instance(tx, InstanceState.LIVE, account="acct-2")
        unknown = await rows.instance(tx, InstanceState.UNKNOWN)
        stray = await rows.stray(tx, of=live)
        await rows.stray(tx, OrphanState.GONE)
        foreign = await rows.stray(tx, account="acct-2")
    async with db.read() as tx:
        found, orphans = await open_instances(tx, "vast", 9)
        assert {i.id for i in found} == {live.id, other.id, unknown.id}
        assert orphans
        assert len(await billable_ids(tx)) == 2
        assert {s.id for s in await open_orphans(tx, "vast")} == {stray.id, foreign.id}
        columns, orphans = await open_instances(tx, "vast", 2)  # More than these few.
        assert {i.id for i in columns} == {live.id, other.id, unknown.id}
        assert orphans
        assert all(isinstance(one, OpenInstance) for one in columns)
        of_them = await open_instances_of(tx, "vast", [live.id, "ins_none"])
        assert [i.id for i in of_them] == [live.id]
        assert [(one.account, one.count) for one in await accounts_in_use(tx)] == [("acct-1", 3), ("acct-2", 2)]
        assert set(await instances_by_label(tx, [live.label, "none"])) == {live.label}
        assert await instances_by_label(tx, []) == {}


async def test_whose_key_it_is(db: Database) -> None:
    async with db.write() as tx:
        for owner, name, hours in ((rows.ADA.ref, "x", 1), (rows.ADA.ref, "y", 0), ("operator:ada", "z", 2)):
            at = START + timedelta(hours=hours)
            tx.add(SshKey(owner=owner, public_key="ssh-ed25519 AAAA", fingerprint=f"SHA256:{name}", created_at=at))
    ada = Whose.of([rows.ADA, Actor(ActorKind.OPERATOR, "ada")])
    async with db.read() as tx:
        assert [one.fingerprint for one in await public_keys(tx, ada)] == ["SHA256:y", "SHA256:x", "SHA256:z"]
        assert await public_keys(tx, Whose.of([rows.BEN])) == []


async def test_machines_that_failed_of_late(db: Database) -> None:
    codes = {"throttled", "no_login"}
    async with db.write() as tx:
        for machine, code, at in (
            ("7", "throttled", START),
            ("8", "asked", START),
            ("9", "no_login", START - timedelta(hours=2)),
            (None, "no_login", START),
        ):
            await rows.instance(tx, InstanceState.GONE, at=at, machine_id=machine, outcome_code=code)
    async with db.read() as tx:
        assert await failed_machines(tx, codes, START - timedelta(hours=1)) == {("vast", "7")}
        assert await failed_machines(tx, codes, START - timedelta(hours=3)) == {("vast", "7"), ("vast", "9")}
        assert await failed_machines(tx, (), START - timedelta(hours=3)) == set()


async def test_what_became_of_the_newest_instances_on_known_hosts(db: Database) -> None:
    async with db.write() as tx:
        for machine, at, more in (
            ("7", START, {"outcome_code": "throttled", "gpu_check": {"verdict": "throttled"}}),
            ("8", START + timedelta(hours=1), {"reachable_at": START, "ended_at": START, "gpu_booked_s": 60}),
            ("9", START - timedelta(days=2), {}),
            (None, START, {}),
        ):
            await rows.instance(tx, InstanceState.GONE, at=at, machine_id=machine, **more)
    async with db.read() as tx:
        since = START - timedelta(days=1)
        found = [tuple(row) for row in await past_on_hosts(tx, since, 10)]
        assert found == [
            ("vast", "8", "", START, START, 60, None),
            ("vast", "7", "throttled", None, None, None, {"verdict": "throttled"}),
        ]
        assert [row[1] for row in await past_on_hosts(tx, since - timedelta(days=2), 10)] == ["8", "7", "9"]
        assert [row[1] for row in await past_on_hosts(tx, since, 1)] == ["8"]


def advance(of: Request, state: GrantState, approver: str, at: datetime = START) -> AdvanceApproval:
    """One approval of the limits of a request."""
    return AdvanceApproval(
        id=new_id("adv", at), request_id=of.id, state=state, approver=approver, owner=of.requester, label="", gpu={},
        hours="2", price_cap_usd_h=Decimal(1), total_cap_usd=Decimal(3), until=START + DAY, at=at,
    )  # fmt: skip


async def test_limits_jobs_and_approvals_in_advance(db: Database) -> None:
    async with db.write() as tx:
        waits = await rows.request(tx, RequestState.WAITING)
        other = await rows.request(tx, at=START + DAY)
        tx.add(WaitLimits(request_id=waits.id, from_at=START, until=START + DAY, gpu={}, hours="2"))
        await tx.flush()
        later = advance(waits, GrantState.OPEN, rows.BEN.ref, START + DAY / 2)
        first = advance(waits, GrantState.OPEN, "operator:eve")
        tx.add_all([later, first, advance(waits, GrantState.VOID, "operator:kim")])
    async with db.read() as tx:
        assert list(await limits_of(tx, [waits.id, other.id])) == [waits.id]
        job = stored_job(rows.JOB)
        assert await jobs_of(tx, [waits.id, other.id]) == {waits.id: (job, ()), other.id: (job, ())}
        assert await waiting_jobs(tx, 10) == [job]
        assert [one.id for one in await open_advances(tx, waits.id)] == [first.id, later.id]
        found = await advances_of(tx, [waits.id, other.id])
        assert {key: [one.id for one in many] for key, many in found.items()} == {waits.id: [first.id, later.id]}
        newest = await latest_request(tx, Whose.of([rows.ADA]))
        assert newest is not None
        assert newest.id == other.id
        assert await latest_request(tx, Whose.of([rows.BEN])) is None


async def test_creates_without_an_outcome_at_every_cloud(db: Database) -> None:
    async with db.read() as tx:
        assert await undecided_creates(tx) == []
    async with db.write() as tx:
        made = {state: await rows.instance(tx, state) for state in InstanceState}
        elsewhere = await rows.instance(tx, InstanceState.SENDING, cloud="runpod", account="acct-2")
    undecided = [made[InstanceState.SENDING].id, made[InstanceState.UNKNOWN].id, elsewhere.id]
    async with db.read() as tx:
        assert [row.id for row in await undecided_creates(tx)] == undecided
