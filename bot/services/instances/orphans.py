"""Track orphans: instances with our label and no open row, such as duplicates and creates that landed late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from bot.rules.instances.circuit_breaker import trips
from bot.rules.values.command_text import cli_command
from bot.rules.values.labels import LabelKind, LabelReading
from bot.services.billing.metering import accrue_orphan, billed_from
from bot.services.instances import key_rotation, volume_ends
from bot.services.instances.health import second_look
from bot.services.notifications import interruption
from bot.services.notifications.paging import OPERATORS, alone, page
from bot.services.runtime import recovery_mode
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, announce, move, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.proof import Absence, ProofOfEnd
from ledger.kernel.states import OPEN_INSTANCE, InstanceState, NotificationKind, OrphanState
from ledger.models import Instance, Orphan
from ledger.queries.budgets.unsettled import settle_instances
from ledger.queries.lookups import instances_by_label
from ledger.queries.nodes import open_exchange
from ledger.queries.orphans import CountedGone, add_orphan, counted_gone, open_orphans
from ledger.queries.terminations import approved_ends
from providers.contract import InstanceStatus, Listing, ObservedInstance, Provider
from providers.errors import ProviderError

DUPLICATE = "It is the second instance of one launch. The first one stays."
LATE = "It appeared after its launch had been given up."
AGAIN = "It had been terminated and counted as gone, but its cloud lists it again."
RETURNED = (
    "It counted as lost, but its cloud lists it again. It runs until its approved end, unless an operator ends it."
)
OVERDUE = "It counted as lost, but its cloud lists it again after its approved end."
BACK = "The volume counted as deleted, but its cloud lists it again. Its data stay until an operator decides."
SECOND = "The volume has the label of another volume, and may hold data. It stays until an operator decides."
ROWLESS = "It has our label but belongs to no session."

TWIN = "It is monitored under another key of its account."
BY_HAND = f" To end one by hand: {cli_command('orphans list')}, then {cli_command('orphans condemn ID')}."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Find:
    """A listed orphan. `returned`: its row counts it as lost; `wanted`: its approved time still runs.

    `before` is what the earlier orphans became that this very instance was.
    """

    item: ObservedInstance
    reading: LabelReading
    row: Instance | None
    before: CountedGone | None = None
    returned: bool = False
    wanted: bool = False
    is_volume: bool = False

    @property
    def may_hold_data(self) -> bool:
        """Whether it is a network volume that people may have written to, and whose deletion nobody ordered.

        A launch that was given up before it was confirmed has left an empty one.
        """
        if not self.is_volume or self.row is None or self.row.live_at is None:
            return False
        return self.row.ref != self.item.ref or self.row.terminate_asked_at is None

    @property
    def condemned_before(self) -> bool:
        """Whether its termination was ordered at an earlier return: then no operator decides about it once more."""
        return self.before is not None and self.before.condemned

    @property
    def waits(self) -> bool:
        """Whether it is quarantined for an operator."""
        wanted = self.row is None or (self.returned and self.wanted) or self.may_hold_data
        return not self.condemned_before and wanted

    @property
    def booked_until(self) -> datetime | None:
        """Return until when its cost is in other entries: an instance that counted as gone is booked until then."""
        own = self.row.billing_until if self.row is not None and self.row.ref == self.item.ref else None
        ends = [own, self.before.until if self.before else None]
        return max((end for end in ends if end is not None), default=None)

    def was_listed_before(self, listing: Listing) -> bool:
        """Whether the listing is older than its end, as that of a replica that paused: it shows no return."""
        closed = self.row.ended_at if self.row is not None and self.row.state not in OPEN_INSTANCE else None
        ends = [closed, self.before.until if self.before else None]
        return any(end is not None and listing.at < end for end in ends)

    @property
    def reason(self) -> str:
        """Return the sentence that people read about it."""
        if self.condemned_before:
            return AGAIN
        if self.row is None:
            return ROWLESS
        if self.may_hold_data:
            return BACK if self.row.ref == self.item.ref else SECOND
        if self.row.state in OPEN_INSTANCE:
            return DUPLICATE
        if self.returned:
            return RETURNED if self.wanted else OVERDUE
        return AGAIN if self.row.ref == self.item.ref else LATE


async def note_orphans(
    ctx: Context,
    provider: Provider,
    listing: Listing,
    running: int,
    held: Collection[str] = (),
    *,
    any_open: bool = True,
) -> bool:
    """Record orphans, terminate them after two sightings, and close those that are gone. True while there is any.

    `held` are the ids at the cloud that an open row has in this pass: they are no orphans and cost no query. Without
    `any_open` no orphan of that cloud was open when the pass began, so nothing is read unless the listing shows one.
    """
    async with ctx.db.read() as tx:
        finds = await _finds(ctx, tx, listing, held, ctx.clock.now())
        if not finds and not any_open:
            return False
        every = await open_orphans(tx, listing.cloud)
        known = {orphan.ref: orphan for orphan in every if orphan.account == listing.account}
        others = [orphan for orphan in every if orphan.account != listing.account]
        twins = [one for one in others if one.ref in known and known[one.ref].label == one.label]
        rekeyed = key_rotation.proven(ctx.labels, listing, [one for one in others if one.ref not in known])
        if not finds and not known:
            return False
        recovering = await recovery_mode.is_on(tx)
    if rekeyed:
        await key_rotation.take_over(ctx, listing, rekeyed)
        return True  # The next pass handles them.
    now = ctx.clock.now()
    for twin in twins:
        await alone(ctx, f"{listing.cloud}/orphans", "the check", _followed(ctx, twin, now), None)
    condemned = [f for f in finds if _is_condemned(ctx, known.get(f.item.ref), f, now, recovering=recovering)]
    decided = [find for find in condemned if known[find.item.ref].state is OrphanState.CONDEMNED]
    problem = trips(running, len(condemned), 0) if len(condemned) > len(decided) else None
    if problem:
        # Orphans condemned before are still terminated, and all are recorded; only this pass condemns none.
        await page(ctx, f"breaker/{listing.cloud}", f"{listing.cloud}: {problem}{BY_HAND}")
        condemned = decided
    seen = {find.item.ref for find in finds}
    steps = [_sighted(ctx, f, known.get(f.item.ref), listing, now, condemn=f in condemned) for f in finds]
    steps += [_missing(ctx, provider, orphan, listing, now) for orphan in known.values() if orphan.ref not in seen]
    for step in steps:
        await alone(ctx, f"{listing.cloud}/orphans", "the check", step, None)
    if provider.capabilities.terminate:
        await asyncio.gather(*(_end(ctx, provider, known[find.item.ref]) for find in condemned))
    return True


async def _finds(ctx: Context, tx: Tx, listing: Listing, held: Collection[str], now: datetime) -> list[_Find]:
    """Return the listed instances with our label while no open row has exactly this instance."""
    read = [(item, ctx.labels.read(item.name)) for item in listing.items if item.ref not in held]
    ours = [(i, r) for i, r in read if r.kind is LabelKind.OURS and i.status is not InstanceStatus.TERMINATED]
    rows = await instances_by_label(tx, [reading.label for _, reading in ours])
    volume = ctx.providers[listing.cloud].capabilities.volume_gb is not None
    finds = [_Find(item, reading, rows.get(reading.label), is_volume=volume) for item, reading in ours]
    orphans = [find for find in finds if _is_orphan(find, listing)]
    ends = await approved_ends(tx, [find.row.id for find in orphans if find.row is not None])
    before = await counted_gone(tx, listing.cloud, {find.reading.label for find in orphans})
    orphans = [replace(find, before=before.get((find.item.ref, find.reading.label))) for find in orphans]
    return [_judged(find, ends, now) for find in orphans if not find.was_listed_before(listing)]


def _judged(find: _Find, ends: Mapping[str, datetime], now: datetime) -> _Find:
    """Mark an instance that was lost without a termination as wanted, while its approved time still runs."""
    row = find.row
    if row is None or row.state is not InstanceState.GONE or row.ref != find.item.ref or row.terminate_asked_at:
        return find
    return replace(find, returned=True, wanted=row.id in ends and now < ends[row.id])


def _is_orphan(find: _Find, listing: Listing) -> bool:
    """Whether no row waits for this instance or has exactly this one.

    Where no listing proves an end, a run that ended by its timeout may be listed as running without end.
    """
    if find.row is None:
        return True
    if find.row.state not in OPEN_INSTANCE:
        return listing.proves_absence or find.row.ref != find.item.ref
    return find.row.ref is not None and find.row.ref != find.item.ref


def _is_condemned(ctx: Context, orphan: Orphan | None, find: _Find, now: datetime, *, recovering: bool) -> bool:
    """Whether an orphan is to be terminated: two sightings far enough apart condemn one that has a row.

    One without a row, and one whose people may still use it, is condemned only by an operator.
    """
    if orphan is None or orphan.state is OrphanState.CONDEMNED or find.waits:
        return orphan is not None and orphan.state is OrphanState.CONDEMNED
    return not recovering and now - orphan.first_seen_at >= timedelta(seconds=ctx.timing.orphan_apart_s)


async def _followed(ctx: Context, twin: Orphan, now: datetime) -> None:
    """Close the older row of an orphan that was seen under two keys of one account.

    It is one instance, and the newer row continues with its whole cost.
    """
    async with ctx.db.write() as tx:
        over, version = {"ended_at": now}, twin.version
        await move(tx, Orphan, twin.id, OrphanState.GONE, now, SYSTEM, TWIN, version=version, values=over)


async def _sighted(
    ctx: Context, find: _Find, orphan: Orphan | None, listing: Listing, now: datetime, *, condemn: bool
) -> None:
    async with ctx.db.write() as tx:
        if orphan is None:
            await _first_sighting(ctx, tx, find, listing, now)
            return
        seen = {"last_seen_at": now, "absent_at": [], **_address(find.item)}
        await amend(tx, Orphan, orphan.id, version=orphan.version, **seen)
        if condemn and orphan.state is not OrphanState.CONDEMNED:
            await amend(tx, Orphan, orphan.id, reason=find.reason)
            await move(tx, Orphan, orphan.id, OrphanState.CONDEMNED, now, SYSTEM, find.reason)


async def _first_sighting(ctx: Context, tx: Tx, find: _Find, listing: Listing, now: datetime) -> None:
    item, reason = find.item, find.reason
    state = OrphanState.QUARANTINED if find.waits else OrphanState.SEEN
    orphan_id = new_id("str", now)
    new = await add_orphan(
        tx,
        id=orphan_id,
        cloud=listing.cloud,
        account=listing.account,
        ref=item.ref,
        label=find.reading.label,
        state=state,
        instance_id=find.row.id if find.row else None,
        price_usd_h=max(_rate(item), Decimal(0)),
        first_seen_at=now,
        last_seen_at=now,
        billing_from=find.booked_until or _made_at(ctx, find, now),
        absent_at=[],
        reason=reason,
        **_address(item),
    )
    if not new:
        return  # Another replica found it meanwhile.
    if find.row is not None and find.row.unsettled_usd is not None and find.row.ref == item.ref:
        # It did not end then, so what followed is booked as the orphan's cost.
        await settle_instances(tx, [find.row.id])
    record(tx, now, SYSTEM, orphan_id, EventKind.ORPHAN_SEEN, after=state, reason=reason)
    if find.waits:
        await announce(tx, now, NotificationKind.ORPHAN_FOUND, orphan_id, destination=OPERATORS)
    if find.row is not None:
        # People are notified first: an orphan that is not kept is terminated at a later sighting.
        await interruption.notify_interruption(tx, ctx.policy, find.row, now, orphan_id=orphan_id)


def _rate(item: ObservedInstance) -> Decimal:
    """Return the dollars per hour that an orphan costs as it is listed: a stopped one costs its disk."""
    disk = item.storage_usd_h if item.status is InstanceStatus.STOPPED else None
    return item.price_usd_h or disk or Decimal(0)


def _address(item: ObservedInstance) -> dict[str, Any]:
    """Return the columns with the address of its SSH server; none while it does not run."""
    ssh = item.ssh if item.status is InstanceStatus.RUNNING else None
    return {"ssh_host": ssh.host if ssh else None, "ssh_port": ssh.port if ssh else None}


def _made_at(ctx: Context, find: _Find, now: datetime) -> datetime | None:
    """Return from when its cloud bills an instance that the create of its row made, by that cloud's own rule."""
    sent_at = find.row.sent_at if find.row is not None else None
    return billed_from(find.item, sent_at, ctx.providers[find.item.cloud].capabilities, now) or find.item.created_at


