"""Remove what creates left at the clouds besides instances, such as SSH keys, when their instance has ended.

Each proved end wakes the pass, and it runs every hour for ends that were missed. Nobody loses anything by a removal, so
nobody is notified; the journal of the instance records it first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import datetime

from bot.rules.instances.cleanup import Fate, Owner, fate
from bot.rules.values.phrases import plural
from bot.services.notifications.paging import OPERATORS, alone
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import announce_once, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import OPEN_INSTANCE, InstanceState, NotificationKind
from ledger.models import Instance
from ledger.queries.journal import subjects_with
from ledger.queries.lookups import instances_by_label
from providers.contract import Provider
from providers.errors import ProviderError
from providers.leftovers import Leaves, Leftover

#: Seconds between two passes that nothing woke.
LOOK_S = 3600.0
#: The most that one pass removes, so that its calls never delay launches for long.
BATCH = 20

log = logging.getLogger(__name__)


async def leftovers_due(ctx: Context) -> int:
    """List leftovers once per account, and remove ours whose instance has ended. Return how many were removed."""
    looks = (
        alone(ctx, f"{cloud}/leftovers", "the check", _clean_up(ctx, provider, provider), 0)
        for cloud, provider in ctx.providers.items()
        if isinstance(provider, Leaves)
    )
    return sum(await asyncio.gather(*looks))


async def _clean_up(ctx: Context, provider: Provider, leaves: Leaves) -> int:
    try:
        found = await leaves.leftovers()
    except ProviderError as error:
        log.warning("what was left at %s could not be listed: %s", provider.name, error.code)
        return 0
    now = ctx.clock.now()
    readings = [ctx.labels.read(item.name) for item in found]
    async with ctx.db.read() as tx:
        rows = await instances_by_label(tx, [reading.label for reading in readings])
    owners = [rows.get(reading.label) for reading in readings]
    fates = [fate(reading.kind, provider.name, _owner(row), now) for reading, row in zip(readings, owners, strict=True)]
    if found:
        await _report(ctx, provider.name, found[0].what, Counter(fates), now)
    judged = zip(found, owners, fates, strict=True)
    doomed = [(item, row) for item, row, one in judged if one is Fate.REMOVE and row is not None][:BATCH]
    if not doomed or not await _noted(ctx, doomed, now):
        return 0
    return sum([await _removed(leaves, item) for item, _ in doomed])


def _owner(row: Instance | None) -> Owner | None:
    if row is None:
        return None
    proved = row.state is InstanceState.GONE
    return Owner(row.cloud, row.state in OPEN_INSTANCE, proved, row.ended_at or row.created_at)


async def _noted(ctx: Context, doomed: list[tuple[Leftover, Instance]], now: datetime) -> bool:
    """Record in the journal what is about to be removed, once per instance. False in recovery mode: then nothing is.

    It is recorded first, because a removed item is not listed again: a record after it could be lost in a crash.
    """
    async with ctx.db.write() as tx:
        if clock_problem(ctx.clock) or await recovery_mode.is_on(tx):
            log.info("%d leftovers stay while the ledger is being recovered or the clock is in doubt", len(doomed))
            return False
        said = await subjects_with(tx, EventKind.LEFTOVER_CONDEMNED, [row.id for _, row in doomed])
        for item, row in doomed:
            if row.id not in said:
                why = f"The {item.what} {item.name} is removed from {item.cloud}: its instance has ended."
                record(tx, now, SYSTEM, row.id, EventKind.LEFTOVER_CONDEMNED, reason=why, data={"ref": item.ref})
    return True


async def _removed(leaves: Leaves, item: Leftover) -> int:
    try:
        await leaves.remove(item)
    except ProviderError as error:
        log.warning("%s of %s was not removed and is tried again: %s", item.ref, item.cloud, error.code)
        return 0
    return 1


async def _report(ctx: Context, cloud: str, what: str, counted: Counter[Fate], now: datetime) -> None:
    """Count what is not removed: page the operators once a day when a label is odd, else only log it."""
    forged, unknown, foreign = counted[Fate.FORGED], counted[Fate.UNKNOWN], counted[Fate.FOREIGN]
    log.info("besides instances, %s has %d of ours and %d of others", cloud, counted.total() - foreign, foreign)
    if not forged + unknown:
        return
    sentence = (
        f"{cloud} has {plural(forged, what)} with a forged label, and {unknown} of instances that the ledger does not "
        f"know. GPU Shopper leaves them alone. Remove what nobody needs at the cloud."
    )
    kind, subject = NotificationKind.OPERATOR_PAGE, f"{cloud}/leftovers/{now:%Y-%m-%d}"
    async with ctx.db.write() as tx:
        new = await announce_once(tx, now, kind, subject, destination=OPERATORS, body={"text": sentence})
    if new:
        ctx.hints.outbox.set()
