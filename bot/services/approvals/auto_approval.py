"""Approve requests by policy, recorded like a person's approval in the transaction that shows the offers."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.approvers import Deed
from bot.rules.approvals.authority import Authority
from bot.rules.approvals.auto_approval import AUTO_APPROVAL_PREFIX, PERIOD, applied, auto_approval, signer
from bot.rules.approvals.policy_limits import policy_limits
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.pricing.spend_limits import price_cap, total_cap
from bot.rules.values.phrases import Verdict, deny
from bot.rules.values.reply_code import ReplyCode
from bot.services.budgets import enforcement
from bot.services.grants import issue
from bot.services.market.codec import hold_hours
from bot.services.people import direct_messages, eligibility
from bot.services.runtime.context import Context
from ledger.core import Tx, decide, lock_auto_approval, lock_family
from ledger.kernel.actor import Actor
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.states import RequestState
from ledger.models import Approval, Option, Request
from ledger.queries.recovery.older import restored_at
from ledger.queries.spend import approved_since


async def ineligible(ctx: Context, request: Request) -> Verdict | None:
    """Return why nothing of its requester is auto-approved, by what Slack says of them; called before `judge`."""
    actor = Actor.from_ref(request.requester)
    if _applied(ctx, request)[0].auto_approve_below_usd is None:
        return None
    return await eligibility.ineligible_for(ctx, actor, Deed.AUTO_APPROVAL)


def _applied(ctx: Context, request: Request) -> tuple[Policy, str]:
    return applied(ctx.policy, Actor.from_ref(request.requester), by_agent=bool(request.by_agent))


async def judge(
    ctx: Context,
    tx: Tx,
    request: Request,
    option: Option,
    now: datetime,
    mandate: ApproverGroup,
    earlier: Authority,
    not_them: Verdict | None,
) -> Verdict:
    """Whether the policy auto-approves the best option. The daily limit stays locked until `tx` ends.

    `earlier` is what was approved before for the same run, and `not_them` is what `ineligible` found.
    """
    job = job_of(request.job)
    policy, program = _applied(ctx, request)
    if policy.auto_approve_below_usd is None:
        return deny(ReplyCode.OFF, "")
    if not_them is not None:
        return deny(not_them.code, "Slack doesn't show the requester as a member, so a person must approve this.")
    if mandate.tier is not None:
        return deny(ReplyCode.TIERED, "This belongs to a tier of the policy, so a person must approve it.")
    restored = await restored_at(tx)
    if restored is not None and request.created_at < restored:
        # It may have been approved, bought and ended in the part of the ledger that is lost.
        return deny(ReplyCode.TIERED, "The ledger was restored after this request, so a person must approve it.")
    await lock_family(tx, Request, request.id)
    await lock_auto_approval(tx)
    judged = auto_approval(
        policy,
        Authority(option.worst_usd, option.expected_usd, job.counted(job.hours + hold_hours(option))),
        earlier,
        approved_usd=await approved_since(tx, AUTO_APPROVAL_PREFIX + (f"{program}-" if program else ""), now - PERIOD),
        asked_before=request.quote_version > 0,
        now=now,
    )
    if not judged.allowed:
        return judged
    room = (await enforcement.check_budgets(ctx, tx, _spend(ctx, request, option), now)).verdict
    return judged if room.allowed else deny(room.code, f"{room.sentence} So a person must approve this.")


def _cover(ctx: Context, request: Request, option: Option) -> tuple[Decimal, Decimal]:
    job = job_of(request.job)
    total = total_cap(option.worst_usd, asked_usd=job.budget_cap_usd, approver_usd=None)
    return price_cap(option.price_usd_h, ctx.policy, job.max_price_usd_h), total


def _spend(ctx: Context, request: Request, option: Option) -> enforcement.PlannedSpend:
    cover = _cover(ctx, request, option)
    return enforcement.spend_of(ctx.policy, request, request.requester, cover, option.expected_usd)


async def approve(ctx: Context, tx: Tx, request: Request, option: Option, judged: Verdict, now: datetime) -> None:
    """Record the auto-approval of a PENDING request, and turn it into the authority for one create."""
    rate_usd_h, total_usd = _cover(ctx, request, option)
    actor = signer(*_applied(ctx, request))
    approval = Approval(
        id=new_id("apr", now),
        request_id=request.id,
        quote_version=request.quote_version,
        approver=actor.ref,
        decision="approve",
        option_id=option.id,
        price_cap_usd_h=rate_usd_h,
        total_cap_usd=total_usd,
        two_above_usd=ctx.policy.two_approvers_above_usd,
        policy_limits=policy_limits(ctx.policy),
        hours=str(job_of(request.job).hours),
        rule=judged.sentence,
        at=now,
    )
    tx.add(approval)
    await tx.flush()
    decided = await decide(
        tx,
        request.id,
        RequestState.APPROVED,
        now,
        actor,
        judged.sentence,
        outcome="",
        values={"chosen_option_id": option.id},
    )
    spend = _spend(ctx, request, option)
    room = await enforcement.check_budgets(ctx, tx, spend, now)
    await issue.grant_create(ctx, tx, decided, approval, option, now)
    await enforcement.reserved(ctx, tx, spend, room, now)
    # The channel's message says the same.
    said = f"{judged.sentence} Request: {short_id(request.id)}."
    await direct_messages.notify(tx, ctx.policy, now, request.requester, subject=f"{request.id}/by_policy", text=said)
