"""Extend a session: inside what was approved already, or by a request that is approved like every spend."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.approvals.approvers import Deed
from bot.rules.approvals.authority import Authority
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.policy import job_bounds, volume_checks
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.policy.request_rate import CountedAs
from bot.rules.pricing import hours_cap
from bot.rules.sessions import extension
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import hours as say_hours
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.state_text import state_words
from bot.services.access import authorization, request_rate
from bot.services.access.request_rate import Askers
from bot.services.checkpoints import hold
from bot.services.grants import amendments, approvers, authority, escalation, hours_used, reservations
from bot.services.grants.requote import offer_again
from bot.services.instances import volume_ends
from bot.services.instances.transitions import ends_at, paid_until, volume_paid
from bot.services.notifications import end_of_session, ready_message, repeated_request, request_message
from bot.services.people import direct_messages, eligibility
from bot.services.runtime import recovery_mode
from bot.services.runtime.commands import Extend, Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import Tx, amend, move, record
from ledger.kernel.actor import Actor
from ledger.kernel.checkpoint_step import WAITS, CheckpointStep
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import GrantState, RequestState, SessionState
from ledger.kernel.volume_name import volume_of
from ledger.models import Approval, GrantRow, Instance, Request, Session
from ledger.queries.journal import done_before
from ledger.queries.lookups import billed_since, by_inbox_key, waiting_extensions
from ledger.queries.runs.machines import machines_of_session
from ledger.queries.views import session_to_change

#: The states of a session whose end can be moved.
EXTENDABLE = frozenset({SessionState.PROVISIONING, SessionState.RUNNING, SessionState.STOPPED})


async def extend(ctx: Context, command: Extend) -> Reply:
    """Extend a session.

    Codes of success: `kept_running` (inside what was approved), `extension_requested` (an approver decides).
    """
    if not_them := await eligibility.refused(ctx, command.decider, Deed.EXTEND):
        return refuse(not_them.code, not_them.sentence)
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            askers = await request_rate.locked(tx, ctx.policy, command.decider.actor)
            session = await session_to_change(tx, command.session)
            if session is None:
                return refuse(ReplyCode.NO_SESSION, "That request has no session to extend.")
            reply = await _extend(ctx, tx, session, command, askers, now)
            reply = await recovery_mode.with_recovery_notice(tx, reply)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    if reply.ok:
        await ctx.epoch.cover(tx)
        ctx.hints.sessions.set()
        ctx.hints.outbox.set()
    return replace(reply, data={**reply.data, "session_id": session.id})


async def _extend(ctx: Context, tx: Tx, session: Session, command: Extend, askers: Askers, now: datetime) -> Reply:
    if not await authorization.may_act(tx, ctx.policy, session, command.decider):
        return refuse(ReplyCode.NOT_YOURS, "Only its owner, a fallback contact or an approver can extend this session.")
    known = await by_inbox_key(tx, command.key)
    if known is not None:
        return _asked(known, session.deadline)
    kept = await done_before(tx, session.id, {EventKind.SESSION_KEPT}, command.key, now - KEPT)
    if kept is not None:  # The process ended before it could reply; the end was moved once.
        return _kept(session, kept.reason, session.deadline)
    rows = await machines_of_session(tx, session.id)
    held = next(iter(hold.waiting(rows)), None)
    deadline = held.checkpoint_until if held else session.deadline
    if (held is None and session.state not in EXTENDABLE) or deadline is None:
        return refuse(
            ReplyCode.NOT_RUNNING,
            f"Session {session.short_id} is {state_words(session.state)}, so it can't be extended.",
        )
    seen = command.seen_end_s in (None, int(deadline.timestamp())) if held else None
    if not (end_of_session.same_end(session, command.seen_end_s) if seen is None else seen):
        return refuse(
            ReplyCode.STALE, "The session has another end now, so nothing was changed. Use the newest message."
        )
    row = rows[-1]
    provider = ctx.providers.get(row.cloud)
    if provider is None:
        return refuse(ReplyCode.CLOUD_GONE, f"{row.cloud} is no longer set up here, so this session can't be extended.")
    if provider.capabilities.batch:
        return refuse(ReplyCode.CANNOT_EXTEND, f"A run at {row.cloud} has a fixed timeout and can't be extended.")
    if wrong := _too_long(ctx.policy, session, command.hours, await _already(tx, session, row, now)):
        return refuse(*wrong)
    if held is None and extension.is_inside(
        deadline, command.hours, await _approved_until(ctx, tx, session, row, deadline)
    ):
        return await _keep(tx, session, command, deadline, now)
    if command.only_inside:
        sentence = f"That is more than was approved. Request an extension: {cli_command('extend ID 2h')}."
        return refuse(ReplyCode.OUTSIDE, sentence)
    return await _ask(ctx, tx, session, row, command, askers, now)


def _too_long(policy: Policy, session: Session, hours: Decimal, already: Decimal) -> BoundsVerdict | None:
    """Say that a session would get more hours in all than it may have, or that no time was asked for."""
    if volume_of(session.gpu):
        return volume_checks.bad_time(already + hours if hours > 0 else hours)
    verdict = hours_cap.check(hours, already, policy)
    return None if verdict.allowed else BoundsVerdict(verdict.code, verdict.sentence)


async def is_inside(ctx: Context, tx: Tx, session: Session, extra_hours: Decimal) -> bool:
    """Whether an extension lies inside what was approved for a session already."""
    rows = await machines_of_session(tx, session.id)
    if session.deadline is None or not rows:
        return False
    most = await _approved_until(ctx, tx, session, rows[-1], session.deadline)
    return extension.is_inside(session.deadline, extra_hours, most)


async def _approved_until(ctx: Context, tx: Tx, session: Session, row: Instance, deadline: datetime) -> datetime:
    """Return until when the session may run under its current approvals."""
    began_at = await billed_since(tx, session.id) or session.created_at
    end = max(deadline, extension.later(began_at, Decimal(session.hours)))
    return await _paid(ctx, tx, row, end)


async def _paid(ctx: Context, tx: Tx, row: Instance, end: datetime) -> datetime:
    """Return `end`, or until when the amounts pay for this machine, and for every other one of its set."""
    rows = [row] if row.node_rank is None else await machines_of_session(tx, row.session_id)
    for one in rows:
        end = await paid_until(ctx, tx, one, await tx.get_one(GrantRow, one.grant_id), one.price_usd_h, end)
    return end


async def _keep(tx: Tx, session: Session, command: Extend, deadline: datetime, now: datetime) -> Reply:
    end = extension.later(deadline, command.hours)
    await ends_at(tx, session, end, now)
    if volume_of(session.gpu):
        await amend(tx, Session, session.id, volume_ends_at=end)
    said = f"{say_hours(command.hours)} more, covered by the approval."
    record(tx, now, command.decider.actor, session.id, EventKind.SESSION_KEPT, reason=said, key=command.key)
    await request_message.show_again(tx, await tx.get_one(Request, session.request_id), now)
    return _kept(session, said, end)


def _kept(session: Session, said: str, end: datetime | None) -> Reply:
    at = f"at {end:%Y-%m-%d %H:%M} UTC" if end else "later"
    return Reply(True, ReplyCode.KEPT_RUNNING, f"Session {session.short_id} now ends {at}: {said}", {"ends_at": end})


async def _volume_ends(tx: Tx, job: JobRequest, session: Session, hours: Decimal) -> Reply | None:
    """Refuse to extend a machine past the end of the network volume that it uses."""
    volume = await tx.get(Session, job.volume_session) if job.volume_session is not None else None
    if volume is None or volume.deadline is None or session.deadline is None:
        return None
    if extension.later(session.deadline, hours) <= volume.deadline:
        return None
    more = cli_command(f"volume extend {job.volume} 7d")
    said = f"Its volume {job.volume} would end first, {volume.deadline:%Y-%m-%d %H:%M} UTC. Extend the volume: {more}."
    return refuse(ReplyCode.NO_VOLUME, said)


async def _already(tx: Tx, session: Session, row: Instance, now: datetime) -> Decimal:
    """Return the hours that a session has: under earlier approvals, its own, and those of its checkpoint hold."""
    approval_id = (await tx.get_one(GrantRow, row.grant_id)).approval_id
    before_h = await hours_used.hours_before(tx, session.id, approval_id, now)
    return before_h + Decimal(session.hours) + hold.reserved(row).granted_h


async def _not_asked(
    ctx: Context, tx: Tx, session: Session, parent: Request, command: Extend, above: str
) -> Reply | None:
    """Refuse a request for more time that lacks its reason, waits already, or passes the end of its volume."""
    reason = command.reason.strip()
    if above and not reason:
        again = cli_command(f"extend {session.short_id} {command.hours.normalize():f}h WHY")
        return refuse(ReplyCode.REASON_NEEDED, f"{above} Say why: {again}")
    if wrong := job_bounds.reason(reason, ctx.policy):
        return refuse(*wrong)
    waiting = await waiting_extensions(tx, session.request_id)
    if waiting:
        sentence = f"You already asked for more time ({short_id(waiting[0].id)})."
        return refuse(ReplyCode.ALREADY_REQUESTED, sentence, {"request_id": waiting[0].id})
    return await _volume_ends(tx, job_of(parent.job), session, command.hours)


async def _ask(
    ctx: Context, tx: Tx, session: Session, row: Instance, command: Extend, askers: Askers, now: datetime
) -> Reply:
    already, reason = await _already(tx, session, row, now), command.reason.strip()
    parent = await tx.get_one(Request, session.request_id)
    earlier = await authority.earlier(tx, parent, now)
    already_in_all = already + earlier.whole.hours
    job = job_of(parent.job)
    above = "" if job.makes_volume else extension.override_sentence(already_in_all, command.hours, ctx.policy)
    if refused := await _not_asked(ctx, tx, session, parent, command, above):
        return refused
    kind = RequestKind.EXTEND
    counted = CountedAs(kind, session.id)
    if too_many := await request_rate.refusal(ctx, tx, askers, now, counted):
        return too_many
    # Limits of the first request do not bind this one: more time is more money, and approvers set its limit.
    job = replace(job, budget_cap_usd=None, max_price_usd_h=None, reason=reason)
    job = replace(job, hours=command.hours, already_hours=already)
    # A stopped instance costs only its disk.
    stopped = row.checkpoint_step == CheckpointStep.HELD and row.status == "stopped"
    every = [row] if row.node_rank is None else await machines_of_session(tx, session.id)
    price_usd_h = sum(((hold.disk_rate(one) if stopped else one.price_usd_h) for one in every), Decimal(0))
    costs = extension.estimate(price_usd_h, command.hours, ctx.policy)
    total = already_in_all + command.hours
    spend = Authority(costs.worst_usd, costs.expected_usd, already + command.hours)
    needed, mandate = await approvers.planned(tx, ctx.policy, parent.requester, job, spend, row.offer, earlier)
    # After the end there is nothing left to extend, so the request expires then.
    end = row.checkpoint_until if row.checkpoint_step in WAITS else session.deadline
    expires_at = min(now + timedelta(seconds=ctx.policy.request_ttl_s), max(end or now, now))
    actor = command.decider.actor
    card = await repeated_request.card_for(tx, ctx.policy, actor, parent.channel, kind, now, parent.id)
    asked = Request(
        id=new_id("req", now),
        kind=kind,
        state=RequestState.PENDING,
        quote_version=1,
        inbox_key=command.key,
        parent_id=parent.id,
        requester=actor.ref,
        job=stored_job(job),
        reason=reason,
        channel=parent.channel,
        rule=f"{needed.rule} {above or f'That makes {say_hours(total)} in all.'}",
        required_approvals=needed.required,
        expires_at=expires_at,
        created_at=now,
        due_at=escalation.next_due(ctx.policy, mandate, now, expires_at, now),
        card_of=card.card_of,
        card_turn=card.card_turn,
    )
    tx.add(asked)
    await tx.flush()
    request_rate.count(tx, askers, asked.id, now, counted)
    record(tx, now, actor, asked.id, EventKind.REQUEST_MADE, after=asked.state)
    which = "the machine that runs now" if len(every) == 1 else "the machines that run now"
    await offer_again(tx, asked, row, costs, which, now, nodes=len(every), price_usd_h=price_usd_h)
    await request_message.show_again(tx, asked, now)
    await repeated_request.notify(tx, asked, now)
    await end_of_session.refresh(tx, session, now)
    return _asked(asked, end)


async def _longer(ctx: Context, tx: Tx, session: Session, row: Instance, hours: Decimal, now: datetime) -> datetime:
    """Move the end of a session by the hours of an extension, and return it. A volume's written end moves."""
    if written := volume_ends.written_end(session) if volume_of(session.gpu) else None:
        await amend(tx, Session, session.id, volume_ends_at=extension.later(written, hours))
        await volume_paid(ctx, tx, session, row, await tx.get_one(GrantRow, row.grant_id), now)
        return (await tx.get_one(Session, session.id, populate_existing=True)).deadline or written
    end = await _paid(ctx, tx, row, extension.later(session.deadline or now, hours))
    await ends_at(tx, session, end, now)
    return end


