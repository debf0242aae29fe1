"""Reconcile one cloud: compare its listing with the ledger, and correct each difference in one small step.

The order matters: list the cloud completely, then read the ledger, decide, read the row again in a transaction, act.
The reverse order would terminate healthy instances that were created in between. Booting, running and ending instances,
and creates with an unknown outcome, are all followed by this one listing per account, so the number of calls does not
grow with the number of instances.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.rules.billing.end_times import carried_out, likely_end
from bot.rules.instances.circuit_breaker import trips
from bot.rules.instances.health import trouble
from bot.services.billing.metering import billed_time
from bot.services.billing.within_hours import accrue_stop, change_rate
from bot.services.instances import key_rotation, volume_absence
from bot.services.instances.batch_runs import close_run
from bot.services.instances.blind_time import worked_by_listing
from bot.services.instances.health import instead, last_heartbeat_at, still_there, watch
from bot.services.instances.orphans import note_orphans
from bot.services.instances.power import follow
from bot.services.instances.readiness import boot
from bot.services.instances.transitions import ADOPTABLE, adopt, check_rate, gone
from bot.services.instances.unknown_outcome import announce_in_doubt
from bot.services.nodes.token_exchange import note_reported_restarts
from bot.services.notifications.paging import alone, page
from bot.services.notifications.request_message import show_again
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import StaleMove, Tx, amend, record
from ledger.kernel import money
from ledger.kernel.actor import SYSTEM
from ledger.kernel.checkpoint_step import WAITS
from ledger.kernel.event_kind import EventKind
from ledger.kernel.proof import Absence, ProofOfEnd
from ledger.kernel.states import InstanceState
from ledger.models import GrantRow, Instance, Request
from ledger.queries.cloud_accounts import note_listing
from ledger.queries.lookups import Open, OpenInstance, open_instances, open_instances_of
from ledger.queries.nodes import open_exchange
from ledger.queries.runs.graces import open_grace
from providers.capabilities import BillingRule
from providers.contract import InstanceStatus, Listing, ObservedInstance, Provider
from providers.errors import ProviderError
from providers.leftovers import Leaves

log = logging.getLogger(__name__)

#: Up to so many instances at one cloud are read as a whole at once: a second statement would cost more.
FEW = 50
#: Instances of a large fleet with something to do that are read by one statement.
READ_AT_ONCE = 500
#: A complete listing of an account is noted in the ledger at most this often.
LISTING_NOTED_EVERY = timedelta(minutes=3)
RUNNING_STATES = frozenset({InstanceState.LIVE, InstanceState.STOPPED})


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one reconcile pass; `urgent` requests the next one soon: an instance is booting or ending."""

    listed: int
    urgent: bool
    problem: str = ""


async def observe(ctx: Context, cloud: str) -> Pass:
    """Run one reconcile pass over a cloud. A failed listing proves nothing and changes nothing."""
    provider = ctx.providers[cloud]
    try:
        listing = await provider.list()
    except ProviderError as error:
        log.warning("%s could not be listed: %s", cloud, error.code)
        await announce_in_doubt(ctx)
        # A key may lack the right to list volumes. Asking often would use up the calls that machines need.
        return Pass(0, urgent=provider.capabilities.volume_gb is None, problem=error.message)
    if doubt := clock_problem(ctx.clock):
        # Every step compares times: a boot that takes too long, an absence, an orphan. The listing itself had to be
        # asked for, because the answer shows the cloud's time.
        await announce_in_doubt(ctx)
        return Pass(len(listing.items), urgent=True, problem=doubt)
    async with ctx.db.read() as tx:
        every, orphans = await open_instances(tx, cloud, FEW)
    rekeyed = key_rotation.proven(ctx.labels, listing, every)
    if rekeyed:
        await key_rotation.take_over(ctx, listing, rekeyed)
        async with ctx.db.read() as tx:
            every, orphans = await open_instances(tx, cloud, FEW)
    rows = [row for row in every if row.account == provider.account]
    seen = _match(rows, listing)
    running = [row for row in rows if row.state in RUNNING_STATES]
    lost = [row for row in running if row.id not in seen and _should_be_listed(row, listing, provider)]
    if not listing.proves_absence:
        lost = []  # Every run that has ended leaves the listing.
    problem = trips(len(running), 0, len(lost))
    if problem:
        await page(ctx, f"breaker/{cloud}", f"{cloud}: {problem}")
        rows = [row for row in rows if row not in lost]
    busy = await _busy(ctx, cloud, rows, seen, listing)
    followed = (_step(ctx, provider, row, seen.get(row.id), listing) for row in busy)
    steps = await asyncio.gather(
        *(alone(ctx, row.id, "the check", step, False) for row, step in zip(busy, followed, strict=True))
    )
    await note_reported_restarts(ctx, running, seen, ctx.clock.now())
    ctx.listed_at[cloud] = max(ctx.listed_at.get(cloud, listing.at), listing.at)
    if rows:
        await _note_listing(ctx, provider, listing.at)
    held = {item.ref for item in seen.values()}
    found_orphans = await note_orphans(ctx, provider, listing, len(running), held, any_open=orphans)
    if any(_is_repriced(row, seen.get(row.id)) for row in rows):
        ctx.hints.spend.set()  # After the commits, so that the pass over all costs sees the new rates.
    if any(steps) or found_orphans:
        ctx.hints.outbox.set()
        ctx.hints.instances.set()
        ctx.hints.requests.set()
    return Pass(len(listing.items), urgent=found_orphans or any(_is_urgent(row) for row in rows), problem=problem or "")


