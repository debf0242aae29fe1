"""Store grants, reserve the cap of one, release it, and void grants that were never used."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from ledger.core import Tx, book, move
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import GrantState, InstanceState
from ledger.models import GrantRow, Instance
from ledger.queries.lookups import next_numbers, open_grants, open_instances_of_session


async def new_grant(
    tx: Tx,
    kind: GrantKind,
    *,
    request_id: str,
    approval_id: str,
    session_id: str,
    price_cap_usd_h: Decimal,
    total_cap_usd: Decimal,
    hours: str,
    until: datetime,
    now: datetime,
) -> GrantRow:
    """Store an open grant, the next of its kind."""
    seq, _ = await next_numbers(tx, request_id, kind)
    grant = GrantRow(
        id=new_id("grt", now),
        request_id=request_id,
        approval_id=approval_id,
        session_id=session_id,
        kind=kind,
        seq=seq,
        state=GrantState.OPEN,
        price_cap_usd_h=price_cap_usd_h,
        total_cap_usd=total_cap_usd,
        hours=hours,
        until=until,
        created_at=now,
    )
    tx.add(grant)
    await tx.flush()
    return grant


async def reserve(tx: Tx, grant: GrantRow, now: datetime) -> None:
    """Reserve the grant's whole cap, in the transaction that creates the grant."""
    await book(
        tx,
        key=f"reserve/{grant.id}",
        kind=EntryKind.RESERVE,
        debit=f"reserved:{grant.id}",
        credit=f"authority:{grant.request_id}",
        amount_usd=grant.total_cap_usd,
        at=now,
        session_id=grant.session_id,
    )


async def release(tx: Tx, grant: GrantRow, now: datetime, *, spent_usd: Decimal) -> None:
    """Release a reservation in full, once per grant; what was spent is in the accruals."""
    await book(
        tx,
        key=f"release/{grant.id}",
        kind=EntryKind.RELEASE,
        debit=f"authority:{grant.request_id}",
        credit=f"reserved:{grant.id}",
        amount_usd=grant.total_cap_usd,
        at=now,
        session_id=grant.session_id,
        note=f"spent {spent_usd}",
    )


async def void_grants(tx: Tx, request_id: str, sentence: str, now: datetime) -> None:
    """Void every open grant of a request and release what it reserved."""
    for grant in await open_grants(tx, request_id):
        await move(tx, GrantRow, grant.id, GrantState.VOID, now, SYSTEM, sentence)
        await release(tx, grant, now, spent_usd=Decimal(0))


async def withdraw_ready(tx: Tx, session_id: str, sentence: str, now: datetime, actor: Actor) -> None:
    """Withdraw the intents of a session that were never sent."""
    for instance in await open_instances_of_session(tx, session_id):
        if instance.state is InstanceState.READY:
            to, before = InstanceState.REJECTED, frozenset({InstanceState.READY})
            outcome = {"outcome": sentence}
            await move(tx, Instance, instance.id, to, now, actor, sentence, only_from=before, values=outcome)
