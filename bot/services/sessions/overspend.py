"""Ask approvers to confirm a session that will cost more than was approved, and pause it when nobody answers.

It ends at its cap. An overspend request buys nothing: the total that was approved stays the most that the session may
cost.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.approvals.decision import plan
from bot.rules.instances.power import PowerAction
from bot.rules.market.estimate import Component, Estimate
from bot.rules.nodes.checkins import progress
from bot.rules.sessions import overspend
from bot.rules.sessions.overspend import Agreed, Approved, Seen, SpendForecast
from bot.services.billing.metering import running_usd
from bot.services.grants import amendments, approvers, escalation
from bot.services.grants.requote import offer_again
from bot.services.instances import power
from bot.services.nodes.checkins import node_status
from bot.services.notifications import request_message
from bot.services.notifications.paging import alone
from bot.services.people import direct_messages
from bot.services.runtime import recovery_mode
from bot.services.runtime.context import Context
from bot.services.sessions.expiration import SCHEDULER
from ledger.core import Tx, decide, lock_family, record
from ledger.kernel import money
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState, SessionState
from ledger.models import Instance, Node, Request, Session
from ledger.queries.journal import latest_events
from ledger.queries.lookups import instances_of_session
from ledger.queries.overspend import RunningInstance, SessionQuestion, is_open, running, running_ids
from providers.capabilities import BillingRule
from providers.profiles import model

#: Seconds between two passes over the cost of all sessions.
LOOK_S = 60.0
#: Sessions that are read at once: one transaction over a whole fleet would keep its snapshot for too long.
TOGETHER = 1000
WHY = "the machine that runs now, with its new figure"


def spend_forecast_of(one: RunningInstance, now: datetime) -> SpendForecast:
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
    spent_usd = one.elsewhere_usd + one.booked.usd + running_usd(row, one.booked, now, BillingRule())
    return overspend.spend_forecast(
        Approved(amendments.expected(RequestKind.PROVISION, terms), one.cap_usd, most, tuple(known)),
        Seen(row.sent_at or row.created_at, spent_usd, row.price_usd_h),
        one.deadline,
        ahead.eta if ahead else None,
        now,
    )


async def overspend_due(ctx: Context) -> int:
    """Open requests for overspending sessions, and pause those that nobody confirmed.

    Return how many sessions were processed.
    """
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        if await recovery_mode.is_on(tx):
            return 0
        ids = await running_ids(tx)
    due: list[str] = []
    for first in range(0, len(ids), TOGETHER):
        async with ctx.db.read() as tx:
            found = await running(tx, ids[first : first + TOGETHER])
        due += [one.session_id for one in found if _is_due(ctx, one, now)]
    for session_id in due:
        await alone(ctx, session_id, "the look at its cost", _check(ctx, session_id, now), None)
    if due:
        ctx.hints.outbox.set()
        ctx.hints.instances.set()
    return len(due)


def _is_due(ctx: Context, one: RunningInstance, now: datetime) -> bool:
    is_over = overspend.is_over(spend_forecast_of(one, now), ctx.policy.overspend_tolerance, now)
    return is_over or _open(one) is not None


def _open(one: RunningInstance) -> SessionQuestion | None:
    """Return the last overspend request of a session, when nobody confirmed it."""
    asked = [q for q in one.questions if q.kind is RequestKind.OVERSPEND]
    return asked[-1] if asked and is_open(asked[-1].state, asked[-1].decided_by) else None


async def _check(ctx: Context, session_id: str, now: datetime) -> None:
    async with ctx.db.write() as tx:
        await lock_family(tx, Session, session_id)
        for one in await running(tx, (session_id,)):
            forecast = spend_forecast_of(one, now)
            asked, is_over = _open(one), overspend.is_over(forecast, ctx.policy.overspend_tolerance, now)
            if asked is None and is_over:
                await _ask(ctx, tx, one, forecast, now)
            elif asked is not None and not is_over and asked.state is RequestState.PENDING:
                await _withdraw(tx, asked, now)
            elif asked is not None and _is_unanswered(ctx, asked, now):
                await _pause(ctx, tx, one, asked.created_at, now)


def _is_unanswered(ctx: Context, asked: SessionQuestion, now: datetime) -> bool:
    over_at = asked.created_at + timedelta(seconds=ctx.policy.overspend_answer_s)
    return asked.state is not RequestState.PENDING or now >= over_at


async def _ask(ctx: Context, tx: Tx, one: RunningInstance, forecast: SpendForecast, now: datetime) -> None:
    session = await tx.get_one(Session, one.session_id, populate_existing=True)
    parent = await tx.get_one(Request, one.request_id)
    row = (await instances_of_session(tx, session.id))[-1]
    figure = money.cents_even(overspend.projected(forecast, now))
    by_people = replace(ctx.policy, auto_approve_below_usd=None)
    mandate = await approvers.fresh(tx, ctx.policy, parent.requester, parent.job, [(figure, row.offer)])
    needed = plan(by_people, figure, figure, Decimal(session.hours), RequestState.APPROVED, mandate)
    can_pause = not _cannot_pause(ctx, row)
    said = overspend.question(forecast, ctx.policy.overspend_answer_s // 60, can_pause=can_pause, now=now)
    asked = Request(
        id=new_id("req", now),
        kind=RequestKind.OVERSPEND,
        state=RequestState.PENDING,
        quote_version=1,
        inbox_key=f"drift/{session.id}/{len(one.questions)}",
        parent_id=parent.id,
        requester=session.owner,
        job=replace(parent.job, budget_cap_usd=None, max_price_usd_h=None),
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
        tx, ctx.policy, now, session.owner, subject=f"drift/{asked.id}", text=f"Session {short_id(session.id)}: {said}"
    )


def _costs(asked: Request, figure_usd: Decimal, forecast: SpendForecast, now: datetime) -> Estimate:
    """Return the new cost as the estimate of the running instance. Approving it confirms the cost and buys nothing."""
    hours = Decimal(max((forecast.until - now).total_seconds(), 0)) / 3600
    part = Component("compute", figure_usd, figure_usd, figure_usd)
    return Estimate(figure_usd, figure_usd, figure_usd, round(hours, 2), (part,), (asked.reason,))


async def _withdraw(tx: Tx, asked: SessionQuestion, now: datetime) -> None:
    said = "It will cost what was approved after all."
    await decide(tx, asked.id, RequestState.CANCELLED, now, SCHEDULER, said)


def _cannot_pause(ctx: Context, row: Instance) -> str:
    """Return why a stop would not help at that cloud; empty where it does."""
    provider = ctx.providers.get(row.cloud)
    if provider is None:
        return "its cloud is not set up here now"
    able = provider.capabilities
    if not able.stop or able.billing.gpu_while_stopped:
        return "a stop there saves nothing"
    return "" if model.load(row.cloud).stop_keeps_data else "a stop there keeps nothing"


async def _pause(ctx: Context, tx: Tx, one: RunningInstance, asked_at: datetime, now: datetime) -> None:
    """Stop a session whose new cost nobody confirmed, where that saves money; otherwise ask its agent to save.

    Its end stays. A cloud that refused the stop is not asked again in every pass: its agent is asked to save instead.
    """
    session = await tx.get_one(Session, one.session_id, populate_existing=True)
    row = (await instances_of_session(tx, session.id))[-1]
    (refused,) = await latest_events(tx, row.id, EventKind.INSTANCE_NOT_SWITCHED, 1) or (None,)
    was_refused = refused is not None and refused.at >= asked_at
    if not was_refused and not _cannot_pause(ctx, row):
        reply = await power.give(ctx, tx, session, PowerAction.STOP, SCHEDULER, now, keep=True)
        if reply.ok:
            said = f"Nobody confirmed what it will cost, so it is paused. {reply.sentence}"
            record(tx, now, SCHEDULER, session.id, EventKind.SPEND_PAUSED, reason=said)
            await direct_messages.notify(
                tx, ctx.policy, now, session.owner, subject=f"drift/{row.id}/paused", text=said
            )
        return
    node = await tx.get(Node, row.id)
    if node is not None and not node.wanted:
        node.wanted = ["save", "upload"]
        said = "Nobody confirmed what it will cost; its agent is asked to save, and it ends at its cap."
        record(tx, now, SCHEDULER, session.id, EventKind.SPEND_SAVING, reason=said)
        await direct_messages.notify(
            tx,
            ctx.policy,
            now,
            session.owner,
            subject=f"drift/{row.id}/saving",
            text=f"Session {short_id(session.id)}: {said}",
        )


async def confirmed(ctx: Context, tx: Tx, request: Request, session: Session, now: datetime) -> None:
    """Carry out the confirmation of a new cost: start a paused session again. Nothing is reserved: the cap stays."""
    actor = Actor.from_ref(request.decided_by or session.owner)
    record(tx, now, actor, session.id, EventKind.SPEND_CONFIRMED, reason=request.reason)
    rows = await instances_of_session(tx, session.id)
    node = await tx.get(Node, rows[-1].id) if rows else None
    if node is not None:
        node.wanted = []
    if session.state is SessionState.STOPPED:
        await power.give(ctx, tx, session, PowerAction.START, actor, now)
    said = f"What session {short_id(session.id)} will cost is confirmed."
    await direct_messages.notify(tx, ctx.policy, now, session.owner, subject=f"drift/{request.id}/confirmed", text=said)
