"""The SSH host key of a machine: kept from its first look, shown to its people, and told of when another one answers.

Nothing is ended for it. The key that was seen first stays the one that is shown: whoever stands in between for a while
does not become the one to trust.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from bot.services.nodes.connection import fingerprint
from bot.services.notifications.paging import OPERATORS, alone
from bot.services.runtime.context import Context
from ledger.core.events import announce, record
from ledger.core.outbox import notification_of
from ledger.core.writes import Tx, amend
from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.models import Instance, Session
from ledger.queries.nodes import due_for_key
from providers.profiles import model

#: How often the key of a machine that runs is looked at, and seconds between two passes.
LOOK_EVERY = timedelta(minutes=10)
LOOK_S = 15.0
#: Machines of one pass. They are tried side by side, so that one which hangs costs one time-out and no listing.
AT_ONCE = 64


async def keys_due(ctx: Context) -> int:
    """Look at the keys of machines that have been ready, those that waited longest first. How many people were told of.

    It is a pass of its own: a host that does not answer must not hold up the look at its cloud.
    """
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        rows = await due_for_key(tx, now - LOOK_EVERY, AT_ONCE)
    steps = [alone(ctx, row.id, "the look at its host key", _look(ctx, row, now), False) for row in rows]
    return sum(await asyncio.gather(*steps))


async def _look(ctx: Context, row: Instance, now: datetime) -> bool:
    if row.ssh_host is None or row.ssh_port is None:
        return False
    key = await ctx.reach.host_key(row.ssh_host, row.ssh_port)
    async with ctx.db.write() as tx:
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        # A restart in the meantime may have made a new key, which the next look takes.
        if fresh.state is not InstanceState.LIVE or (fresh.wanted, fresh.host_key_at) != (None, row.host_key_at):
            return False
        return await note_key(ctx, tx, fresh, key, now)


async def note_key(ctx: Context, tx: Tx, row: Instance, key: str | None, now: datetime) -> bool:
    """Keep the first key, and tell of another one in its place. True when people were told."""
    pinned = row.host_key
    await amend(tx, Instance, row.id, host_key_at=now, host_key=pinned or key)
    if key is None or pinned is None or key == pinned:
        return False
    session = await tx.get_one(Session, row.session_id)
    before, after = fingerprint(pinned), fingerprint(key)
    sentence = (
        f"The SSH host key of session {short_id(session.id)} ({row.cloud}, {row.name}) changed while it runs: it was "
        f"{before}, and {after} answers now. Somebody may stand between you and the machine: do not connect, unless "
        "you changed the key yourself. Nothing was ended."
    )
    subject, body = f"{row.id}/host_key", {"text": sentence}
    told = await notification_of(tx, NotificationKind.OPERATOR_PAGE, subject, OPERATORS)
    if told is not None and told.body == body:
        return False
    record(
        tx,
        at=now,
        actor=SYSTEM,
        subject=row.id,
        kind=EventKind.INSTANCE_HOST_KEY_CHANGED,
        reason=sentence,
        data={"before": before, "after": after},
    )
    places = [(NotificationKind.OPERATOR_PAGE, OPERATORS)]
    owner = Actor.from_ref(session.owner)
    if owner.kind is ActorKind.SLACK:
        places.append((NotificationKind.REPLY, owner.id))
    for kind, place in places:
        await announce(tx, at=now, kind=kind, subject=subject, destination=place, body=body)
    ctx.hints.outbox.set()
    return True


def forgotten(row: Instance, at: datetime) -> dict[str, Any]:
    """What an order changes of the key: a machine whose disk is wiped makes a new one, and nobody is told of that."""
    return {"host_key": None, "host_key_at": at} if model.load(row.cloud).restarted else {}
