"""Judge one decision on a request, and with it the 12-hour override that its approval needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.approvers import ANYBODY
from bot.rules.approvals.authority import ApprovalPlan, EarlierAuthority, plan
from bot.rules.approvals.decision import Decision, DecisionInput, verdict
from bot.rules.jobs.stored import job_of
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.sessions.extension import override_sentence
from bot.rules.values.phrases import Verdict, deny
from bot.rules.values.reply_code import ReplyCode
from bot.services.approvals.terms import request_facts, spend_on, total_hours
from bot.services.grants import approvers, authority, hours_used
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.commands import Decide
from bot.services.runtime.context import Context
from bot.services.sessions import extension
from ledger.core import Tx
from ledger.kernel.request_kind import ABOUT_SESSION, RequestKind
from ledger.kernel.states import RequestState
from ledger.queries.decisions import DecisionSubject, button, subject_by_token

#: An override is decided by one person, whatever it costs: it buys nothing.
_OVERRIDE = ApprovalPlan(1, "", confirm_amount=False, needs_override=False)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Hold the verdict on a decision, the approval that the spend needs, and the group that it is asked of.

    `in_all_usd` is what the run is expected to cost in all, and `override` the request for more hours that the same
    decision approves.
    """

    verdict: Verdict
    needed: ApprovalPlan
    mandate: ApproverGroup
    in_all_usd: Decimal
    override: DecisionSubject | None = None


@dataclass(frozen=True, slots=True)
class _Subject:
    """Hold what a decision is about: the request, the group of the offer, and what the run may spend already."""

    ask: DecisionSubject
    mandate: ApproverGroup
    earlier: EarlierAuthority


async def judge(ctx: Context, tx: Tx, ask: DecisionSubject, command: Decide, now: datetime) -> Judgement:
    """Judge a decision, and with it the 12-hour override that an approval of the same request needs.

    The override is returned when the decision approves it, too: one click, and an approval of its own for each.
    """
    mandate = await approvers.approver_group(tx, ctx.policy, ask.request, now, ask.option)
    subject = _Subject(ask, mandate, await authority.earlier(tx, ask.request, now))
    judged, asked = _judged(ctx, subject, command, now), ask.override
    if asked is None or judged.verdict.code != ReplyCode.OVERRIDE_FIRST or asked.state is not RequestState.PENDING:
        return judged
    token = await button(tx, asked.id, Decision.APPROVE, asked.quote_version, None)
    over = await subject_by_token(tx, token) if token else None
    allowed_job = job_of(asked.job)
    allows_h = allowed_job.hours + allowed_job.already_hours
    if over is None or total_hours(ask, command, subject.earlier.whole.hours) > allows_h:
        return judged
    allowed = _judged(ctx, replace(subject, ask=over), of_hours(command), now)
    if not allowed.verdict.allowed:
        return replace(judged, verdict=allowed.verdict)
    return replace(_judged(ctx, subject, command, now, override=RequestState.APPROVED), override=over)


def judge_cancel(policy: Policy, ask: DecisionSubject, command: Decide, now: datetime) -> Verdict:
    """Judge whether somebody may withdraw a request, whatever it costs."""
    return _judge(policy, _Subject(ask, ANYBODY, EarlierAuthority()), command, now, Decision.CANCEL).verdict


def of_hours(command: Decide) -> Decide:
    """Return the decision about the hours alone: an override has no amount, no limit and no terms to change."""
    return replace(command, typed_amount=None, cap_usd=None, hours=None, seen=None, key="")


def _judged(
    ctx: Context, subject: _Subject, command: Decide, now: datetime, *, override: RequestState | None = None
) -> Judgement:
    """Judge by the rules, and refuse an approved option whose cloud can no longer be used.

    `override` is the state that its 12-hour override gets with this decision; None leaves it as it is.
    """
    ask = subject.ask
    judged = _judge(ctx.policy, subject, command, now, Decision(ask.action), override=override)
    if not judged.verdict.allowed or ask.action != Decision.APPROVE:
        return judged
    refusal = None
    if ask.option and ask.option.cloud not in ctx.providers:
        sentence = f"{ask.option.cloud} is no longer set up here. Approve another option, or reject the request."
        refusal = deny(ReplyCode.CLOUD_GONE, sentence)
    elif doubt := clock_problem(ctx.clock) if ask.request.kind is RequestKind.EXTEND else "":
        sentence = f"Nothing can be bought now, because the clock is wrong: {doubt}. Try again later."
        refusal = deny(ReplyCode.CLOCK_WRONG, sentence)
    elif ask.request.kind in ABOUT_SESSION and (
        ask.session is None or (ask.session.state not in extension.EXTENDABLE and not ask.held)
    ):
        refusal = deny(ReplyCode.SESSION_ENDED, "The session is ending or has ended, so it can't be extended.")
    return judged if refusal is None else replace(judged, verdict=refusal)


def _judge(
    policy: Policy,
    subject: _Subject,
    command: Decide,
    now: datetime,
    decision: Decision,
    *,
    override: RequestState | None = None,
) -> Judgement:
    ask, request, job = subject.ask, subject.ask.request, job_of(subject.ask.request.job)
    spend, before = spend_on(ask, command, subject.earlier)
    facts = replace(request_facts(policy, ask, command, subject.mandate), earlier=before)
    what = DecisionInput(
        decision=decision,
        quote_version=ask.version,
        offer_id=ask.option.offer_id if ask.option else None,
        typed_amount=command.typed_amount,
        cap_usd=command.cap_usd,
        reason=command.reason,
        hours=command.hours,
        seen=command.seen,
    )

    def judged(under: Policy, needed: ApprovalPlan) -> Judgement:
        said = verdict(under, needed, what, facts, command.decider, now)
        return Judgement(said, needed, subject.mandate, facts.in_all_usd)

    if request.kind is RequestKind.OVERRIDE_12H:
        # More than twelve hours is never one person's own decision, whatever else the policy allows.
        return judged(replace(policy, allow_self_approval=False), replace(_OVERRIDE, rule=request.rule))
    override = override or hours_used.state_of(ask.override, spend.hours + before.hours)
    if request.kind is RequestKind.EXTEND:
        # This request is its own override: above the cap on hours, it is never one person's own decision either.
        override = RequestState.APPROVED
        if not job.makes_volume and override_sentence(job.already_hours + before.hours, job.hours, policy):
            policy = replace(policy, allow_self_approval=False)
    if request.kind is RequestKind.OVERSPEND:
        # Its hours are approved already; the cost is what is decided, and only people decide it.
        override, policy = RequestState.APPROVED, replace(policy, auto_approve_below_usd=None)
    needed = plan(policy, spend, before, override, subject.mandate)
    asked_for = ask.option.required_approvals if ask.option is not None else None
    least = request.required_approvals if asked_for is None else asked_for
    return judged(policy, replace(needed, required=max(needed.required, least)))
