"""Lock rows in one order: a transaction first locks the family of the request that it changes.

A family is a request with its override, sessions, grants and instances. Two transactions that lock the same rows in
different orders (the sender: instance, then session; an end: session, then instance) would each wait for the other
until PostgreSQL kills one. SQLite has a single writer, so there this does nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from ledger.engine.db import may_lock
from ledger.models import AdvanceApproval, GrantRow, Instance, Orphan, Request, Session


def _lock_of(of: Any) -> Any:
    """Build the statement that locks the root of the family of the request that `of` names."""
    family = aliased(Request)
    root = select(func.coalesce(family.parent_id, family.id)).where(family.id == of)
    # NO KEY UPDATE: rows that refer to the request may still be inserted meanwhile.
    return select(Request.id).where(Request.id == root.scalar_subquery()).with_for_update(key_share=True, of=Request)


#: Keys of PostgreSQL's advisory locks, any numbers that nothing else here uses: for the policy's own approvals, the
#: budgets, and the order and the hash chain of the journal.
_AUTO_APPROVAL = 7_301
_BUDGETS = 7_302
_JOURNAL = 7_303
#: The first of two keys; the second is a hash of a person.
_REQUESTER = 7_304
_ROLLUP = 7_305
_OPEN_SPEND = 7_306

_ID: Any = bindparam("row_id")
#: Built once: these run before every move.
_LOCKS: dict[type[Any], Any] = {
    Request: _lock_of(_ID),
    **{
        m: _lock_of(select(m.request_id).where(m.id == _ID).scalar_subquery())
        for m in (Session, GrantRow, AdvanceApproval, Instance)
    },
}


async def lock_family(tx: AsyncSession, model: type[Any], row_id: str) -> None:
    """Lock the root of a row's family until the transaction ends; a row of another kind, or none, locks nothing."""
    lock = _LOCKS.get(model)
    if lock is not None and may_lock(tx):
        await tx.execute(lock, {"row_id": row_id})


async def lock_families(tx: AsyncSession, instance_ids: Collection[str]) -> None:
    """Lock the families of many instances, in one order and by one statement."""
    if may_lock(tx):
        family = aliased(Request)
        roots = (
            select(func.coalesce(family.parent_id, family.id))
            .join(Instance, Instance.request_id == family.id)
            .where(Instance.id.in_(instance_ids))
        )
        query = select(Request.id).where(Request.id.in_(roots)).order_by(Request.id)
        await tx.execute(query.with_for_update(key_share=True, of=Request))


async def lock_orphan(tx: AsyncSession, orphan_id: str) -> None:
    """Let one transaction at a time change what becomes of an orphan, until it ends."""
    if may_lock(tx):
        await tx.execute(select(Orphan.id).where(Orphan.id == orphan_id).with_for_update(key_share=True))


async def lock_budgets(tx: AsyncSession) -> None:
    """Let one transaction at a time take from the budgets, until it ends. Taken last, like `lock_auto_approval`."""
    if may_lock(tx):
        await tx.execute(select(func.pg_advisory_xact_lock(_BUDGETS)))


async def lock_requester(tx: AsyncSession, requester: str) -> None:
    """Let one transaction at a time count and add a person's requests, until it ends. Taken before anything else."""
    if may_lock(tx):
        await tx.execute(select(func.pg_advisory_xact_lock(_REQUESTER, func.hashtext(requester))))


async def lock_journal(tx: AsyncSession) -> None:
    """Let one transaction at a time number events or add hashes to the journal, until it ends."""
    if may_lock(tx):
        await tx.execute(select(func.pg_advisory_xact_lock(_JOURNAL)))


async def lock_rollup(tx: AsyncSession) -> None:
    """Let one transaction at a time fold entries into the rollup, until it ends."""
    if may_lock(tx):
        await tx.execute(select(func.pg_advisory_xact_lock(_ROLLUP)))


async def lock_open_spend(tx: AsyncSession) -> None:
    """Let one transaction at a time settle what approvals may still spend, until it ends."""
    if may_lock(tx):
        await tx.execute(select(func.pg_advisory_xact_lock(_OPEN_SPEND)))


async def lock_auto_approval(tx: AsyncSession) -> None:
    """Let one transaction at a time judge what may still start without another person's approval, until it ends.

    Taken after the family, so that the transaction that holds it waits for no other family.
    """
    if may_lock(tx):
        await tx.execute(select(func.pg_advisory_xact_lock(_AUTO_APPROVAL)))