async def _note_listing(ctx: Context, provider: Provider, at: datetime) -> None:
    """Note every three minutes that the account was listed, so that every list says from when *running* is."""
    noted_at = ctx.listing_noted_at.get(provider.name)
    if noted_at is not None and at - noted_at < LISTING_NOTED_EVERY:
        return
    async with ctx.db.write() as tx:
        await note_listing(tx, provider.name, provider.account, at)
    ctx.listing_noted_at[provider.name] = at


async def _busy(
    ctx: Context, cloud: str, rows: Sequence[Open], seen: Mapping[str, ObservedInstance], listing: Listing
) -> list[Instance]:
    """Return the rows in which there may be something to do. Of a large fleet only those are read as a whole."""
    found = [row for row in rows if isinstance(row, Instance)]
    ids = [row.id for row in rows if not isinstance(row, Instance) and not _is_quiet(ctx, row, seen, listing)]
    for first in range(0, len(ids), READ_AT_ONCE):
        async with ctx.db.read() as tx:
            found += await open_instances_of(tx, cloud, ids[first : first + READ_AT_ONCE])
    return found


def _is_quiet(ctx: Context, row: OpenInstance, seen: Mapping[str, ObservedInstance], listing: Listing) -> bool:
    """Whether the step of an instance would do nothing: it runs, and is listed as it was."""
    item = seen.get(row.id)
    ready = row.state is InstanceState.LIVE and row.reachable_at is not None and row.wanted is None
    if item is None or not ready or row.terminate_acked_at is not None or not listing.proves_absence:
        return False
    try:
        found = trouble(item.status, spot=bool(row.offer.get("spot")), other=instead(row, item))
        billing = ctx.providers[row.cloud].capabilities.billing
        return found is None and not _changes(row, item, billing, listing.at)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False  # Its own step fails in the same way, and reports it.


def _is_repriced(row: Open, item: ObservedInstance | None) -> bool:
    """Whether a running instance was listed at another rate than the one that was known."""
    usd_h = item.price_usd_h if item is not None and item.status is InstanceStatus.RUNNING else None
    return row.state is InstanceState.LIVE and usd_h is not None and usd_h > 0 and money.rate(usd_h) != row.price_usd_h


def _match(rows: Sequence[Open], listing: Listing) -> dict[str, ObservedInstance]:
    """Match rows with listed instances: by the cloud's id, or by the full name while there is no id."""
    by_ref = {item.ref: item for item in listing.items}
    by_name = {item.name: item for item in reversed(listing.items) if item.name}
    found = {row.id: by_ref.get(row.ref) if row.ref else by_name.get(row.name) for row in rows}
    return {
        row_id: item
        for row_id, item in found.items()
        if item is not None and item.status is not InstanceStatus.TERMINATED
    }


def _should_be_listed(row: Open, listing: Listing, provider: Provider) -> bool:
    """Whether the listing must show this row.

    A row that became live within the cloud's visibility lag may be missing for that reason alone.
    """
    lag = timedelta(seconds=provider.capabilities.visibility_lag_s)
    return listing.at - (row.live_at or row.created_at) > lag


