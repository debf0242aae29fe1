"""Delay a termination, at most 10 s, until its notification was attempted once on every channel.

The outbox row is committed and one attempt was made on every channel before the termination. A channel that is down
delays a termination by a few seconds at most, so it never keeps a GPU alive.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.services.checkpoints import hold
from bot.services.notifications import end_of_session, interruption
from ledger.core import Tx, wake
from ledger.kernel.checkpoint_step import WAITS, CheckpointStep
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.models import Instance, Notification, Session
from ledger.queries.lookups import open_instances_of_session
from ledger.queries.terminations import Said, unheard

#: A termination waits this long at most for the first delivery attempt, counted from the last notification about it.
HEARD_WITHIN = timedelta(seconds=10)
#: Checkpoint steps whose outcome people were not notified of before: the wait counts from them.
_LATE_STEPS = frozenset({CheckpointStep.RELEASED, CheckpointStep.DESTROYED})


async def waits_until(tx: Tx, row: Instance, now: datetime) -> datetime | None:
    """Return until when this termination waits for its notifications, at most; None when it need not wait.

    A delivery attempt wakes the row, so only a message that nobody tries to deliver takes that long.
    """
    asked_at, wait_ends_at = row.terminate_asked_at, _wait_ends_at(row)
    if asked_at is None or row.terminate_acked_at is not None or wait_ends_at is None or now >= wait_ends_at:
        return None
    last_notified_at = wait_ends_at - HEARD_WITHIN
    session = await tx.get_one(Session, row.session_id)
    said = [
        Said(NotificationKind.SESSION_INTERRUPTED, interruption.subject_of(row), asked_at),
        Said(
            NotificationKind.SESSION_CHECKPOINT_HOLD, hold.subject_of(row, CheckpointStep.DESTROYED), last_notified_at
        ),
        Said(NotificationKind.REPLY, interruption.ended_by_subject(session), last_notified_at),
    ]
    # A warning is updated when the end is ordered; what counts is that one delivery was attempted at all.
    if session.deadline is not None:
        said.append(Said(NotificationKind.SESSION_ENDING, end_of_session.subject_of(session)))
    if session.early_end_at is not None:
        said.append(
            Said(NotificationKind.SESSION_IDLE, end_of_session.early_end_subject(session.id, session.early_end_at))
        )
    return wait_ends_at if await unheard(tx, said) else None


def _wait_ends_at(row: Instance) -> datetime | None:
    """Return when the termination stops waiting for its notifications."""
    last = row.terminate_asked_at
    if last is not None and row.checkpoint_step in _LATE_STEPS and row.checkpoint_until is not None:
        last = max(last, row.checkpoint_until)
    return None if last is None else last + HEARD_WITHIN


async def release_waiting_ends(tx: Tx, notification: Notification, now: datetime) -> bool:
    """Wake the terminations that waited for this delivery attempt; return whether there is one."""
    kind, session_id = notification.kind, notification.subject.partition("/")[0]
    other_reply = kind is NotificationKind.REPLY and not notification.subject.endswith(interruption.ENDED_BY)
    if not kind.delays_termination or other_reply:
        return False
    woken = False
    for row in await open_instances_of_session(tx, session_id):
        wait_ends_at = _wait_ends_at(row)
        waits = row.state is InstanceState.TERMINATING and row.terminate_acked_at is None
        # A termination that waits for a checkpoint, or for a cloud that does not answer, has a due time of its own.
        if waits and wait_ends_at is not None and now < wait_ends_at and row.checkpoint_step not in WAITS:
            await wake(tx, Instance, row.id, now)
            woken = True
    return woken
