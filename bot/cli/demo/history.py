"""Fill the demo's ledger with two weeks of a team: rentals that ended, what they cost, and who approved them.

The rows are what real rentals leave behind, journal and notifications included, so that every invariant holds. No
sandbox cloud knows these instances: they were gone before the demo began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from bot.practice.driver import Driver
from bot.practice.model import TEAM_ID, ChatMessage
from bot.practice.reader import button_texts
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import stored_job
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApprovalTier
from bot.services.access import ssh_keys
from bot.services.market.codec import offer_to_json
from bot.services.runtime.commands import AddKey
from bot.services.runtime.context import Context
from ledger.core import NewEntry, Tx, book_all, record
from ledger.core.moves import MOVED
from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from ledger.kernel.end_reason import EndReason
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import new_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import (
    GrantState,
    InstanceState,
    NotificationKind,
    NotificationState,
    RequestState,
    SessionState,
    State,
    announced,
)
from ledger.models import Approval, GrantRow, Instance, Notification, Request, Session
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint

CHANNEL = "C0GPU"
#: The team, and the limit of its budget: the rentals below and the running session use 62 % of it.
TEAM, MEMBERS, LIMIT_USD = "research", ("U0ALICE", "U0CAROL", "operator:alice"), 500
#: A public key whose private half nobody has, so that nobody is asked for one before the first request.
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEJmYk0mS1VxZ0hUb2p0c2p5dXBrVXh3c2Z0d3B5a3Rk alice@laptop"
REQUEST = '/gpu provision gpu=l40s,a6000,4090 6h label=search for="rebuild the index"'
OFFERS_S = 30.0
BOOT, GONE_AFTER, CAP = timedelta(minutes=3), timedelta(minutes=2), Decimal("1.1")
USED_UP = "The approved time is used up."
CREDIT = "payable:{cloud}:before"


@dataclass(frozen=True, slots=True)
class PastRental:
    """One rental of the past: hours before midnight UTC at which it began, who, for what, where and for how much."""

    began_h: int
    owner: str
    reason: str
    cloud: str
    gpu: str
    count: int
    usd_h: str
    hours: int
    label: str = "reranker"


RENTALS = (
    PastRental(330, "alice", "fine-tune, first data", "runpod", "A100-80GB", 4, "6.76", 8),
    PastRental(305, "carol", "embed the catalogue", "vast", "L40S", 1, "0.86", 1, "search"),
    PastRental(280, "carol", "fine-tune, more data", "runpod", "A100-80GB", 4, "6.76", 6),
    PastRental(236, "alice", "longer context", "lambda", "H100-80GB", 4, "11.96", 6),
    PastRental(210, "alice", "evaluate", "tensordock", "RTXA6000", 1, "0.48", 1, "search"),
    PastRental(164, "carol", "ablations", "vast", "RTX4090", 1, "0.37", 4),
    PastRental(116, "alice", "longer context, again", "lambda", "H100-80GB", 4, "11.96", 7),
    PastRental(20, "carol", "last data", "runpod", "A100-80GB", 4, "6.76", 8),
    PastRental(9, "alice", "final evaluation", "runpod", "RTX4090", 1, "0.49", 2),
)


def team_policy(policy: Policy) -> Policy:
    """Add what a team has: a budget, two approvers for large requests, and yesterday's digest."""
    return replace(
        policy,
        teams={TEAM: MEMBERS},
        budgets={f"team:{TEAM}": {"total": Decimal(LIMIT_USD)}},
        approval_tiers=(ApprovalTier("large", approvals=2, above_usd=Decimal(200)),),
        digest_at="00:00",
        digest_channel=CHANNEL,
        digest_weekly="",
    )


async def fill(ctx: Context) -> None:
    """Write the past rentals and Alice's public key into a new ledger."""
    midnight = ctx.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    async with ctx.db.write() as tx:
        for number, rental in enumerate(RENTALS):
            await _write(ctx, tx, rental, midnight - timedelta(hours=rental.began_h), number)
    for name in ("alice", "carol"):
        await ssh_keys.add(ctx, AddKey(_person(name), KEY, f"demo/key/{name}"))


