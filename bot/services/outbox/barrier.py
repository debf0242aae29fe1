"""Nothing is taken away before its people were told: an end waits for one attempt on every channel, and not for long.

*Announced* means: the outbox row is committed and one attempt was made on every channel, before the act. What is down
delays an end by a few seconds at most, so that it never keeps a GPU alive.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bot.services.checkpoints import hold
from bot.services.notifications import end_of_session, interruption
from ledger.core.claims import wake
from ledger.core.writes import Tx
from ledger.kernel.checkpoint_step import WAITS, CheckpointStep
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.models import Instance, Notification, Session
from ledger.queries.lookups import open_instances_of_session
from ledger.queries.terminations import Said, unheard

#: An end waits this long at most for the first attempt to tell its people, from the last word about it on.
HEARD_WITHIN = timedelta(seconds=10)
#: Where the gate came to an end that its people did not read before.
_LAST_WORD = frozenset({CheckpointStep.RELEASED, CheckpointStep.DESTROYED})


async def waits_until(tx: Tx, row: Instance, now: datetime) -> datetime | None:
    """Until when this end waits to be told, at most: nothing is taken away before one attempt on every channel.

    None when nothing is left to wait for. The attempt wakes the row, so that only what nobody tries takes that long.
    """
    asked_at, over = row.terminate_asked_at, _over(row)
    if asked_at is None or row.terminate_acked_at is not None or over is None or now >= over:
        return None
    last_word = over - HEARD_WITHIN
    session = await tx.get_one(Session, row.session_id)
    said = [
        Said(NotificationKind.SESSION_INTERRUPTED, interruption.subject_of(row), asked_at),
        Said(NotificationKind.SESSION_HELD, hold.subject_of(row, CheckpointStep.DESTROYED), last_word),
        Said(NotificationKind.REPLY, interruption.ended_by_subject(session), last_word),
    ]
    # A warning is brought up to date when the end is ordered; what counts is that one was tried at all.
    if session.deadline is not None:
        said.append(Said(NotificationKind.SESSION_ENDING, end_of_session.subject_of(session)))
    if session.cut_at is not None:
        said.append(
            Said(NotificationKind.SESSION_UNATTENDED, end_of_session.early_end_subject(session.id, session.cut_at))
        )
    return over if await unheard(tx, said) else None


def _over(row: Instance) -> datetime | None:
    """When it waits no longer for anybody to be told."""
    last = row.terminate_asked_at
    if last is not None and row.gate in _LAST_WORD and row.gate_until is not None:
        last = max(last, row.gate_until)
    return None if last is None else last + HEARD_WITHIN


async def release_waiting_ends(tx: Tx, notification: Notification, now: datetime) -> bool:
    """An attempt to tell was made: ends that waited for it are due. True when one is."""
    kind, session_id = notification.kind, notification.subject.partition("/")[0]
    other_reply = kind is NotificationKind.REPLY and not notification.subject.endswith(interruption.ENDED_BY)
    if not kind.delays_termination or other_reply:
        return False
    woken = False
    for row in await open_instances_of_session(tx, session_id):
        over = _over(row)
        waits = row.state is InstanceState.TERMINATING and row.terminate_acked_at is None
        # What the checkpoint gate holds, or a cloud that does not answer, is looked at again in its own time.
        if waits and over is not None and now < over and row.gate not in WAITS:
            await wake(tx, Instance, row.id, now)
            woken = True
    return woken
