"""What people and services look at."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import update

from bot.rules.jobs.stored import stored_job
from ledger.core.writes import Tx, book
from ledger.engine.db import Database
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import bare_id, short_id
from ledger.kernel.people.credential_kind import CredentialKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from ledger.models import Approval, GrantRow, Request, Session, Share, Token
from ledger.queries.access import Whose, owned_sessions
from ledger.queries.lookups import by_inbox_key, grants_of_session, instances_page, open_requests, options_of
from ledger.queries.retained_disks import add_disk
from ledger.queries.session_costs import accrued_of_session
from ledger.queries.views import (
    pending_requests,
    request_view,
    requests_page,
    resolve,
    session_to_change,
    session_view,
    session_views,
    sessions_page,
)
from tests.support import rows
from tests.support.clock import START

LATER = START + timedelta(minutes=1)


async def accrue(tx: Tx, session_id: str, usd: str, minute: int) -> None:
    at = START + timedelta(minutes=minute)
    await book(
        tx,
        key=f"accrue/{session_id}/{minute}",
        kind=EntryKind.ACCRUE,
        debit=f"session:{session_id}",
        credit="cloud:vast",
        amount_usd=Decimal(usd),
        at=at,
        session_id=session_id,
    )


async def test_everything_about_one_request(db: Database) -> None:
    async with db.write() as tx:
        parent = await rows.request(tx, RequestState.PENDING, quote_version=2)
        old = await rows.quote(tx, parent, version=1)
        await rows.option(tx, old)
        quote = await rows.quote(tx, parent)
        second, first = await rows.option(tx, quote, 2), await rows.option(tx, quote, 1)
        for version in (1, 2):
            tx.add(Token(token=f"t{version}", request_id=parent.id, quote_version=version, action="reject"))
        votes = [await rows.approval(tx, parent, by, quote_version=1) for by in (rows.BEN, rows.ADA)]
        override = await rows.request(tx, RequestState.PENDING, kind=RequestKind.OVERRIDE_12H, parent_id=parent.id)
    async with db.read() as tx:
        view = await request_view(tx, parent.id)
        assert view.quote is not None
        assert view.quote.id == quote.id
        assert [o.id for o in view.options] == [first.id, second.id]
        assert [t.token for t in view.tokens] == ["t2"]
        assert [a.id for a in view.approvals] == [v.id for v in votes]
        assert (view.session, view.instances, view.parent) == (None, (), None)
        assert view.override is not None
        assert view.override.id == override.id
        other = await request_view(tx, override.id)
        assert other.parent is not None
        assert (other.parent.id, other.override, other.quote, other.options) == (parent.id, None, None, ())
        assert view.options[0].offer_id == f"vast:{first.offer_key}"
        assert [o.id for o in await options_of(tx, second.id)] == [first.id, second.id]
        with pytest.raises(LookupError, match="there is no request req_none"):
            await request_view(tx, "req_none")


async def test_a_session_with_its_newest_instance_and_what_it_cost(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        first = await rows.instance(tx, InstanceState.REJECTED, of=session, n=1)
        grants = await grants_of_session(tx, session.id)
        second = await rows.instance(tx, InstanceState.LIVE, of=session, under=grants[0], n=2)
        await accrue(tx, session.id, "0.10", 5)
        await accrue(tx, session.id, "0.25", 9)
        fresh = await rows.session(tx, SessionState.QUEUED)
    async with db.read() as tx:
        view = await session_view(tx, session.id)
        assert view.instance is not None
        assert view.grant is not None
        assert (view.instance.id, view.grant.id) == (second.id, grants[0].id)
        assert (view.accrued_usd, view.accrued_until) == (Decimal("0.35"), START + timedelta(minutes=9))
        assert await accrued_of_session(tx, session.id) == Decimal("0.35")
        bare = await session_view(tx, fresh.id)
        assert (bare.instance, bare.grant, bare.accrued_usd, bare.accrued_until) == (None, None, Decimal(0), None)
        assert await accrued_of_session(tx, fresh.id) == 0
        assert [i.id for i in (await request_view(tx, session.request_id)).instances] == [first.id, second.id]
        with pytest.raises(LookupError, match="there is no session ses_none"):
            await session_view(tx, "ses_none")


async def test_live_sessions_the_soonest_to_end_first(db: Database) -> None:
    async with db.write() as tx:
        waiting = await rows.session(tx, SessionState.QUEUED)
        late = await rows.session(tx, SessionState.RUNNING, deadline=START + timedelta(hours=9))
        soon = await rows.session(tx, SessionState.RUNNING, deadline=START + timedelta(hours=1), owner=rows.BEN.ref)
        await rows.session(tx, SessionState.TERMINATED)
    async with db.read() as tx:
        assert [v.session.id for v in await session_views(tx)] == [soon.id, late.id, waiting.id]
        assert [v.session.id for v in await session_views(tx, whose=Whose.of([rows.BEN]))] == [soon.id]
        assert [v.session.id for v in await session_views(tx, limit=1)] == [soon.id]
        assert await session_views(tx, whose=Whose()) == []


async def test_pages_from_the_newest_on(db: Database) -> None:
    ada, ben = Whose.of([rows.ADA]), Whose.of([rows.BEN])
    states = (
        (RequestState.QUOTING, SessionState.TERMINATED, InstanceState.GONE),
        (RequestState.APPROVED, SessionState.RUNNING, InstanceState.LIVE),
        (RequestState.PENDING, SessionState.QUEUED, InstanceState.READY),
    )
    asked, held, made = [], [], []
    async with db.write() as tx:
        for n in range(6):
            at, owner = START + timedelta(seconds=n), rows.ADA.ref if n < 4 else rows.BEN.ref
            asked.append(await rows.request(tx, states[n % 3][0], at=at, requester=owner))
            held.append(await rows.session(tx, states[n % 3][1], of=asked[-1], at=at))
            made.append(await rows.instance(tx, states[n % 3][2], of=held[-1], at=at))
    async with db.read() as tx:
        for whose, live, before, limit, expected in (
            (None, False, None, 9, [5, 4, 3, 2, 1, 0]),
            (None, True, None, 9, [5, 4, 2, 1]),
            (ada, True, None, 9, [2, 1]),
            (ben, False, 5, 9, [4]),
            (None, False, 4, 2, [3, 2]),
        ):
            newer = None if before is None else held[before].id
            views = await sessions_page(tx, whose=whose, live=live, before=newer, limit=limit)
            assert [view.session.id for view in views] == [held[n].id for n in expected]
        for whose, before, limit, expected in ((None, None, 9, [3, 0]), (ada, 3, 9, [0]), (ben, None, 9, [])):
            newer = None if before is None else held[before].id
            views = await sessions_page(tx, whose=whose, live=True, before=newer, limit=limit, ended=True)
            assert [view.session.id for view in views] == [held[n].id for n in expected]
        for whose, waiting, before, limit, expected in (
            (None, False, None, 9, [5, 4, 3, 2, 1, 0]),
            (None, True, None, 9, [5, 3, 2, 0]),
            (ada, True, 3, 9, [2, 0]),
            (ben, False, None, 1, [5]),
        ):
            newer = None if before is None else asked[before].id
            found = await requests_page(tx, whose=whose, waiting=waiting, before=newer, limit=limit)
            assert [request.id for request in found] == [asked[n].id for n in expected]
        for whose, live, limit, expected in (
            (None, False, 9, [5, 4, 3, 2, 1, 0]),
            (None, True, 3, [5, 4, 2]),
            (ada, True, 9, [2, 1]),
            (ben, False, 9, [5, 4]),
        ):
            there = await instances_page(tx, whose=whose, live=live, limit=limit)
            assert [row.id for row in there] == [made[n].id for n in expected]
        sessions = [row.session_id for row in made]
        assert await owned_sessions(tx, {*sessions[:5], "ses_none"}, ada) == set(sessions[:4])
        assert await owned_sessions(tx, (), ada) == set()


async def test_what_a_session_may_cost_and_what_is_left_of_it(db: Database) -> None:
    async with db.write() as tx:
        first = await rows.instance(tx, InstanceState.GONE, of=await rows.session(tx, SessionState.TERMINATING))
        row = await rows.replacement(tx, first, InstanceState.STOPPED)
        await rows.entry(tx, first, "0.75")
        await rows.entry(tx, row, "0.5")
        old = await tx.get_one(GrantRow, row.grant_id)
        asked, by = await tx.get_one(Request, row.request_id), await tx.get_one(Approval, old.approval_id)
        longer: dict[str, Any] = {"kind": GrantKind.EXTEND, "session_id": row.session_id, "total_cap_usd": Decimal(1)}
        await rows.grant(tx, asked, by=by, at=LATER, **longer)
        running = await rows.instance(tx, of=await rows.session(tx, SessionState.RUNNING))
        for of in (first, row, running):
            await rows.node(tx, of)
        for of, ended_at in ((first, START), (row, None), (running, None)):
            await add_disk(
                tx, id=f"dsk_{of.n}_{of.id[-4:]}", session_id=of.session_id, instance_id=of.id, owner=rows.ADA.ref,
                cloud=of.cloud, price_usd_h=Decimal("0.01"), since=START, until=LATER, ended_at=ended_at,
            )  # fmt: skip
        await rows.stray(tx, OrphanState.QUARANTINED)
    async with db.read() as tx:
        view, plain = [await session_view(tx, of.session_id) for of in (row, running)]
        assert view.grant is not None
        assert view.node is not None
        assert view.retained_disk is not None
        assert (view.grant.id, view.node.instance_id, view.retained_disk.instance_id) == (old.id, row.id, row.id)
        assert (view.accrued_usd, view.booked.usd) == (Decimal("1.25"), Decimal("0.5"))
        # What is approved for the instance and its extension, and what the one before it cost.
        assert view.cap_usd == 2 + 1 + Decimal("0.75")
        assert (view.unknown, plain.unknown) == (1, 1)
        # A running session shows no disk of its own.
        assert (plain.disk, plain.retained_disk, plain.cap_usd) == (None, None, Decimal(2))
        assert (await request_view(tx, row.request_id)).unknown == 1


async def test_a_named_session_is_locked_and_read_fresh_before_it_is_changed(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        other = await rows.request(tx)
    async with db.write() as tx:
        before = await tx.get_one(Session, session.id)
        await tx.execute(update(Session).values(label="moe").execution_options(synchronize_session=False))
        found = await session_to_change(tx, short_id(session.id))
        assert found is before
        assert found.label == "moe"
        assert await session_to_change(tx, other.id) is None
        with pytest.raises(LookupError, match="is not an id"):
            await session_to_change(tx, "x")


async def test_requests_that_wait(db: Database) -> None:
    async with db.write() as tx:
        second = await rows.request(tx, RequestState.PENDING, created_at=LATER, requester=rows.BEN.ref)
        first = await rows.request(tx, RequestState.QUOTING)
        await rows.request(tx, RequestState.REJECTED)
        await rows.request(tx, RequestState.PENDING, parent_id=first.id, created_at=LATER + timedelta(minutes=1))
        await rows.request(tx, RequestState.PENDING, created_at=LATER + timedelta(minutes=2))
    async with db.read() as tx:
        assert [r.id for r in await pending_requests(tx)][:2] == [first.id, second.id]
        assert [r.id for r in await pending_requests(tx, whose=Whose.of([rows.BEN]))] == [second.id]
        assert len(await pending_requests(tx, limit=1)) == 1
        assert len(await open_requests(tx, Whose.of([rows.ADA]))) == 2  # An override is not an ask of its own.
        assert await open_requests(tx, Whose(frozenset({"slack:T1/UNOBODY"}))) == []
        found = await by_inbox_key(tx, first.inbox_key)
        assert found is not None
        assert found.id == first.id
        assert await by_inbox_key(tx, "none") is None


async def test_people_name_things_by_their_endings(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        alone = await rows.request(tx, RequestState.PENDING, id="req_000000000000aaaa")
        await rows.request(tx, RequestState.PENDING, id="req_00000000000baaaa")
    async with db.read() as tx:
        for named in (session.id, session.request_id, f" `{short_id(session.id).upper()}` ", bare_id(session.id)):
            request, found = await resolve(tx, named)
            assert found is not None
            assert (request.id, found.id) == (session.request_id, session.id)
        request, none = await resolve(tx, "0aaaa")
        assert (request.id, none) == (alone.id, None)
        with pytest.raises(LookupError, match="More than one request or session ends in “aaaa”"):
            await resolve(tx, "aaaa")
        with pytest.raises(LookupError, match="There is no request or session “zzzzzz”"):
            await resolve(tx, "zzzzzz")
        for odd in ("", "abc", "a%bc", "abcd e", "a\x00bcd", "’; DROP TABLE requests"):
            with pytest.raises(LookupError, match="is not an id; give at least the last 4 characters"):
                await resolve(tx, odd)


async def test_a_machine_that_is_gone_does_not_name_the_one_in_its_place(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        gone = await rows.instance(tx, InstanceState.GONE, of=session, n=1, ref="111")
        grant = (await grants_of_session(tx, session.id))[0]
        live = await rows.instance(tx, InstanceState.LIVE, of=session, under=grant, n=2, ref="222")
    async with db.read() as tx:
        for name in (live.id, f"{live.cloud}:222"):
            assert (await resolve(tx, name))[1] is not None
        for name in (gone.id, f"{gone.cloud}:111"):
            with pytest.raises(LookupError):
                await resolve(tx, name)
            assert (await resolve(tx, name, past=True))[0].id == session.request_id


async def test_the_job_of_a_request_has_its_people_as_they_are_now(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED, job=replace(rows.JOB, share=("operator:old",)))
        tx.add(Share(request_id=request.id, person=rows.BEN.ref, shared_by=rows.ADA.ref, created_at=START))
        await rows.credential(tx, request, CredentialKind.SECRET, "HF_TOKEN")
        await rows.credential(tx, request, CredentialKind.SSH_KEY, "SHA256:abc", public_key="ssh-ed25519 AAAA")
        bare = await rows.request(tx)
    async with db.read() as tx:
        view = await request_view(tx, request.id)
        assert (view.request.job, view.shared_with, view.secrets) == (
            stored_job(rows.JOB),
            (rows.BEN.ref,),
            ("HF_TOKEN",),
        )
        plain = await request_view(tx, bare.id)
        assert (plain.request.job, plain.shared_with, plain.secrets) == (stored_job(rows.JOB), (), ())


async def test_a_refused_create_that_was_sent_again_is_not_shown_as_a_machine(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        refused = await rows.instance(tx, InstanceState.REJECTED, of=session, n=1, option_id="opt_1")
        (grant,) = await grants_of_session(tx, session.id)
        live = await rows.instance(tx, of=session, under=grant, n=2, option_id="opt_1")
    async with db.read() as tx:
        view = await request_view(tx, session.request_id)
        assert [row.id for row in view.instances] == [refused.id, live.id]
        assert [row.id for row in view.machines] == [live.id]


@pytest.mark.parametrize(("dealt", "first", "price_usd_h"), [(0, 1, "0.9"), (4, 2, "0.5")], ids=["set", "queue"])
async def test_what_an_hour_of_all_machines_costs(db: Database, dealt: int, first: int, price_usd_h: str) -> None:
    states = (InstanceState.GONE, InstanceState.LIVE, InstanceState.TERMINATING)
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING, nodes=3, dealt_commands=dealt)
        request, by = await tx.get_one(Request, session.request_id), None
        machines = []
        for n, (state, price) in enumerate(zip(states, ("0.4", "0.3", "0.2"), strict=True), 1):
            under = await rows.grant(tx, request, by=by, seq=n, session_id=session.id)
            by = await tx.get_one(Approval, under.approval_id)
            facts: dict[str, Any] = {"n": n, "node_rank": n - 1, "price_usd_h": Decimal(price)}
            machines.append(await rows.instance(tx, state, of=session, under=under, **facts))
            await rows.entry(tx, machines[-1], f"0.0{n}")
        await rows.command_result(tx, machines[0], 1)
        await rows.command_result(tx, machines[0], 2, 1)
        empty = await rows.session(tx, SessionState.QUEUED)
    async with db.read() as tx:
        view = await session_view(tx, session.id)
        # Of those that share a queue the first open one stands for them, and those that ended cost nothing more.
        assert view.instance is not None
        assert view.instance.n == first
        assert [(row.n, booked.usd) for row, booked in view.others] == [
            (n, Decimal(f"0.0{n}")) for n in (1, 2, 3) if n != first
        ]
        assert view.price_usd_h == Decimal(price_usd_h)
        assert view.accrued_usd == Decimal("0.06")
        # Each machine of the session has its part of what was approved: $2.
        assert view.cap_usd == 3 * Decimal(2)
        assert view.ended_commands == ((1, 1) if dealt else (0, 0))
        assert (await session_view(tx, empty.id)).price_usd_h == 0


async def test_who_may_log_in(db: Database) -> None:
    async with db.write() as tx:
        session = await rows.session(tx, SessionState.RUNNING)
        tx.add(Share(request_id=session.request_id, person=rows.BEN.ref, shared_by=rows.ADA.ref, created_at=START))
    async with db.read() as tx:
        assert (await session_view(tx, session.id)).people == (rows.ADA.ref, rows.BEN.ref)
        assert session.short_id == short_id(session.request_id)