async def rent(people: Driver) -> None:
    """Let Carol request a machine and Bob approve it, so that the demo has a running session.

    Raises TimeoutError when the market offers none in time.
    """
    await people.as_("carol").command(REQUEST)
    card = await people.until(lambda: next((m for m in people.channel_messages() if _approve(m)), None), OFFERS_S)
    if card is not None:
        await people.as_("bob").click(card, _approve(card))


def _approve(message: ChatMessage) -> str:
    """Return the text of a message's Approve button; empty without one."""
    return next((text for text in button_texts(message) if text.startswith("Approve")), "")


def _person(name: str) -> Actor:
    return Actor(ActorKind.SLACK, f"U0{name.upper()}", TEAM_ID)


async def _write(ctx: Context, tx: Tx, rental: PastRental, at: datetime, number: int) -> None:
    ids = {prefix: new_id(prefix, at) for prefix in ("req", "apr", "grt", "ses", "ins")}
    owner, price_usd_h, hours = _person(rental.owner), Decimal(rental.usd_h), Decimal(rental.hours)
    ready, end = at + BOOT, at + timedelta(hours=rental.hours)
    caps = {"price_cap_usd_h": price_usd_h * CAP, "total_cap_usd": price_usd_h * hours * CAP, "hours": str(hours)}
    tx.add(_request(rental, ids["req"], owner, at, number))
    await tx.flush()
    approver = _person("bob")
    tx.add(
        Approval(
            id=ids["apr"], request_id=ids["req"], quote_version=1, approver=approver.ref, decision="approve", at=at,
            **caps,
        )
    )  # fmt: skip
    await tx.flush()
    tx.add(
        GrantRow(
            id=ids["grt"], request_id=ids["req"], approval_id=ids["apr"], session_id=ids["ses"], kind=GrantKind.CREATE,
            seq=1, state=GrantState.USED, until=at + timedelta(hours=1), created_at=at, **caps,
        )
    )  # fmt: skip
    tx.add(
        Session(
            id=ids["ses"], request_id=ids["req"], state=SessionState.TERMINATED, owner=owner.ref, channel=CHANNEL,
            hours=str(hours), created_at=at, ready_at=ready, deadline=end, ended_at=end + GONE_AFTER,
            end_code=EndReason.RESERVATION_OVER, label=rental.label, gpu=rental.gpu, gpu_count=rental.count,
        )
    )  # fmt: skip
    await tx.flush()
    tx.add(_instance(ctx, rental, ids, at, end))
    await tx.flush()
    for subject, when, actor, before, after in _moves(ids, at, end, owner, approver):
        record(tx, when, actor, subject, MOVED[type(after)], before=before, after=after, reason=_reason(after))
        for kind in announced(after):
            await _sent(tx, kind, ids["req"], subject, after, when)
    await book_all(tx, [*_entries(rental, ids, at, end)])


def _request(rental: PastRental, request_id: str, owner: Actor, at: datetime, number: int) -> Request:
    job = JobRequest(
        gpu=GpuConstraint(names=(rental.gpu,), count_min=rental.count, count_max=rental.count),
        hours=Decimal(rental.hours),
        reason=rental.reason,
        label=rental.label,
    )
    return Request(
        id=request_id, kind=RequestKind.PROVISION, state=RequestState.APPROVED, quote_version=1,
        inbox_key=f"demo/{number}", requester=owner.ref, job=stored_job(job), reason=rental.reason, channel=CHANNEL,
        rule="Needs 1 approval.", expires_at=at + timedelta(hours=2), created_at=at, decided_at=at,
        decided_by=_person("bob").ref,
    )  # fmt: skip


