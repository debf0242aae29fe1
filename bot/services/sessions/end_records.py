"""Record in the ledger what the end watchdog sent without it."""

from __future__ import annotations

from datetime import datetime

from bot.rules.instances.watchdog import EndOrder
from bot.services.instances.termination import end_session
from bot.services.instances.transitions import ADOPTABLE, adopt
from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.context import Context
from bot.services.runtime.ends_copy import Sent
from bot.services.sessions.expiration import SCHEDULER, why_it_ends
from ledger.core import Tx, amend, announce, lock_family, record
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import ENDABLE_SESSION, InstanceState, NotificationKind
from ledger.models import Instance, Session
from providers.contract import InstanceStatus, ObservedInstance


async def record_sent(ctx: Context, tx: Tx, sent: Sent, now: datetime) -> None:
    """Record one order: its event, the end of the session that it belongs to, and since when the cloud bills nothing.

    Raises `StaleMove` when the session is moved at this moment.
    """
    await lock_family(tx, Session, sent.session_id)
    session = await tx.get_one(Session, sent.session_id, populate_existing=True)
    kind = EventKind.INSTANCE_STOP if sent.order == EndOrder.STOP else EventKind.INSTANCE_ENDED_DIRECTLY
    how = "from the copy of what must end" if sent.from_copy else "directly"
    said = f"The end watchdog sent a {sent.order} {how} at {sent.at:%Y-%m-%d %H:%M:%S} UTC."
    record(tx, now, SCHEDULER, sent.instance_id, kind, reason=said)
    if sent.order == EndOrder.TERMINATE:
        row = await tx.get_one(Instance, sent.instance_id, populate_existing=True)
        if sent.ref and row.state in ADOPTABLE:
            # Its create's reply was not stored, so nothing was booked: it existed from its send until this order.
            seen = ObservedInstance(row.cloud, sent.ref, row.name, InstanceStatus.RUNNING)
            await adopt(ctx, tx, row.id, seen, now)
            session = await tx.get_one(Session, sent.session_id, populate_existing=True)
        if session.state in ENDABLE_SESSION:
            code, sentence = await why_it_ends(ctx, tx, session)
            await end_session(ctx, tx, session.id, code, sentence, SCHEDULER, now)
        row = await tx.get_one(Instance, sent.instance_id, populate_existing=True)
        acked_at = row.terminate_acked_at
        if row.state is InstanceState.TERMINATING and (acked_at is None or sent.at < acked_at):
            # The cloud still had it then. An earlier listing without it was wrong, although the ledger could not store
            # the later ones that had it.
            absent_at = [at for at in row.absent_at if datetime.fromisoformat(at) >= sent.at]
            await amend(tx, Instance, row.id, version=row.version, terminate_acked_at=sent.at, absent_at=absent_at)
    subject, kind_of = f"{sent.instance_id}/{sent.order}-directly", NotificationKind.OPERATOR_PAGE
    await announce(tx, now, kind_of, subject, destination=OPERATORS, body={"text": f"{said} It is recorded now."})
