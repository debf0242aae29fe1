"""Submit requests, once each, or refuse them with the same sentence in every client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from bot.rules.approvals.approvers import Deed
from bot.rules.jobs import consumer_limits, network_volume, waiting_text
from bot.rules.jobs.checks import check, check_secrets, facts_of
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.market import waiting as waiting_rules
from bot.rules.market.disk import disk_gb
from bot.rules.policy import consumers, job_bounds
from bot.rules.policy.request_rate import FOR_MACHINES, CountedAs
from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import plural
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import credentials, delegation, job_secrets, request_rate, sharing
from bot.services.notifications import repeated_request
from bot.services.people import eligibility
from bot.services.plans import planner
from bot.services.requests import waiting
from bot.services.runtime import recovery_mode
from bot.services.runtime.commands import Provision, Reply, refuse
from bot.services.runtime.context import Context
from bot.services.sessions import volume_lookup as volumes_there
from ledger.core import Tx, add_request, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Request
from ledger.queries.lookups import by_inbox_key, open_requests
from providers.cloud_names import machines_of, volumes_of

#: Adds what belongs to a new request, by its id.
Store = Callable[[Tx, str], Awaitable[None]]


async def _nothing_more(_tx: Tx, _request_id: str) -> None:
    """Add nothing to a new request."""


async def provision(ctx: Context, command: Provision) -> Reply:
    """Submit a request for GPUs.

    A request that describes a run gets the hours that the planner estimates for it.
    """
    job = command.job
    if job.work:
        rented = await planner.rented_hours(ctx.catalog, ctx.clock, job, ctx.policy)
        if isinstance(rented, Reply):
            return rented
        command = replace(command, job=rented)
    return await submit(ctx, command)


async def submit(
    ctx: Context,
    command: Provision,
    *,
    kind: RequestKind = RequestKind.PROVISION,
    store: Store = _nothing_more,
    counted: CountedAs = FOR_MACHINES,
) -> Reply:
    """Record a request for GPUs or a network volume, to be quoted next. A repeated key creates no second request.

    `store` adds what belongs to the new request, in its transaction. `counted` says with which others it is counted.
    """
    if not_them := await eligibility.ineligible_for(ctx, command.actor, Deed.REQUEST):
        return refuse(not_them.code, not_them.sentence)
    bound = await _bound(ctx, command)
    if isinstance(bound, Reply):
        return bound
    job, kind = bound, RequestKind.VOLUME if bound.makes_volume else kind
    checked = _refuse_volume(ctx, job) if job.makes_volume else _refuse(ctx, job)
    # A run that moves was accepted by an earlier version, and may have to leave its machine.
    if checked is None and kind is not RequestKind.MIGRATE and (wrong := check_secrets(job)):
        checked = refuse(*wrong)
    refusal = checked or await _refuse_people(ctx, command.actor, job)
    if refusal is not None:
        return refusal
    now = ctx.clock.now()
    try:
        waits = waiting_rules.limits_of(job, ctx.policy, now) if job.may_wait else None
    except waiting_rules.BadWait as error:
        return refuse(ReplyCode.BAD_WAIT, str(error))
    job = waiting_rules.limited(job, ctx.policy) if waits else job
    async with ctx.db.write() as tx:
        askers = await request_rate.locked(tx, ctx.policy, command.actor, command.sent_by)
        known = await by_inbox_key(tx, command.key)
        if known is not None:
            return await recovery_mode.with_recovery_notice(tx, _submitted(ctx, known.id, job, waits))
        undecided = await open_requests(tx, delegation.names_of(ctx.policy, command.actor))
        if too_many := _too_many_open(ctx, undecided) or await request_rate.refusal(ctx, tx, askers, now, counted):
            return too_many
        if job.makes_volume and (taken := await volumes_there.taken(ctx, tx, command.actor, job, undecided)):
            return taken
        request_id = new_id("req", now)
        new = await _add(ctx, tx, replace(command, job=job), request_id, kind, waits, now)
        if new:
            request_rate.count(tx, askers, request_id, now, counted)
            await store(tx, request_id)
        if not new:  # Another replica recorded the same message at this moment.
            known = await by_inbox_key(tx, command.key)
        reply = _submitted(ctx, known.id if known else request_id, job, waits)
        if same := next((one for one in undecided if new and job_of(one.job) == job.without_people()), None):
            reply = replace(reply, sentence=f"{reply.sentence} {_twice(same.id)}")
        reply = await recovery_mode.with_recovery_notice(tx, reply)
    ctx.hints.requests.set()
    return reply


def _too_many_open(ctx: Context, undecided: Sequence[Request]) -> Reply | None:
    """Refuse one more open request of a person who has as many as the policy allows."""
    most = ctx.policy.max_open_requests_per_user
    if len(undecided) < most:
        return None
    sentence = f"You already have {plural(most, 'open request')}. Cancel one first: {cli_command('cancel ID')}."
    return refuse(ReplyCode.TOO_MANY_OPEN, sentence)


async def _bound(ctx: Context, command: Provision) -> JobRequest | Reply:
    """Bind a job to what its requester may rent, and to the place of the volume that it names; or refuse it."""
    job = command.job
    if job.makes_volume:
        job = replace(job, candidates=tuple(map(volumes_of, job.candidates)) or ctx.volumes)
    else:
        job = replace(job, disk_gb=disk_gb(job, ctx.policy))
    limits = consumers.of(ctx.policy.consumers, command.actor)
    try:
        job = consumer_limits.narrowed(job, limits, command.actor.id) if limits else job
    except consumer_limits.NotAllowed as error:
        return refuse(error.code, str(error))
    return await volumes_there.with_volume(ctx, command.actor, job)


async def _add(
    ctx: Context,
    tx: Tx,
    command: Provision,
    request_id: str,
    kind: RequestKind,
    waits: waiting_rules.WaitTerms | None,
    now: datetime,
) -> bool:
    """Store the request with what belongs to it. False when its inbound message has made one already."""
    job, state = command.job, RequestState.QUOTING if waits is None else RequestState.WAITING
    card = await repeated_request.card_for(tx, ctx.policy, command.actor, command.channel, kind, now)
    new = await add_request(
        tx,
        id=request_id,
        kind=kind,
        state=state,
        inbox_key=command.key,
        requester=command.actor.ref,
        job=stored_job(job),
        reason=job.reason,
        channel=command.channel,
        run_id=command.run_id,
        by_agent=command.by_agent,
        card_of=card.card_of,
        card_turn=card.card_turn,
        expires_at=waits.until if waits else now + timedelta(seconds=ctx.policy.request_ttl_s),
        created_at=now,
        due_at=waits.from_at if waits else now,
    )
    if not new:
        return False
    record(tx, now, command.actor, request_id, EventKind.REQUEST_MADE, after=state)
    if waits is not None:
        await waiting.store(tx, request_id, waits, now)
    credentials.add(tx, request_id, command.actor, job, now)
    await sharing.share(tx, ctx.policy, request_id, job.share, command.actor, now)
    return True


async def _refuse_people(ctx: Context, actor: Actor, job: JobRequest) -> Reply | None:
    """Refuse a job that names people with whom it can't be shared, or secrets that its requester has not stored."""
    return await sharing.refusal(ctx, actor, job) or await job_secrets.refusal(ctx, actor, job.secrets)


