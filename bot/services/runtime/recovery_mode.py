"""Recovery: an instance of ours without a row means that the ledger has lost something, so nothing is done on its word.

While one waits, nothing is bought, and nothing is ended on the word of a look: a ledger that was restored from a copy
may know neither what runs nor what was extended since. People's words and approved ends go on (`rules.instances`).
The operators are paged until one of them says that the instance is to end, or until it is gone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from bot.rules.instances.recovery_mode import HOLD, recovery_notice
from bot.rules.instances.recovery_mode import waits_until as held_until
from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import Reply
from ledger.core.events import announce
from ledger.core.moves import StaleMove, move
from ledger.core.outbox import notification_of
from ledger.core.writes import Tx
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.states import LIVE_SESSION, NotificationKind, OrphanState, RequestState, SessionState
from ledger.models import Instance, Orphan, Session
from ledger.queries.orphans import orphan_by_id, unknown_instances, waiting_orphans
from ledger.queries.views import RequestView, SessionView

__all__ = [
    "HOLD",
    "began_at",
    "condemn",
    "is_on",
    "now_on",
    "of_request",
    "of_session",
    "page_again",
    "waits_until",
    "with_recovery_notice",
]

#: What a request goes on from.
WAITS = frozenset({RequestState.QUOTING, RequestState.PENDING, RequestState.APPROVED})
#: What an operator may condemn: what waits for a word, and what the sweep would end but for its breaker.
CONDEMNABLE = frozenset({OrphanState.SEEN, OrphanState.QUARANTINED})


async def is_on(tx: Tx) -> bool:
    """Whether an instance that the ledger does not know waits for an operator's word."""
    return bool(await waiting_orphans(tx))


async def with_recovery_notice(tx: Tx, reply: Reply) -> Reply:
    """The answer to a command that was taken, and that what it orders waits as long as recovery is on."""
    sentence = recovery_notice(await unknown_instances(tx)) if reply.ok else ""
    return replace(reply, sentence=f"{reply.sentence} {sentence}") if sentence else reply


def of_request(view: RequestView) -> str:
    """What is said about a request whose end is not reached while recovery is on, else ""."""
    session = view.session
    is_open = view.request.state in WAITS and (session is None or session.state in LIVE_SESSION)
    return recovery_notice(view.unknown) if is_open else ""


def of_session(view: SessionView) -> str:
    """The same about a session."""
    return recovery_notice(view.unknown) if view.session.state in LIVE_SESSION else ""


async def now_on(db: Database) -> bool:
    """The same from a read of its own: once for all rows of a pass."""
    async with db.read() as tx:
        return await is_on(tx)


async def began_at(db: Database) -> datetime | None:
    """Since when one waits; None when nothing does."""
    async with db.read() as tx:
        return min((stray.first_seen_at for stray in await waiting_orphans(tx)), default=None)


async def waits_until(tx: Tx, row: Instance, began: datetime, pause_s: float, now: datetime) -> datetime | None:
    """When to look again at an end that waits for the recovery that began then; None when it need not wait."""
    session = await tx.get_one(Session, row.session_id)
    own_end = session.end_code if session.state is SessionState.TERMINATING else None
    asked_at = row.terminate_asked_at or row.created_at
    return held_until(asked_at, own_end, session.deadline, began, now, timedelta(seconds=pause_s))


async def page_again(tx: Tx, stray: Orphan, pause_s: float, now: datetime, destination: str) -> bool:
    """One more page for each pause that has passed since it was first seen; each is a message of its own. True: new."""
    number = int((now - stray.first_seen_at).total_seconds() // pause_s)
    subject, kind = f"{stray.id}/{number}", NotificationKind.OPERATOR_PAGE
    if number < 1 or await notification_of(tx, kind, subject, destination) is not None:
        return False
    what = (
        "carries our label and has no row here. While it waits, nothing is bought, and only people and approved ends "
        "end anything."
    )
    if stray.instance_id is not None:
        what = "had been taken for lost and is listed again, and it costs. Ask its owner whether it is needed."
    sentence = f"{stray.cloud} instance {stray.ref} {what} End it there, or with gpu-shopper strays condemn {stray.id}."
    await announce(tx, at=now, kind=kind, subject=subject, destination=destination, body={"text": sentence})
    return True


async def condemn(db: Database, stray_id: str, actor: Actor, reason: str, now: datetime) -> Reply:
    """An operator's word that a stray is to end; the next look at its cloud ends it, whatever its breaker says."""
    if not reason.strip():
        return Reply(False, ReplyCode.REASON_NEEDED, "Say why, for the journal: --reason 'a test of last week'.")
    try:
        async with db.write() as tx:
            stray = await orphan_by_id(tx, stray_id)
            if stray is None:
                return Reply(
                    False, ReplyCode.UNKNOWN_ID, f"There is no stray {stray_id}; gpu-shopper strays list shows them."
                )
            only = CONDEMNABLE
            await move(tx, Orphan, stray.id, OrphanState.CONDEMNED, at=now, actor=actor, reason=reason, only_from=only)
    except StaleMove:
        return Reply(
            False,
            ReplyCode.STALE,
            f"{stray_id} does not wait any more; gpu-shopper strays list shows what became of it.",
        )
    return Reply(
        True, ReplyCode.CONDEMNED, f"{stray.cloud} instance {stray.ref} is ended at the next look at its cloud."
    )
