"""Launch an instance from an intent: one create call per row, and what follows from each kind of reply.

A lost reply looks like a lost request. So after a create with an unknown outcome nothing is sent again: its
label is searched for, and a create that is never found becomes a tombstone that is watched without end.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.rules.instances.failover import CLOUD_WIDE, wait_for_limit
from bot.rules.instances.recovery_mode import HOLD
from bot.rules.jobs.stored import checkpoint_of, job_of
from bot.rules.market.affordability import cannot_pay
from bot.rules.pricing.bids import inside
from bot.rules.pricing.spend_limits import RequoteOutcome, requote
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import key_holders, machine_keys
from bot.services.grants import reopen, reservations
from bot.services.instances.attached_volume import NotMounted, attached
from bot.services.instances.failover import send_again, try_next, wait_of
from bot.services.instances.launch_spec import authority, may_send, order
from bot.services.instances.transitions import adopt, approved_end, settle
from bot.services.instances.unknown_outcome import UNCLEAR, note_sent, search_first
from bot.services.market.codec import offer_from_json, offer_to_json
from bot.services.market.preflight import refusal
from bot.services.nodes.enrollment import Minted, mint, store
from bot.services.nodes.login_keys import public_line
from bot.services.notifications.paging import alone
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import Claim, StaleMove, Tx, claim_rows, move, release
from ledger.kernel.actor import SYSTEM
from ledger.kernel.grant import Grant
from ledger.kernel.states import GrantState, InstanceState, SessionState
from ledger.models import GrantRow, Instance, Request, Session
from providers.capabilities import Capabilities
from providers.contract import InstanceSpec, Offer, Provider
from providers.errors import NotSent, OutcomeUnknown, ProviderError, RateLimited

BATCH = 8
#: A create is sent within this many monotonic seconds of the commit that says so, or not at all: its row has a lease.
SEND_WITHIN_S = 10.0
PAUSED = "The process paused before it could send the launch."
NOT_COVERED = "The epoch could not be written, so nothing was launched."
#: Rows whose create was sent, and whose answer is still to be applied: another process may have taken it for lost.
SENT = frozenset({InstanceState.SENDING, InstanceState.UNKNOWN})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Committed:
    """A commit to send: its time in monotonic seconds, and whether the epoch has it. Without that nothing is sent."""

    at_s: float
    is_covered: bool


@dataclass(frozen=True, slots=True)
class _Work:
    """The rows that one create needs, read before anything is sent."""

    instance: Instance
    request: Request
    session: Session
    grant: GrantRow
    keys: tuple[str, ...]


async def send_due(ctx: Context) -> int:
    """Send the creates that are due, and take over those whose sender died; return how many rows were processed."""
    if clock_problem(ctx.clock):
        return 0  # Nothing is claimed, so that a replica with a right clock can send it.
    states = {InstanceState.READY, InstanceState.SENDING}
    able = [provider.capabilities for provider in ctx.providers.values()]
    lease = max([timedelta(seconds=ctx.timing.claim_ttl_s), *(create_lease(ctx, one) for one in able)])
    held = await claim_rows(ctx.db, Instance, now=ctx.clock.now(), states=states, limit=BATCH, lease=lease)
    claimed, held = len(held), await search_first(ctx, held)
    recovering = bool(held) and await recovery_mode.now_on(ctx.db)
    await asyncio.gather(
        *(alone(ctx, row.id, "the create", _send(ctx, one, row, recovering=recovering), None) for one, row in held)
    )
    return claimed


def create_lease(ctx: Context, able: Capabilities) -> timedelta:
    """Return how long the sender of a create has for its outcome: longer than its adapter waits for the answer."""
    return timedelta(seconds=able.create_timeout_s * ctx.timing.create_patience)


async def _send(ctx: Context, held: Claim, row: Instance, *, recovering: bool) -> None:
    work = await _load(ctx, row)
    provider = ctx.providers.get(work.instance.cloud)
    try:
        if work.instance.state is InstanceState.SENDING:
            await _unknown_outcome(ctx, work, "The process that sent the launch ended before the reply came.")
        elif work.session.state is SessionState.TERMINATING or work.grant.state is not GrantState.OPEN:
            async with ctx.db.write() as tx:
                await reservations.withdraw_ready(
                    tx, work.session.id, "The session ended before the launch.", ctx.clock.now(), SYSTEM
                )
                await settle(ctx, tx, work.session.id, ctx.clock.now())
        elif recovering or not await ctx.epoch.works():
            async with ctx.db.write() as tx:
                await release(tx, Instance, held, due_at=ctx.clock.now() + HOLD)
        elif provider is None or provider.account != work.instance.account:
            # The instance is searched for in the row's account, so nothing is sent to another account.
            sentence = f"The account at {work.instance.cloud} that was asked is not set up here any more."
            await _refused(ctx, work, "unsupported", sentence, held)
        else:
            await _place(ctx, work, held)
    except StaleMove:
        log.info("instance %s was moved by somebody else", held.row_id)
    ctx.hints.outbox.set()


async def _load(ctx: Context, instance: Instance) -> _Work:
    async with ctx.db.read() as tx:
        session = await tx.get_one(Session, instance.session_id)
        request = await tx.get_one(Request, instance.request_id)
        return _Work(
            instance,
            request,
            session,
            await tx.get_one(GrantRow, instance.grant_id),
            await key_holders.for_instance(tx, ctx.policy, session),
        )


async def _place(ctx: Context, work: _Work, held: Claim) -> None:
    """Price the offer again, send the create once, then act on the reply."""
    offer = offer_from_json(work.instance.offer)
    provider = ctx.providers[work.instance.cloud]
    batch = provider.capabilities.batch
    try:
        # Both at once, because a person waits. A batch run starts at its push, so no cached check counts.
        async with asyncio.TaskGroup() as asked:
            checking = asked.create_task(ctx.catalog.checks.check(offer.cloud, fresh=batch))
            pricing = asked.create_task(_reprice(ctx, offer, job_of(work.request.job).disk_gb))
        fresh, checked = pricing.result(), checking.result()
        if isinstance(fresh, ProviderError):
            raise fresh
    except RateLimited as error:
        await _wait(ctx, work, held, error)
        return
    except ProviderError as error:
        await _refused(ctx, work, error.code, f"{error.message}.", held)
        return
    lacks = ctx.catalog.checks.store(checkpoint_of(work.request.job), ctx.policy.checkpoint_places)
    if lacks is not None:
        # It would lose its checkpoints at every cloud, so no other option is tried.
        await _ask_again(ctx, work, "store_missing", lacks, held)
        return
    if not checked.ok:
        # Every other offer of this cloud would be refused for the same reason.
        await _refused(ctx, work, checked.code if checked.code in CLOUD_WIDE else NotSent.code, refusal(checked), held)
        return
    free = provider.capabilities.free
    fresh = inside(fresh, work.grant.price_cap_usd_h) if fresh is not None else None
    verdict = requote(work.grant.price_cap_usd_h, fresh.price_usd_h if fresh else None, free=free)
    if fresh is None or verdict.outcome is RequoteOutcome.GONE:
        await _refused(ctx, work, "no_capacity", verdict.sentence, held)
    elif (poor := cannot_pay(fresh, checked.balance)) is not None:
        await _refused(ctx, work, "insufficient_funds", f"{poor}.", held)
    elif verdict.outcome is RequoteOutcome.ASK_AGAIN:
        await _ask_again(ctx, work, verdict.code, verdict.sentence, held)
    else:
        await _order(ctx, work, held, provider, fresh)


async def _reprice(ctx: Context, offer: Offer, disk_gb: int) -> Offer | ProviderError | None:
    """Return the offer at its price now; an error is returned, so that it does not cancel the check beside it."""
    try:
        return await ctx.catalog.reprice(offer, disk_gb)
    except ProviderError as error:
        return error


async def _wait(ctx: Context, work: _Work, held: Claim, error: RateLimited) -> None:
    wait = wait_for_limit(wait_of(work.instance), ctx.clock.now(), error.retry_after_s or 1.0, work.grant.until)
    if wait is None:
        await _refused(ctx, work, error.code, f"{error.message}.", held)
        return
    async with ctx.db.write() as tx:
        await release(tx, Instance, held, due_at=wait.until, limited_at=wait.since, limited_until=wait.until)


async def _commit_to_send(
    ctx: Context, work: _Work, held: Claim, spec: InstanceSpec, minted: Minted, able: Capabilities
) -> _Committed | None:
    """Move the row from READY to SENDING before the call, so that only one sender can ever send it.

    None when nothing may be sent. The epoch names this commit, so that a ledger restored from a copy shows that it
    lacks it.
    """
    now = ctx.clock.now()
    leased_until = now + create_lease(ctx, able)
    async with ctx.db.write() as tx:
        if not await may_send(ctx, tx, held, work.grant.id, work.session.id, now):
            return None
        if not await key_holders.all_belong(tx, ctx.policy, work.session.id, work.keys):
            await release(tx, Instance, held, due_at=now)
            return None
        await move(
            tx,
            Instance,
            work.instance.id,
            InstanceState.SENDING,
            now,
            SYSTEM,
            claim=held.token,
            values={
                "sent_at": now,
                "offer": offer_to_json(spec.offer),
                "price_usd_h": spec.offer.price_usd_h,
                "storage_usd_h": spec.offer.storage_usd_h,
                "login_key": spec.login_key or None,
                "due_at": leased_until,
                "claim_until": leased_until,
            },
        )
        session = await tx.get_one(Session, work.session.id, populate_existing=True)
        if session.state is SessionState.QUEUED:
            await move(tx, Session, session.id, SessionState.PROVISIONING, now, SYSTEM)
        store(tx, work.instance, minted, now)
        if able.ssh:
            await machine_keys.launched(ctx, tx, work.instance, session, spec.public_keys, now)
        committed_s = ctx.clock.monotonic()
    note_sent(ctx, work.instance.id, committed_s)
    ctx.hints.outbox.set()
    return _Committed(committed_s, await ctx.epoch.cover(tx))


async def _order(ctx: Context, work: _Work, held: Claim, provider: Provider, fresh: Offer) -> None:
    """Prepare everything that may fail, wait or be repeated; then commit to send, and call at once.

    So a row in SENDING waits for no rate limit, and every row in SENDING may have reached the cloud.
    """
    grant = authority(work.grant, work.instance.label)
    minted = await _enroll(ctx, work, fresh)
    login_key = public_line(ctx.labels, work.session.id) if ctx.policy.validate_login else ""
    volume = await attached(ctx, work.request, work.session)
    if isinstance(volume, NotMounted):
        await _ask_again(ctx, work, ReplyCode.NO_VOLUME, volume.sentence, held, ends=volume.for_good)
        return
    job = job_of(work.request.job)
    spec = order(work.instance, job, fresh, work.keys, ctx.policy, provider, minted.env, login_key, volume)
    sent_before = ""
    try:
        spec = await provider.prepare(spec, grant)
    except RateLimited as error:
        await _wait(ctx, work, held, error)
        return
    except OutcomeUnknown as error:
        sent_before = f"{error.message}."
    except ProviderError as error:
        await _refused(ctx, work, error.code, f"{error.message}.", held)
        return
    committed = await _commit_to_send(ctx, work, held, spec, minted, provider.capabilities)
    if committed is None:
        return
    if sent_before:
        await _unknown_outcome(ctx, work, sent_before)
    elif not committed.is_covered:
        # Nothing was sent, and this process alone may send: the row is closed, and another one waits.
        limit = RateLimited(provider.name, NOT_COVERED, HOLD.total_seconds())
        await _refused(ctx, work, NotSent.code, NOT_COVERED, limit=limit)
    else:
        await _create(ctx, work, provider, spec, grant, committed.at_s)


async def _enroll(ctx: Context, work: _Work, fresh: Offer) -> Minted:
    """Make the variables for the agent of this instance, with its approved end if the create is sent now.

    Empty where instances cannot reach this service.
    """
    if not ctx.node_url:
        return Minted()
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        price_usd_h = fresh.price_usd_h or work.instance.price_usd_h
        until = await approved_end(ctx, tx, work.session, work.instance, work.grant, now, price_usd_h)
    return mint(ctx, work.instance, until, now)


async def _create(
    ctx: Context, work: _Work, provider: Provider, spec: InstanceSpec, grant: Grant, committed_s: float
) -> None:
    """Call create once, and apply its reply even if our claim expired meanwhile, because the reply is a fact.

    A process that stood still since the commit sends nothing: another one may have given the create up by now. Its row
    never becomes READY again, because nobody else can know that it was not sent.
    """
    if ctx.clock.monotonic() - committed_s >= SEND_WITHIN_S:
        await _unknown_outcome(ctx, work, PAUSED)
        return
    try:
        observed = await provider.create(spec, grant)
    except ProviderError as error:
        if error.definite_no and not isinstance(error, OutcomeUnknown):
            await _refused(ctx, work, error.code, f"{error.message}.", limit=error)
        else:
            ctx.catalog.sold(spec.offer)  # It may have landed.
            await _unknown_outcome(ctx, work, UNCLEAR)
        return
    finally:
        ctx.hints.sweep.set()  # Whatever became of the row meanwhile, a listing shows what the call has made.
    ctx.catalog.sold(spec.offer)
    async with ctx.db.write() as tx:
        await adopt(ctx, tx, work.instance.id, observed, ctx.clock.now())


async def _unknown_outcome(ctx: Context, work: _Work, sentence: str) -> None:
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        values = {"outcome": sentence, "due_at": now}
        await move(tx, Instance, work.instance.id, InstanceState.UNKNOWN, now, SYSTEM, sentence, values=values)
    ctx.hints.instances.set()


async def _refused(
    ctx: Context,
    work: _Work,
    code: str,
    sentence: str,
    held: Claim | None = None,
    *,
    limit: ProviderError | None = None,
) -> None:
    """Close the row after a refusal, then try the next option that the approval covers, or reopen the request.

    `held` is the claim of a refusal before the send; without one, the cloud refused the create itself. A rate limit of
    the create is waited out first.
    """
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await _reject(tx, work, code, sentence, now, held)
        waits = False
        if not await _ended_meanwhile(ctx, tx, work, now):
            if isinstance(limit, RateLimited):
                waits = await send_again(ctx, tx, work.instance, limit.retry_after_s, now) is not None
            if not waits:
                await try_next(ctx, tx, work.grant.id, sentence, now)
    ctx.hints.instances.set()
    ctx.hints.requests.set()


async def _ask_again(ctx: Context, work: _Work, code: str, sentence: str, held: Claim, *, ends: bool = False) -> None:
    """Close the row and reopen the request; where no other approval could help either, the request `ends`."""
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await _reject(tx, work, code, sentence, now, held)
        if not await _ended_meanwhile(ctx, tx, work, now):
            await (reopen.end_request if ends else reopen.reopen_request)(tx, work.request.id, sentence, now)
    ctx.hints.requests.set()


async def _ended_meanwhile(ctx: Context, tx: Tx, work: _Work, now: datetime) -> bool:
    """Whether somebody ordered the session's end while its create was under way: then nothing else is tried."""
    session = await tx.get_one(Session, work.session.id, populate_existing=True)
    if session.state is not SessionState.TERMINATING:
        return False
    await settle(ctx, tx, session.id, now)
    return True


async def _reject(tx: Tx, work: _Work, code: str, sentence: str, now: datetime, held: Claim | None) -> None:
    """Close the row. What is known before the send counts under its claim alone: another process may have sent since.

    What the cloud answers to the create counts in whatever state the row is, because there was one call for it.
    """
    states, token = (SENT, None) if held is None else (frozenset({InstanceState.READY}), held.token)
    values = {"outcome": sentence, "outcome_code": code, "ended_at": now}
    to, row_id = InstanceState.REJECTED, work.instance.id
    await move(tx, Instance, row_id, to, now, SYSTEM, sentence, only_from=states, claim=token, values=values)