async def _missing(ctx: Context, provider: Provider, orphan: Orphan, listing: Listing, now: datetime) -> None:
    if not listing.proves_absence:
        await _run_over(ctx, provider, orphan, listing, now)
        return
    absence = listing.absence(orphan.ref, "")
    if absence is None:
        return
    absences = [Absence(datetime.fromisoformat(at), orphan.account) for at in orphan.absent_at] + [absence]
    is_data = provider.capabilities.volume_gb is not None and orphan.state is not OrphanState.CONDEMNED
    rule = ctx.timing.volume_absence_rule if is_data else ctx.timing.absence_rule
    proof = ProofOfEnd.from_absences(absences, rule, last_heartbeat_at=None)
    if proof is not None and await _is_still_there(ctx, provider, orphan):
        return
    async with ctx.db.write() as tx:
        if proof is None:
            kept = [a.at.isoformat() for a in absences]
            await amend(tx, Orphan, orphan.id, version=orphan.version, absent_at=kept)
            return
        await _gone(ctx, tx, orphan, proof.evidence[0], now)


async def _is_still_there(ctx: Context, provider: Provider, orphan: Orphan) -> bool:
    """Whether an orphan that the listings lack may still exist: then it stays open, and one that is to end is ended.

    Once its termination was ordered, its SSH port shows nothing: its cloud may have given it to another machine.
    """
    condemned = orphan.state is OrphanState.CONDEMNED
    ssh = None if condemned else (orphan.ssh_host, orphan.ssh_port)
    otherwise = f"If it is gone: {cli_command(f'orphans condemn {orphan.id}')}"
    doubt = await second_look(ctx, provider, orphan.ref, ssh, otherwise)
    if doubt is None:
        return False
    await page(ctx, f"{orphan.id}/missing", f"{orphan.cloud} does not list {orphan.ref}, but {doubt.sentence}.")
    if doubt.was_seen:
        async with ctx.db.write() as tx:
            await amend(tx, Orphan, orphan.id, version=orphan.version, absent_at=[])
        if condemned and provider.capabilities.terminate:
            await _end(ctx, provider, orphan)
    return True


