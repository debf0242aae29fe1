"""The last look before a create: whether its authority, its session and the service still allow it."""

from __future__ import annotations

from datetime import datetime

from bot.services import asking, recovery
from bot.services.context import Context
from ledger.claims import Claim, release
from ledger.locks import lock_family
from ledger.models import GrantRow, Instance, Session
from ledger.moves import StaleMove
from ledger.states import GrantState, SessionState
from ledger.values import SYSTEM, GrantKind
from ledger.writes import Tx, amend


async def may_send(ctx: Context, tx: Tx, held: Claim, grant_id: str, session_id: str, now: datetime) -> bool:
    """Whether the create may go out in this transaction; where not, what follows is done here.

    Raises `StaleMove` when the session's end was ordered meanwhile.
    """
    await lock_family(tx, GrantRow, grant_id)
    grant = await tx.get_one(GrantRow, grant_id)
    if grant.state is not GrantState.OPEN or now >= grant.until:
        await asking.withdraw_ready(tx, session_id, "Its approval ran out.", now, SYSTEM)
        if grant.state is GrantState.OPEN:
            await asking.ask_again(tx, grant.request_id, "The approval ran out before it was used.", now)
            ctx.hints.requests.set()
        return False
    if await recovery.is_on(tx):  # It may have begun since this pass did; nothing is bought meanwhile.
        await release(tx, Instance, held, due_at=now + recovery.HOLD)
        return False
    session = await tx.get_one(Session, session_id, populate_existing=True)
    if session.state is SessionState.TERMINATING:
        raise StaleMove(session.id, str(session.state), str(SessionState.PROVISIONING))
    if grant.kind == GrantKind.REPLACE and session.deadline is not None and now >= session.deadline:
        # What takes another's place has that one's end; whoever enforces it ends the session.
        await asking.withdraw_ready(tx, session_id, "Its approved end has come.", now, SYSTEM)
        await amend(tx, Session, session_id, due_at=now)
        ctx.hints.sessions.set()
        return False
    return True
