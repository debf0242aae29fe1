"""Judge decisions, record each once, and issue the spend authority in the same transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.rules.approvals.amendments import covered
from bot.rules.approvals.authority import ApprovalPlan
from bot.rules.approvals.decision import Decision, chosen_delegator
from bot.rules.approvals.policy_limits import policy_limits
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.pricing.spend_limits import price_cap
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import Verdict, deny, read_amount
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import delegation
from bot.services.approvals import advance, effects
from bot.services.approvals.judging import judge, judge_cancel, of_hours
from bot.services.approvals.terms import cover_of, limit_of, request_facts, spend_of
from bot.services.budgets import enforcement
from bot.services.grants import amendments
from bot.services.notifications import request_message
from bot.services.runtime import recovery_mode
from bot.services.runtime.commands import Cancel, Decide, Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import StaleMove, Tx, amend, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Approval, Request
from ledger.queries.decisions import DecisionSubject, subject_by_token, subject_of_request
from ledger.queries.journal import noted_before
from ledger.queries.views import resolve

NOT_WITHDRAWN = deny(
    ReplyCode.NOT_WITHDRAWN,
    f"A cost increase can't be cancelled. Approve it, reject it, or end the session: {cli_command('shutdown ID')}.",
)
UNKNOWN_BUTTON = refuse(
    ReplyCode.UNKNOWN_BUTTON, f"This request no longer exists. See yours: {cli_command('requests')}."
)


async def decide(ctx: Context, command: Decide) -> Reply:
    """Judge a click and record it if it is allowed. A request has one outcome, however many people decide at once.

    Codes of success: `approved`, `first_of_two`, `rejected`, `cancelled`. `amount_needed` asks for the dialog.
    """
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            reply = await decide_in(ctx, tx, command, now)
    except StaleMove:
        return await preview(ctx, command)  # Somebody else decided at the same moment: reply with that outcome.
    if reply.ok:
        await ctx.epoch.cover(tx)
        ctx.hints.instances.set()
        ctx.hints.sessions.set()
        ctx.hints.outbox.set()
    return reply


async def decide_in(ctx: Context, tx: Tx, command: Decide, now: datetime, *, source: str | None = None) -> Reply:
    """Judge a decision and record it in the caller's transaction. `source` is the approval in advance that it is of."""
    ask = await subject_by_token(tx, command.token)
    if ask is None:
        return UNKNOWN_BUTTON
    done = await decided_before(tx, ask.request.id, command.key, now)
    if done is not None:
        return done
    command = await _in_place(ctx, tx, command, now)
    if _is_in_advance(ask):
        return await advance.approve(ctx, tx, ask, command, now)
    judgement = await judge(ctx, tx, ask, command, now)
    judged, mandate = judgement.verdict, judgement.mandate
    approves = judged.code == ReplyCode.APPROVED
    spend = spend_of(ctx.policy, ask, command, judgement.in_all_usd) if approves else None
    # An approval in advance overrides no budget: its approver saw neither the offer nor what is left of the budget.
    admin = command.decider if source is None else None
    room = await enforcement.check_budgets(ctx, tx, spend, now, admin, command.typed_amount) if spend else None
    if room is not None and not room.verdict.allowed:
        reply = _reply(ask, room.verdict, judgement.in_all_usd)
        return replace(reply, data={**reply.data, "over_budget": True})
    reply = _reply(ask, judged, judgement.in_all_usd)
    if ask.action == Decision.APPROVE:
        reply = await recovery_mode.with_recovery_notice(tx, reply)
    if judged.allowed and judgement.override is not None:
        await _allow_hours(ctx, tx, judgement.override, command, now, mandate)
    if judged.allowed:
        place = chosen_delegator(ctx.policy, request_facts(ctx.policy, ask, command, mandate), command.decider)
        ask = await _with_rule(tx, ask, judgement.needed)
        await _apply(ctx, tx, ask, command, judged, now, place if ask.action != Decision.CANCEL else None, source)
    if spend is not None and room is not None:
        await enforcement.reserved(ctx, tx, spend, room, now)
        if room.verdict.code == ReplyCode.OVERRIDDEN:
            enforcement.overridden(tx, ask.request, command.decider.actor, room, now)
    return reply


