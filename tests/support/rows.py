"""Builders of valid rows, written through the real tables, so that every trigger and constraint agrees with them.

Each takes an open transaction, fills in what the test does not care about, flushes, and returns the row. A row is born
in the state that is asked for; what must exist before it (a grant for an instance, an approval for a grant) is built
too, unless it is given.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import stored_job
from bot.rules.market.estimate import Component, Estimate
from bot.rules.values.labels import LabelKey
from bot.services.market.codec import estimate_to_json, offer_to_json
from ledger.core.writes import book
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import new_id
from ledger.kernel.people.credential_kind import CredentialKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import GrantState, InstanceState, OrphanState, RequestState, SessionState
from ledger.kernel.steps.grace import AtRisk, Cause
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.models import (
    Approval,
    Base,
    CommandResult,
    Event,
    GraceRow,
    GrantRow,
    Instance,
    Migration,
    Node,
    Option,
    Orphan,
    Quote,
    Request,
    Session,
    SessionCredential,
)
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from tests.support.clock import START

Tx = AsyncSession
Row = TypeVar("Row", bound=Base)

ADA = Actor(ActorKind.SLACK, "UADA", "T1")
BEN = Actor(ActorKind.SLACK, "UBEN", "T1")
CHANNEL = "C0GPUS"
LABELS = LabelKey("tst1", b"a key that only tests use")
JOB = JobRequest(gpu=GpuConstraint(names=("RTX 4090",)), hours=Decimal(2), reason="fine-tune")

_number = count(1)


async def _store(tx: Tx, row: Row, values: dict[str, Any]) -> Row:
    for name, value in values.items():
        setattr(row, name, value)
    tx.add(row)
    await tx.flush()
    return row


async def request(
    tx: Tx, state: RequestState = RequestState.PENDING, *, at: datetime = START, job: JobRequest = JOB, **values: Any
) -> Request:
    """A request by ADA for two hours of one RTX 4090, due now."""
    row = Request(
        id=new_id("req", at),
        kind=RequestKind.PROVISION,
        state=state,
        quote_version=0 if state is RequestState.QUOTING else 1,
        inbox_key=f"test-{next(_number)}",
        requester=ADA.ref,
        job=stored_job(job),
        reason=JOB.reason,
        channel=CHANNEL,
        rule="Needs 1 approval.",
        expires_at=at + timedelta(hours=1),
        created_at=at,
        due_at=at,
    )
    return await _store(tx, row, values)


async def quote(tx: Tx, of: Request, *, at: datetime = START, **values: Any) -> Quote:
    """The quote of the request's current version."""
    row = Quote(
        id=new_id("quo", at),
        request_id=of.id,
        version=of.quote_version,
        created_at=at,
        expires_at=at + timedelta(minutes=15),
    )
    return await _store(tx, row, values)


def offer(price_usd_h: Decimal = Decimal("0.40"), *, at: datetime = START, **values: Any) -> Offer:
    """What a cloud sells: one RTX 4090 of 24 GB."""
    facts: dict[str, Any] = {
        "cloud": "vast",
        "key": str(30_000_000 + next(_number)),
        "gpu": "RTX 4090",
        "gpu_count": 1,
        "memory_gb": Decimal(24),
        "region": "SE",
        "spot": False,
        "price_usd_h": price_usd_h,
        "fetched_at": at,
    }
    return Offer(**(facts | values))


async def option(tx: Tx, of: Quote, rank: int = 1, *, offered: Offer | None = None, **values: Any) -> Option:
    """A ranked option of the quote with an estimate for two hours."""
    sold = offered or offer()
    price = sold.price_usd_h or Decimal(0)
    total = price * JOB.hours
    estimated = Estimate(total, total, total * 2, JOB.hours, (Component("compute", total, total * 2),), ())
    row = Option(
        id=new_id("opt", of.created_at),
        quote_id=of.id,
        rank=rank,
        cloud=sold.cloud,
        offer_key=sold.key,
        price_usd_h=price,
        best_usd=estimated.best_usd,
        expected_usd=estimated.expected_usd,
        worst_usd=estimated.worst_usd,
        why="cheapest expected total",
        offer=offer_to_json(sold),
        estimate=estimate_to_json(estimated),
    )
    return await _store(tx, row, values)


