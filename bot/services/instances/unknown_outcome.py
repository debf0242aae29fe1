"""Search for creates with an unknown outcome: adopt what is found, and give up after the quarantine W."""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import datetime, timedelta

from bot.rules.policy.timing import Timing
from bot.services.grants import reopen
from bot.services.instances.transitions import adopt, settle
from bot.services.notifications.paging import OPERATORS, alone, page, page_in
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import Claim, StaleMove, Tx, claim, move, notification_of, release
from ledger.kernel.actor import SYSTEM
from ledger.kernel.states import InstanceState, NotificationKind, SessionState
from ledger.models import Instance, Session
from ledger.queries.lookups import undecided_creates
from providers.capabilities import Capabilities
from providers.contract import NotSeen, Provider
from providers.errors import OutcomeUnknown, ProviderError

BATCH = 8
UNCLEAR = "The cloud's reply to the launch was lost, so it is unknown whether an instance exists."
IN_DOUBT = "While the clock is in doubt, the launch is not given up. GPU Shopper keeps trying."

log = logging.getLogger(__name__)


async def resolve_due(ctx: Context) -> int:
    """Search for the labels of creates with an unknown outcome; return how many were processed."""
    lease = timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim(ctx.db, Instance, now=ctx.clock.now(), states={InstanceState.UNKNOWN}, limit=BATCH, lease=lease)
    await asyncio.gather(*(alone(ctx, one.row_id, "the search", _resolve(ctx, one), None) for one in held))
    return len(held)


async def _resolve(ctx: Context, held: Claim) -> None:
    async with ctx.db.read() as tx:
        instance = await tx.get_one(Instance, held.row_id)
    again = timedelta(seconds=ctx.timing.label_search_s)
    provider = ctx.providers.get(instance.cloud)
    if provider is None or provider.account != instance.account:
        # Only the account that received the create can show its outcome.
        await page(ctx, instance.id, f"{UNCLEAR} {instance.cloud} was used with an account that is not set up now.")
        later = ctx.clock.now() + timedelta(seconds=ctx.timing.terminate_retry_max_s)
        async with ctx.db.write() as tx:
            await release(tx, Instance, held, due_at=later)
        return
    try:
        found = await provider.find(instance.label)
    except ProviderError as error:
        log.warning("the label of %s could not be searched for: %s", instance.id, error.code)
        now = ctx.clock.now()
        async with ctx.db.write() as tx:
            await release(tx, Instance, held, due_at=now + again)
            # By a clock in doubt, too: a message spends and ends nothing, and doubt may last as long as an outage.
            if _patience_over(ctx, provider, instance, now):
                sentence = f"{UNCLEAR} Searching for it failed, too: {error.message}. GPU Shopper keeps trying."
                await page_in(ctx, tx, instance.id, f"{instance.name}: {sentence}", now)
        ctx.hints.outbox.set()
        return
    now, doubt = ctx.clock.now(), clock_problem(ctx.clock)
    try:
        async with ctx.db.write() as tx:
            if not isinstance(found, NotSeen) and found:
                # Further finds are duplicates; the reconcile pass finds them by the same label and ends them.
                await adopt(ctx, tx, instance.id, found[0], now)
            elif not _patience_over(ctx, provider, instance, found.at if isinstance(found, NotSeen) else now):
                # The search itself must be that late: this process may have stood still since.
                await release(tx, Instance, held, due_at=now + again)
            elif doubt:
                await release(tx, Instance, held, due_at=now + again)
                await page_in(ctx, tx, instance.id, f"{instance.name}: {UNCLEAR} {IN_DOUBT}", now)
            else:
                await give_up(ctx, tx, instance, now)
    except StaleMove:
        log.info("instance %s was moved by somebody else", instance.id)
    ctx.hints.outbox.set()
    ctx.hints.requests.set()
    ctx.hints.sweep.set()


def _patience_over(ctx: Context, provider: Provider, instance: Instance, now: datetime) -> bool:
    """Whether a create with an unknown outcome was searched for as long as its cloud's W says."""
    again = timedelta(seconds=ctx.timing.label_search_s)
    patience = max(quarantine(provider.capabilities, ctx.timing), again)
    return now - (instance.sent_at or instance.created_at) >= patience


async def announce_in_doubt(ctx: Context) -> None:
    """Page the operators about creates that stay without an outcome while this process's clock is in doubt.

    A machine that starts with an earlier time finds none of them due, and takes over none whose sender died. So
    reconcile passes call this, and how long each create was seen is measured in monotonic seconds.
    """
    seen = ctx.undecided_since_s
    if not clock_problem(ctx.clock):
        seen.clear()
        return
    async with ctx.db.read() as tx:
        rows = await undecided_creates(tx)
    at_s = ctx.clock.monotonic()
    since_s = {row.id: seen.get(row.id, at_s) for row in rows}
    seen.clear()
    seen.update(since_s)
    for row in rows:
        if at_s - seen[row.id] < ctx.timing.quarantine_floor_s:
            continue
        seen[row.id] = math.inf  # Once per process is enough.
        async with ctx.db.write() as tx:
            if await notification_of(tx, NotificationKind.OPERATOR_PAGE, row.id, OPERATORS) is None:
                sentence = f"{row.name}: It is unknown whether its launch made an instance. {IN_DOUBT}"
                await page_in(ctx, tx, row.id, sentence, ctx.clock.now())
        ctx.hints.outbox.set()


async def give_up(ctx: Context, tx: Tx, instance: Instance, now: datetime) -> None:
    """Close a create that was not found for W as a tombstone, and reopen the request.

    The approval is used up; a person decides whether to try again. A set of which it is one machine ends.
    """
    sentence = (
        f"{instance.cloud} never confirmed the launch, and no instance was found. If one appears later, it is "
        "terminated."
    )
    sentence += "" if instance.node_rank is not None else " Approve again?"
    values = {"outcome": sentence, "outcome_code": OutcomeUnknown.code, "ended_at": now}
    await move(tx, Instance, instance.id, InstanceState.TOMBSTONE, now, SYSTEM, sentence, values=values)
    session = await tx.get_one(Session, instance.session_id, populate_existing=True)
    if session.state is SessionState.TERMINATING:
        await settle(ctx, tx, session.id, now)
    else:
        await reopen.reopen_request(tx, instance.request_id, sentence, now)


def quarantine(capabilities: Capabilities, timing: Timing) -> timedelta:
    """Return W, how long an unseen create stays UNKNOWN before it becomes a TOMBSTONE.

    W is the greater of a floor and several times the cloud's visibility lag.
    """
    return timedelta(seconds=max(timing.quarantine_floor_s, timing.quarantine_lags * capabilities.visibility_lag_s))
