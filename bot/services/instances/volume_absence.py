"""Count a network volume as gone only after reads by its id missed it for an hour. A listing alone loses no data.

Until then the volume is *not listed*: it stays in its session, is booked as before and can be extended. No new machine
mounts it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import Final

from bot.rules.billing.end_times import likely_end
from bot.services.instances.blind_time import worked_by_listing
from bot.services.instances.transitions import gone
from bot.services.notifications.paging import page
from bot.services.runtime.context import Context
from ledger.core import amend
from ledger.kernel.proof import Absence, AbsenceRule, ProofOfEnd
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from providers.contract import InstanceStatus, Listing, NotSeen, Provider
from providers.errors import ProviderError

#: So many times longer do reads have to miss a volume of a cloud that only lists its volumes.
LISTS_ONLY: Final = 6

log = logging.getLogger(__name__)


async def look(ctx: Context, provider: Provider, row: Instance, listing: Listing) -> bool:
    """Read a volume that the listing lacks by its own id, and close it once enough reads missed it. True: changed."""
    ordered_at = row.terminate_asked_at if row.state is InstanceState.TERMINATING else None
    if row.ref is None or row.state is InstanceState.UNKNOWN or listing.account != row.account:
        return False
    if ordered_at is not None and listing.at < ordered_at:
        return False
    rule = rule_of(ctx, row)
    misses = [Absence(datetime.fromisoformat(at), row.account) for at in row.absent_at]
    if misses and listing.at - misses[-1].at < rule.apart:
        return False
    try:
        seen = await provider.get(row.ref)
    except ProviderError as error:
        log.warning("%s could not be read by its id: %s", row.id, error.code)
        return False  # A failed read doesn't count as a miss.
    if not isinstance(seen, NotSeen) and seen.status is not InstanceStatus.TERMINATED:
        return await _still_there(ctx, row)
    misses.append(Absence(seen.at if isinstance(seen, NotSeen) else listing.at, row.account))
    proof = ProofOfEnd.from_own_reads([one for one in misses if ordered_at is None or one.at >= ordered_at], rule)
    unseen = await worked_by_listing(ctx, row, None, {}, misses[-1].at)
    async with ctx.db.write() as tx:
        if proof is None:
            return await amend(
                tx, Instance, row.id, version=row.version, absent_at=[one.at.isoformat() for one in misses], **unseen
            )
        await gone(ctx, tx, row, proof, likely_end(row, (one.at for one in misses)), ctx.clock.now())
    return True


def rule_of(ctx: Context, row: Instance) -> AbsenceRule:
    """Return how long reads must miss a volume: a short time only after its cloud accepted the delete call.

    Where a read is the same list once more, one fault of that list misleads them all, so they take longer.
    """
    is_deleted = row.state is InstanceState.TERMINATING and row.terminate_acked_at is not None
    if not is_deleted and not ctx.providers[row.cloud].capabilities.volume_reads:
        rule = ctx.timing.volume_absence_rule
        return replace(rule, over=rule.over * LISTS_ONLY)
    return ctx.timing.absence_rule if is_deleted else ctx.timing.volume_absence_rule


async def _still_there(ctx: Context, row: Instance) -> bool:
    """Forget the misses of a volume that its own read shows, and page once that its cloud's listing lacks it."""
    said = f"{row.cloud} does not list {row.name} ({row.ref}), but it still exists when read by its id."
    await page(ctx, f"{row.id}/missing", said)
    if not row.absent_at:
        return False
    async with ctx.db.write() as tx:
        return await amend(tx, Instance, row.id, version=row.version, absent_at=[])