def _instance(ctx: Context, rental: PastRental, ids: Mapping[str, str], at: datetime, end: datetime) -> Instance:
    sold = Offer(
        rental.cloud, ids["ins"], rental.gpu, rental.count, Decimal(24), "any", False, Decimal(rental.usd_h), at
    )
    label = ctx.labels.mint(ids["req"], 1)
    return Instance(
        id=ids["ins"], session_id=ids["ses"], request_id=ids["req"], grant_id=ids["grt"], option_id=new_id("opt", at),
        n=1, state=InstanceState.GONE, cloud=rental.cloud, account="before", label=label, name=f"gpu-{label}",
        offer=offer_to_json(sold), created_at=at, sent_at=at, ref=ids["ins"], price_usd_h=Decimal(rental.usd_h),
        storage_usd_h=Decimal(0), live_at=at, reachable_at=at + BOOT, billing_from=at, billing_until=end,
        terminate_asked_at=end, terminate_acked_at=end, ended_at=end + GONE_AFTER,
        outcome_code=EndReason.RESERVATION_OVER, outcome=USED_UP,
    )  # fmt: skip


def _moves(
    ids: Mapping[str, str], at: datetime, end: datetime, owner: Actor, approver: Actor
) -> Iterator[tuple[str, datetime, Actor, State, State]]:
    """List every move of a rental: subject, moment, who, from and to."""
    gone = end + GONE_AFTER
    request, grant, session, instance = ids["req"], ids["grt"], ids["ses"], ids["ins"]
    yield request, at, owner, RequestState.QUOTING, RequestState.PENDING
    yield request, at, approver, RequestState.PENDING, RequestState.APPROVED
    yield grant, at, SYSTEM, GrantState.OPEN, GrantState.USED
    yield session, at, SYSTEM, SessionState.QUEUED, SessionState.PROVISIONING
    yield instance, at, SYSTEM, InstanceState.READY, InstanceState.SENDING
    yield instance, at, SYSTEM, InstanceState.SENDING, InstanceState.LIVE
    yield session, at + BOOT, SYSTEM, SessionState.PROVISIONING, SessionState.RUNNING
    yield session, end, SYSTEM, SessionState.RUNNING, SessionState.TERMINATING
    yield instance, end, SYSTEM, InstanceState.LIVE, InstanceState.TERMINATING
    yield instance, gone, SYSTEM, InstanceState.TERMINATING, InstanceState.GONE
    yield session, gone, SYSTEM, SessionState.TERMINATING, SessionState.TERMINATED


def _reason(to: State) -> str:
    return USED_UP if to in (SessionState.TERMINATING, InstanceState.TERMINATING) else ""


async def _sent(tx: Tx, kind: NotificationKind, request_id: str, subject: str, to: State, at: datetime) -> None:
    """Store a notification that was sent long ago; one row per kind and subject."""
    about = {NotificationKind.REQUEST_RESULT: f"{request_id}/{to}", NotificationKind.REQUEST_MESSAGE: request_id}
    found = about.get(kind, subject)
    row_id = f"{kind}/{found}"
    if row_id in tx.info.setdefault("demo", set()):
        return
    tx.info["demo"].add(row_id)
    tx.add(
        Notification(
            id=new_id("ntf", at), kind=kind, subject=found, destination=CHANNEL, state=NotificationState.SENT,
            sent_version=1, created_at=at, sent_at=at,
        )
    )  # fmt: skip


def _entries(rental: PastRental, ids: Mapping[str, str], at: datetime, end: datetime) -> Iterator[NewEntry]:
    price_usd_h, session, request = Decimal(rental.usd_h), ids["ses"], ids["req"]
    cap_usd = price_usd_h * rental.hours * CAP
    reserved, authority = f"reserved:{ids['grt']}", f"authority:{request}"
    yield NewEntry(
        key=f"reserve/{ids['grt']}", kind=EntryKind.RESERVE, debit=reserved, credit=authority, amount_usd=cap_usd,
        at=at, session_id=session,
    )  # fmt: skip
    for hour in range(rental.hours):
        yield NewEntry(
            key=f"{ids['ins']}/gpu/h{hour}", kind=EntryKind.ACCRUE, debit=f"session:{session}",
            credit=CREDIT.format(cloud=rental.cloud), amount_usd=price_usd_h, at=at + timedelta(hours=hour + 1),
            session_id=session, instance_id=ids["ins"], component="gpu",
        )  # fmt: skip
    yield NewEntry(
        key=f"release/{ids['grt']}", kind=EntryKind.RELEASE, debit=authority, credit=reserved, amount_usd=cap_usd,
        at=end + GONE_AFTER, session_id=session,
    )  # fmt: skip