async def approval(
    tx: Tx, of: Request, by: Actor = BEN, *, decision: str = "approve", at: datetime = START, **values: Any
) -> Approval:
    """One decision on the request's current quote version. It covers $0.44 an hour and $2 in all."""
    row = Approval(
        id=new_id("apr", at),
        request_id=of.id,
        quote_version=of.quote_version,
        approver=by.ref,
        decision=decision,
        price_cap_usd_h=Decimal("0.44"),
        total_cap_usd=Decimal(2),
        hours=str(JOB.hours),
        at=at,
    )
    return await _store(tx, row, values)


async def grant(
    tx: Tx,
    of: Request,
    state: GrantState = GrantState.OPEN,
    *,
    by: Approval | None = None,
    at: datetime = START,
    **values: Any,
) -> GrantRow:
    """Spend authority from an approval, which is built when it is not given."""
    covered = by or await approval(tx, of, at=at)
    row = GrantRow(
        id=new_id("grt", at),
        request_id=of.id,
        approval_id=covered.id,
        kind=GrantKind.CREATE,
        seq=1,
        state=state,
        price_cap_usd_h=covered.price_cap_usd_h,
        total_cap_usd=covered.total_cap_usd,
        hours=str(JOB.hours),
        until=at + timedelta(hours=1),
        created_at=at,
    )
    return await _store(tx, row, values)


async def session(
    tx: Tx,
    state: SessionState = SessionState.PROVISIONING,
    *,
    of: Request | None = None,
    at: datetime = START,
    **values: Any,
) -> Session:
    """A session of an approved request. A running one became ready `at` and ends two hours later."""
    asked = of or await request(tx, RequestState.APPROVED, at=at)
    row = Session(
        id=new_id("ses", at),
        request_id=asked.id,
        state=state,
        owner=asked.requester,
        channel=asked.channel,
        hours=str(JOB.hours),
        created_at=at,
        gpu="RTX 4090",
    )
    if state in (SessionState.RUNNING, SessionState.STOPPED, SessionState.TERMINATING):
        row.ready_at, row.deadline = at, at + timedelta(hours=2)
    return await _store(tx, row, values)


async def instance(
    tx: Tx,
    state: InstanceState = InstanceState.LIVE,
    *,
    of: Session | None = None,
    under: GrantRow | None = None,
    n: int = 1,
    at: datetime = START,
    **values: Any,
) -> Instance:
    """An instance row of a session under a grant. One that the cloud has confirmed has a reference and is billed."""
    owner = of or await session(tx, at=at)
    asked = await tx.get_one(Request, owner.request_id)
    authority = under or await grant(tx, asked, GrantState.USED, at=at, session_id=owner.id)
    sold = offer(at=at)
    label = LABELS.mint(asked.id, n)
    row = Instance(
        id=new_id("ins", at),
        session_id=owner.id,
        request_id=asked.id,
        grant_id=authority.id,
        option_id=new_id("opt", at),
        n=n,
        state=state,
        cloud=sold.cloud,
        account="acct-1",
        label=label,
        name=f"tests-1x4090-{label}",
        offer=offer_to_json(sold),
        created_at=at,
        price_usd_h=sold.price_usd_h,
        storage_usd_h=Decimal(0),
        due_at=at,
    )
    if state is not InstanceState.READY:
        row.sent_at = at
    if state in (InstanceState.LIVE, InstanceState.STOPPED, InstanceState.TERMINATING, InstanceState.GONE):
        row.ref, row.live_at, row.billing_from = str(next(_number)), at, at
    return await _store(tx, row, values)


async def replacement(tx: Tx, of: Instance, state: InstanceState = InstanceState.LIVE, **values: Any) -> Instance:
    """The next instance of the same session, under a grant of its own from the same approval."""
    old = await tx.get_one(GrantRow, of.grant_id)
    asked, by = await tx.get_one(Request, of.request_id), await tx.get_one(Approval, old.approval_id)
    under = await grant(tx, asked, GrantState.USED, by=by, seq=old.seq + 1, session_id=of.session_id)
    session_of = await tx.get_one(Session, of.session_id)
    return await instance(tx, state, of=session_of, under=under, n=of.n + 1, **values)


