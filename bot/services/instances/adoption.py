"""Adopt an orphan: an instance that the ledger has lost becomes a session again when an approver approves it.

Adoption is a spend like every other one, so it takes a request, an approval with its amounts, and a grant. Nothing is
sent to the cloud: the row is created for an existing instance, and its hours count from now. Its earlier cost is booked
as a loss.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.approvals.approvers import Deed, ineligible
from bot.rules.approvals.decision import is_approver
from bot.rules.jobs.stored import stored_job
from bot.rules.pricing import hours_cap
from bot.rules.values.command_text import cli_command
from bot.rules.values.labels import LabelKind
from bot.rules.values.phrases import at_rate, read_amount
from bot.rules.values.phrases import hours as hours_said
from bot.rules.values.reply_code import ReplyCode
from bot.services.billing.metering import accrue_orphan
from bot.services.grants import reservations
from bot.services.instances import adoption_approval
from bot.services.instances.adoption_approval import Adopt, Judged
from bot.services.instances.transitions import adopt
from bot.services.market.codec import offer_to_json
from bot.services.people import eligibility
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import Tx, amend, decide, lock_orphan, move, record
from ledger.kernel import money
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import new_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from ledger.kernel.volume_name import VOLUME, volume_of
from ledger.models import Approval, GrantRow, Instance, Orphan, Request, Session
from ledger.queries.journal import noted_before
from ledger.queries.orphans import orphan_by_id
from providers.cloud_names import volumes_of
from providers.contract import GPU_MAX, InstanceStatus, NotSeen, ObservedInstance, Offer
from providers.errors import ProviderError

__all__ = ["Adopt", "adopt_orphan"]

MEMORY_UNKNOWN = Decimal(0)


async def adopt_orphan(ctx: Context, command: Adopt) -> Reply:
    """Adopt a quarantined orphan, after its cloud was queried for it and its label was checked again."""
    command = replace(command, decider=await eligibility.looked_up(ctx, command.decider))
    refusal = await _may(ctx, command)
    if refusal is not None:
        return refusal
    if doubt := clock_problem(ctx.clock):
        # It approves an end and books what the orphan has cost until now: neither follows from a wrong time.
        sentence = f"Nothing can be adopted now: {doubt}. Try again when the clock is right."
        return refuse(ReplyCode.CLOCK_WRONG, sentence)
    async with ctx.db.read() as tx:
        orphan = await _waiting(tx, command, ctx.clock.now())
    if isinstance(orphan, Reply):
        return orphan
    seen = await _read_at_cloud(ctx, orphan)
    if isinstance(seen, Reply):
        return seen
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await lock_orphan(tx, orphan.id)
        orphan = await _waiting(tx, command, now)  # Somebody else may have adopted or condemned it meanwhile.
        if isinstance(orphan, Reply):
            return orphan
        offer = _offer(orphan, seen, now)
        judged = await adoption_approval.judge(ctx, tx, command, orphan, offer, now)
        if judged.verdict.code != ReplyCode.APPROVED:
            if judged.verdict.allowed:
                adoption_approval.back(tx, command, orphan, judged, now)
            return Reply(judged.verdict.allowed, judged.verdict.code, judged.verdict.sentence)
        reply = await _write(ctx, tx, command, orphan, seen, offer, judged, now)
    await ctx.epoch.cover(tx)
    for hint in (ctx.hints.outbox, ctx.hints.instances, ctx.hints.sessions):
        hint.set()
    return reply


async def _read_at_cloud(ctx: Context, orphan: Orphan) -> ObservedInstance | Reply:
    """Return the instance as its cloud shows it now, or the reply why it cannot be adopted."""
    provider = ctx.providers.get(orphan.cloud)
    if provider is None or provider.account != orphan.account:
        return refuse(ReplyCode.NOT_SET_UP, f"The key of its account at {orphan.cloud} is not set up here.")
    try:
        seen = await provider.get(orphan.ref)
    except ProviderError as error:
        return refuse(ReplyCode.CLOUD_FAILED, f"{orphan.cloud} could not be checked: {error.message}. Try again later.")
    if isinstance(seen, NotSeen) or seen.status is InstanceStatus.TERMINATED:
        return refuse(ReplyCode.STALE, f"{orphan.cloud} no longer has {orphan.ref}.")
    label = ctx.labels.read(seen.name)
    if label.kind is not LabelKind.OURS or label.label != orphan.label:
        return refuse(ReplyCode.NOT_OURS, f"{orphan.ref} does not carry the label that it was found by.")
    return seen


async def _waiting(tx: Tx, command: Adopt, now: datetime) -> Orphan | Reply:
    """Return the orphan to adopt, or a reply when it cannot be adopted or this very call has adopted it already."""
    orphan = await orphan_by_id(tx, command.orphan)
    if orphan is None:
        return refuse(
            ReplyCode.UNKNOWN_ID, f"There is no orphan {command.orphan[:40]}. See {cli_command('orphans list')}."
        )
    done = await noted_before(tx, [orphan.id], command.key, now - KEPT)
    if done is not None:  # The process ended before it could reply.
        return Reply(True, ReplyCode.ADOPTED, done.data["said"], {"session_id": done.data["session_id"]})
    # A machine that returned is its own session's. A volume's money went back when it counted as deleted, so people
    # decide anew about its data.
    is_theirs = orphan.instance_id is not None and orphan.cloud != volumes_of(orphan.cloud)
    if orphan.state is not OrphanState.QUARANTINED or is_theirs:
        return refuse(
            ReplyCode.STALE, f"{orphan.id} can't be adopted. For the reason, see {cli_command('orphans list')}."
        )
    return orphan


async def _may(ctx: Context, command: Adopt) -> Reply | None:
    if not is_approver(ctx.policy, command.decider):
        return refuse(ReplyCode.NOT_AN_APPROVER, "Only approvers can do this, because keeping it spends money.")
    if not_them := ineligible(ctx.policy, command.decider, Deed.APPROVE):
        return refuse(not_them.code, not_them.sentence)
    if not_owner := await eligibility.ineligible_for(ctx, command.owner, Deed.REQUEST):
        sentence = f"Slack doesn't know {command.owner.ref} as somebody who can request GPUs. Name another owner."
        return refuse(not_owner.code, sentence)
    if not command.reason.strip():
        return refuse(ReplyCode.REASON_NEEDED, "Say why, for the audit log: --reason 'training of last night'.")
    if command.hours <= 0 or hours_cap.is_above(ctx.policy, command.hours):
        most = hours_said(ctx.policy.max_hours)
        return refuse(ReplyCode.BAD_WORD, f"Give a time of at most {most}, such as --hours 2. You can extend it later.")
    return None


async def _write(
    ctx: Context,
    tx: Tx,
    command: Adopt,
    orphan: Orphan,
    seen: ObservedInstance,
    offer: Offer,
    judged: Judged,
    now: datetime,
) -> Reply:
    """Write the request, approvals, grant, session and instance in one transaction."""
    actor = command.decider.actor
    request = await _request(tx, command, offer, judged, now)
    session = Session(
        id=new_id("ses", now),
        request_id=request.id,
        state=SessionState.QUEUED,
        owner=command.owner.ref,
        channel=request.channel,
        hours=str(command.hours),
        created_at=now,
        label=ctx.policy.project,
        replacements_left=0,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
    )
    tx.add(session)
    await tx.flush()
    grant = await _grant(tx, command, request, session.id, judged, now)
    await adoption_approval.reserved(ctx, tx, request, judged, actor, now)
    row = _row(orphan, request.id, session.id, grant.id, seen, offer, now)
    if orphan.instance_id is not None:
        row.label = ctx.labels.mint(request.id, row.n)  # Its own label is that of the row that was closed.
    tx.add(row)
    await tx.flush()
    record(tx, now, actor, row.id, EventKind.INSTANCE_ADOPTED, after=row.state, reason=command.reason)
    sent = {"sent_at": now, "due_at": None}
    await move(tx, Instance, row.id, InstanceState.SENDING, now, actor, command.reason, values=sent)
    await move(tx, Session, session.id, SessionState.PROVISIONING, now, actor)
    await accrue_orphan(ctx, tx, orphan, now, session.id)
    await amend(tx, Orphan, orphan.id, instance_id=row.id, reason=command.reason)
    reply = _adopted(command, orphan, session, offer.price_usd_h or Decimal(0))
    await _close_orphan(tx, command, orphan, reply, now)
    # Its cost until now is booked with the orphan, so the session's money pays from now on.
    seen = replace(seen, created_at=now, started_at=seen.started_at and now)
    await adopt(ctx, tx, row.id, seen, now)
    return reply


def _row(
    orphan: Orphan,
    request_id: str,
    session_id: str,
    grant_id: str,
    seen: ObservedInstance,
    offer: Offer,
    now: datetime,
) -> Instance:
    """Return the row of an adopted instance, the first of its request. It keeps the label that its cloud shows."""
    return Instance(
        id=new_id("ins", now),
        session_id=session_id,
        request_id=request_id,
        grant_id=grant_id,
        option_id="",
        n=1,
        state=InstanceState.READY,
        cloud=orphan.cloud,
        account=orphan.account,
        label=orphan.label,
        name=seen.name or "",
        offer=offer_to_json(offer),
        created_at=now,
        machine_id=seen.machine_id,
        price_usd_h=offer.price_usd_h,
        storage_usd_h=offer.storage_usd_h,
    )


async def _close_orphan(tx: Tx, command: Adopt, orphan: Orphan, reply: Reply, now: datetime) -> None:
    """Close the orphan, and record the call that adopted it."""
    noted = {"key": command.key, "said": reply.sentence, **reply.data} if command.key else None
    await move(
        tx,
        Orphan,
        orphan.id,
        OrphanState.GONE,
        now,
        command.decider.actor,
        "It is adopted.",
        only_from=frozenset({OrphanState.QUARANTINED}),
        version=orphan.version,
        values={"ended_at": now},
        noted=noted,
    )


def _adopted(command: Adopt, orphan: Orphan, session: Session, price_usd_h: Decimal) -> Reply:
    sentence = (
        f"{orphan.cloud} instance {orphan.ref} is session {session.short_id} of {command.owner.ref} for "
        f"{hours_said(command.hours)}, {at_rate(price_usd_h)}."
    )
    return Reply(True, ReplyCode.ADOPTED, sentence, {"session_id": session.id})


def _offer(orphan: Orphan, seen: ObservedInstance, now: datetime) -> Offer:
    """Describe the running instance as an offer: its own price, and nothing that is not known."""
    price = max(seen.price_usd_h or orphan.price_usd_h, Decimal(0))
    return Offer(
        cloud=orphan.cloud,
        key=orphan.ref,
        gpu=_what(orphan, seen)[:GPU_MAX],
        gpu_count=seen.gpu_count or 1,
        memory_gb=MEMORY_UNKNOWN,
        region=seen.region or "",
        spot=seen.spot,
        price_usd_h=money.rate(price),
        fetched_at=now,
        storage_usd_h=seen.storage_usd_h or Decimal(0),
        machine_id=seen.machine_id,
    )


def _what(orphan: Orphan, seen: ObservedInstance) -> str:
    """Return the GPU of an orphan, or `volume:NAME` for a network volume. The name comes from its label."""
    if orphan.cloud != volumes_of(orphan.cloud):
        return seen.gpu or "unknown"
    human = (seen.name or "").removesuffix(orphan.label).strip("-")
    return f"{VOLUME}{human.removeprefix('volume-') or 'adopted'}"


async def _request(tx: Tx, command: Adopt, offer: Offer, judged: Judged, now: datetime) -> Request:
    request = Request(
        id=new_id("req", now),
        kind=RequestKind.VOLUME if volume_of(offer.gpu) else RequestKind.PROVISION,
        state=RequestState.PENDING,
        inbox_key=f"adopt/{command.orphan}",
        requester=command.owner.ref,
        job=stored_job(adoption_approval.job_of(command, offer)),
        reason=command.reason,
        channel=command.channel,
        rule=f"An operator adopts an orphan. {judged.plan.rule}",
        required_approvals=max(1, judged.plan.required),
        expires_at=now + timedelta(hours=1),
        created_at=now,
    )
    tx.add(request)
    await tx.flush()
    record(tx, now, command.decider.actor, request.id, EventKind.REQUEST_MADE, after=request.state)
    return request


async def _grant(tx: Tx, command: Adopt, request: Request, session_id: str, judged: Judged, now: datetime) -> GrantRow:
    """Record the approvers' decisions with their amounts, and issue the grant that they authorize; reserve its cap."""
    votes = [
        Approval(
            id=new_id("apr", now),
            request_id=request.id,
            quote_version=0,
            approver=voter,
            decision="approve",
            price_cap_usd_h=judged.price_cap_usd_h,
            total_cap_usd=judged.total_cap_usd,
            hours=str(command.hours),
            confirmed_usd=read_amount(command.typed_amount) if command.typed_amount else None,
            reason=command.reason,
            rule=request.rule,
            at=now,
        )
        for voter in judged.voters
    ]
    tx.add_all(votes)
    await tx.flush()
    approval = votes[-1]
    await decide(tx, request.id, RequestState.APPROVED, now, command.decider.actor, command.reason, outcome="")
    grant = await reservations.new_grant(
        tx,
        GrantKind.CREATE,
        request_id=request.id,
        approval_id=approval.id,
        session_id=session_id,
        price_cap_usd_h=judged.price_cap_usd_h,
        total_cap_usd=judged.total_cap_usd,
        hours=str(command.hours),
        until=now + timedelta(hours=1),
        now=now,
    )
    await reservations.reserve(tx, grant, now)
    return grant