async def _run_over(ctx: Context, provider: Provider, orphan: Orphan, listing: Listing, now: datetime) -> None:
    """Close an orphaned run of a batch cloud that has a final status, or that is older than any run can be."""
    final = any(i.ref == orphan.ref and i.status is InstanceStatus.TERMINATED for i in listing.items)
    longest = timedelta(seconds=provider.capabilities.run_max_s)
    if final or ProofOfEnd.from_timeout(orphan.account, orphan.first_seen_at, longest, now) is not None:
        async with ctx.db.write() as tx:
            await _gone(ctx, tx, orphan, now, now)


async def _gone(ctx: Context, tx: Tx, orphan: Orphan, ended_at: datetime, now: datetime) -> None:
    await accrue_orphan(ctx, tx, orphan, ended_at)
    values = {"ended_at": ended_at}
    await move(tx, Orphan, orphan.id, OrphanState.GONE, now, SYSTEM, version=orphan.version, values=values)
    if orphan.instance_id is not None:
        # A duplicate had the same boot token, and its agent may have exchanged it before that of the instance.
        await open_exchange(tx, orphan.instance_id, now)


async def _end(ctx: Context, provider: Provider, orphan: Orphan) -> None:
    try:
        await provider.terminate(orphan.ref)
    except ProviderError as error:
        log.warning("the orphan %s of %s was not ended: %s", orphan.ref, provider.name, error.code)
        await volume_ends.notify_operators_in_use(ctx, orphan, error)
