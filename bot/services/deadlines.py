"""The approved end of a session: the owner is told before, and it is enforced whether or not anybody answers."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.wording import hours as say_hours
from bot.rules.wording import usd
from bot.services.context import Context
from bot.services.ending import end_session
from ledger.claims import Claim, claim, release
from ledger.events import announce
from ledger.lookups import instances_of_session
from ledger.models import GrantRow, Session
from ledger.moves import StaleMove
from ledger.states import NotificationKind, SessionState
from ledger.values import Actor, ActorKind, GrantKind
from ledger.writes import Tx

BATCH = 16
SCHEDULER = Actor(ActorKind.SYSTEM, "scheduler")
#: A warning that comes late gets this long to be delivered before the end is ordered.
GRACE = timedelta(seconds=5)

log = logging.getLogger(__name__)


async def deadlines_due(ctx: Context) -> int:
    """Warn the owner before the approved end, and enforce the end. Slack being down changes neither."""
    now = ctx.clock.now()
    states = {SessionState.PROVISIONING, SessionState.RUNNING, SessionState.STOPPED}
    lease = timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim(ctx.db, Session, now=now, states=states, limit=BATCH, lease=lease)
    for one in held:
        try:
            async with ctx.db.write() as tx:
                await _deadline(ctx, tx, one, now)
        except StaleMove:
            log.info("session %s was ended by somebody else", one.row_id)
    if held:
        ctx.hints.outbox.set()
        ctx.hints.instances.set()
    return len(held)


async def _over(tx: Tx, session: Session) -> str:
    """Which of the two approved limits was reached first."""
    last = (await instances_of_session(tx, session.id))[-1]
    ran = (session.deadline or last.created_at) - (last.sent_at or last.created_at)
    grant = await tx.get_one(GrantRow, last.grant_id)
    if grant.kind == GrantKind.CREATE and ran < timedelta(hours=float(Decimal(session.hours))) - GRACE:
        return f"The approved amount of {usd(grant.total_cap_usd)} is used up."
    return f"The approved {say_hours(Decimal(session.hours))} are over."


async def _deadline(ctx: Context, tx: Tx, held: Claim, now: datetime) -> None:
    session = await tx.get_one(Session, held.row_id)
    if session.deadline is None:
        await release(tx, Session, held, due_at=None)
    elif now >= session.deadline and session.warned_at is not None:
        sentence = await _over(tx, session)
        await end_session(ctx, tx, session.id, "reservation_over", sentence, SCHEDULER, now)
    else:
        # The end is announced before the act, even when this process slept through the time of the warning.
        owner = Actor.from_ref(session.owner)
        if session.warned_at is None and owner.kind is ActorKind.SLACK:
            await announce(tx, at=now, kind=NotificationKind.SESSION_ENDING, subject=session.id, destination=owner.id)
        due_at = max(session.deadline, now + GRACE)
        await release(tx, Session, held, due_at=due_at, warned_at=session.warned_at or now)