def _is_urgent(row: Open) -> bool:
    if row.wanted is not None:
        return True
    return row.state is not InstanceState.STOPPED and (row.state is not InstanceState.LIVE or row.reachable_at is None)


async def _step(
    ctx: Context, provider: Provider, row: Instance, item: ObservedInstance | None, listing: Listing
) -> bool:
    """Advance one row by one step. True when something changed."""
    try:
        if row.state in ADOPTABLE and item is not None:
            # Not even a sender that is at work is waited for: what is listed may be gone before its reply is lost.
            async with ctx.db.write() as tx:
                await adopt(ctx, tx, row.id, item, ctx.clock.now())
            return True
        if row.state is InstanceState.SENDING:
            return False  # Its sender is at work; the row of a dead sender gets an unknown outcome at its own deadline.
        if not listing.proves_absence and await close_run(ctx, row, listing):
            return True
        if item is None:
            return await _absent(ctx, provider, row, listing)
        return await _present(ctx, row, item, listing.at)
    except StaleMove:
        return True


async def _absent(ctx: Context, provider: Provider, row: Instance, listing: Listing) -> bool:
    """Count a complete listing without this row; enough of them prove its end, unless a heartbeat contradicts."""
    waiting = row.state in RUNNING_STATES and not _should_be_listed(row, listing, provider)
    if provider.capabilities.volume_gb is not None:
        return not waiting and await volume_absence.look(ctx, provider, row, listing)
    absence = listing.absence(row.ref, row.name)
    if absence is None or waiting or row.state is InstanceState.UNKNOWN or listing.account != row.account:
        return False
    ordered_at = row.terminate_asked_at if row.state is InstanceState.TERMINATING else None
    if ordered_at is not None and absence.at < ordered_at:
        # It was requested before the order and answered after it, perhaps long after: its turn waits for the ledger.
        # What it lacks may have ended meanwhile, so its time says nothing.
        return False
    # Absences before the termination was ordered show when it ended; only absences after the order prove that it did.
    absences = [Absence(datetime.fromisoformat(at), row.account) for at in row.absent_at] + [absence]
    counted = [one for one in absences if ordered_at is None or one.at >= ordered_at]
    rule, heartbeat_at = ctx.timing.absence_rule, None
    proof = ProofOfEnd.from_absences(counted, rule, last_heartbeat_at=None)
    if proof is not None:
        heartbeat_at = await last_heartbeat_at(ctx, row)
        proof = ProofOfEnd.from_absences(counted, rule, last_heartbeat_at=heartbeat_at)
    if proof is not None and (row.state in RUNNING_STATES or row.checkpoint_step in WAITS):
        doubt = await still_there(ctx, provider, row)
        if doubt is not None:
            said = f"{row.cloud} does not list {row.name} ({row.ref}), but {doubt.sentence}."
            await page(ctx, f"{row.id}/missing", said)
            if not doubt.was_seen:
                return False  # Its absences still count, and the next pass checks again.
            async with ctx.db.write() as tx:
                return await amend(tx, Instance, row.id, version=row.version, absent_at=[])
    unseen = await worked_by_listing(ctx, row, None, {}, absence.at)
    async with ctx.db.write() as tx:
        if proof is None:
            kept = [a.at.isoformat() for a in absences]
            return await amend(tx, Instance, row.id, version=row.version, absent_at=kept, **unseen)
        lag = timedelta(seconds=provider.capabilities.visibility_lag_s)
        ended_at = likely_end(row, (one.at for one in absences), heartbeat_at, lag)
        await gone(ctx, tx, row, proof, ended_at, ctx.clock.now())
    if isinstance(provider, Leaves):
        ctx.hints.leftovers.set()
    return True


