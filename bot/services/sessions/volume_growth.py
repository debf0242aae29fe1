"""Ask approvers about a network volume that outgrew its amount, and notify its people on each day of notices."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.approvals.authority import Authority
from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.market.estimate import Component, Estimate
from bot.rules.sessions.volume_end import DAY, LEAST_NOTICE
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import hours as say_hours
from bot.rules.values.phrases import plural, rate, usd
from bot.services.grants import approvers, authority, escalation, reservations
from bot.services.grants.requote import offer_again
from bot.services.instances.transitions import paid_until, volume_paid
from bot.services.notifications import request_message
from bot.services.notifications.paging import page_with_owner
from bot.services.people import direct_messages
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, decide, move, record
from ledger.kernel import money
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import new_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import GrantState, RequestState
from ledger.kernel.volume_name import volume_of
from ledger.models import Approval, GrantRow, Instance, Request, Session
from ledger.queries.lookups import instances_of_session
from ledger.queries.overspend import growth_questions

SCHEDULER = Actor(ActorKind.SYSTEM, "scheduler")
WHY = "the volume at its new cost"


async def notify(ctx: Context, tx: Tx, session: Session, now: datetime) -> None:
    """Notify the owner and the operators once on each day of notices, and ask approvers about the cost.

    A day on which nobody could be notified does not count: the others come that much later, and so does the deletion.
    """
    began_at, given = session.volume_grace_at, session.volume_notices or 0
    if began_at is None or now < began_at + given * DAY or given >= ctx.policy.volume_grace_days:
        return
    late = now - (began_at + given * DAY)
    began_at = began_at + late if late > LEAST_NOTICE else began_at
    await amend(tx, Session, session.id, volume_grace_at=began_at, volume_notices=given + 1)
    row = (await instances_of_session(tx, session.id))[-1]
    await volume_paid(ctx, tx, session, row, await tx.get_one(GrantRow, row.grant_id), now)
    await tx.refresh(session)
    name = volume_of(session.gpu)
    said = (
        f"Volume {name} now costs {rate(row.price_usd_h)}, and its approved amount doesn't pay for that until its end. "
        f"Without an approval it is deleted {session.deadline:%Y-%m-%d %H:%M} UTC, with all data on it. "
        f"To delete it now: {cli_command(f'volume delete {name}')}."
    )
    subject = f"{session.id}/notice/{int(now.timestamp())}"
    await page_with_owner(tx, ctx.policy, session, subject, said, now)
    await _ask(ctx, tx, session, row, now)


def why_it_ends(ctx: Context, session: Session, *, ahead: bool) -> tuple[EndReason, str]:
    """Return the code and sentence of the end of a volume. `ahead`: the sentence is for a notice before it."""
    written, end = session.volume_ends_at or session.deadline, session.deadline
    if session.volume_grace_at is None or (written is not None and end is not None and end >= written):
        tense = "end then" if ahead else "have ended"
        return EndReason.RESERVATION_OVER, f"The approved {say_hours(Decimal(session.hours))} {tense}."
    notices = (end - session.volume_grace_at) / DAY if end is not None else Decimal(ctx.policy.volume_grace_days)
    days = plural(max(round(notices), 1), "day")
    tense = f"It is deleted after {days} of notices." if ahead else f"Nobody approved its cost in {days} of notices."
    return EndReason.BUDGET_CAP, f"The approved amount doesn't pay for the volume. {tense}"


async def _ask(ctx: Context, tx: Tx, session: Session, row: Instance, now: datetime) -> None:
    """Ask approvers for what keeps the volume until its written end, unless they were asked about this rate."""
    written = session.volume_ends_at or session.deadline
    questions = await growth_questions(tx, session.request_id)
    unanswered = [one for one in questions if one.state is not RequestState.APPROVED]
    if written is None or any(not _is_new(ctx, one.price_usd_h, row) for one in unanswered):
        return
    for one in unanswered:
        if one.state is RequestState.PENDING:
            said = "A newer request asks about the present cost."
            await decide(tx, one.request_id, RequestState.CANCELLED, now, SCHEDULER, said)
    grant = await tx.get_one(GrantRow, row.grant_id)
    paid = await paid_until(ctx, tx, row, grant, row.price_usd_h, written)
    needed_h = Decimal((written - paid + ctx.policy.volume_grace_days * DAY).total_seconds()) / 3600
    figure = money.worst(row.price_usd_h * needed_h)
    parent = await tx.get_one(Request, session.request_id)
    said = (
        f"The volume grew beyond its approval and costs {rate(row.price_usd_h)}. {usd(figure)} more keeps it until "
        f"{written:%Y-%m-%d %H:%M} UTC, with {plural(ctx.policy.volume_grace_days, 'day')} of notices. "
        f"Otherwise it is deleted {session.deadline:%Y-%m-%d %H:%M} UTC."
    )
    earlier, spend = await authority.earlier(tx, parent, now), Authority(figure, figure)
    job = job_of(parent.job)
    needed, mandate = await approvers.planned(tx, ctx.policy, parent.requester, job, spend, row.offer, earlier)
    end = max(session.deadline or now, now)
    asked = Request(
        id=new_id("req", now),
        kind=RequestKind.OVERSPEND,
        state=RequestState.PENDING,
        quote_version=1,
        inbox_key=f"growth/{session.id}/{len(questions)}",
        parent_id=parent.id,
        requester=session.owner,
        job=stored_job(replace(job, budget_cap_usd=None, max_price_usd_h=None)),
        reason=said,
        channel=parent.channel,
        rule=needed.rule,
        required_approvals=needed.required,
        expires_at=end,
        created_at=now,
        due_at=escalation.next_due(ctx.policy, mandate, now, end, now),
    )
    tx.add(asked)
    await tx.flush()
    record(tx, now, SCHEDULER, asked.id, EventKind.REQUEST_MADE, after=asked.state, reason=said)
    record(tx, now, SCHEDULER, session.id, EventKind.SPEND_OVER, reason=said)
    part = Component("compute", figure, figure)
    costs = Estimate(figure, figure, figure, round(max(needed_h, Decimal(0)), 2), (part,), (said,))
    await offer_again(tx, asked, row, costs, WHY, now)
    await request_message.show_again(tx, asked, now)


def _is_new(ctx: Context, asked_usd_h: Decimal, row: Instance) -> bool:
    """Whether the rate rose so far above the one that was asked about that people decide anew."""
    return row.price_usd_h > asked_usd_h * ctx.policy.price_tolerance


async def confirmed(
    ctx: Context, tx: Tx, request: Request, approval: Approval, session: Session, now: datetime
) -> None:
    """Carry out the approval of a volume's growth: reserve its amount, and give the volume its written end again."""
    if approval.price_cap_usd_h is None or approval.total_cap_usd is None:
        raise ValueError(f"approval {approval.id} covers no amount")
    actor = Actor.from_ref(approval.approver)
    authority = await reservations.new_grant(
        tx,
        GrantKind.EXTEND,
        request_id=request.id,
        approval_id=approval.id,
        session_id=session.id,
        price_cap_usd_h=approval.price_cap_usd_h,
        total_cap_usd=approval.total_cap_usd,
        hours="0",
        until=now + timedelta(seconds=ctx.policy.request_ttl_s),
        now=now,
    )
    await reservations.reserve(tx, authority, now)
    await move(tx, GrantRow, authority.id, GrantState.USED, now, actor)
    row = (await instances_of_session(tx, session.id))[-1]
    await volume_paid(ctx, tx, session, row, await tx.get_one(GrantRow, row.grant_id), now)
    session = await tx.get_one(Session, session.id, populate_existing=True)
    record(tx, now, actor, session.id, EventKind.SPEND_CONFIRMED, reason=request.reason)
    name, end = volume_of(session.gpu), session.deadline
    said = f"The new cost of volume {name} is approved. It now ends {end:%Y-%m-%d %H:%M} UTC."
    await direct_messages.notify(tx, ctx.policy, now, session.owner, subject=f"{request.id}/confirmed", text=said)
    await request_message.show_again(tx, await tx.get_one(Request, session.request_id), now)
