"""Search for creates with an unknown outcome: adopt what is found, and give up after the quarantine W.

The outcome of a launch is unknown as well where this process hasn't written its intent: in an older copy of the ledger
it may have been sent since. So its cloud is listed before it is sent.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from bot.rules.instances.recovery_mode import HOLD
from bot.rules.policy.timing import Timing
from bot.rules.values.labels import LabelKind
from bot.services.access import key_holders, machine_keys
from bot.services.grants import reopen
from bot.services.instances.transitions import adopt, settle
from bot.services.nodes.login_keys import public_line
from bot.services.notifications.paging import OPERATORS, alone, page, page_in
from bot.services.runtime import older_ledger
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import Claim, StaleMove, Tx, claim, move, notification_of, release
from ledger.kernel.actor import SYSTEM
from ledger.kernel.ids import bare_id
from ledger.kernel.states import GrantState, InstanceState, NotificationKind, SessionState
from ledger.models import GrantRow, Instance, Session
from ledger.queries.lookups import instances_by_label, undecided_creates
from providers.capabilities import Capabilities
from providers.contract import InstanceStatus, Listing, NotSeen, ObservedInstance, Provider
from providers.errors import OutcomeUnknown, ProviderError

BATCH = 8
UNCLEAR = "The cloud's reply to the launch was lost, so it is unknown whether an instance exists."
#: An intent of this age is searched for, whichever process wrote it: a copy can replace the ledger of a running one.
OLD_S = 60.0
SENT_BEFORE = (
    "It was launched before, and the ledger didn't know. The ledger may be an older copy. Nothing was launched again."
)
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


async def search_first(ctx: Context, held: Sequence[tuple[Claim, Instance]]) -> list[tuple[Claim, Instance]]:
    """Search for the labels of launches that this process hasn't intended; return the rows that may go on.

    One listing per account answers for all of them. A row whose label is listed is adopted. One waits whose account
    can't be listed, or shows another label of its request that the ledger doesn't know.
    """
    old = {row.id: row for _, row in held if _may_be_sent(ctx, row)}
    clouds = sorted({row.cloud for row in old.values()})
    listings = dict(zip(clouds, await asyncio.gather(*(_listed(ctx, cloud) for cloud in clouds)), strict=True))
    may_go_on = []
    for one, row in held:
        search = _is_unsent(ctx, one, row, listings[row.cloud]) if row.id in old else None
        if search is None or await alone(ctx, row.id, "the search", search, False):
            may_go_on.append((one, row))
    return may_go_on


def note_sent(ctx: Context, instance_id: str, at_s: float) -> None:
    """Remember a create that is sent now, until its row is old enough to be searched for by its age."""
    for earlier in [one for one, sent_s in ctx.sent_at_s.items() if at_s - sent_s > 2 * OLD_S]:
        ctx.sent_at_s.pop(earlier, None)
    ctx.sent_at_s[instance_id] = at_s


def _may_be_sent(ctx: Context, row: Instance) -> bool:
    """Whether another process may have sent a row that is READY here. A row of another account is never sent."""
    provider = ctx.providers.get(row.cloud)
    if row.state is not InstanceState.READY or provider is None or provider.account != row.account:
        return False
    if row.id in ctx.sent_at_s:
        return True  # This process itself has sent it: the ledger went back since.
    return ctx.is_older(row.created_at) or ctx.clock.now() - row.created_at > timedelta(seconds=OLD_S)


async def _listed(ctx: Context, cloud: str) -> Listing | None:
    """Return all that is in the account; None where that can't be known now."""
    try:
        listing = await ctx.providers[cloud].list()
    except ProviderError as error:
        log.warning("%s could not be listed before a launch: %s", cloud, error.code)
        return None
    return listing if listing.completeness.is_complete else None


async def _is_unsent(ctx: Context, held: Claim, row: Instance, listing: Listing | None) -> bool:
    """Whether a listing shows nothing of a launch; if not, adopt what it shows, or wait."""
    again = timedelta(seconds=ctx.timing.label_search_s)
    if listing is not None:
        read = [(item, ctx.labels.read(item.name)) for item in listing.items]
        ours = [(item, one) for item, one in read if one.kind is LabelKind.OURS]
        if mine := [item for item, one in ours if one.label == row.label]:
            mine.sort(key=lambda item: item.status is InstanceStatus.TERMINATED)
            return not await _adopt_sent(ctx, row, mine[0])
        of_request = {one.label for _, one in ours if one.request_id == bare_id(row.request_id)}
        async with ctx.db.read() as tx:
            known = await instances_by_label(tx, of_request)
        if of_request <= known.keys():
            return True
        again = HOLD  # The next reconcile pass finds it, and operators decide about it.
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        if now >= (await tx.get_one(GrantRow, row.grant_id)).until:
            return True  # It is not sent any more, and people decide anew.
        await release(tx, Instance, held, due_at=now + again)
    return False


async def _adopt_sent(ctx: Context, row: Instance, seen: ObservedInstance) -> bool:
    """Adopt the instance of a launch that is READY here although its label is listed: another ledger has sent it.

    A launch is stored as sent before its call, so a ledger that is whole never shows this. False where its approval was
    withdrawn: then nothing is sent, and what is listed is an orphan.
    """
    now = ctx.clock.now()
    sent_at = min(max(row.created_at, seen.created_at or row.created_at), now)
    async with ctx.db.write() as tx:
        session = await tx.get_one(Session, row.session_id, populate_existing=True)
        if (await tx.get_one(GrantRow, row.grant_id)).state is not GrantState.OPEN:
            return False
        able = ctx.providers[row.cloud].capabilities
        values: dict[str, Any] = {"sent_at": sent_at, "due_at": None}
        if able.ssh and ctx.policy.validate_login:
            values["login_key"] = public_line(ctx.labels, session.id)
        ready = frozenset({InstanceState.READY})
        row = await move(
            tx, Instance, row.id, InstanceState.SENDING, now, SYSTEM, SENT_BEFORE, only_from=ready, values=values
        )
        if session.state is SessionState.QUEUED:
            session = await move(tx, Session, session.id, SessionState.PROVISIONING, now, SYSTEM)
        if able.ssh:
            keys = await key_holders.for_instance(tx, ctx.policy, session)
            await machine_keys.launched(ctx, tx, row, session, keys, now)
        await adopt(ctx, tx, row.id, seen, now)
        await page_in(ctx, tx, f"{row.id}/sent-before", f"{row.name}: {SENT_BEFORE}", now)
        await older_ledger.contradicted(tx, now)
    for hint in (ctx.hints.outbox, ctx.hints.sweep):
        hint.set()
    return True
