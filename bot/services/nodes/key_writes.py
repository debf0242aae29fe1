"""Write people's SSH keys on running machines, until each machine has those that belong there.

GPU Shopper logs in with the session's own key, as it does for the check of the GPUs. What is wanted stands in the
ledger, so a crash, or a machine that does not answer, delays a key and loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.rules.nodes import authorized_keys as rules
from bot.rules.nodes.authorized_keys import PersonKey
from bot.services.nodes.login_keys import ssh_login
from bot.services.notifications.paging import alone
from bot.services.people import direct_messages
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, announce_once, lock_family, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.people.key_problem import KeyProblem
from ledger.kernel.states import NotificationKind
from ledger.models import Instance, MachineKey, Session
from ledger.queries.nodes import take_login
from ledger.queries.people.machine_keys import keys_failed, keys_on, keys_written, machines_to_write

#: Seconds between two passes; a change of somebody's access starts one at once.
LOOK_S = 15.0
#: Machines of one pass. They are written to concurrently, so that one which hangs costs one time-out.
AT_ONCE = 64
WRITE_S = 20.0
#: Longer than reading and writing take, so that only one replica writes on a machine.
LEASE = timedelta(seconds=2 * WRITE_S + 20)
#: The first pause after an attempt that failed; it grows with the time that the key has waited.
PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(minutes=10)
#: The owner is notified of a key that could not be written for so long.
OWNER_NOTIFIED_AFTER = timedelta(minutes=10)


async def key_writes_due(ctx: Context) -> int:
    """Write the keys on each machine that lacks a change; return how many machines now have theirs."""
    async with ctx.db.read() as tx:
        rows = await machines_to_write(tx, ctx.clock.now(), AT_ONCE)
    steps = [alone(ctx, row.id, "writing its SSH keys", _write(ctx, row), False) for row in rows]
    done = sum(await asyncio.gather(*steps))
    if rows:
        ctx.hints.outbox.set()
    return done


async def _write(ctx: Context, row: Instance) -> bool:
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, row.id)
        if not await take_login(tx, row.id, now, now + LEASE):
            return False
        keys = await keys_on(tx, [row.id])
    problem = await _on_machine(ctx, row, keys)
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, row.id)
        await amend(tx, Instance, row.id, login_until=None)
        fresh = {one.fingerprint: one for one in await keys_on(tx, [row.id])}
        # What changed meanwhile was not written, so it stays due.
        same = [one for one in keys if _wish(fresh[one.fingerprint]) == _wish(one)]
        names = [one.fingerprint for one in same]
        if problem is not None:
            since = min((one.since for one in same if one.placed_at is None), default=now)
            pause = min(max(PAUSE, (now - since) / 4), LONGEST_PAUSE)
            await keys_failed(tx, row.id, names, problem, now + pause)
            if now - since >= OWNER_NOTIFIED_AFTER:
                await _still_missing(ctx, tx, row, problem, since, now)
            return False
        await keys_written(tx, row.id, names, now)
        _record(tx, row, [one for one in same if one.placed_at is None], now)
        return True


def _wish(key: MachineKey) -> tuple[bool, datetime]:
    return key.wanted, key.since


async def _on_machine(ctx: Context, row: Instance, keys: Sequence[MachineKey]) -> KeyProblem | None:
    """Read the machine's file of keys and replace it where it differs; return what kept that from working."""
    login = ssh_login(ctx.labels, row)
    ran = await ctx.reach.run(login, rules.READ_COMMAND, timeout_s=WRITE_S)
    if ran.problem is not None:
        return rules.login_problem(ran.problem)
    before = rules.read_file(ran.output) if ran.status == 0 else None
    if before is None:
        return KeyProblem.UNREADABLE
    wanted = [PersonKey(one.public_key, one.person) for one in keys if one.wanted]
    after = rules.changed(before, wanted, [one.public_key for one in keys if not one.wanted])
    if after == before:
        return None
    ran = await ctx.reach.run(login, rules.replace_command(before), stdin=rules.sent(after), timeout_s=WRITE_S)
    if ran.problem is not None:
        return rules.login_problem(ran.problem)
    return None if ran.status == 0 else KeyProblem.NOT_WRITTEN


def _record(tx: Tx, row: Instance, written: Sequence[MachineKey], now: datetime) -> None:
    added = sorted({one.person for one in written if one.wanted})
    removed = sorted({one.person for one in written if not one.wanted})
    said = [f"Keys added of {', '.join(added)}."] if added else []
    said += [f"Keys removed of {', '.join(removed)}."] if removed else []
    if said:
        record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_KEYS_WRITTEN, reason=" ".join(said))


async def _still_missing(
    ctx: Context, tx: Tx, row: Instance, problem: KeyProblem, since: datetime, now: datetime
) -> None:
    """Notify the owner once of keys that could not be written since then; GPU Shopper keeps trying."""
    session = await tx.get_one(Session, row.session_id)
    text = (
        f"GPU Shopper can't change the SSH keys on the machine of session {session.short_id}: "
        f"{rules.sentence(problem)} It keeps trying."
    )
    subject = f"{row.id}/keys/{int(since.timestamp())}"
    for to in await direct_messages.places(tx, ctx.policy, session):
        await announce_once(tx, now, NotificationKind.REPLY, subject, destination=to, body={"text": text})
