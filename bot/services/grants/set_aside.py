"""Return a session to its machine in grace when the replacement beside it failed."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from bot.services.grants.reservations import release
from ledger.core import Tx, move, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import GrantState, SessionState
from ledger.models import GrantRow, Session
from ledger.queries.lookups import grants_of_session
from ledger.queries.runs.graces import change_grace, replaced_of_session


async def return_to_grace(tx: Tx, session: Session, sentence: str, now: datetime) -> bool:
    """Make the machine in grace the session's machine again. False where the session has none beside a replacement.

    The request stays approved: its machine still waits, and a failed replacement needs no new approval. An unused
    grant is void.
    """
    set_aside = await replaced_of_session(tx, session.id)
    if set_aside is None or session.state not in (SessionState.RUNNING, SessionState.STOPPED):
        return False
    grace, row = set_aside
    for grant in await grants_of_session(tx, session.id):
        if grant.kind == GrantKind.REPLACE and grant.state is GrantState.OPEN:
            await move(tx, GrantRow, grant.id, GrantState.VOID, now, SYSTEM, sentence)
            await release(tx, grant, now, spent_usd=Decimal(0))
    await change_grace(tx, grace.id, replaced=False)
    said = f"{sentence} The session waits for its first machine.".strip()
    record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_GRACE, reason=said)
    return True