def _asked(request: Request, end: datetime | None) -> Reply:
    more, ends = say_hours(job_of(request.job).hours), f" {end:%Y-%m-%d %H:%M} UTC" if end else ""
    sentence = f"Asked for {more} more ({short_id(request.id)}). Until it's approved, the session still ends{ends}."
    return Reply(True, ReplyCode.EXTENSION_REQUESTED, sentence, {"request_id": request.id})


async def grant(ctx: Context, tx: Tx, request: Request, approval: Approval, session: Session, now: datetime) -> None:
    """Carry out the last approval of an extension: reserve its amount and move the session's end in one transaction."""
    if approval.price_cap_usd_h is None or approval.total_cap_usd is None or session.deadline is None:
        raise ValueError(f"approval {approval.id} covers no amount")
    actor, hours = Actor.from_ref(approval.approver), Decimal(approval.hours or job_of(request.job).hours)
    authority = await reservations.new_grant(
        tx,
        GrantKind.EXTEND,
        request_id=request.id,
        approval_id=approval.id,
        session_id=session.id,
        price_cap_usd_h=approval.price_cap_usd_h,
        total_cap_usd=approval.total_cap_usd,
        hours=str(hours),
        until=now + timedelta(seconds=ctx.policy.request_ttl_s),
        now=now,
    )
    await reservations.reserve(tx, authority, now)
    await move(tx, GrantRow, authority.id, GrantState.USED, now, actor)
    row = (await machines_of_session(tx, session.id))[-1]
    if hold.waiting([row]):
        # Its hours are added to the checkpoint hold, and not to the run as well.
        end = await hold.extended(ctx, tx, row, hours, now)
    else:
        total = Decimal(session.hours) + hours
        await amend(tx, Session, session.id, hours=f"{total.normalize():f}")
        # Where the amount ends the session early, the new amount pays for the new hours and not for the old ones.
        end = await _longer(ctx, tx, session, row, hours, now)
    less = amendments.amendment_summary(request, approval)
    more = f"{say_hours(hours)} more{f' ({less})' if less else ''}"
    said = f"{more}: session {session.short_id} now ends {end:%Y-%m-%d %H:%M} UTC."
    record(tx, now, actor, session.id, EventKind.SESSION_EXTENDED, reason=said)
    await request_message.show_again(tx, await tx.get_one(Request, session.request_id), now)
    await ready_message.show_again(tx, session.id, now)  # It says when it ends.
    for person in sorted({session.owner, request.requester}):
        await direct_messages.notify(tx, ctx.policy, now, person, subject=f"{request.id}/extended", text=said)
