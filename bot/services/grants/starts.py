"""Start stopped machines again, within what was approved, and note when a start had no effect."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.instances.power import PowerAction
from bot.rules.policy.policy import Policy
from bot.services.grants import reservations
from bot.services.notifications.interruption import notify_interruption
from bot.services.people import direct_messages
from ledger.core import Tx, amend, announce_once, record
from ledger.kernel.actor import SYSTEM, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.kernel.steps.grace import Cause
from ledger.models import GraceRow, GrantRow, Instance, Session
from ledger.queries.journal import latest_events
from ledger.queries.overspend import ApprovedRate, approved_rate, open_overspend_request
from ledger.queries.runs.graces import change_grace, open_grace
from ledger.queries.runs.relocations import taken_over_by
from providers.contract import InstanceStatus

#: A start that had no effect, because the GPU is taken, is repeated after this time.
AGAIN: Final = timedelta(minutes=10)
_IN_USE: Final = frozenset({InstanceState.LIVE, InstanceState.STOPPED})


async def authorize_start(tx: Tx, row: Instance, session: Session, approved: ApprovedRate, now: datetime) -> None:
    """Create a grant for a start, because it spends again; it adds nothing to the amount approved for the session."""
    used = await tx.get_one(GrantRow, row.grant_id)
    await reservations.new_grant(
        tx,
        GrantKind.START,
        request_id=approved.request_id,
        approval_id=approved.approval_id,
        session_id=session.id,
        price_cap_usd_h=approved.usd_h,
        total_cap_usd=Decimal(0),
        hours=used.hours,
        until=session.deadline or now,
        now=now,
    )


async def start_again(tx: Tx, grace: GraceRow, row: Instance, session: Session, why: str, now: datetime) -> bool:
    """Order the start of a stopped machine in grace. False where nothing is to be started, or not yet."""
    waits = row.state in _IN_USE and row.status == InstanceStatus.STOPPED and row.wanted is None
    if not waits or grace.replaced or session.deadline is None or now >= session.deadline:
        return False
    if await taken_over_by(tx, session.id) is not None:
        return False  # Its run trains on another machine, and this one only keeps its disk.
    last = await latest_events(tx, row.id, EventKind.INSTANCE_START, 1)
    if (last and now - last[0].at < AGAIN) or await open_overspend_request(tx, session.request_id) is not None:
        return False
    approved = await approved_rate(tx, row)
    if row.price_usd_h > approved.usd_h:
        return False  # `overspend` asks for its new rate.
    await authorize_start(tx, row, session, approved, now)
    await amend(tx, Instance, row.id, wanted=str(PowerAction.START), wanted_at=now, due_at=now)
    record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_START, reason=why)
    return True


async def start_had_no_effect(tx: Tx, policy: Policy, row: Instance, session: Session, why: str, now: datetime) -> bool:
    """Note that a start that GPU Shopper ordered was refused: from now on the market is the cause of the grace.

    Its owner is notified once, however often the start is repeated. False for the start of a person.
    """
    last = await latest_events(tx, row.id, EventKind.INSTANCE_START, 1)
    grace = await open_grace(tx, row.id)
    if grace is None or not last or not last[0].actor.startswith(f"{ActorKind.SYSTEM}:"):
        return False
    sentence = f"Session {session.short_id} could not start: {why}."
    record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_NOT_SWITCHED, reason=sentence)
    minutes = int(AGAIN / timedelta(minutes=1))
    text = (
        f"{sentence} GPU Shopper tries again every {minutes} minutes. The message about the machine has your choices."
    )
    for to in await direct_messages.places(tx, policy, session):
        subject = f"{grace.id}/not-started"
        await announce_once(tx, now, NotificationKind.REPLY, subject, destination=to, body={"text": text})
    if grace.cause is not Cause.MARKET:
        await change_grace(tx, grace.id, cause=Cause.MARKET)
        await notify_interruption(tx, policy, row, now)
    return True