def _submitted(ctx: Context, request_id: str, job: JobRequest, limits: waiting_rules.WaitTerms | None) -> Reply:
    if limits is not None:
        said = waiting_text.waits_for(job, limits.from_at, limits.until)
        sentence = f"Request {short_id(request_id)} {said}.{waiting_text.LOOKS if job.wait else ''}"
        return Reply(True, ReplyCode.SUBMITTED, sentence, {"request_id": request_id})
    clouds = tuple(map(machines_of, job.candidates)) or ctx.clouds
    sentence = f"Request {short_id(request_id)}: getting offers from {', '.join(clouds)}."
    return Reply(True, ReplyCode.SUBMITTED, sentence, {"request_id": request_id})


def _twice(request_id: str) -> str:
    """Say that an equal request waits already: a second one is allowed, but it is often a slip."""
    short = short_id(request_id)
    return f"You already have the same request waiting: {short}. To cancel one: {cli_command(f'cancel {short}')}."


def _refuse_volume(ctx: Context, job: JobRequest) -> Reply | None:
    """Refuse a network volume that no cloud here offers, or not in this size or for this time."""
    wrong = network_volume.check_volume_job(job, ctx.catalog.capabilities) or job_bounds.reason(job.reason, ctx.policy)
    return refuse(*wrong) if wrong else None


def _refuse(ctx: Context, job: JobRequest) -> Reply | None:
    """Refuse what needs no cloud to judge, with the same checks and sentences in every client."""
    able = ctx.catalog.capabilities
    if all(capabilities.volume_gb is not None for capabilities in able.values()):
        return refuse(
            ReplyCode.NO_CLOUDS, f"No cloud is set up here. {cli_command('doctor')} lists the missing settings."
        )
    wrong = check(job, facts_of(job, ctx.policy, able, agent_reaches=bool(ctx.node_url)))
    return refuse(*wrong) if wrong is not None else None
