"""Notify people of an instance in trouble at once, and keep it in grace or end it if it does not recover."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from bot.rules.instances.health import ended_sentence, given_up_at, other_gpus, trouble
from bot.rules.values.phrases import hours as say_hours
from bot.services.instances import grace
from bot.services.instances.transitions import end_announced
from bot.services.notifications.interruption import notify_interruption
from bot.services.runtime.context import Context
from ledger.kernel.states import InstanceState
from ledger.models import Instance
from ledger.queries.lookups import Open
from ledger.queries.nodes import node_of
from ledger.queries.runs.graces import open_grace
from providers.contract import InstanceStatus, NotSeen, ObservedInstance, Provider
from providers.errors import ProviderError

#: The shortest time between two notifications of trouble, however often it comes and goes.
NOTIFIED_APART = timedelta(minutes=10)
#: A start is reported only when it fails: its owner ordered it, and most starts end soon.
STARTING = frozenset({InstanceStatus.PENDING, InstanceStatus.BOOTING})


async def watch(ctx: Context, row: Instance, item: ObservedInstance, now: datetime) -> bool:
    """Check a ready instance (`row`: before): note trouble, notify people, end one that stays broken. True: changed."""
    found = trouble(item.status, spot=bool(row.offer.get("spot")), other=instead(row, item))
    if found is None or row.wanted is not None or not ctx.providers[row.cloud].capabilities.terminate:
        return False
    since = row.trouble_at or now
    grace_s = ctx.timing.broken_grace_s
    over = now >= given_up_at(since, grace_s)
    if not over and (row.trouble_at is not None or item.status in STARTING):
        return False
    async with ctx.db.read() as tx:
        if await open_grace(tx, row.id) is not None:
            return False  # `grace.graces_due` looks at it.
    facts = await grace.facts_of(ctx, row, now)
    async with ctx.db.write() as tx:
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        if fresh.state is not InstanceState.LIVE:
            return True
        not_kept = await grace.enter(ctx, tx, fresh, found, facts, now)
        if not_kept is not None and over:
            grace.note_not_kept(tx, fresh, not_kept, now)
            spent = say_hours(Decimal(int(grace_s)) / 3600)
            await end_announced(ctx, tx, fresh, found.code, ended_sentence(found, spent), now)
        else:
            await notify_interruption(tx, ctx.policy, fresh, now, at_most_every=NOTIFIED_APART)
    return True


def instead(row: Open, item: ObservedInstance) -> str:
    """Say which GPUs the instance has in place of the approved ones; "" where they match."""
    return other_gpus(str(row.offer["gpu"]), int(row.offer["gpu_count"]), item.gpu, item.gpu_count)


async def last_heartbeat_at(ctx: Context, row: Instance) -> datetime | None:
    """Return when its agent last checked in: an instance that reports exists, whatever the listings say."""
    async with ctx.db.read() as tx:
        node = await node_of(tx, row.id)
    return node.at if node else None


class Doubt(NamedTuple):
    """Why an instance that the listings lack may still exist, and whether anything showed it just now."""

    sentence: str
    was_seen: bool


async def still_there(ctx: Context, provider: Provider, row: Instance) -> Doubt | None:
    """Check again an instance that the listings lack and nobody ended: return what shows that it exists, or None."""
    # A stopped instance has no SSH server: whatever answers at that port is another machine.
    silent = row.reachable_at is None or row.status == InstanceStatus.STOPPED
    ssh = None if silent else (row.ssh_host, row.ssh_port)
    return await second_look(ctx, provider, row.ref, ssh, "If it is gone, end its session")


async def second_look(
    ctx: Context, provider: Provider, ref: str | None, ssh: tuple[str | None, int | None] | None, otherwise: str
) -> Doubt | None:
    """Ask the cloud for an instance by its id, and probe the SSH port at `ssh`: return what shows it, or None.

    A listing may be wrong for longer than any rule allows, and the SSH port is the one check that is not the cloud's
    own. A cloud that gives no reply proves nothing. `otherwise` says what people do if the port is another machine's.
    """
    if ref is not None:
        try:
            found = await provider.get(ref)
        except ProviderError as error:
            return Doubt(f"it could not be read by its id now ({error.code}), so it stays open", was_seen=False)
        if not isinstance(found, NotSeen) and found.status is not InstanceStatus.TERMINATED:
            return Doubt("it still exists when read by its id, so it stays open", was_seen=True)
    host, port = ssh or (None, None)
    if not host or not port or not (await ctx.reach.probe(host, port)).ok:
        return None
    return Doubt(f"its SSH port answers, so it stays open. {otherwise}", was_seen=True)
