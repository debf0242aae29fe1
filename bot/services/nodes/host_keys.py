"""Pin the SSH host key of an instance when it is first read, and notify its people when another one appears.

Nothing is ended for it once the machine is ready. The first key stays the one that is shown, so that a man in the
middle who appears later never becomes the trusted one. The key that the machine's own agent reports counts more than
what the network shows: it replaces the pinned one once the server proves it, or when people are notified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bot.rules.nodes.authorized_keys import fingerprint
from bot.rules.nodes.host_keys import KeyMatch, changed_since_ready, compare, host_key
from bot.rules.policy.policy import Policy
from bot.services.notifications.paging import OPERATORS, alone, page_with_owner
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, notification_of, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.models import Instance, Node, Session
from ledger.queries.journal import latest_events
from ledger.queries.nodes import due_for_key, nodes_of
from providers.profiles import model

#: How often the key of a running instance is read, and seconds between two passes.
LOOK_EVERY = timedelta(minutes=10)
LOOK_S = 15.0
#: A notification of a machine's key is not repeated for so long: the next look at the server comes before that.
QUIET_FOR = LOOK_EVERY + timedelta(minutes=5)
#: Instances of one pass. They are probed concurrently, so that one which hangs costs one time-out and no listing.
AT_ONCE = 64


def reported_key(node: Node | None) -> str | None:
    """Return the host key that the agent of an instance reported last; None where it reported none that can be read."""
    machine = node.report.get("machine") if node is not None else None
    said = machine.get("host_key") if isinstance(machine, Mapping) else None
    return said if host_key(said) is not None else None


async def keys_due(ctx: Context) -> int:
    """Read the host keys of instances that have been ready, longest wait first. Return how many changes were announced.

    It is a pass of its own: a host that does not answer must not delay the reconcile pass of its cloud.
    """
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        rows = await due_for_key(tx, now - LOOK_EVERY, AT_ONCE)
        nodes = await nodes_of(tx, [row.id for row in rows])
    steps = [
        alone(ctx, row.id, "the check of its host key", _check(ctx, row, _fresh(row, nodes.get(row.id)), now), False)
        for row in rows
    ]
    return sum(await asyncio.gather(*steps))


def _fresh(row: Instance, node: Node | None) -> str | None:
    """Return the key that the agent reported since the last look, and since the machine's last start.

    An older report may be about a disk that was wiped since, whose key was another one.
    """
    since = max((at for at in (row.host_key_at, row.reachable_at) if at is not None), default=None)
    is_fresh = node is not None and node.at is not None and (since is None or node.at > since)
    return reported_key(node) if is_fresh else None


async def shown_key(ctx: Context, row: Instance, reported: str | None) -> str | None:
    """Return the key that the server of an instance proves now, of the kind that its agent reports if it has one."""
    if row.ssh_host is None or row.ssh_port is None:
        return None
    said = host_key(reported)
    found = await ctx.reach.host_key(row.ssh_host, row.ssh_port, said.kind) if said is not None else None
    return found or await ctx.reach.host_key(row.ssh_host, row.ssh_port)


async def _check(ctx: Context, row: Instance, reported: str | None, now: datetime) -> bool:
    if row.ssh_host is None or row.ssh_port is None:
        return False
    key = await shown_key(ctx, row, reported)
    async with ctx.db.write() as tx:
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        # A restart in the meantime may have made a new key, which the next pass reads.
        if fresh.state is not InstanceState.LIVE or (fresh.wanted, fresh.host_key_at) != (None, row.host_key_at):
            return False
        return await note_key(ctx, tx, fresh, key, now, reported)


async def note_key(
    ctx: Context, tx: Tx, row: Instance, key: str | None, now: datetime, reported: str | None = None
) -> bool:
    """Store the first host key, and notify people if another one replaces it. True when people were notified.

    `reported` is what the machine's own agent reports of late; a key that both name is pinned.
    """
    pinned = row.host_key
    match = compare(key, reported)
    agreed = {KeyMatch.SAME: key, KeyMatch.DIFFERENT: reported}.get(match)
    await amend(tx, Instance, row.id, host_key_at=now, host_key=agreed or pinned or key)
    if match is KeyMatch.SAME or key is None:
        return False
    session = await tx.get_one(Session, row.session_id)
    if match is KeyMatch.DIFFERENT and reported is not None:
        said = await _notify_differs(tx, ctx.policy, row, session, key, reported, now)
    elif pinned is not None and key != pinned:
        sentence = (
            f"The SSH host key of session {session.short_id} ({row.cloud}, {row.name}) changed from "
            f"{fingerprint(pinned)} to {fingerprint(key)}. Did you change it yourself? If not, don't connect: somebody "
            "may intercept you. The session keeps running."
        )
        said = await _notify(tx, ctx.policy, row, session, sentence, (pinned, key), now)
    else:
        return False
    if said:
        ctx.hints.outbox.set()
    return said


async def notify_reported(tx: Tx, policy: Policy, instance_id: str, reported: str, now: datetime) -> bool:
    """Notify people that the agent of a ready machine reports another host key than is pinned, and pin that one.

    So `gpu-shopper ssh` connects to the machine that the agent runs on, or not at all. True when that was new. People
    who were notified of its key a few minutes ago know already, and the next look at the server judges again.
    """
    row = await tx.get_one(Instance, instance_id, populate_existing=True)
    shown = row.host_key
    if shown is None or compare(shown, reported) is not KeyMatch.DIFFERENT:
        return False
    last = await latest_events(tx, row.id, EventKind.INSTANCE_HOST_KEY_CHANGED, 1)
    if last and now - last[0].at < QUIET_FOR:
        return False
    await amend(tx, Instance, row.id, host_key=reported)
    session = await tx.get_one(Session, row.session_id)
    return await _notify_differs(tx, policy, row, session, shown, reported, now)


async def _notify_differs(
    tx: Tx, policy: Policy, row: Instance, session: Session, shown: str, reported: str, now: datetime
) -> bool:
    sentence = changed_since_ready(session.short_id, f"{row.cloud}, {row.name}", shown, reported)
    return await _notify(tx, policy, row, session, sentence, (shown, reported), now)


async def _notify(
    tx: Tx, policy: Policy, row: Instance, session: Session, sentence: str, keys: tuple[str, str], now: datetime
) -> bool:
    """Notify the owner and the operators of a host key, unless they have the same sentence already."""
    subject = f"{row.id}/host_key"
    known = await notification_of(tx, NotificationKind.OPERATOR_PAGE, subject, OPERATORS)
    if known is not None and known.body == {"text": sentence}:
        return False
    before, after = map(fingerprint, keys)
    kind, data = EventKind.INSTANCE_HOST_KEY_CHANGED, {"before": before, "after": after}
    record(tx, now, SYSTEM, row.id, kind, reason=sentence, data=data)
    await page_with_owner(tx, policy, session, subject, sentence, now)
    return True


def forgotten(row: Instance, at: datetime) -> dict[str, Any]:
    """Return the columns that clear the host key of an instance whose disk a restart wipes.

    It makes a new key, and nobody is notified of that.
    """
    return {"host_key": None, "host_key_at": at} if model.load(row.cloud).restarted else {}
