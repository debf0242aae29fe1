"""Approve the limits of a waiting request before it has an offer, and revoke such an approval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from bot.rules.approvals.advance import Cover, may_approve
from bot.rules.approvals.approvers import DeciderFacts, linked
from bot.rules.approvals.authority import ApprovalPlan, Authority, plan
from bot.rules.approvals.decision import RequestFacts, chosen_delegator
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.values.phrases import read_amount
from bot.rules.values.reply_code import ReplyCode
from bot.services.approvals.terms import request_facts
from bot.services.budgets import enforcement
from bot.services.grants import approvers, authority
from bot.services.notifications.request_message import show_again
from bot.services.runtime.commands import Decide, Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import StaleMove, Tx, move, record
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.states import GrantState
from ledger.models import AdvanceApproval, Request, WaitLimits
from ledger.queries.access import Whose
from ledger.queries.decisions import DecisionSubject, subject_of_request
from ledger.queries.lookups import limits_of, open_advances
from ledger.queries.views import resolve
from providers.gpus.constraint import GpuConstraint

#: Stands where a reply names the offer.
NO_OFFER: Final = "no offer yet"


@dataclass(frozen=True, slots=True)
class Revoke:
    """Revoke one's own approval in advance of a request."""

    request: str
    decider: DeciderFacts


@dataclass(frozen=True, slots=True)
class _Asked:
    """Everything that an approval in advance is judged by."""

    ask: DecisionSubject
    limits: WaitLimits
    given: list[AdvanceApproval]
    mandate: ApproverGroup
    facts: RequestFacts
    needed: ApprovalPlan
    cover: Cover | None


def cover_of(row: WaitLimits | AdvanceApproval, tier: str) -> Cover | None:
    """Return what these limits cover; None where they name no price, or no total."""
    if row.price_cap_usd_h is None or row.total_cap_usd is None:
        return None
    gpu = GpuConstraint(**{**row.gpu, "names": tuple(row.gpu["names"]), **_decimals(row.gpu)})
    return Cover(gpu, row.price_cap_usd_h, row.total_cap_usd, Decimal(row.hours), row.until, tier)


def _decimals(gpu: dict[str, Any]) -> dict[str, Decimal | None]:
    names = ("memory_gb_min", "memory_gb_max", "cuda_min")
    return {name: None if gpu.get(name) is None else Decimal(gpu[name]) for name in names}


async def tier_of(tx: Tx, policy: Policy, request: Request, limits: WaitLimits, earlier: Authority) -> ApproverGroup:
    """Return the approver group of a waiting request, by the most that its limits let its run cost."""
    shown = approvers.shown_in_advance(job_of(request.job), limits.total_cap_usd)
    return await approvers.fresh(tx, policy, request.requester, job_of(request.job), shown, earlier)


async def _asked(tx: Tx, policy: Policy, ask: DecisionSubject, command: Decide, now: datetime) -> _Asked:
    limits = (await limits_of(tx, [ask.request.id]))[ask.request.id]
    given = await open_advances(tx, ask.request.id)
    earlier = (await authority.earlier(tx, ask.request, now)).whole
    mandate = await tier_of(tx, policy, ask.request, limits, earlier)
    total_usd = limits.total_cap_usd or Decimal(0)
    facts = replace(
        request_facts(policy, ask, command, mandate),
        expected_usd=total_usd,
        worst_usd=total_usd,
        approvals=tuple(one.approver for one in given),
        delegators=tuple(one.on_behalf_of for one in given if one.on_behalf_of),
        expires_at=limits.until,
        earlier=earlier,
    )
    by_people = replace(policy, auto_approve_below_usd=None)
    needed = plan(by_people, Authority(total_usd, total_usd, job_of(ask.request.job).hours), earlier, mandate=mandate)
    cover = cover_of(limits, mandate.tier.name if mandate.tier else "")
    if cover is not None and command.cap_usd is not None:
        cover = replace(cover, total_usd=command.cap_usd)
    return _Asked(ask, limits, given, mandate, facts, needed, cover)


