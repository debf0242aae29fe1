"""Start a request without an approval (break-glass), record it as such, and notify every approver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals import break_glass as approval_break_glass
from bot.rules.approvals.amendments import covered
from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.approvals.decision import linked
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.pricing.spend_limits import price_cap, total_cap
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.approvals import effects
from bot.services.budgets import enforcement
from bot.services.grants import amendments, authority, hours_used, override
from bot.services.market.codec import hold_hours
from bot.services.notifications.paging import page_in
from bot.services.people import eligibility
from bot.services.runtime import recovery_mode
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import StaleMove, Tx, amend, announce, lock_auto_approval, record
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import NotificationKind, RequestState
from ledger.models import Approval, Option, Request
from ledger.queries.access import Whose
from ledger.queries.decisions import DecisionSubject, shown_options, subject_of_request
from ledger.queries.journal import latest_events
from ledger.queries.spend import started_alone
from ledger.queries.views import resolve

#: One request is started this way a few times at most: once for each time that its offers ran out.
SOME = 20


@dataclass(frozen=True, slots=True)
class BreakGlass:
    """Start your own request now. `offer_id` is one of its options; None: the first one."""

    request: str
    decider: DeciderFacts
    reason: str
    offer_id: str | None = None
    #: Names the call; a repeated call gets the same reply. Empty where calls are never repeated.
    key: str = ""


async def break_glass(ctx: Context, command: BreakGlass) -> Reply:
    """Start without an approval, as far as the policy allows it. Code of success: `break_glass`."""
    now = ctx.clock.now()
    command = replace(command, decider=await eligibility.looked_up(ctx, command.decider))
    try:
        async with ctx.db.write() as tx:
            request, _ = await resolve(tx, command.request)
            ask = await subject_of_request(tx, request.id)
            reply = await _done_before(tx, command, request.id) or await _judge(ctx, tx, ask, command, now)
            reply = await recovery_mode.with_recovery_notice(tx, reply)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    except StaleMove:
        return refuse(ReplyCode.STALE, "Somebody else was faster. The request's message shows the result.")
    if reply.ok:
        await ctx.epoch.cover(tx)
        for hint in (ctx.hints.instances, ctx.hints.sessions, ctx.hints.outbox):
            hint.set()
    return reply


async def _done_before(tx: Tx, command: BreakGlass, request_id: str) -> Reply | None:
    """Return the reply to a repeated call whose process may have ended before it could reply."""
    rows = await latest_events(tx, request_id, EventKind.REQUEST_BREAK_GLASS, SOME) if command.key else []
    mine = command.decider.actor.ref
    said = next((one.reason for one in rows if one.actor == mine and one.data.get("key") == command.key), None)
    return None if said is None else _started(request_id, said)


def _started(request_id: str, said: str) -> Reply:
    return Reply(True, ReplyCode.BREAK_GLASS, f"It starts. {said}", {"request_id": request_id})


async def _judge(ctx: Context, tx: Tx, ask: DecisionSubject, command: BreakGlass, now: datetime) -> Reply:
    policy, who, request = ctx.policy, command.decider, ask.request
    names = Whose.of([who.actor, *linked(policy, who.actor)])
    own = request.requester in names
    allowed = approval_break_glass.may_break_glass(policy, who, own=own, reason=command.reason)
    if not allowed.allowed:
        return refuse(allowed.code, allowed.sentence)
    if (
        request.kind is not RequestKind.PROVISION
        or request.state is not RequestState.PENDING
        or now >= request.expires_at
    ):
        return refuse(ReplyCode.NOT_WAITING, f"Request {short_id(request.id)} needs no approval now.")
    if any(vote.approver in names for vote in ask.votes):
        # An approval is never changed, and one person approves a request once.
        sentence = "You already approved this, so it needs another approver. To start without one, make a new request."
        return refuse(ReplyCode.ALREADY_VOTED, sentence)
    options = [one for one in (await shown_options(tx, {request.id}))[request.id] if one.cloud in ctx.providers]
    option = next((one for one in options if command.offer_id in (None, one.offer_id)), None)
    if option is None:
        shows = cli_command(f"request {short_id(request.id)}")
        sentence = f"{(command.offer_id or 'An offer')[:80]} is not an option of this request. {shows} lists them."
        return refuse(ReplyCode.UNKNOWN_OFFER, sentence)
    await lock_auto_approval(tx)
    taken_usd = await started_alone(tx, names, approval_break_glass.BREAK_GLASS, now - approval_break_glass.PERIOD)
    left_usd = approval_break_glass.left(policy, taken_usd)
    time_h, cover, expected_usd = _cover(policy, ask, option, left_usd)
    earlier_h = (await authority.earlier(tx, request, now)).whole.hours
    total_h = time_h + hold_hours(option) + earlier_h
    inside = approval_break_glass.inside_hours(policy, total_h, hours_used.covered_by(ask.override))
    if not inside.allowed:
        return refuse(inside.code, inside.sentence)
    cheap = approval_break_glass.fits(policy, expected_usd, cover[1], left_usd)
    if not cheap.allowed:
        return refuse(cheap.code, cheap.sentence)
    spend = enforcement.spend_of(policy, request, request.requester, cover, expected_usd)
    room = await enforcement.check_budgets(ctx, tx, spend, now)
    if not room.verdict.allowed:
        return refuse(room.verdict.code, room.verdict.sentence)
    said = approval_break_glass.announcement(who.actor.ref, option.offer_id, time_h, cover[1], command.reason)
    await _start(ctx, tx, replace(ask, option=option), command, (time_h, cover), said, now)
    await enforcement.reserved(ctx, tx, spend, room, now)
    await _shout(ctx, tx, request, said, now)
    return _started(request.id, said)


def _cover(
    policy: Policy, ask: DecisionSubject, option: Option, left_usd: Decimal
) -> tuple[Decimal, tuple[Decimal, Decimal], Decimal]:
    """Return the hours, `(price cap per hour, total cap)` and the expected dollars of what may start at once."""
    job = job_of(ask.request.job)
    time_h = min(job.hours, policy.break_glass_hours)
    expected_usd, worst_usd = amendments.amounts(ask.request, option, time_h)
    limits = [vote.limit_usd for vote in ask.limits if vote.limit_usd is not None]
    total = total_cap(
        min(worst_usd, left_usd),
        asked_usd=job.budget_cap_usd,
        approver_usd=min(limits, default=None),
        spent_usd=ask.spent_usd,
    )
    return time_h, (price_cap(option.price_usd_h, policy, job.max_price_usd_h), total), expected_usd


async def _start(
    ctx: Context,
    tx: Tx,
    ask: DecisionSubject,
    command: BreakGlass,
    covers: tuple[Decimal, tuple[Decimal, Decimal]],
    said: str,
    now: datetime,
) -> None:
    request, option, actor, (time_h, cover) = ask.request, ask.option, command.decider.actor, covers
    offer_id = option.offer_id if option else ""
    await override.close_override(tx, request.id, said, now, actor)
    # The person who breaks the glass is responsible alone, however many approvals it would have needed.
    await amend(tx, Request, request.id, required_approvals=1, rule=said)
    approval = Approval(
        id=new_id("apr", now),
        request_id=request.id,
        quote_version=request.quote_version,
        approver=actor.ref,
        decision="approve",
        option_id=option.id if option else None,
        price_cap_usd_h=cover[0],
        total_cap_usd=cover[1],
        hours=f"{time_h.normalize():f}",
        reason=command.reason,
        rule=said,
        digest=covered(request.id, request.quote_version, offer_id, cover, time_h),
        at=now,
    )
    tx.add(approval)
    await tx.flush()
    record(tx, now, actor, request.id, EventKind.REQUEST_BREAK_GLASS, reason=said, key=command.key)
    await effects.approved(ctx, tx, ask, approval, actor, now)


async def _shout(ctx: Context, tx: Tx, request: Request, said: str, now: datetime) -> None:
    """Notify the channel, the operators and every approver of a break-glass start, each in a message of their own."""
    kind, subject, body = NotificationKind.OPERATOR_PAGE, f"{request.id}/break_glass", {"text": said}
    for destination in (request.channel, *approval_break_glass.audience(ctx.policy)):
        await announce(tx, now, kind, subject, destination=destination, body=body)
    await page_in(ctx, tx, subject, said, now)
