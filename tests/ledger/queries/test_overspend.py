"""What running sessions cost, and what was approved for them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.models import Approval, Instance, Option, Request, Session
from ledger.queries.metering import BilledInstance
from ledger.queries.overspend import (
    GrowthQuestion,
    approved_rate,
    growth_questions,
    open_overspend_request,
    running,
    running_columns,
    running_ids,
    undecided,
)
from ledger.queries.session_costs import NOTHING
from tests.support import rows
from tests.support.clock import START

MINUTE = timedelta(minutes=1)
PENDING = RequestState.PENDING


async def asked(
    tx: Tx, kind: RequestKind, of: Request | None, minute: int, state: RequestState = RequestState.APPROVED, **by: Any
) -> tuple[Request, Option, Approval]:
    """A request with its option and an approval of it, a second after it."""
    parent_id, at = of.id if of else None, START + minute * MINUTE
    request = await rows.request(tx, state, at=at, kind=kind, parent_id=parent_id)
    option = await rows.option(tx, await rows.quote(tx, request))
    return request, option, await rows.approval(tx, request, at=at + timedelta(seconds=1), **by)


async def runs(
    tx: Tx,
    request: Request,
    option: Option,
    by: Approval,
    state: InstanceState = InstanceState.LIVE,
    session_state: SessionState = SessionState.RUNNING,
    **values: Any,
) -> Instance:
    """An instance of a session, which runs unless another state is named."""
    session = await rows.session(tx, session_state, of=request)
    under = await rows.grant(tx, request, by=by, session_id=session.id)
    return await rows.instance(tx, state, of=session, under=under, option_id=option.id, **values)


async def test_running_sessions_with_their_terms_and_what_is_booked(db: Database) -> None:
    async with db.write() as tx:
        request, option, by = await asked(tx, RequestKind.PROVISION, None, 0, hours="1.5", total_cap_usd=Decimal(3))
        lost = await runs(tx, request, option, by, InstanceState.GONE)
        again = await rows.approval(tx, request, rows.ADA, at=START + 2 * MINUTE, total_cap_usd=Decimal(3))
        paid = await rows.grant(tx, request, by=again, seq=2, session_id=lost.session_id)
        session = await tx.get_one(Session, lost.session_id)
        failed = await rows.instance(tx, InstanceState.GONE, of=session, under=paid, n=2, option_id=option.id)
        row = await rows.replacement(tx, failed, option_id=option.id)
        await rows.node(tx, row, seq=3)
        for of, usd in ((lost, "5"), (failed, "0.5"), (row, "0.25")):
            await rows.entry(tx, of, usd, key=f"{of.id}/gpu/h1")
        await asked(tx, RequestKind.EXTEND, request, 1)  # Before the second approval.
        extra, longer, _ = await asked(tx, RequestKind.EXTEND, request, 3, hours="2", total_cap_usd=Decimal(7))
        later = START + 5 * MINUTE
        # Of two approvals of one request the later one counts.
        last = await rows.approval(tx, extra, rows.ADA, at=later, hours="1", total_cap_usd=Decimal(1))
        void, _, none = await asked(tx, RequestKind.EXTEND, request, 4)
        of_it: dict[str, Any] = {"kind": GrantKind.EXTEND, "session_id": session.id}
        for seq, state, cap in ((1, GrantState.OPEN, 1), (2, GrantState.VOID, 50), (3, GrantState.USED, 60)):
            given = await rows.grant(tx, extra, state, by=last, seq=seq, **of_it, total_cap_usd=Decimal(cap))
        # The third is given back: what was left of it is in the replacement's grant.
        await rows.entry(tx, row, "1", kind=EntryKind.RELEASE, key=f"release/{given.id}")
        figure, new, _ = await asked(tx, RequestKind.OVERSPEND, request, 6, PENDING, decision="reject")
        await asked(tx, RequestKind.OVERRIDE_12H, request, 7)
        other = await runs(tx, *await asked(tx, RequestKind.PROVISION, None, 0))
        states = (InstanceState.STOPPED, InstanceState.TERMINATING)
        still = [await runs(tx, *await asked(tx, RequestKind.PROVISION, None, 0), state) for state in states]
        still += [await runs(tx, *await asked(tx, RequestKind.PROVISION, None, 0), wanted="stop")]
        endless = await runs(tx, *await asked(tx, RequestKind.PROVISION, None, 0))
        (await tx.get_one(Session, endless.session_id)).deadline = None
        still.append(endless)
    async with db.read() as tx:
        assert await running_ids(tx) == sorted([session.id, other.session_id])
        (one,) = await running(tx, [session.id, *(row.session_id for row in still)])
        assert (one.session_id, one.request_id, one.deadline) == (session.id, request.id, session.deadline)
        assert one.node is not None
        assert (one.row.id, one.node.seq) == (row.id, 3)
        assert (one.terms.asked_h, one.terms.hours, one.terms.total_cap_usd) == (Decimal(2), None, Decimal(3))
        assert (one.terms.expected_usd, one.terms.estimate) == (option.expected_usd, option.estimate)
        assert (one.booked.usd, one.booked.hours) == (Decimal("0.25"), {"gpu": 1})
        # The first instance was paid for by another approval.
        assert one.elsewhere_usd == Decimal("0.5")
        assert one.cap_usd == Decimal(3) + 1 + Decimal("0.5")
        more, undone, dearer = one.questions
        assert [each.id for each in one.questions] == [extra.id, void.id, figure.id]
        assert (more.terms.hours, more.terms.total_cap_usd) == (Decimal(1), Decimal(1))
        assert more.terms.expected_usd == longer.expected_usd
        assert (undone.terms.hours, undone.terms.total_cap_usd) == (None, none.total_cap_usd)
        assert (dearer.kind, dearer.state, dearer.created_at) == (RequestKind.OVERSPEND, PENDING, figure.created_at)
        assert (dearer.terms.hours, dearer.terms.total_cap_usd, dearer.terms.estimate) == (None, None, new.estimate)
        (simple,) = await running(tx, [other.session_id])
        assert (simple.node, simple.cap_usd, simple.elsewhere_usd) == (None, Decimal(2), Decimal(0))
        assert (simple.questions, simple.booked) == ((), NOTHING)
        assert await running(tx, [row.session_id for row in still]) == []


async def test_the_approved_rate_is_the_grants_or_what_was_approved_since_the_instance_exists(db: Database) -> None:
    over, dear = RequestKind.OVERSPEND, Decimal("0.60")
    async with db.write() as tx:
        request, option, by = await asked(tx, RequestKind.PROVISION, None, 0)
        row = await runs(tx, request, option, by, at=START + MINUTE, price_usd_h=dear)
        # One about the instance before, one that was rejected, one for more time, and one that waits.
        await asked(tx, over, request, 0, price_cap_usd_h=Decimal(9))
        await asked(tx, over, request, 2, RequestState.REJECTED, price_cap_usd_h=Decimal(8), decision="reject")
        await asked(tx, RequestKind.EXTEND, request, 3, price_cap_usd_h=Decimal(7))
        await asked(tx, over, request, 4, PENDING, price_cap_usd_h=Decimal(6))
    async with db.read() as tx:
        (one,) = await running(tx, [row.session_id])
        found = await approved_rate(tx, row)
        assert one.approved_usd_h == found.usd_h == by.price_cap_usd_h
        assert (found.request_id, found.approval_id) == (request.id, by.id)
    async with db.write() as tx:
        higher, _, vote = await asked(tx, over, request, 5, price_cap_usd_h=Decimal("0.66"))
    async with db.read() as tx:
        (one,) = await running(tx, [row.session_id])
        found = await approved_rate(tx, row)
        assert one.approved_usd_h == found.usd_h == Decimal("0.66")
        assert (found.request_id, found.approval_id) == (higher.id, vote.id)


async def test_a_stopped_session_counts_when_its_rate_is_above_its_grants(db: Database) -> None:
    async with db.write() as tx:
        found = []
        for price in (Decimal("0.44"), Decimal("0.45")):
            row = await runs(
                tx,
                *await asked(tx, RequestKind.PROVISION, None, 0),
                InstanceState.STOPPED,
                SessionState.STOPPED,
                price_usd_h=price,
            )
            found.append(row.session_id)
    async with db.read() as tx:
        assert await running_ids(tx) == found[1:]
        assert [one.session_id for one in await running(tx, found)] == found[1:]


async def test_a_new_figure_is_open_until_somebody_approves_it_or_it_is_withdrawn(db: Database) -> None:
    over = RequestKind.OVERSPEND
    cases: tuple[tuple[RequestState, str | None, bool], ...] = (
        (PENDING, None, True),
        (RequestState.APPROVED, rows.BEN.ref, False),
        (RequestState.REJECTED, rows.BEN.ref, True),
        (RequestState.EXPIRED, SYSTEM.ref, True),
        (RequestState.CANCELLED, rows.ADA.ref, True),
        (RequestState.CANCELLED, SYSTEM.ref, False),
    )
    found = []
    async with db.write() as tx:
        for state, decided_by, is_open in cases:
            parent, _, _ = await asked(tx, RequestKind.PROVISION, None, 0)
            older = await rows.request(tx, PENDING, at=START + MINUTE, kind=over, parent_id=parent.id)
            facts: dict[str, Any] = {"kind": over, "parent_id": parent.id, "decided_by": decided_by}
            newest = await rows.request(tx, state, at=START + 2 * MINUTE, **facts)
            # Neither of another kind nor of another session.
            await rows.request(tx, PENDING, at=START + 3 * MINUTE, kind=RequestKind.EXTEND, parent_id=parent.id)
            found.append((parent.id, newest.id if is_open else None))
        before, _, _ = await asked(tx, RequestKind.PROVISION, None, 5)
        await rows.request(tx, PENDING, at=START + MINUTE, kind=over, parent_id=before.id)
        undecided_yet = await rows.request(tx)
        await rows.approval(tx, undecided_yet, decision="reject", at=START + 9 * MINUTE)
        first = await rows.request(tx, PENDING, kind=over, parent_id=undecided_yet.id)
        both = await rows.request(tx, PENDING, kind=RequestKind.EXTEND, parent_id=parent.id)
    async with db.read() as tx:
        for parent_id, newest_id in (*found, (before.id, None), (undecided_yet.id, first.id), ("req_none", None)):
            one = await open_overspend_request(tx, parent_id)
            assert (one.id if one else None) == newest_id, parent_id
        kinds = [over, RequestKind.OVERRIDE_12H]
        assert {one.id for one in await undecided(tx, parent.id, kinds)} == {older.id}
        assert both.id in {one.id for one in await undecided(tx, parent.id, [*kinds, RequestKind.EXTEND])}
        assert await undecided(tx, parent.id, []) == []


async def test_a_whole_fleet_is_read_as_columns_with_the_same_terms_and_costs(db: Database) -> None:
    async with db.write() as tx:
        request, option, by = await asked(tx, RequestKind.PROVISION, None, 0, total_cap_usd=Decimal(3))
        row = await runs(tx, request, option, by, storage_usd_h=Decimal("0.05"))
        await rows.node(tx, row, seq=3)
        await rows.entry(tx, row, "0.25", key=f"{row.id}/gpu/h1")
        await asked(tx, RequestKind.OVERSPEND, request, 6, PENDING)
        other = await runs(tx, *await asked(tx, RequestKind.PROVISION, None, 0))
        stopped = await runs(tx, *await asked(tx, RequestKind.PROVISION, None, 0), InstanceState.STOPPED)
    ids = [row.session_id, stopped.session_id, other.session_id]
    async with db.read() as tx:
        with_rows, with_columns = await running(tx, ids), await running_columns(tx, ids)
        assert {each.session_id for each in with_columns} == {row.session_id, other.session_id}
        as_columns = {
            each.session_id: BilledInstance._make(getattr(each.row, name) for name in BilledInstance._fields)
            for each in with_rows
        }
        assert {each.session_id: each.row for each in with_columns} == as_columns
        for left, right in zip(with_rows, with_columns, strict=True):
            for name in ("session_id", "node", "terms", "booked", "elsewhere_usd", "cap_usd", "questions"):
                assert getattr(left, name) == getattr(right, name), name
        assert await running_columns(tx, []) == []


async def test_what_approvers_were_asked_about_the_growth_of_a_volume(db: Database) -> None:
    over = RequestKind.OVERSPEND
    async with db.write() as tx:
        volume, _, _ = await asked(tx, RequestKind.PROVISION, None, 0)
        other, _, _ = await asked(tx, RequestKind.PROVISION, None, 0)
        later, dear, _ = await asked(tx, over, volume, 2, PENDING)
        dear.price_usd_h = Decimal("0.09")
        earlier, cheap, _ = await asked(tx, over, volume, 1, RequestState.REJECTED, decision="reject")
        cheap.price_usd_h = Decimal("0.07")
        await asked(tx, RequestKind.EXTEND, volume, 3)
        await asked(tx, over, other, 3)
        await rows.request(tx, RequestState.QUOTING, kind=over, parent_id=volume.id)  # It shows no rate yet.
    async with db.read() as tx:
        assert await growth_questions(tx, volume.id) == [
            GrowthQuestion(earlier.id, RequestState.REJECTED, Decimal("0.07")),
            GrowthQuestion(later.id, PENDING, Decimal("0.09")),
        ]
        assert await growth_questions(tx, "req_none") == []
