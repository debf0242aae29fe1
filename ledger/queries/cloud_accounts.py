"""List the accounts at clouds that rows belong to, move rows to another key's account, and note listings of accounts.

An account is known by the fingerprint of its key.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import exists, func, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from ledger.core import lock_families, record
from ledger.engine.db import insert_for
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import OPEN_INSTANCE, InstanceState, OrphanState
from ledger.models import BillLine, Instance, Mark, Orphan, Session

#: The marks of complete listings, each named by cloud and account.
LISTED = "listed/"


@dataclass(frozen=True, slots=True)
class AccountInUse:
    """Count what is open in one account at one cloud, orphans included, and since when."""

    cloud: str
    account: str
    count: int
    since: datetime


async def accounts_in_use(tx: AsyncSession) -> list[AccountInUse]:
    """List every account with open instances that were sent, or with orphans that are not gone.

    It takes two queries.
    """
    sent = Instance.state.in_(OPEN_INSTANCE - {InstanceState.READY})
    rows = select(Instance.cloud, Instance.account, func.count(), func.min(Instance.created_at)).where(sent)
    orphans = select(Orphan.cloud, Orphan.account, func.count(), func.min(Orphan.first_seen_at))
    orphans = orphans.where(Orphan.state != OrphanState.GONE)
    found: dict[tuple[str, str], AccountInUse] = {}
    for query in (
        rows.group_by(Instance.cloud, Instance.account),
        orphans.group_by(Orphan.cloud, Orphan.account),
    ):
        for cloud, account, count, since in await tx.execute(query):
            more = found.get((cloud, account), AccountInUse(cloud, account, 0, since))
            found[cloud, account] = AccountInUse(cloud, account, more.count + count, min(more.since, since))
    return [found[key] for key in sorted(found)]


async def note_listing(tx: AsyncSession, cloud: str, account: str, at: datetime) -> None:
    """Note that an account's instances were listed completely at this time."""
    insert = insert_for(tx, Mark).values(name=f"{LISTED}{cloud}/{account}", value="", at=at)
    await tx.execute(insert.on_conflict_do_update(index_elements=["name"], set_={"at": at}, where=Mark.at < at))


async def listing_times(tx: AsyncSession, accounts: Collection[tuple[str, str]]) -> dict[tuple[str, str], datetime]:
    """Return by `(cloud, account)` when each account was last noted as listed; one that never was is left out."""
    names = {f"{LISTED}{cloud}/{account}": (cloud, account) for cloud, account in accounts}
    if not names:
        return {}
    rows = await tx.execute(select(Mark.name, Mark.at).where(Mark.name.in_(names)))
    return {names[name]: at for name, at in rows}


async def open_there(tx: AsyncSession, accounts: Collection[tuple[str, str]]) -> list[tuple[Instance | Orphan, str]]:
    """List open instances and orphans in these `(cloud, account)`, oldest first, with the owner ("" for orphans)."""
    if not accounts:
        return []
    sent = Instance.state.in_(OPEN_INSTANCE - {InstanceState.READY})
    where = tuple_(Instance.cloud, Instance.account).in_(accounts)
    rows = select(Instance, Session.owner).join(Session, Session.id == Instance.session_id).where(sent, where)
    found: list[tuple[Instance | Orphan, str]] = []
    for row, owner in await tx.execute(rows.order_by(Instance.created_at, Instance.id)):
        found.append((row, owner))
    orphans = select(Orphan).where(Orphan.state != OrphanState.GONE, tuple_(Orphan.cloud, Orphan.account).in_(accounts))
    found += [(orphan, "") for orphan in await tx.scalars(orphans.order_by(Orphan.first_seen_at, Orphan.id))]
    return found


async def rows_named(tx: AsyncSession, ids: Collection[str]) -> list[Instance | Orphan]:
    """Return the instances and orphans with these ids, as they are now, in the order of their ids."""
    fresh = {"populate_existing": True}
    rows = await tx.scalars(select(Instance).where(Instance.id.in_(ids)).order_by(Instance.id), execution_options=fresh)
    orphans = await tx.scalars(select(Orphan).where(Orphan.id.in_(ids)).order_by(Orphan.id), execution_options=fresh)
    return [*rows, *orphans]


async def move_account(
    tx: AsyncSession,
    cloud: str,
    before: Collection[str],
    after: str,
    *,
    ended_since: datetime,
    at: datetime,
    actor: Actor,
    reason: str,
) -> int:
    """Move what belongs to the accounts `before` to `after`; return how many open instances and orphans that were.

    Rows of instances that ended before `ended_since` stay. Listings of another account prove no absence, so absences
    that were counted are cleared. What `after` holds already is left where it is.
    """
    recent = or_(Instance.state.in_(OPEN_INSTANCE), Instance.ended_at >= ended_since)
    mine = (Instance.cloud == cloud, Instance.account.in_(before), recent)
    await lock_families(tx, list(await tx.scalars(select(Instance.id).where(*mine).order_by(Instance.id))))
    moved = 0
    for row_id, old, state in await tx.execute(select(Instance.id, Instance.account, Instance.state).where(*mine)):
        moved += state in OPEN_INSTANCE
        record(tx, at, actor, row_id, EventKind.INSTANCE_ACCOUNT_MOVED, before=old, after=after, reason=reason)
    await tx.flush()  # The database needs the journal row first.
    values = {"account": after, "absent_at": [], "version": Instance.version + 1}
    await tx.execute(update(Instance).where(*mine).values(values).execution_options(synchronize_session=False))
    other = aliased(Orphan)
    still = other.state != OrphanState.GONE
    there = exists().where(other.cloud == cloud, other.account == after, other.ref == Orphan.ref, still)
    orphans = (Orphan.cloud == cloud, Orphan.account.in_(before), Orphan.state != OrphanState.GONE, ~there)
    for orphan in list(await tx.scalars(select(Orphan).where(*orphans))):
        record(tx, at, actor, orphan.id, EventKind.ORPHAN_ACCOUNT_MOVED, before=orphan.account, after=after)
        moved += 1
    new = {"account": after, "absent_at": [], "version": Orphan.version + 1}
    await tx.execute(update(Orphan).where(*orphans).values(new).execution_options(synchronize_session=False))
    line = aliased(BillLine)
    known = exists().where(line.cloud == cloud, line.account == after, line.line_id == BillLine.line_id)
    lines = update(BillLine).where(BillLine.cloud == cloud, BillLine.account.in_(before), ~known)
    await tx.execute(lines.values(account=after).execution_options(synchronize_session=False))
    return moved