def _is_in_advance(ask: DecisionSubject) -> bool:
    """Whether this approves the limits of a request that has no offer yet."""
    return ask.action == Decision.APPROVE and ask.request.state is RequestState.WAITING


async def preview(ctx: Context, command: Decide) -> Reply:
    """Judge a click without any effect; clients call it before they open a dialog."""
    async with ctx.db.read() as tx:
        return await judged_in(ctx, tx, command, ctx.clock.now())


async def judged_in(ctx: Context, tx: Tx, command: Decide, now: datetime) -> Reply:
    """Judge a decision in the caller's transaction, without any effect and without the budgets."""
    ask = await subject_by_token(tx, command.token)
    if ask is None:
        return UNKNOWN_BUTTON
    command = await _in_place(ctx, tx, command, now)
    if _is_in_advance(ask):
        return await advance.approve(ctx, tx, ask, command, now, dry=True)
    judged = await judge(ctx, tx, ask, command, now)
    return _reply(ask, judged.verdict, judged.in_all_usd)


async def _allow_hours(
    ctx: Context, tx: Tx, over: DecisionSubject, command: Decide, now: datetime, mandate: ApproverGroup
) -> None:
    """Record the approval of the 12-hour override, in the transaction of the approval of the spend."""
    command, approved = of_hours(command), Verdict(True, ReplyCode.APPROVED, "The request is approved.")
    place = chosen_delegator(ctx.policy, request_facts(ctx.policy, over, command, mandate), command.decider)
    await _apply(ctx, tx, over, command, approved, now, place)


async def decided_before(tx: Tx, request_id: str, key: str, now: datetime) -> Reply | None:
    """Return the stored reply to a repeated call whose process may have ended before it could reply.

    Later changes to the request do not change that reply.
    """
    row = await noted_before(tx, [request_id], key, now - KEPT)
    return (
        None if row is None else Reply(True, ReplyCode(row.data["code"]), row.data["said"], {"request_id": request_id})
    )


def _noted(command: Decide, judged: Verdict) -> dict[str, Any] | None:
    return {"key": command.key, "code": judged.code, "said": judged.sentence} if command.key else None


async def _in_place(ctx: Context, tx: Tx, command: Decide, now: datetime) -> Decide:
    """Add to the command the approvers whose delegate its decider is now."""
    return replace(command, decider=await delegation.with_behalf(tx, ctx.policy, command.decider, now))


async def cancel(ctx: Context, command: Cancel) -> Reply:
    """Withdraw a request by its id, for its requester or an approver."""
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            request, _ = await resolve(tx, command.request)
            ask = await subject_of_request(tx, request.id)
            asked = Decide(ask.token.token if ask.token else "", command.decider, command.reason)
            judged = judge_cancel(ctx.policy, ask, asked, now)
            if judged.allowed and request.kind is RequestKind.OVERSPEND:
                judged = NOT_WITHDRAWN  # Otherwise the overspend would never be approved or rejected.
            if judged.allowed:
                await effects.close(ctx, tx, ask, RequestState.CANCELLED, command.decider.actor, command.reason, now)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    except StaleMove:
        return refuse(ReplyCode.STALE, "Somebody else was faster. The request's message shows the result.")
    ctx.hints.outbox.set()
    return _reply(ask, judged)


def _reply(ask: DecisionSubject, judged: Verdict, in_all_usd: Decimal = Decimal(0)) -> Reply:
    data: dict[str, object] = {"request_id": ask.request.id}
    if ask.option is not None:
        data |= {
            "offer_id": ask.option.offer_id,
            "expected_usd": ask.option.expected_usd,
            "in_all_usd": in_all_usd,
            "worst_usd": ask.option.worst_usd,
            "price_usd_h": ask.option.price_usd_h,
            "spent_usd": ask.spent_usd,
        }
        held = limit_of(ask)
        data |= {"limit_usd": held.usd, "limit_by": held.by} if held else {}
    return Reply(judged.allowed, judged.code, judged.sentence, data)


