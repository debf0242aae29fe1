"""Pause launches and automatic terminations while the ledger is not trusted alone.

An orphan that the ledger does not know means that the ledger has lost something, and so does a record that knows more
than the ledger. A ledger restored from a copy may know neither what runs nor what was extended since. So nothing is
bought, and only people's commands and approved ends terminate anything (`rules.instances`). The operators are paged
until one of them condemns the orphan or it is gone, and until one of them accepts the older ledger.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from bot.rules.instances.recovery_mode import recovery_notice
from bot.rules.instances.recovery_mode import waits_until as held_until
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import Reply, refuse
from ledger.core import StaleMove, Tx, announce, move, notification_of
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.states import LIVE_SESSION, NotificationKind, OrphanState, RequestState, SessionState
from ledger.models import Instance, Orphan, Session
from ledger.queries.orphans import orphan_by_id
from ledger.queries.recovery.older import Recovery, recovery
from ledger.queries.views import RequestView, SessionView

#: The states of a request that recovery mode delays.
WAITS = frozenset({RequestState.QUOTING, RequestState.PENDING, RequestState.APPROVED})
#: What an operator may condemn: orphans in quarantine, and those that only the circuit breaker of the reconcile pass
#: keeps from being terminated.
CONDEMNABLE = frozenset({OrphanState.SEEN, OrphanState.QUARANTINED})


async def is_on(tx: Tx) -> bool:
    """Whether an orphan that the ledger does not know, or an older ledger, waits for an operator."""
    return bool(await recovery(tx))


async def with_recovery_notice(tx: Tx, reply: Reply) -> Reply:
    """Add to an accepted command's reply that its work waits while recovery mode is on."""
    waits = await recovery(tx) if reply.ok else Recovery()
    sentence = recovery_notice(waits.unknown, is_older=waits.older_since is not None)
    return replace(reply, sentence=f"{reply.sentence} {sentence}") if sentence else reply


def of_request(view: RequestView) -> str:
    """Return the recovery notice for a request that recovery mode delays, else ""."""
    session = view.session
    is_open = view.request.state in WAITS and (session is None or session.state in LIVE_SESSION)
    return recovery_notice(view.unknown, is_older=view.is_older) if is_open else ""


def of_session(view: SessionView) -> str:
    """Return the recovery notice for a live session, else ""."""
    is_live = view.session.state in LIVE_SESSION
    return recovery_notice(view.unknown, is_older=view.is_older) if is_live else ""


async def now_on(db: Database) -> bool:
    """Whether recovery mode is on, read in a transaction of its own: once for all rows of a pass."""
    async with db.read() as tx:
        return await is_on(tx)


async def began_at(db: Database) -> datetime | None:
    """Return when recovery mode began; None while it is off."""
    async with db.read() as tx:
        return (await recovery(tx)).since


async def waits_until(tx: Tx, row: Instance, began: datetime, pause_s: float, now: datetime) -> datetime | None:
    """Return when to check an end again that recovery mode delays; None when it need not wait."""
    session = await tx.get_one(Session, row.session_id)
    own_end = session.end_code if session.state is SessionState.TERMINATING else None
    asked_at = row.terminate_asked_at or row.created_at
    return held_until(asked_at, own_end, session.deadline, began, now, timedelta(seconds=pause_s))


async def page_again(tx: Tx, orphan: Orphan, pause_s: float, now: datetime, destination: str) -> bool:
    """Page the operators once for each pause since the orphan was first seen; return whether a page was added."""
    number = int((now - orphan.first_seen_at).total_seconds() // pause_s)
    subject, kind = f"{orphan.id}/{number}", NotificationKind.OPERATOR_PAGE
    if number < 1 or await notification_of(tx, kind, subject, destination) is not None:
        return False
    what = (
        "has our label but belongs to no session. Until you adopt or condemn it, nothing is bought, and only people "
        "and approved ends end a session."
    )
    if orphan.instance_id is not None:
        what = "counted as lost, but its cloud lists it again, and it costs money. Ask its owner whether it is needed."
    sentence = f"{orphan.cloud} instance {orphan.ref} {what} To end it: {cli_command(f'orphans condemn {orphan.id}')}."
    await announce(tx, now, kind, subject, destination=destination, body={"text": sentence})
    return True


async def condemn(db: Database, orphan_id: str, actor: Actor, reason: str, now: datetime) -> Reply:
    """Condemn an orphan on behalf of an operator.

    The next reconcile pass of its cloud terminates it, whatever the circuit breaker says.
    """
    if not reason.strip():
        return refuse(ReplyCode.REASON_NEEDED, "Say why, for the audit log: --reason 'a test of last week'.")
    try:
        async with db.write() as tx:
            orphan = await orphan_by_id(tx, orphan_id)
            if orphan is None:
                return refuse(
                    ReplyCode.UNKNOWN_ID, f"There is no orphan {orphan_id}. See {cli_command('orphans list')}."
                )
            only = CONDEMNABLE
            await move(tx, Orphan, orphan.id, OrphanState.CONDEMNED, now, actor, reason, only_from=only)
    except StaleMove:
        return refuse(ReplyCode.STALE, f"{orphan_id} is no longer quarantined. See {cli_command('orphans list')}.")
    return Reply(True, ReplyCode.CONDEMNED, f"{orphan.cloud} instance {orphan.ref} is terminated within minutes.")
