"""Read and write which SSH keys belong on which machine, and find the machines whose keys have to be written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import exists, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.engine.db import insert_for
from ledger.kernel.people.key_problem import KeyProblem
from ledger.kernel.states import OPEN_INSTANCE, InstanceState
from ledger.models import Instance, MachineKey, Session
from ledger.queries.access import Whose, own_or_shared

#: Machines on which keys may still be written: one that ends needs none.
_KEYED = OPEN_INSTANCE - {InstanceState.TERMINATING}
Machine = tuple[Instance, Session]


async def machines_of_sessions(tx: AsyncSession, session_ids: Collection[str]) -> list[Machine]:
    """Return the machines of these sessions that are open and not ending, each with its session."""
    return await _machines(tx, Instance.session_id.in_(list(session_ids)))


async def machines_of_person(tx: AsyncSession, whose: Whose) -> list[Machine]:
    """Return the open machines that somebody owns, or that are shared with them."""
    return await _machines(tx, own_or_shared(whose, Session.owner, Session.request_id))


async def _machines(tx: AsyncSession, where: Any) -> list[Machine]:
    query = (
        select(Instance, Session)
        .join(Session, Session.id == Instance.session_id)
        .where(Instance.state.in_(_KEYED), where)
        .order_by(Instance.id)
    )
    return [(row, session) for row, session in await tx.execute(query)]


async def keys_on(tx: AsyncSession, instance_ids: Collection[str]) -> list[MachineKey]:
    """Return the keys that belong, or belonged, on these machines."""
    query = select(MachineKey).where(MachineKey.instance_id.in_(list(instance_ids)))
    ordered = query.order_by(MachineKey.instance_id, MachineKey.since, MachineKey.fingerprint)
    return list(await tx.scalars(ordered.execution_options(populate_existing=True)))


async def put_keys(tx: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Store these keys; a key that is known on its machine gets the new values."""
    if not rows:
        return
    insert = insert_for(tx, MachineKey)
    new = {name: insert.excluded[name] for name in rows[0] if name not in ("instance_id", "fingerprint")}
    await tx.execute(insert.on_conflict_do_update(index_elements=["instance_id", "fingerprint"], set_=new), list(rows))


async def machines_to_write(tx: AsyncSession, now: datetime, limit: int) -> list[Instance]:
    """List ready machines with a key that is not written yet, or that a start after the last write may have undone."""
    undone = (MachineKey.placed_at < Instance.reachable_at) & or_(~MachineKey.at_launch, ~MachineKey.wanted)
    pending = (
        exists()
        .where(MachineKey.instance_id == Instance.id, MachineKey.due_at <= now)
        .where(or_(MachineKey.placed_at.is_(None), undone))
    )
    query = (
        select(Instance)
        .where(Instance.state == InstanceState.LIVE, Instance.status == "running", Instance.wanted.is_(None))
        .where(Instance.reachable_at.is_not(None), Instance.login_key.is_not(None), Instance.host_key.is_not(None))
        .where(Instance.ssh_host.is_not(None), or_(Instance.login_until.is_(None), Instance.login_until <= now))
        .where(pending)
        .order_by(Instance.id)
        .limit(limit)
    )
    return list(await tx.scalars(query))


async def keys_written(tx: AsyncSession, instance_id: str, fingerprints: Collection[str], at: datetime) -> None:
    """Note that a machine has these keys as they are wanted, or no longer has them."""
    await _set(tx, instance_id, fingerprints, placed_at=at, problem=None, due_at=at)


async def keys_failed(
    tx: AsyncSession, instance_id: str, fingerprints: Collection[str], problem: KeyProblem, due_at: datetime
) -> None:
    """Note why these keys of a machine could not be written, and when to try again."""
    await _set(tx, instance_id, fingerprints, problem=problem, due_at=due_at)


async def _set(tx: AsyncSession, instance_id: str, fingerprints: Collection[str], **values: Any) -> None:
    rows = (MachineKey.instance_id == instance_id, MachineKey.fingerprint.in_(list(fingerprints)))
    await tx.execute(update(MachineKey).where(*rows).values(**values))
