"""A session's instance after it was ready: its trouble is told at once, and what does not come back is ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from bot.rules.instances.health import ended_sentence, given_up_at, other_gpus, trouble
from bot.rules.values.phrases import hours as say_hours
from bot.services.instances.transitions import end_announced
from bot.services.notifications.interruption import notify_interruption
from bot.services.runtime.context import Context
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.nodes import node_of
from providers.contract import InstanceStatus, NotSeen, ObservedInstance, Provider
from providers.errors import ProviderError

#: Somebody who was told of trouble is not told again sooner, however often it comes and goes.
TOLD_APART = timedelta(minutes=10)
#: A new start is told of when it fails: who ordered it knows, and most are over soon.
STARTING = frozenset({InstanceStatus.PENDING, InstanceStatus.BOOTING})


async def watch(ctx: Context, row: Instance, item: ObservedInstance, now: datetime) -> bool:
    """One look at an instance that has been ready: note its trouble, tell of it, and end what does not come back.

    True when something changed. `row` is as it was before this look.
    """
    found = trouble(item.status, spot=bool(row.offer.get("spot")), other=instead(row, item))
    if found is None or row.wanted is not None or not ctx.providers[row.cloud].capabilities.terminate:
        return False
    since = row.trouble_at or now
    grace_s = ctx.timing.broken_grace_s
    over = now >= given_up_at(since, grace_s)
    if not over and (row.trouble_at is not None or item.status in STARTING):
        return False
    async with ctx.db.write() as tx:
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        if fresh.state is not InstanceState.LIVE:
            return True
        if over:
            spent = say_hours(Decimal(int(grace_s)) / 3600)
            await end_announced(tx, fresh, found.code, ended_sentence(found, spent), now)
        else:
            await notify_interruption(tx, fresh, now, at_most_every=TOLD_APART)
    return True


def instead(row: Instance, item: ObservedInstance) -> str:
    """What a look shows in the place of the GPUs that were approved; "" where it fits."""
    return other_gpus(str(row.offer["gpu"]), int(row.offer["gpu_count"]), item.gpu, item.gpu_count)


async def last_heartbeat_at(ctx: Context, row: Instance) -> datetime | None:
    """When its agent reported last: whoever talks is not absent, whatever the cloud's listings say."""
    async with ctx.db.read() as tx:
        node = await node_of(tx, row.id)
    return max((at for at in (row.heartbeat_at, node.at if node else None) if at), default=None)


class Doubt(NamedTuple):
    """What keeps an instance that the listings lack from being gone, and whether anything showed it just now."""

    sentence: str
    was_seen: bool


async def still_there(ctx: Context, provider: Provider, row: Instance) -> Doubt | None:
    """A second look at what the listings lack and nobody ended: what speaks for it, or None when nothing does.

    A listing may lie for longer than any rule for it allows for. The cloud is asked for the instance itself, and its
    SSH port, a witness of its own, is tried; a cloud that cannot be asked proves nothing either.
    """
    if row.ref is not None:
        try:
            found = await provider.get(row.ref)
        except ProviderError as error:
            return Doubt(f"it cannot be asked for by its id now ({error.code}), so it is kept", was_seen=False)
        if not isinstance(found, NotSeen) and found.status is not InstanceStatus.TERMINATED:
            return Doubt("it shows it when it is asked for its id, so it is kept", was_seen=True)
    if row.reachable_at is None or not row.ssh_host or not row.ssh_port or row.status == InstanceStatus.STOPPED:
        return None  # Whoever answers at the port of what stands still is somebody else.
    if not (await ctx.reach.probe(row.ssh_host, row.ssh_port)).ok:
        return None
    return Doubt("its SSH port answers, so it is kept. If it is gone, end its session", was_seen=True)
