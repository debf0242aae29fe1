"""Use the approvals in advance of a request at the offer that it found, or say why it is asked as usual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from bot.rules.approvals.advance import MatchedSpend, outside
from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.approvals.decision import Decision
from bot.rules.jobs.stored import job_of
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import delegation
from bot.services.approvals import decisions
from bot.services.approvals.advance import cover_of
from bot.services.approvals.terms import cover_of as cover_of_decision
from bot.services.approvals.terms import spend_of
from bot.services.budgets import enforcement
from bot.services.grants import advances, amendments, approvers, authority
from bot.services.market.codec import offer_from_json
from bot.services.people import eligibility
from bot.services.runtime.commands import Decide
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, move
from ledger.kernel import money
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import GrantState
from ledger.models import AdvanceApproval, Option, Request
from ledger.queries.decisions import DecisionSubject, button, subject_by_token
from ledger.queries.lookups import open_advances
from ledger.queries.recovery.older import older_mark

REASON = "Approved in advance."
OLDER_LEDGER = "The ledger was restored since then, so people decide anew."
#: What is known now of each approver in advance, by their references.
Facts = Mapping[str, DeciderFacts]


@dataclass(frozen=True, slots=True)
class _Vote:
    """One approver's approval in advance, as a decision on the offer that was found."""

    row: AdvanceApproval
    command: Decide


async def people_of(ctx: Context, request_id: str) -> Facts:
    """Return what is known now of the approvers in advance of a request, by their references. Asks Slack."""
    async with ctx.db.read() as tx:
        refs = [one.approver for one in await open_advances(tx, request_id)]
    return {ref: await _facts(ctx, Actor.from_ref(ref)) for ref in refs}


async def _facts(ctx: Context, actor: Actor) -> DeciderFacts:
    if ctx.people is not None and actor.kind is ActorKind.SLACK:
        found = await ctx.people.looked_up(actor)
    else:
        found = await eligibility.looked_up(ctx, DeciderFacts(actor))
    return await delegation.looked_up(ctx, found)


async def use(
    ctx: Context, tx: Tx, request: Request, options: Sequence[Option], people: Facts, now: datetime
) -> bool | None:
    """Approve a PENDING request by its approvals in advance, each used once; None where there are none.

    Eligibility, tier, price, total and budgets are judged now. Where anything is outside, none is used and all are
    void: the request is asked as usual and its message says why.
    """
    rows = await open_advances(tx, request.id)
    if not rows:
        return None
    if (mark := await older_mark(tx)) is not None and any(row.at < mark.at for row in rows):
        await asked_as_usual(tx, request, OLDER_LEDGER, now)
        return False
    votes, refusal = list[_Vote](), "No offer is inside the approval in advance."
    for option in options:
        votes, refusal = await _judge(ctx, tx, request, option, rows, people, now)
        if not refusal:
            break
    if refusal:
        await asked_as_usual(tx, request, refusal, now)
        return False
    for vote in votes:
        command = await _as_seen(tx, vote.command)
        reply = await decisions.decide_in(ctx, tx, command, now, source=vote.row.id)
        if not reply.ok:
            # Each was judged alone above; together they may be one person's, by a policy that changed since.
            await asked_as_usual(tx, request, reply.sentence, now)
            return False
        # A row that was revoked at this moment undoes the whole transaction.
        await move(tx, AdvanceApproval, vote.row.id, GrantState.USED, now, command.decider.actor, REASON)
        if reply.code == ReplyCode.APPROVED:
            await advances.void_all(tx, request.id, "The request is approved without it.", now)
            return True
    await asked_as_usual(tx, request, "It needs more approvals than it had in advance.", now)
    return False


async def _as_seen(tx: Tx, command: Decide) -> Decide:
    """Return the decision with the terms as the approvals before it left them."""
    ask = await subject_by_token(tx, command.token)
    return command if ask is None else replace(command, seen=amendments.amended_terms(ask.request, ask.votes).digest)


async def asked_as_usual(tx: Tx, request: Request, sentence: str, now: datetime) -> None:
    """Void what is left of the approvals in advance, and say on the request's message why it is asked."""
    await advances.void_all(tx, request.id, sentence, now)
    await amend(tx, Request, request.id, outcome=f"Not covered by the approval in advance. {sentence}")


async def _judge(
    ctx: Context,
    tx: Tx,
    request: Request,
    option: Option,
    rows: Sequence[AdvanceApproval],
    people: Facts,
    now: datetime,
) -> tuple[list[_Vote], str]:
    """Return the decisions that the approvals in advance are on this option, or why one of them is none."""
    token = await button(tx, request.id, Decision.APPROVE, request.quote_version, option.offer_id)
    ask = await subject_by_token(tx, token) if token else None
    if token is None or ask is None:
        return [], "Its offer is gone."
    votes, mandate = [], await approvers.approver_group(tx, ctx.policy, request, now, option)
    in_all_usd = option.expected_usd + (await authority.earlier(tx, request, now)).whole.expected_usd
    for row in rows:
        if row.approver not in people:  # Approved since the market was read; the next decision is as usual.
            return [], "It was approved in advance while its offer was being found."
        typed = f"{money.cents(in_all_usd)}" if row.confirmed_usd is not None else None
        command = Decide(token, people[row.approver], REASON, typed_amount=typed)
        covers = cover_of_decision(ctx.policy, ask, command)
        if covers is not None and row.total_cap_usd < covers[1]:
            command = replace(command, cap_usd=row.total_cap_usd)
        if why := _outside(ctx, ask, command, row, option, mandate, now):
            return [], why
        judged = await decisions.judged_in(ctx, tx, command, now)
        if not judged.ok:
            return [], judged.sentence
        spend = spend_of(ctx.policy, ask, command, in_all_usd)
        room = await enforcement.check_budgets(ctx, tx, spend, now) if spend is not None else None
        if room is not None and not room.verdict.allowed:
            return [], room.verdict.sentence
        votes.append(_Vote(row, command))
    return votes, ""


def _outside(
    ctx: Context,
    ask: DecisionSubject,
    command: Decide,
    row: AdvanceApproval,
    option: Option,
    mandate: ApproverGroup,
    now: datetime,
) -> str:
    cover, covers, offer = cover_of(row, row.tier), cover_of_decision(ctx.policy, ask, command), option.offer
    if cover is None or covers is None:
        return "It covers no amount."
    found = offer_from_json(offer)
    tier, time_h = mandate.tier.name if mandate.tier else "", Decimal(job_of(ask.request.job).hours)
    return outside(cover, MatchedSpend(found.gpu, found.gpu_count, *covers, option.expected_usd, time_h, tier, now))