async def _present(ctx: Context, row: Instance, item: ObservedInstance, at: datetime) -> bool:
    """Record what changed on a listed instance, check its rate, and continue its boot or its health check."""
    now = ctx.clock.now()
    if row.unbilled_at is not None and at < row.unbilled_at:
        return False  # A later listing was applied already, and this one arrived late.
    capabilities = ctx.providers[row.cloud].capabilities
    changes = _changes(row, item, capabilities.billing, at)
    changes |= await worked_by_listing(ctx, row, item, changes, at)
    # A call without a reply that ended it explains every status but that it runs.
    called_at = row.terminate_acked_at or (row.terminate_called_at if item.status is InstanceStatus.RUNNING else None)
    if called_at is not None and not carried_out(called_at, at, timedelta(seconds=capabilities.visibility_lag_s)):
        # It was not ended, whether or not the cloud accepted that, so it still bills: the next call counts.
        changes["terminate_acked_at"] = changes["terminate_called_at"] = None
    if changes:
        async with ctx.db.write() as tx:
            others = {name: value for name, value in changes.items() if name != "price_usd_h"}
            if not await amend(tx, Instance, row.id, version=row.version, **(others or {"absent_at": []})):
                return True
            await _rebill(ctx, tx, row.id, changes, now)
            if "status" in changes and row.status == InstanceStatus.RUNNING:
                await open_exchange(tx, row.id, now)  # An instance that stops loses what its agent has in memory.
            await _show_change(tx, row, item, changes, now)
            in_grace = await open_grace(tx, row.id) if row.state in RUNNING_STATES else None
            if row.state in RUNNING_STATES and (in_grace is None or not in_grace.replaced):
                grant = await tx.get_one(GrantRow, row.grant_id)
                fresh = await tx.get_one(Instance, row.id, populate_existing=True)
                if not await check_rate(ctx, tx, fresh, grant, item, now):
                    return True
    if await follow(ctx, row, item, at, row.version + bool(changes)):
        return True
    if row.state is not InstanceState.LIVE:
        return bool(changes)
    if row.reachable_at is None:
        return await boot(ctx, row.id, item) or bool(changes)
    return await watch(ctx, row, item, now) or bool(changes)


async def _show_change(
    tx: Tx, row: Instance, item: ObservedInstance, changes: Mapping[str, Any], now: datetime
) -> None:
    """Show the request's card again where the status or the address changed, and note another address."""
    moved = {"ssh_host", "ssh_port"} & changes.keys()
    if moved and row.ssh_host is not None and item.ssh is not None:
        said = f"Its SSH address changed from {row.ssh_host}:{row.ssh_port} to {item.ssh.host}:{item.ssh.port}."
        record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_ADDRESS_CHANGED, reason=said)
    if moved or "status" in changes:
        await show_again(tx, await tx.get_one(Request, row.request_id), now)


async def _rebill(ctx: Context, tx: Tx, instance_id: str, changes: Mapping[str, Any], now: datetime) -> None:
    """Book what ran before a stop or a change of the rate that the listing shows."""
    if changes.get("billing_until") is not None:
        await accrue_stop(ctx, tx, instance_id)
    if "price_usd_h" in changes:
        await change_rate(ctx, tx, instance_id, changes["price_usd_h"], now)


def _changes(row: Open, item: ObservedInstance, rule: BillingRule, at: datetime) -> dict[str, Any]:
    """Return only what differs, so that an unchanged fleet costs no write. `at` is when the cloud was listed."""
    seen: dict[str, Any] = {
        "status": str(item.status),
        "status_text": item.status_text,
        "machine_id": item.machine_id or row.machine_id,
        "absent_at": [],
    }
    if row.node_rank is not None and item.set_host is not None:
        seen["set_host"] = item.set_host
    if item.ssh is not None:
        seen |= {"ssh_host": item.ssh.host, "ssh_port": item.ssh.port, "ssh_user": item.ssh.user}
        seen["ports"] = {str(one.number): one.address for one in item.ports} or None
        if (item.ssh.host, item.ssh.port) != (row.ssh_host, row.ssh_port):
            seen["host_key_at"] = None  # The host key at a new address is read now.
    used = row.state is InstanceState.LIVE and row.reachable_at is not None and row.wanted is None
    other = instead(row, item)
    wrong = used and trouble(item.status, spot=bool(row.offer.get("spot")), other=other)
    if wrong:
        seen["other_gpus"] = other
    if (
        row.state is not InstanceState.TERMINATING
    ):  # Trouble before the termination was ordered decides what the instance cost.
        seen["trouble_at"] = (row.trouble_at or at) if wrong else None
    seen |= billed_time(row, item, rule, at)
    # A stopped instance may be listed at the rate of its disk, so only a running one shows the full rate.
    if item.price_usd_h is not None and item.price_usd_h > 0 and item.status is InstanceStatus.RUNNING:
        seen["price_usd_h"] = money.rate(item.price_usd_h)
    return {name: value for name, value in seen.items() if getattr(row, name) != value}