async def _with_rule(tx: Tx, ask: DecisionSubject, needed: ApprovalPlan) -> DecisionSubject:
    """Store how many approvals the approved offer needs, where the request was shown with those of another one."""
    request, is_other = ask.request, ask.option is not None and ask.option.rank > 1
    if ask.action != Decision.APPROVE or (needed.required == request.required_approvals and not is_other):
        return ask
    await amend(tx, Request, request.id, required_approvals=needed.required, rule=needed.rule)
    return replace(ask, request=await tx.get_one(Request, request.id, populate_existing=True))


async def _apply(
    ctx: Context,
    tx: Tx,
    ask: DecisionSubject,
    command: Decide,
    judged: Verdict,
    now: datetime,
    place: Actor | None,
    source: str | None = None,
) -> None:
    actor, noted = command.decider.actor, _noted(command, judged)
    if place is not None:
        said = f"{actor.ref} approves or rejects for {place.ref}."
        record(tx, now, actor, ask.request.id, EventKind.REQUEST_IN_PLACE, reason=said)
    if judged.code == ReplyCode.REJECTED:
        if actor.ref not in {
            vote.approver for vote in ask.votes
        }:  # One row per approver: a change of mind is in the journal.
            _vote(tx, ctx.policy, ask, command, "reject", now, None, place)
        await effects.close(ctx, tx, ask, RequestState.REJECTED, actor, command.reason, now, noted)
    elif judged.code == ReplyCode.CANCELLED:
        await effects.close(ctx, tx, ask, RequestState.CANCELLED, actor, command.reason, now)
    else:
        approval = _vote(tx, ctx.policy, ask, command, "approve", now, cover_of(ctx.policy, ask, command), place)
        if ask.request.kind is RequestKind.OVERSPEND and ask.option is not None:
            # It covers the rate that was shown: a machine may be started again at it, and buys nothing else.
            approval.price_cap_usd_h = price_cap(ask.option.price_usd_h, ctx.policy)
        approval.source_approval_id = source
        await tx.flush()
        if judged.code == ReplyCode.FIRST_OF_TWO:
            await amend(tx, Request, ask.request.id, chosen_option_id=approval.option_id)
            said, subject = judged.sentence, ask.request.id
            record(tx, now, actor, subject, EventKind.REQUEST_VOTE, reason=said, data=noted)
            await request_message.show_again(tx, ask.request, now)
            return
        await effects.approved(ctx, tx, ask, approval, actor, now, noted)


def _vote(
    tx: Tx,
    policy: Policy,
    ask: DecisionSubject,
    command: Decide,
    decision: str,
    now: datetime,
    cover: tuple[Decimal, Decimal] | None = None,
    place: Actor | None = None,
) -> Approval:
    time_h = amendments.time_of(ask.request, ask.votes, command.hours if cover else None)
    offer_id = ask.option.offer_id if ask.option else ""
    approval = Approval(
        id=new_id("apr", now),
        request_id=ask.request.id,
        quote_version=ask.request.quote_version,
        approver=command.decider.actor.ref,
        decision=decision,
        option_id=ask.option.id if ask.option else None,
        price_cap_usd_h=cover[0] if cover else None,
        total_cap_usd=cover[1] if cover else None,
        limit_usd=command.cap_usd if cover else None,
        hours=f"{time_h.normalize():f}",
        confirmed_usd=read_amount(command.typed_amount) if command.typed_amount else None,
        reason=command.reason,
        rule=ask.request.rule,
        on_behalf_of=place.ref if place else None,
        two_above_usd=policy.two_approvers_above_usd if cover else None,
        policy_limits=policy_limits(policy) if cover else None,
        digest=covered(ask.request.id, ask.request.quote_version, offer_id, cover, time_h) if cover else None,
        at=now,
    )
    tx.add(approval)
    return approval
