"""Ask approvers to confirm a session that will cost more than was approved, and pause it when nobody answers.

It ends at its cap. An overspend request buys nothing: the total that was approved stays the most that the session may
cost. A host price change above the approved rate is asked about in the same way; until somebody answers, the instance
is stopped where nothing is lost by that, and else runs on inside the approved total.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from bot.rules.approvals.authority import Authority
from bot.rules.instances.power import PowerAction
from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.market.estimate import Component, Estimate
from bot.rules.nodes.checkins import progress
from bot.rules.pricing.spend_limits import billed_rate, price_cap
from bot.rules.sessions import host_price, overspend
from bot.rules.sessions.host_price import HostPrice, PriceStep, next_step
from bot.rules.sessions.overspend import Agreed, Approved, Seen, SpendForecast
from bot.rules.values.phrases import rates
from bot.services.billing.metering import running_usd
from bot.services.checkpoints import verification
from bot.services.grants import amendments, approvers, authority, escalation
from bot.services.grants.requote import offer_again
from bot.services.instances import power
from bot.services.instances.transitions import end_instance
from bot.services.nodes.checkins import node_status
from bot.services.notifications import request_message
from bot.services.notifications.interruption import notify_interruption
from bot.services.notifications.paging import alone
from bot.services.people import direct_messages
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from bot.services.sessions.expiration import SCHEDULER
from ledger.core import Tx, decide, lock_family, record
from ledger.kernel import money
from ledger.kernel.actor import Actor
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Instance, Node, Request, Session
from ledger.queries.decisions import shown_options
from ledger.queries.journal import latest_events
from ledger.queries.metering import BilledInstance
from ledger.queries.overspend import (
    RunningInstance,
    SessionQuestion,
    approved_rate,
    is_open,
    running,
    running_columns,
    running_ids,
)
from ledger.queries.runs.machines import machines_of_session
from providers.capabilities import BillingRule, BillingStart
from providers.cloud_names import volumes_of

#: A running session with its instance's whole row.
Running = RunningInstance[Instance]

#: Seconds between two passes over the cost of all sessions.
LOOK_S = 60.0
#: Sessions that are read at once: one transaction over a whole fleet would keep its snapshot for too long.
TOGETHER = 1000
WHY = "the running instance at its new cost"


def spend_forecast_of(one: RunningInstance[Any], now: datetime) -> SpendForecast:
    """Forecast the spend of a running session: what was approved, what it has cost, and what it is expected to cost."""
    row, terms = one.row, one.terms
    known = [
        Agreed(
            q.created_at,
            amendments.expected(q.kind, q.terms),
            None if q.kind is RequestKind.OVERSPEND else amendments.hours_of(q.terms),
        )
        for q in one.questions
        if q.state is RequestState.APPROVED
    ]
    ahead = progress(node_status(one.node), row.price_usd_h, now) if one.node is not None else None
    hours = terms.estimate.get("hours")
    most = Decimal(str(hours)) if hours is not None else None
    if most is not None:
        most = min(most, amendments.hours_of(terms))
    return overspend.spend_forecast(
        Approved(amendments.expected(RequestKind.PROVISION, terms), one.cap_usd, most, tuple(known)),
        Seen(row.sent_at or row.created_at, _spent_usd(one, now), row.price_usd_h),
        one.deadline,
        ahead.eta if ahead else None,
        now,
    )


def _forecast(ctx: Context, one: RunningInstance[Any], now: datetime) -> SpendForecast:
    """Forecast the spend of a session, with the boot that its cloud does not bill."""
    found, provider = spend_forecast_of(one, now), ctx.providers.get(one.row.cloud)
    if provider is None or provider.capabilities.billing.starts is BillingStart.CREATE:
        return found
    boot_h = Decimal(provider.capabilities.boot_expected_s) / 3600
    return replace(found, free_boot_usd=money.amount(boot_h * one.row.price_usd_h))


async def overspend_due(ctx: Context) -> int:
    """Open requests for overspending sessions, and pause those that nobody confirmed.

    Return how many sessions were processed.
    """
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        if clock_problem(ctx.clock) or await recovery_mode.is_on(tx):
            return 0
        ids = await running_ids(tx)
    due: list[RunningInstance[BilledInstance]] = []
    for first in range(0, len(ids), TOGETHER):
        async with ctx.db.read() as tx:
            found = await running_columns(tx, ids[first : first + TOGETHER])
        found = [one for one in found if one.row.cloud != volumes_of(one.row.cloud)]  # `volume_growth` asks about it.
        due += [one for one in found if _is_due(ctx, one, now)]
    for one in due:
        await alone(ctx, one.session_id, "the check of its cost", _look(ctx, one, now), None)
    if due:
        ctx.hints.outbox.set()
        ctx.hints.instances.set()
    return len(due)


def _is_due(ctx: Context, one: RunningInstance[Any], now: datetime) -> bool:
    """Whether there is something to ask or to follow. A stopped session is here only for its rate."""
    if one.row.state is InstanceState.STOPPED:
        return next_step(_host_price(ctx, one)) is PriceStep.ASK
    if one.questions or one.row.price_usd_h > one.rate_cap_usd_h or not _fits_until_its_end(ctx, one, now):
        is_over = overspend.is_over(_forecast(ctx, one, now), ctx.policy.price_tolerance, now)
        is_above = next_step(_host_price(ctx, one)) is not PriceStep.WITHIN
        return is_over or is_above or _open(one) is not None
    return False


def _fits_until_its_end(ctx: Context, one: RunningInstance[Any], now: datetime) -> bool:
    """Whether a session about which nothing was asked costs no more than approved even if it runs until its end.

    Most do, and no forecast ends later. So the forecast of a whole fleet is made for the others only.
    """
    approved_usd = amendments.expected(RequestKind.PROVISION, one.terms)
    latest = SpendForecast(approved_usd, one.cap_usd, _spent_usd(one, now), one.row.price_usd_h, one.deadline)
    return not overspend.is_over(latest, ctx.policy.price_tolerance, now)


def _spent_usd(one: RunningInstance[Any], now: datetime) -> Decimal:
    return one.elsewhere_usd + one.booked.usd + running_usd(one.row, one.booked, now, BillingRule())


def _open(one: RunningInstance[Any]) -> SessionQuestion | None:
    """Return the last overspend request of a session, when nobody confirmed it."""
    asked = [q for q in one.questions if q.kind is RequestKind.OVERSPEND]
    return asked[-1] if asked and is_open(asked[-1].state, asked[-1].decided_by) else None


def _about_rate(one: RunningInstance[Any]) -> SessionQuestion | None:
    """Return the open overspend request, when it asks for a rate above the approved one."""
    asked = _open(one)
    is_above = asked is not None and not billed_rate(asked.price_usd_h, one.approved_usd_h).allowed
    return asked if is_above else None


def _host_price(ctx: Context, one: RunningInstance[Any], *, is_saved: bool = False) -> HostPrice:
    asked = _about_rate(one)
    pending = asked is not None and asked.state is RequestState.PENDING
    return HostPrice(
        one.row.price_usd_h,
        one.approved_usd_h,
        was_ready=True,
        asked_usd_h=price_cap(asked.price_usd_h, ctx.policy) if asked is not None and pending else None,
        may_stop=one.row.state is InstanceState.LIVE and not power.cannot_pause(ctx, one.row),
        is_saved=is_saved,
    )


async def _look(ctx: Context, one: RunningInstance[BilledInstance], now: datetime) -> None:
    """Verify the checkpoint of an instance that may be stopped for its rate, then act in one transaction."""
    price = _host_price(ctx, one, is_saved=True)
    is_saved = next_step(price) is PriceStep.STOP and await _is_saved(ctx, one.session_id, now)
    await _check(ctx, one.session_id, now, is_saved=is_saved)


async def _is_saved(ctx: Context, session_id: str, now: datetime) -> bool:
    async with ctx.db.read() as tx:
        rows = [one.row for one in await running(tx, (session_id,))]
    return bool(rows) and await verification.is_saved(ctx, rows[0], now)


async def _check(ctx: Context, session_id: str, now: datetime, *, is_saved: bool) -> None:
    async with ctx.db.write() as tx:
        await lock_family(tx, Session, session_id)
        for one in await running(tx, (session_id,)):
            asked, about_rate = _open(one), _about_rate(one)
            match next_step(_host_price(ctx, one, is_saved=is_saved)):
                case PriceStep.ASK:
                    if asked is not None and asked.state is RequestState.PENDING:
                        await _withdraw(tx, one, asked, "A newer request asks about the present rate.", now)
                    await _ask(ctx, tx, one, _forecast(ctx, one, now), now, about_rate=True)
                case PriceStep.STOP if about_rate is not None:
                    await _stop_meanwhile(ctx, tx, one, about_rate.created_at, now)
                case PriceStep.RUN_ON if one.row.state is InstanceState.LIVE:
                    said = "Nobody approved its new rate yet, so its agent saves a checkpoint."
                    await _ask_to_save(ctx, tx, one, said, now)
                case PriceStep.WITHIN if about_rate is not None and about_rate.state is RequestState.PENDING:
                    await _withdraw(tx, one, about_rate, "It costs the approved rate again.", now)
                case PriceStep.WITHIN if one.row.state is InstanceState.LIVE:
                    await _check_total(ctx, tx, one, None if about_rate is not None else asked, now)
                case _:
                    pass


async def _check_total(ctx: Context, tx: Tx, one: Running, asked: SessionQuestion | None, now: datetime) -> None:
    """Ask about the expected total, withdraw the question when it fell again, or pause what nobody confirmed."""
    forecast = _forecast(ctx, one, now)
    is_over = overspend.is_over(forecast, ctx.policy.price_tolerance, now)
    if asked is None and is_over:
        await _ask(ctx, tx, one, forecast, now)
    elif asked is not None and not is_over and asked.state is RequestState.PENDING:
        await _withdraw(tx, one, asked, "Its expected cost is within the approval again.", now)
    elif asked is not None and _is_unanswered(ctx, asked, now):
        await _pause(ctx, tx, one, asked.created_at, now)


def _is_unanswered(ctx: Context, asked: SessionQuestion, now: datetime) -> bool:
    over_at = asked.created_at + timedelta(seconds=ctx.policy.overspend_answer_s)
    return asked.state is not RequestState.PENDING or now >= over_at


async def _ask(
    ctx: Context, tx: Tx, one: Running, forecast: SpendForecast, now: datetime, *, about_rate: bool = False
) -> None:
    session = await tx.get_one(Session, one.session_id, populate_existing=True)
    parent = await tx.get_one(Request, one.request_id)
    row, figure = one.row, money.cents_even(overspend.projected(forecast, now))
    earlier, spend = await authority.earlier(tx, parent, now), Authority(figure, figure, Decimal(session.hours))
    job = job_of(parent.job)
    needed, mandate = await approvers.planned(
        tx, ctx.policy, parent.requester, job, spend, row.offer, earlier, is_figure=True
    )
    can_pause = not power.cannot_pause(ctx, row)
    said = overspend.question(forecast, ctx.policy.overspend_answer_s // 60, can_pause=can_pause, now=now)
    if about_rate:
        said = host_price.question(
            row.cloud,
            row.price_usd_h,
            one.approved_usd_h,
            one.cap_usd,
            one.deadline,
            short=session.short_id,
            may_stop=can_pause,
            is_stopped=row.state is InstanceState.STOPPED,
        )
    asked = Request(
        id=new_id("req", now),
        kind=RequestKind.OVERSPEND,
        state=RequestState.PENDING,
        quote_version=1,
        inbox_key=f"drift/{session.id}/{len(one.questions)}",
        parent_id=parent.id,
        requester=session.owner,
        job=stored_job(replace(job, budget_cap_usd=None, max_price_usd_h=None)),
        reason=said,
        channel=parent.channel,
        rule=needed.rule,
        required_approvals=needed.required,
        expires_at=max(one.deadline, now),
        created_at=now,
        due_at=escalation.next_due(ctx.policy, mandate, now, one.deadline, now),
    )
    tx.add(asked)
    await tx.flush()
    record(tx, now, SCHEDULER, asked.id, EventKind.REQUEST_MADE, after=asked.state, reason=said)
    record(tx, now, SCHEDULER, session.id, EventKind.SPEND_OVER, reason=said)
    await offer_again(tx, asked, row, _costs(asked, figure, forecast, now), WHY, now)
    await request_message.show_again(tx, asked, now)
    await direct_messages.notify(
        tx,
        ctx.policy,
        now,
        session.owner,
        subject=f"drift/{asked.id}",
        text=f"Session {session.short_id}: {said}",
    )


def _costs(asked: Request, figure_usd: Decimal, forecast: SpendForecast, now: datetime) -> Estimate:
    """Return the new cost as the estimate of the running instance. Approving it confirms the cost and buys nothing."""
    hours = Decimal(max((forecast.until - now).total_seconds(), 0)) / 3600
    part = Component("compute", figure_usd, figure_usd)
    return Estimate(figure_usd, figure_usd, figure_usd, round(hours, 2), (part,), (asked.reason,))


async def _withdraw(tx: Tx, one: Running, asked: SessionQuestion, said: str, now: datetime) -> None:
    """Cancel a question that has no reason any more; its agent need not save for it."""
    node = await tx.get(Node, one.row.id)
    if node is not None:
        node.wanted = []
    await decide(tx, asked.id, RequestState.CANCELLED, now, SCHEDULER, said)


async def _pause(ctx: Context, tx: Tx, one: Running, asked_at: datetime, now: datetime) -> None:
    """Stop a session whose new cost nobody confirmed, where that saves money; otherwise ask its agent to save.

    Its end stays.
    """
    why = "Nobody approved its higher cost."
    if not power.cannot_pause(ctx, one.row) and await _stop(ctx, tx, one, asked_at, why, now):
        return
    said = "Nobody approved its higher cost. Its agent saves a checkpoint, and it ends at its approved amount."
    await _ask_to_save(ctx, tx, one, said, now)


async def _stop_meanwhile(ctx: Context, tx: Tx, one: Running, asked_at: datetime, now: datetime) -> None:
    """Stop an instance whose checkpoint is verified until somebody answers about its rate."""
    said = "Nobody approved its new rate yet, and its newest checkpoint is verified."
    await _stop(ctx, tx, one, asked_at, said, now)


async def _stop(ctx: Context, tx: Tx, one: Running, asked_at: datetime, why: str, now: datetime) -> bool:
    """Order a stop that keeps the disk. False when its cloud refused one since `asked_at`: none is ordered again."""
    (refused,) = await latest_events(tx, one.row.id, EventKind.INSTANCE_NOT_SWITCHED, 1) or (None,)
    if refused is not None and refused.at >= asked_at:
        return False
    session = await tx.get_one(Session, one.session_id, populate_existing=True)
    reply = await power.give(ctx, tx, session, PowerAction.STOP, SCHEDULER, now, keep=True)
    if reply.ok:
        said = f"{why} {reply.sentence}"
        record(tx, now, SCHEDULER, session.id, EventKind.SPEND_PAUSED, reason=said)
        subject = f"drift/{one.row.id}/paused/{int(asked_at.timestamp())}"
        await direct_messages.notify_owner(tx, ctx.policy, now, session, subject=subject, text=said)
    return True


async def _ask_to_save(ctx: Context, tx: Tx, one: Running, said: str, now: datetime) -> None:
    """Ask the agent of an instance once to save and upload, and notify the owner of it."""
    node = await tx.get(Node, one.row.id)
    if node is None or node.wanted:
        return
    node.wanted = ["save", "upload"]
    session = await tx.get_one(Session, one.session_id, populate_existing=True)
    record(tx, now, SCHEDULER, session.id, EventKind.SPEND_SAVING, reason=said)
    subject, text = f"drift/{one.row.id}/saving", f"Session {session.short_id}: {said}"
    await direct_messages.notify_owner(tx, ctx.policy, now, session, subject=subject, text=text)


async def confirmed(ctx: Context, tx: Tx, request: Request, session: Session, now: datetime) -> None:
    """Carry out the confirmation of a new cost: start a session again that was stopped since it was asked about.

    Nothing is reserved: the cap stays.
    """
    actor = Actor.from_ref(request.decided_by or session.owner)
    record(tx, now, actor, session.id, EventKind.SPEND_CONFIRMED, reason=request.reason)
    rows = await machines_of_session(tx, session.id)
    node = await tx.get(Node, rows[-1].id) if rows else None
    if node is not None:
        node.wanted = []
    if session.state is SessionState.STOPPED and await _stopped_since(tx, rows[-1], request.created_at):
        await power.give(ctx, tx, session, PowerAction.START, actor, now)
    said = f"The new cost of session {session.short_id} is approved."
    await direct_messages.notify(tx, ctx.policy, now, session.owner, subject=f"drift/{request.id}/confirmed", text=said)


async def _stopped_since(tx: Tx, row: Instance, asked_at: datetime) -> bool:
    """Whether its last stop was ordered after the question: an owner who stopped it before wants it stopped."""
    (ordered,) = await latest_events(tx, row.id, EventKind.INSTANCE_STOP, 1) or (None,)
    return ordered is not None and ordered.at >= asked_at


async def rejected(ctx: Context, tx: Tx, request: Request, session: Session, actor: Actor, now: datetime) -> None:
    """Carry out the rejection of a new rate: the instance is ended, and approvers are asked with the offers of now.

    Its agent gets its time to save. A rejected total inside the approved rate pauses the session in the next pass.
    """
    (asked,) = (await shown_options(tx, [request.id]))[request.id]
    rows = await machines_of_session(tx, session.id)
    # Of a set it is the machine that was asked about; its end is the end of its set.
    about = [one for one in rows if one.node_rank is None or one.price_usd_h == asked.price_usd_h]
    row = about[-1] if about else None
    if row is None or row.state not in power.SWITCHABLE:
        return
    approved = await approved_rate(tx, row)
    if billed_rate(asked.price_usd_h, approved.usd_h).allowed:
        return
    billed, covered = rates(asked.price_usd_h, approved.usd_h)
    said = f"Its new rate, {billed} instead of the approved {covered}, was rejected. So the session ends."
    await end_instance(tx, row, EndReason.BILLED_ABOVE_CAP, said, now, actor)
    await notify_interruption(tx, ctx.policy, row, now)
