"""Pin the SSH host key of an instance when it is first read, and notify its people when another one appears.

Nothing is ended for it. The first key stays the one that is shown, so that a man in the middle who appears later never
becomes the trusted one.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from bot.services.nodes.connection import fingerprint
from bot.services.notifications.paging import OPERATORS, alone, page_with_owner
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, notification_of, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.models import Instance, Session
from ledger.queries.nodes import due_for_key
from providers.profiles import model

#: How often the key of a running instance is read, and seconds between two passes.
LOOK_EVERY = timedelta(minutes=10)
LOOK_S = 15.0
#: Instances of one pass. They are probed concurrently, so that one which hangs costs one time-out and no listing.
AT_ONCE = 64


async def keys_due(ctx: Context) -> int:
    """Read the host keys of instances that have been ready, longest wait first. Return how many changes were announced.

    It is a pass of its own: a host that does not answer must not delay the reconcile pass of its cloud.
    """
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        rows = await due_for_key(tx, now - LOOK_EVERY, AT_ONCE)
    steps = [alone(ctx, row.id, "the check of its host key", _check(ctx, row, now), False) for row in rows]
    return sum(await asyncio.gather(*steps))


async def _check(ctx: Context, row: Instance, now: datetime) -> bool:
    if row.ssh_host is None or row.ssh_port is None:
        return False
    key = await ctx.reach.host_key(row.ssh_host, row.ssh_port)
    async with ctx.db.write() as tx:
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        # A restart in the meantime may have made a new key, which the next pass reads.
        if fresh.state is not InstanceState.LIVE or (fresh.wanted, fresh.host_key_at) != (None, row.host_key_at):
            return False
        return await note_key(ctx, tx, fresh, key, now)


async def note_key(ctx: Context, tx: Tx, row: Instance, key: str | None, now: datetime) -> bool:
    """Store the first host key, and notify people if another one replaces it. True when people were notified."""
    pinned = row.host_key
    await amend(tx, Instance, row.id, host_key_at=now, host_key=pinned or key)
    if key is None or pinned is None or key == pinned:
        return False
    session = await tx.get_one(Session, row.session_id)
    before, after = fingerprint(pinned), fingerprint(key)
    sentence = (
        f"The SSH host key of session {session.short_id} ({row.cloud}, {row.name}) changed from "
        f"{before} to {after}. Did you change it yourself? If not, don't connect: somebody may intercept you. "
        "The session keeps running."
    )
    subject = f"{row.id}/host_key"
    known = await notification_of(tx, NotificationKind.OPERATOR_PAGE, subject, OPERATORS)
    if known is not None and known.body == {"text": sentence}:
        return False
    record(
        tx,
        now,
        SYSTEM,
        row.id,
        EventKind.INSTANCE_HOST_KEY_CHANGED,
        reason=sentence,
        data={"before": before, "after": after},
    )
    await page_with_owner(tx, ctx.policy, session, subject, sentence, now)
    ctx.hints.outbox.set()
    return True


def forgotten(row: Instance, at: datetime) -> dict[str, Any]:
    """Return the columns that clear the host key of an instance whose disk a restart wipes.

    It makes a new key, and nobody is notified of that.
    """
    return {"host_key": None, "host_key_at": at} if model.load(row.cloud).restarted else {}