async def approve(
    ctx: Context, tx: Tx, ask: DecisionSubject, command: Decide, now: datetime, *, dry: bool = False
) -> Reply:
    """Judge and record an approval in advance; `dry` only judges it. Code of success: `in_advance`."""
    asked, policy, request = await _asked(tx, ctx.policy, ask, command, now), ctx.policy, ask.request
    judged = may_approve(policy, asked.needed, asked.cover, asked.facts, command.decider, command.typed_amount, now)
    data: dict[str, object] = {"request_id": request.id}
    if asked.cover is not None:
        amounts = dict.fromkeys(("expected_usd", "worst_usd"), asked.facts.worst_usd)
        data |= {"offer_id": NO_OFFER, **amounts, "price_usd_h": asked.cover.price_usd_h, "spent_usd": Decimal(0)}
        data["in_all_usd"] = asked.facts.in_all_usd
    if command.hours is not None:
        return refuse(ReplyCode.NOT_CHANGEABLE, "The time can't be changed in advance. Reject it, or approve it.", data)
    if not judged.allowed or asked.cover is None or dry:
        return Reply(judged.allowed, judged.code, judged.sentence, data)
    first = not asked.given
    cap = (asked.cover.price_usd_h, asked.cover.total_usd)
    spend = enforcement.spend_of(policy, request, request.requester, cap, asked.cover.total_usd)
    # One reservation holds for all approvers of the same limits.
    room = await enforcement.check_budgets(ctx, tx, spend, now) if first else None
    if room is not None and not room.verdict.allowed:
        return refuse(room.verdict.code, room.verdict.sentence, {**data, "over_budget": True})
    place = chosen_delegator(policy, asked.facts, command.decider)
    row = _row(policy, asked, command, place.ref if place else None, now)
    tx.add(row)
    await tx.flush()
    noted = {"key": command.key, "code": judged.code, "said": judged.sentence} if command.key else None
    actor = command.decider.actor
    record(tx, now, actor, request.id, EventKind.REQUEST_ADVANCE, reason=judged.sentence, data=noted)
    if room is not None:
        await enforcement.reserved(ctx, tx, spend, room, now)
    await show_again(tx, request, now)
    return Reply(True, judged.code, judged.sentence, data)


def _row(policy: Policy, asked: _Asked, command: Decide, place: str | None, now: datetime) -> AdvanceApproval:
    request, limits, cover = asked.ask.request, asked.limits, asked.cover
    if cover is None:
        raise ValueError(f"request {request.id} names no limits to approve in advance")
    return AdvanceApproval(
        id=new_id("adv", now),
        request_id=request.id,
        state=GrantState.OPEN,
        approver=command.decider.actor.ref,
        on_behalf_of=place,
        owner=request.requester,
        label=job_of(request.job).label or policy.project,
        gpu=limits.gpu,
        hours=limits.hours,
        price_cap_usd_h=cover.price_usd_h,
        total_cap_usd=cover.total_usd,
        until=limits.until,
        tier=cover.tier,
        confirmed_usd=read_amount(command.typed_amount) if command.typed_amount else None,
        rule=asked.needed.rule,
        at=now,
    )


async def revoke(ctx: Context, command: Revoke) -> Reply:
    """Revoke one's own approval in advance, as long as it was not used. Code of success: `revoked`."""
    now, actor = ctx.clock.now(), command.decider.actor
    names = Whose.of([actor, *linked(ctx.policy, actor)])
    try:
        async with ctx.db.write() as tx:
            request, _ = await resolve(tx, command.request)
            # The subject's lock orders this with the match that would use it.
            ask = await subject_of_request(tx, request.id)
            mine = [one for one in await open_advances(tx, request.id) if one.approver in names]
            short, data = short_id(request.id), {"request_id": request.id}
            said = f"You revoked your approval in advance of request {short}."
            for row in mine:
                await move(tx, AdvanceApproval, row.id, GrantState.VOID, now, actor, said)
            if not mine:
                sentence = f"You have no open approval in advance of request {short}."
                return refuse(ReplyCode.NOT_IN_ADVANCE, sentence, data)
            await show_again(tx, ask.request, now)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    except StaleMove:
        return refuse(ReplyCode.STALE, "Somebody else was faster. The request's message shows the result.")
    ctx.hints.outbox.set()
    return Reply(True, ReplyCode.REVOKED, said, data)
