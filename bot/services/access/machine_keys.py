"""Store which SSH keys belong on each machine, whenever that changes. `nodes.key_writes` writes them there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from bot.rules.approvals.approvers import linked
from bot.rules.nodes.authorized_keys import PersonKey, fingerprint
from bot.rules.policy.policy import Policy
from bot.services.access import key_holders
from bot.services.runtime.context import Context
from ledger.core import Tx, lock_families, lock_requester
from ledger.kernel.actor import Actor
from ledger.kernel.states import InstanceState
from ledger.models import Instance, MachineKey, Session
from ledger.queries.access import Whose
from ledger.queries.people.machine_keys import (
    Machine,
    keys_on,
    machines_of_person,
    machines_of_sessions,
    put_keys,
)


async def lock_person(tx: Tx, policy: Policy, person: Actor) -> None:
    """Let one transaction at a time change a person's keys, or what is shared with them. Taken before anything else.

    Otherwise a key that is added while something is shared would be missed by both.
    """
    await lock_requester(tx, f"keys/{min(one.ref for one in (person, *linked(policy, person)))}")


async def follow_person(ctx: Context, tx: Tx, person: Actor, now: datetime, removed: Sequence[str] = ()) -> int:
    """Store what a change of a person's keys means for their machines; return how many running machines will change.

    `removed` are the keys that the person has no longer.
    """
    names = Whose.of([person, *linked(ctx.policy, person)])
    gone = [PersonKey(key, person.ref) for key in removed]
    return await _follow(ctx, tx, await machines_of_person(tx, names), now, gone)


async def follow_session(ctx: Context, tx: Tx, session: Session, now: datetime, left: Collection[Actor] = ()) -> int:
    """Store what a change of a session's people means for its machine; return how many running machines will change.

    The people who `left` may no longer use it, and all of their keys go.
    """
    gone = [
        PersonKey(one.public_key, one.owner)
        for person in left
        for one in await key_holders.keys_of(tx, ctx.policy, person)
    ]
    return await _follow(ctx, tx, await machines_of_sessions(tx, [session.id]), now, gone)


async def launched(ctx: Context, tx: Tx, row: Instance, session: Session, keys: Sequence[str], now: datetime) -> None:
    """Store the keys that a create call brings. Those of somebody who came or left meanwhile follow later."""
    belongs = (await key_holders.for_sessions(tx, ctx.policy, [session]))[session.id]
    of = {one.public_key: one.person for one in belongs}
    sent = [PersonKey(key, of.get(key, session.owner)) for key in keys]
    await put_keys(tx, [_row(row.id, one, now, at_launch=True, placed_at=now) for one in sent])
    await follow_session(ctx, tx, session, now)


async def _follow(ctx: Context, tx: Tx, machines: Sequence[Machine], now: datetime, gone: Sequence[PersonKey]) -> int:
    """Compare the keys that belong on these machines with what is stored, and store the differences."""
    able = [one for one in machines if (cloud := ctx.providers.get(one[0].cloud)) and cloud.capabilities.ssh]
    if not able:
        return 0
    await lock_families(tx, [row.id for row, _ in able])
    belongs = await key_holders.for_sessions(tx, ctx.policy, {s.id: s for _, s in able}.values())
    known: dict[str, dict[str, MachineKey]] = {row.id: {} for row, _ in able}
    for one in await keys_on(tx, list(known)):
        known[one.instance_id][one.fingerprint] = one
    rows = []
    for row, session in able:
        rows += _differences(row.id, belongs[session.id], known[row.id], gone, now)
    await put_keys(tx, rows)
    if rows:
        ctx.hints.machine_keys.set()
    changing = {one["instance_id"] for one in rows}
    return sum(row.id in changing and writable(row) for row, _ in able)


def writable(row: Instance) -> bool:
    """Whether GPU Shopper can write keys on a machine now: it runs, and its create call brought our own key."""
    return row.state is InstanceState.LIVE and row.login_key is not None


def _differences(
    instance_id: str,
    belongs: Sequence[PersonKey],
    known: dict[str, MachineKey],
    gone: Sequence[PersonKey],
    now: datetime,
) -> list[dict[str, Any]]:
    wanted = {fingerprint(one.public_key): one for one in belongs}
    rows = []
    for name, key in wanted.items():
        there = known.get(name)
        if there is None or not there.wanted:
            rows.append(_row(instance_id, key, now, at_launch=there is not None and there.at_launch))
    left = {fingerprint(one.public_key): one for one in gone}
    left |= {name: PersonKey(one.public_key, one.person) for name, one in known.items()}
    for name, key in left.items():
        there = known.get(name)
        if name not in wanted and (there is None or there.wanted):
            at_launch = there is not None and there.at_launch
            rows.append(_row(instance_id, key, now, wanted=False, at_launch=at_launch))
    return rows


def _row(
    instance_id: str,
    key: PersonKey,
    now: datetime,
    *,
    wanted: bool = True,
    at_launch: bool = False,
    placed_at: datetime | None = None,
) -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "fingerprint": fingerprint(key.public_key),
        "public_key": key.public_key,
        "person": key.person,
        "wanted": wanted,
        "at_launch": at_launch,
        "since": now,
        "placed_at": placed_at,
        "problem": None,
        "due_at": now,
    }