async def stray(
    tx: Tx, state: OrphanState = OrphanState.SEEN, *, of: Instance | None = None, at: datetime = START, **values: Any
) -> Orphan:
    """An instance of ours without a row of its own."""
    row = Orphan(
        id=new_id("stray", at),
        cloud="vast",
        account="acct-1",
        ref=str(next(_number)),
        label=of.label if of else LABELS.mint(new_id("req", at), 1),
        state=state,
        instance_id=of.id if of else None,
        price_usd_h=Decimal("0.40"),
        first_seen_at=at,
        last_seen_at=at,
    )
    return await _store(tx, row, values)


async def grace(tx: Tx, of: Instance, *, at: datetime = START, **values: Any) -> GraceRow:
    """The open grace of an instance that its host failed, which may wait an hour for at most $1."""
    row = GraceRow(
        id=new_id("grc", at),
        instance_id=of.id,
        session_id=of.session_id,
        code="host_failed",
        cause=Cause.HOST,
        at_risk=AtRisk.WORK,
        since=at,
        until=at + timedelta(hours=1),
        usd_h=Decimal("0.40"),
        rated_at=at,
        spent_usd=Decimal(0),
        limit_usd=Decimal(1),
    )
    return await _store(tx, row, values)


async def migration(
    tx: Tx,
    of: Session,
    step: MigrationStep = MigrationStep.CHECKED,
    *,
    to: Request | None = None,
    at: datetime = START,
    **values: Any,
) -> Migration:
    """The move of a session's run to the machine of another request, which is built when it is not given. Due now."""
    target = to or await request(tx, RequestState.APPROVED, at=at)
    row = Migration(
        id=new_id("mig", at),
        request_id=target.id,
        source_session_id=of.id,
        source_request_id=of.request_id,
        step=step,
        created_at=at,
        step_at=at,
        due_at=None if step in OVER else at,
        saved_from="s3://runs/a/step-10",
        saved_step=10,
        saved_bytes=1_000,
        saved_at=at,
    )
    return await _store(tx, row, values)


async def command_result(
    tx: Tx, of: Instance, number: int, exit_code: int | None = 0, *, at: datetime = START, **values: Any
) -> CommandResult:
    """How one command of a queue ended on an instance, after a minute."""
    row = CommandResult(session_id=of.session_id, number=number, instance_id=of.id, gpu=0, exit_code=exit_code)
    times = {"started_at": at, "ended_at": at + timedelta(minutes=1), "recorded_at": at + timedelta(minutes=1)}
    return await _store(tx, row, {"attempts": 1, "log_tail": "", **times} | values)


async def node(tx: Tx, of: Instance, **values: Any) -> Node:
    """The agent of an instance, which has not reported yet."""
    row = Node(instance_id=of.id, session_id=of.session_id, token_hash="0" * 64, made_at=START)
    return await _store(tx, row, values)


async def credential(
    tx: Tx, of: Request, kind: CredentialKind, name: str, *, at: datetime = START, **values: Any
) -> SessionCredential:
    """Something that the requester of a request brought to its machines."""
    row = SessionCredential(request_id=of.id, kind=kind, name=name, created_at=at)
    return await _store(tx, row, {"person": of.requester, "added_by": of.requester} | values)


async def event(tx: Tx, kind: EventKind, subject: str, *, at: datetime = START, **values: Any) -> Event:
    """A journal row about a subject, by ADA."""
    return await _store(tx, Event(id=new_id("evt", at), at=at, actor=ADA.ref, subject=subject, kind=kind), values)


async def entry(
    tx: Tx, of: Instance, usd: str, *, kind: EntryKind = EntryKind.ACCRUE, at: datetime = START, **values: Any
) -> None:
    """What an instance has cost; a negative amount is given back. A new key, and the GPU's, unless they are given."""
    sides = {"debit": f"session:{of.session_id}", "credit": f"payable:{of.cloud}:{of.account}"}
    if Decimal(usd) < 0:
        sides = {"debit": sides["credit"], "credit": sides["debit"]}
    facts: dict[str, Any] = {
        "key": f"{of.id}/{next(_number)}",
        "component": "gpu",
        "session_id": of.session_id,
        "instance_id": of.id,
        **sides,
    }
    assert await book(tx, kind=kind, amount_usd=abs(Decimal(usd)), at=at, **(facts | values))
