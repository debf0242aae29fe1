"""Quote requests: read the market, rank and store its offers with their buttons, or say why nothing fits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from bot.rules.approvals.authority import ApprovalPlan, Authority, plan
from bot.rules.instances.gpu_check import AVOIDED_FOR, FAILED_DELIVERY
from bot.rules.jobs import consumer_limits
from bot.rules.jobs.facets.limits import cloud_of_offer
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.market.affordability import cannot_pay
from bot.rules.market.filters import excluded
from bot.rules.market.listing import unknown_places
from bot.rules.market.ranking import Ranked, rank
from bot.rules.market.relaxation import ADVISED
from bot.rules.policy import consumers
from bot.rules.policy.tiers import ApproverGroup
from bot.rules.pricing import hours_cap
from bot.rules.values.phrases import Verdict, usd
from bot.services.access.credentials import with_secrets
from bot.services.approvals import auto_approval, matched
from bot.services.checkpoints.remote import unreadable
from bot.services.grants import advances, approvers, authority, escalation, hours_used, reopen
from bot.services.grants import override as grant_override
from bot.services.market.answers import CloudAnswer, most_answered, nothing_found, refusals
from bot.services.market.catalog import MarketAnswer
from bot.services.market.codec import hold_hours
from bot.services.notifications import repeated_request, request_message
from bot.services.plans import planner
from bot.services.requests import looking, waiting
from bot.services.requests.mounts import too_large
from bot.services.requests.quote_rows import buttons_of, option_of, quote_of
from bot.services.runtime.context import Context
from ledger.core import Claim, StaleMove, Tx, claim, move, record, release
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import hex_token
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Option, Quote, Request
from ledger.queries.journal import quote_failures
from ledger.queries.lookups import failed_machines, override_of
from ledger.queries.session_costs import spent_before
from providers.contract import Offer

BATCH = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Judges:
    """Hold what Slack says before a quote is stored: why the policy approves nothing, and who approved in advance."""

    not_them: Verdict | None
    in_advance: matched.Facts


async def quote_due(ctx: Context) -> int:
    """Quote the requests that wait for offers; return how many were processed."""
    lease = timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim(ctx.db, Request, now=ctx.clock.now(), states={RequestState.QUOTING}, limit=BATCH, lease=lease)
    await asyncio.gather(*(_try_to_quote(ctx, one) for one in held))
    return len(held)


async def _try_to_quote(ctx: Context, held: Claim) -> None:
    """Quote one request, so that a failure affects this request only.

    After the last failure its requester is notified.
    """
    try:
        if await may_try(ctx, held):
            await _quote(ctx, held)
    except Exception:
        incident = hex_token(4)
        log.exception("incident %s: request %s could not be quoted", incident, held.row_id)
        await failed(ctx, held, incident)


async def _quote(ctx: Context, held: Claim) -> None:
    await ctx.pressure.ease()
    async with ctx.db.read() as tx:
        request = await tx.get_one(Request, held.row_id)
        spent_usd = await spent_before(tx, request)
        avoided = await failed_machines(tx, FAILED_DELIVERY, ctx.clock.now() - AVOIDED_FOR)
        job = _bound(await with_secrets(tx, request.id, job_of(request.job)), spent_usd)
    lacks = ctx.catalog.checks.store(job.checkpoint, ctx.policy.checkpoint_places)
    lacks = lacks or await unreadable(ctx, job.checkpoint) or await too_large(ctx, job)
    if lacks is not None:
        await _unplaced(ctx, request, held, lacks)
        return
    # A request that is quoted again must not get the cached prices that have just proved wrong.
    fresh, asked_at = request.quote_version > 0 or job.may_wait, ctx.clock.now()
    since = looking.since(request) if fresh else None
    market = await ctx.catalog.market(job, job.disk_gb, policy=ctx.policy, since=since, fresh=fresh, to_buy=True)
    offers = tuple(o for o in market.offers if o.machine_id is None or o.machine_id not in request.failed_machines)
    if job.offer_id:
        offers = tuple(o for o in offers if o.id == job.offer_id)
    broken = {offer.id for offer in offers if (offer.cloud, offer.machine_id) in avoided}
    offers = tuple(o for o in offers if o.id not in broken)
    poor = {offer.id for offer in offers if cannot_pay(offer, market.balances.get(offer.cloud))}
    offers = tuple(o for o in offers if o.id not in poor)
    able, own = ctx.catalog.capabilities, await ctx.catalog.own_history()
    first = request.quote_version == 0 and request.kind is RequestKind.PROVISION
    derived = bool(job.work) and first and not job.may_wait
    if derived:
        # Its hours follow from the market that its quote shows, which may be more than was read when it was made.
        job = planner.rented_on(offers, job, ctx.policy, able, own)
        request.job = stored_job(replace(job_of(request.job), hours=job.hours))
    how: dict[str, Any] = {"whole": bool(job.work), "to_run": True, "own": own}
    ranked = rank(offers, job, ctx.policy, able, proof=market.completeness.proof, **how)
    if looking.is_needed(request, job, market, ctx.clock.now()):
        await looking.look_on(ctx, request, held, market, ranked, asked_at)
        return
    market = market.without_the_rest()
    if derived and (too_long := _too_long(ctx, request, job)):
        await _unplaced(ctx, request, held, too_long)
        return
    left = [excluded(code, sorted(ids)) for code, ids in (("credit", poor), ("delivery", broken)) if ids]
    ranked = replace(ranked, excluded=(*ranked.excluded, *left))
    opens = await _opening(ctx, request, job, ranked, market, **how)
    await _stored_or_closed(ctx, request, held, ranked, market, opens, spent_usd)


def _bound(job: JobRequest, spent_usd: Decimal) -> JobRequest:
    """Bind a job to the cloud of the offer that it names, and to what earlier attempts left of its limit."""
    if (at := cloud_of_offer(job.offer_id)) and at in (job.candidates or (at,)):
        job = replace(job, candidates=(at,))
    if job.budget_cap_usd is not None:
        # The requester's limit is for all attempts together: what earlier ones cost is not spent again.
        job = replace(job, budget_cap_usd=max(job.budget_cap_usd - spent_usd, Decimal(0)))
    return job


def _too_long(ctx: Context, request: Request, job: JobRequest) -> str:
    """Say why a described run may not last as long as its offers say; empty where it may."""
    limits = consumers.of(ctx.policy.consumers, Actor.from_ref(request.requester))
    try:
        if limits is not None:
            consumer_limits.narrowed(job, limits, Actor.from_ref(request.requester).id)
    except consumer_limits.NotAllowed as error:
        return str(error)
    capped = hours_cap.check(job.hours, Decimal(0), ctx.policy)
    return "" if capped.allowed else capped.sentence


async def _stored_or_closed(
    ctx: Context,
    request: Request,
    held: Claim,
    ranked: Ranked,
    market: MarketAnswer,
    opens: list[str],
    spent_usd: Decimal,
) -> None:
    """Open the request for decision with its options, let it wait again, or close it where nothing fits."""
    judges = _Judges(
        await auto_approval.ineligible(ctx, request),
        await matched.people_of(ctx, request.id) if job_of(request.job).may_wait else {},
    )
    now, approved = ctx.clock.now(), False
    try:
        async with ctx.db.write() as tx:
            if ranked.options:
                approved = await _offer(ctx, tx, request, held, ranked, market, now, judges)
            elif not await waiting.wait_again(tx, request, held, now):
                # Why nothing fits, in the order in which the market was narrowed.
                cheaper = filter(None, (ranked.refused,))
                reasons = [*opens, *cheaper, *(one.sentence for one in ranked.excluded), *refusals(market.answers)]
                await _nothing(tx, request, held, market.answers, reasons, now, spent_usd)
    except StaleMove:
        return  # It was cancelled while the clouds were queried.
    ctx.hints.outbox.set()
    if approved:
        ctx.hints.instances.set()


async def _unplaced(ctx: Context, request: Request, held: Claim, sentence: str) -> None:
    """Close a request whose checkpoints cannot be stored: no cloud is queried and nothing is offered."""
    now = ctx.clock.now()
    with suppress(StaleMove):
        async with ctx.db.write() as tx:
            await _close(tx, request, held, sentence, now)
    ctx.hints.outbox.set()


async def _offer(
    ctx: Context,
    tx: Tx,
    request: Request,
    held: Claim,
    ranked: Ranked,
    market: MarketAnswer,
    now: datetime,
    judges: _Judges,
) -> bool:
    """Store the quote with its options and buttons, and open the request for decision.

    Return whether it is approved already: by the policy, or in advance.
    """
    version = request.quote_version + 1
    quote = await _stored(tx, quote_of(request.id, version, ranked, market, now, ctx.policy.request_ttl_s))
    # People count the lines that they see: the numbers follow the list and not the whole market.
    options = [option_of(quote.id, place, option, now) for place, option in enumerate(ranked.options, 1)]
    tx.add_all([*options, *buttons_of(request.id, version, options)])
    job, override = job_of(request.job), await override_of(tx, request.id)
    needed, mandate, earlier, time_h = await _planned(ctx, tx, request, options, override, now)
    judged = await auto_approval.judge(ctx, tx, request, options[0], now, mandate, earlier, judges.not_them)
    rule = judged.sentence if judged.allowed else " ".join(filter(None, (needed.rule, judged.sentence)))
    due_at = escalation.next_due(ctx.policy, mandate, now, quote.expires_at, now)
    values = {
        "quote_version": version,
        "rule": rule,
        "required_approvals": 1 if judged.allowed else needed.required,
        "chosen_option_id": None,
        "looking": None,
        "job": stored_job(job),
        "expires_at": quote.expires_at,
        "due_at": due_at,
    }
    before, to = frozenset({RequestState.QUOTING}), RequestState.PENDING
    moved = await move(tx, Request, request.id, to, now, SYSTEM, claim=held.token, only_from=before, values=values)
    await request_message.show_details(tx, moved, now)
    if judged.allowed:
        await auto_approval.approve(ctx, tx, moved, options[0], judged, now)
        await advances.void_all(tx, request.id, judged.sentence, now)
    elif needed.needs_override and (override is None or override.state is not RequestState.PENDING):
        # An earlier override was withdrawn, or it was approved for fewer hours than the total is now.
        verdict = hours_cap.check(time_h, Decimal(0), ctx.policy)
        await grant_override.ask_override(tx, moved, time_h, verdict.sentence, now, due_at=due_at)
    elif version > 1:
        await request_message.remind_again(tx, moved, now)
    else:
        await repeated_request.notify(tx, moved, now)
    in_advance = await matched.use(ctx, tx, moved, options, judges.in_advance, now) if job.may_wait else None
    return judged.allowed or bool(in_advance)


async def _planned(
    ctx: Context, tx: Tx, request: Request, options: Sequence[Option], override: Request | None, now: datetime
) -> tuple[ApprovalPlan, ApproverGroup, Authority, Decimal]:
    """Plan the approval of each option, and return the one of the first: its group, what came before, and all hours.

    Approvers are people, so the plans are those for people. The checkpoint hold at the end is granted time too.
    """
    job, by_people = job_of(request.job), replace(ctx.policy, auto_approve_below_usd=None)
    earlier = (await authority.earlier(tx, request, now)).whole
    time_h = job.counted(job.hours + max(map(hold_hours, options)))
    total_h = time_h + job.counted(earlier.hours)
    mandates = await approvers.fresh_of_each(tx, ctx.policy, request.requester, job, options, earlier)
    state, plans = hours_used.state_of(override, total_h), list[ApprovalPlan]()
    for option, mandate in zip(options, mandates, strict=True):
        spend = Authority(option.worst_usd, option.expected_usd, time_h)
        plans.append(plan(by_people, spend, earlier, state, mandate))
        option.required_approvals = plans[-1].required
    return plans[0], mandates[0], earlier, total_h


async def _stored(tx: Tx, quote: Quote) -> Quote:
    """Store a quote, so that its options can refer to it."""
    tx.add(quote)
    await tx.flush()
    return quote


async def _opening(
    ctx: Context, request: Request, job: JobRequest, ranked: Ranked, market: MarketAnswer, **how: Any
) -> list[str]:
    """Where nothing fits, say which place has no offer at all, and which single limits to change, and by how much."""
    # An offer requested by its id is for sale or not, and no limit hides the offers of clouds that are down.
    if ranked.options or job.offer_id or not most_answered(market.answers):
        return []
    nowhere = [*filter(None, [unknown_places(market.offers, job.regions, market.completeness.proof)])]
    if job.makes_volume:
        return nowhere

    def usable(offer: Offer) -> bool:
        broken = offer.machine_id is not None and offer.machine_id in request.failed_machines
        return not broken and not cannot_pay(offer, market.balances.get(offer.cloud))

    opened = await ctx.catalog.openings(job, ctx.policy, usable, **how)
    return [*nowhere, *(one.sentence for one in opened[:ADVISED])]


async def _nothing(
    tx: Tx,
    request: Request,
    held: Claim,
    answers: Sequence[CloudAnswer],
    reasons: list[str],
    now: datetime,
    spent_usd: Decimal,
) -> None:
    """Close a request for which nothing fits: say which clouds are silent, what would open the market, then why."""
    job = job_of(request.job)
    lead = (f"{job.offer_id} is not for sale now.", f"{job.offer_id} was not found.") if job.offer_id else ()
    if job.budget_cap_usd is not None and spent_usd > 0:
        reasons.insert(0, f"Earlier attempts spent {usd(spent_usd)} of the limit of {usd(job.budget_cap_usd)}.")
    sentence = " ".join([nothing_found(answers, *lead), *reasons])
    await _close(tx, request, held, f"{request.outcome} {sentence}" if request.outcome else sentence, now)


async def _close(tx: Tx, request: Request, held: Claim, sentence: str, now: datetime) -> None:
    values = {"outcome": sentence, "looking": None}
    await move(
        tx, Request, request.id, RequestState.UNAVAILABLE, now, SYSTEM, sentence, claim=held.token, values=values
    )
    await advances.void_all(tx, request.id, sentence, now)
    await reopen.end_waiting_session(tx, request.id, EndReason.NO_OFFER, sentence, now)


#: After so many failures in a row the request is closed; the pauses between them double.
TRIES_MAX: Final = 5
FIRST_PAUSE_S: Final = 5.0


async def may_try(ctx: Context, held: Claim) -> bool:
    """Whether to quote a request whose claim may have been taken over.

    A process that had it before and never came back counts as a failure: what killed one process would kill every other
    that takes the request over.
    """
    what = "the process that read the offers never finished"
    return not held.taken_over or await _note(ctx, held, what, again=False)


async def failed(ctx: Context, held: Claim, incident: str) -> None:
    """Record an internal failure; people see its incident id, and the log says what happened."""
    await _note(ctx, held, f"incident {incident}", again=True)


async def _note(ctx: Context, held: Claim, what: str, *, again: bool) -> bool:
    """Count a failure, and where it is tried `again`, release the request until then. False after the last one."""
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            failures = await quote_failures(tx, held.row_id, EventKind.REQUEST_UNQUOTED) + 1
            record(tx, now, SYSTEM, held.row_id, EventKind.REQUEST_UNQUOTED, reason=what)
            if failures < TRIES_MAX:
                pause = timedelta(seconds=FIRST_PAUSE_S * 2 ** (failures - 1))
                return not again or await release(tx, Request, held, due_at=now + pause)
            sentence = f"Reading the offers failed ({what}). Try again, or tell an operator."
            to, values = RequestState.UNAVAILABLE, {"outcome": sentence}
            request = await move(tx, Request, held.row_id, to, now, SYSTEM, sentence, claim=held.token, values=values)
            await reopen.close_family(tx, request, RequestState.CANCELLED, sentence, now, SYSTEM)
    except StaleMove:
        log.info("request %s was moved by somebody else", held.row_id)
    ctx.hints.outbox.set()
    return False
