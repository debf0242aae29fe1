"""Warn the owner before the approved end of a session, and end it then whether or not anybody answers."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.sessions import volume_end
from bot.rules.sessions.expiration import ended_by, is_due, is_last, next_look, warnings
from bot.rules.values.phrases import usd
from bot.services.instances.termination import end_session
from bot.services.notifications import end_of_session
from bot.services.notifications.paging import alone
from bot.services.runtime.clock_guard import approved_now
from bot.services.runtime.context import Context
from bot.services.sessions import volume_growth
from ledger.core import Claim, Tx, claim, lock_family, release
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.end_reason import EndReason
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import SessionState
from ledger.kernel.volume_name import volume_of
from ledger.models import GrantRow, Session
from ledger.queries.lookups import session_and_its_bill
from ledger.queries.overspend import open_overspend_request
from ledger.queries.runs.machines import machines_of_session
from ledger.queries.session_costs import extension_cap

BATCH = 16
SCHEDULER = Actor(ActorKind.SYSTEM, "scheduler")
#: A warning that comes late gets this long to be delivered before the end is ordered.
GRACE = timedelta(seconds=5)
#: This long after a warning its delivery is checked; if it failed, the fallback contacts are notified.
ANSWER = timedelta(seconds=30)


async def deadlines_due(ctx: Context) -> int:
    """Warn before the approved ends of sessions, and end those that are due.

    An outage of Slack keeps nothing alive and ends nothing early, and neither does a wrong clock.
    """
    now = approved_now(ctx.clock)
    if now is None:
        return 0
    # A session that waits for a replacement ends at its approved end; one without an end is not due.
    states = {SessionState.QUEUED, SessionState.PROVISIONING, SessionState.RUNNING, SessionState.STOPPED}
    lease = timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim(ctx.db, Session, now=now, states=states, limit=BATCH, lease=lease)
    for one in held:
        await alone(ctx, one.row_id, "the deadline", _one(ctx, one, now), None)
    if held:
        ctx.hints.outbox.set()
        ctx.hints.instances.set()
    return len(held)


async def _one(ctx: Context, held: Claim, now: datetime) -> None:
    async with ctx.db.write() as tx:
        await _deadline(ctx, tx, held, now)


async def why_it_ends(ctx: Context, tx: Tx, session: Session, *, ahead: bool = False) -> tuple[EndReason, str]:
    """Return the code and sentence of the approved limit that is reached first.

    `ahead`: the sentence is for a warning before the end.
    """
    if volume_of(session.gpu):
        return volume_growth.why_it_ends(ctx, session, ahead=ahead)
    rows = await machines_of_session(tx, session.id)
    # The hours of a set count from its first create.
    last = rows[-1] if session.nodes == 1 else min(rows, key=lambda row: row.sent_at or row.created_at)
    ran = (session.deadline or last.created_at) - (last.sent_at or last.created_at)
    grant = await tx.get_one(GrantRow, last.grant_id)
    hours = Decimal(session.hours)
    by_amount = grant.kind == GrantKind.CREATE and ran < timedelta(hours=float(hours)) - GRACE
    unconfirmed = await open_overspend_request(tx, session.request_id) is not None
    spent = usd(grant.total_cap_usd * session.nodes + await extension_cap(tx, session.id)) if by_amount else ""
    return ended_by(hours, ctx.policy, spent=spent, unconfirmed=unconfirmed, ahead=ahead)


async def _deadline(ctx: Context, tx: Tx, held: Claim, now: datetime) -> None:
    await lock_family(tx, Session, held.row_id)  # An extension at this moment sets another end.
    session, began_at = await session_and_its_bill(tx, held.row_id)
    if session.deadline is None:
        await release(tx, Session, held, due_at=None)
        return
    is_volume = bool(volume_of(session.gpu))
    if is_volume and session.volume_grace_at is not None:
        await volume_growth.notify(ctx, tx, session, now)
    may_end = volume_end.may_delete(session.deadline, session.warned_at, now) if is_volume else True
    if now >= session.deadline and session.warned_at is not None and may_end:
        code, sentence = await why_it_ends(ctx, tx, session)
        await end_session(ctx, tx, session.id, code, sentence, SCHEDULER, now)
        return
    before_s = ctx.policy.warn_before_end_s
    moments = (
        volume_end.notices(before_s, began_at, session.deadline, session.volume_grace_at)
        if is_volume
        else warnings(before_s, began_at, session.deadline)
    )
    look_at, warned_at = next_look(moments, session.deadline, now), session.warned_at
    if is_due(moments, session.deadline, warned_at, now):
        # The warning is sent before the termination, even when no process ran at the time of the warning.
        # A stopped machine whose disk is kept loses nothing at its end, so one notice is enough.
        kept = bool(session.preserve) and session.state is SessionState.STOPPED
        last = warned_at is not None and is_last(moments, now) and not kept
        await end_of_session.warn(ctx, tx, session, now, last=last)
        pause = volume_end.LEAST_NOTICE if is_volume and now >= session.deadline else GRACE
        earliest = now if warned_at is not None else now + pause
        look_at, warned_at = max(min(look_at, now + ANSWER), earliest), now
    elif warned_at is not None:
        await end_of_session.reach_somebody(ctx, tx, session, now)
        look_at = look_at if look_at > now else warned_at + volume_end.LEAST_NOTICE
    await release(tx, Session, held, due_at=look_at, warned_at=warned_at)
