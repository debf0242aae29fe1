"""Terminate an instance and keep retrying until its absence is proved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bot.rules.billing.end_times import after_reply
from bot.services.checkpoints import verification
from bot.services.grants import reopen, reservations
from bot.services.instances import volume_ends
from bot.services.instances.blind_time import last_worked
from bot.services.instances.health import last_heartbeat_at
from bot.services.instances.transitions import end_instance, settle
from bot.services.notifications import end_of_session, request_message
from bot.services.notifications.paging import alone, page_in
from bot.services.outbox import barrier
from bot.services.people import direct_messages
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import approved_now
from bot.services.runtime.context import Context
from ledger.core import Claim, Tx, amend, claim_rows, decide, lock_family, move, release
from ledger.kernel.actor import Actor
from ledger.kernel.checkpoint_step import BEHIND
from ledger.kernel.end_reason import EndReason
from ledger.kernel.ids import short_id
from ledger.kernel.states import ENDABLE_SESSION, UNDECIDED, InstanceState, RequestState, SessionState
from ledger.models import Instance, Request, Session
from ledger.queries.lookups import open_instances_of_session
from providers.errors import ProviderError, Unsupported

BATCH = 16

log = logging.getLogger(__name__)


async def end_session(
    ctx: Context, tx: Tx, session_id: str, code: EndReason, sentence: str, actor: Actor, now: datetime
) -> None:
    """Order the end of a session and of all its instances. Raises `StaleMove` when it is ending already.

    Unsent creates are withdrawn, live instances are terminated, and an unknown outcome is terminated when it is found.
    """
    to, values = SessionState.TERMINATING, {"end_code": code, "end_reason": sentence}
    session = await move(tx, Session, session_id, to, now, actor, sentence, only_from=ENDABLE_SESSION, values=values)
    await end_of_session.refresh(tx, session, now)
    await reopen.close_extensions(tx, session.request_id, sentence, now, actor)
    await reservations.withdraw_ready(tx, session_id, sentence, now, actor)
    for instance in await open_instances_of_session(tx, session_id):
        if instance.state in (InstanceState.LIVE, InstanceState.STOPPED):
            await end_instance(tx, instance, code, sentence, now, actor)
    request = await tx.get_one(Request, session.request_id, populate_existing=True)
    if request.state in UNDECIDED:
        await decide(tx, request.id, RequestState.CANCELLED, now, actor, sentence)
    await settle(ctx, tx, session_id, now)


async def terminate_due(ctx: Context) -> int:
    """Call terminate for the instances that must end.

    A call that returns is not done: only complete listings without the instance prove the end.
    """
    lease = timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim_rows(
        ctx.db, Instance, now=ctx.clock.now(), states={InstanceState.TERMINATING}, limit=BATCH, lease=lease
    )
    began_at = await recovery_mode.began_at(ctx.db) if held else None
    await asyncio.gather(
        *(alone(ctx, row.id, "the end", _terminate(ctx, one, row, began_at), None) for one, row in held)
    )
    if held:
        ctx.hints.sweep.set()
    return len(held)


async def _terminate(ctx: Context, held: Claim, row: Instance, began_at: datetime | None) -> None:
    """Terminate one instance (`row`: as its claim left it), or postpone it. `began_at`: when recovery mode began."""
    now, waits_until = ctx.clock.now(), None
    if began_at is not None:
        async with ctx.db.read() as tx:
            waits_until = await recovery_mode.waits_until(tx, row, began_at, ctx.timing.recovery_page_s, now)
    # What its cloud accepted once was verified and announced before, and nothing can be saved on it any more.
    is_accepted = row.terminate_acked_at is not None
    if not is_accepted:
        waits_until = waits_until or await verification.waits_until(ctx, row, now)
    if waits_until is None and not is_accepted:
        # Read again, because the last decision of the checkpoint check must be announced before the termination, too.
        async with ctx.db.read() as tx:
            row = await tx.get_one(Instance, held.row_id)
            waits_until = await barrier.waits_until(tx, row, now)
    if waits_until is not None:
        async with ctx.db.write() as tx:
            await release(tx, Instance, held, due_at=waits_until)
        ctx.hints.outbox.set()
        return
    called_at, listed_at, was_there = approved_now(ctx.clock), ctx.listed_at.get(row.cloud), None
    problem, unreachable, had_no_effect = "", False, False
    # A call that its cloud accepted has a time already, which only another accepted call may change. A clock that no
    # cloud has confirmed gives none: it may be hours behind, and the end would be booked before the start.
    notes_call = called_at is not None and (not is_accepted or row.terminate_called_at is None)
    try:
        if row.ref is None:
            raise ValueError(f"{row.id} is ending but has no id at its cloud")
        provider = ctx.providers.get(row.cloud)
        if provider is None or provider.account != row.account:
            unreachable = True
        else:
            if notes_call:
                async with ctx.db.write() as tx:  # A process that dies during the call leaves when it called.
                    await amend(tx, Instance, row.id, terminate_called_at=called_at)
            was_there = await provider.terminate(row.ref)
    except Unsupported as error:
        await _wait_for_its_end(ctx, held, row, error.message)
        return
    except ProviderError as error:
        log.warning("terminating %s failed: %s", row.id, error.code)
        problem, had_no_effect = error.message, error.definite_no
        await volume_ends.notify_in_use(ctx, row, error)
    now = ctx.clock.now()
    # When it was last alive says something only where the cloud does not know it, and was not called before.
    alive_at = await last_heartbeat_at(ctx, row) if (was_there, row.terminate_called_at) == (False, None) else None
    shown_at = None if row.absent_at else listed_at  # A listing without it does not count.
    unseen = await last_worked(ctx, row, row.terminate_asked_at or now, shown_at) if was_there else {}
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, row.id)
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        if was_there is not None and approved_now(ctx.clock) is not None:
            await _acknowledged(ctx, tx, row, fresh, called_at or now, alive_at, now, unseen, was_there=was_there)
        waiting_s = (now - _sent_since(fresh)).total_seconds()
        pause_s = min(max(ctx.timing.terminate_retry_s, waiting_s / 2), ctx.timing.terminate_retry_max_s)
        back = {"terminate_called_at": row.terminate_called_at} if had_no_effect and notes_call else {}
        await release(tx, Instance, held, due_at=now + timedelta(seconds=pause_s), **back)
        # `operator_reminders` pages once for all instances of an account that is not set up here.
        if waiting_s > ctx.timing.terminate_page_s and not unreachable:
            await _page(ctx, tx, row, problem or "the cloud accepted the termination but still lists it", now)


async def _acknowledged(
    ctx: Context,
    tx: Tx,
    row: Instance,
    fresh: Instance,
    called_at: datetime,
    alive_at: datetime | None,
    now: datetime,
    unseen: Mapping[str, Any],
    *,
    was_there: bool,
) -> None:
    """Store what a cloud's reply to a termination shows, although the claim may be lost: billing stops with it.

    `fresh` was read in this transaction, with its family locked. `unseen`: when it last worked, if nobody knows that.
    """
    lag = timedelta(seconds=ctx.providers[row.cloud].capabilities.visibility_lag_s)
    before, alive_at = row.terminate_called_at, alive_at or row.reachable_at
    reply = after_reply(fresh, before, called_at, now, lag, was_there=was_there, alive_at=alive_at)
    if fresh.state is InstanceState.TERMINATING and reply:
        is_known = fresh.worked_at is not None or fresh.terminate_acked_at is not None
        await amend(tx, Instance, fresh.id, version=fresh.version, **({} if is_known else unseen), **reply)


def _sent_since(row: Instance) -> datetime:
    """Return since when the cloud is called to end it: from the order, or from its release by the checkpoint check."""
    ordered_at = row.terminate_asked_at or row.created_at
    return max(ordered_at, row.checkpoint_until or ordered_at) if row.checkpoint_step in BEHIND else ordered_at


async def _wait_for_its_end(ctx: Context, held: Claim, row: Instance, why: str) -> None:
    """Wait for an instance that nothing can end from outside, and notify its owner once.

    A reconcile pass closes it when it has ended by itself.
    """
    now = ctx.clock.now()
    sentence = f"Session {short_id(row.request_id)} keeps running, although you ended it: {why}."
    log.info("%s cannot be ended from outside: %s", row.id, why)
    async with ctx.db.write() as tx:
        # That call had no effect, so it is taken back.
        values = {"outcome": f"{row.outcome} {why}.".strip(), "terminate_called_at": row.terminate_called_at}
        await release(tx, Instance, held, due_at=None, **values)
        session = await tx.get_one(Session, row.session_id)
        await direct_messages.notify_owner(tx, ctx.policy, now, session, subject=f"{row.id}/goes-on", text=sentence)
        await request_message.show_again(tx, await tx.get_one(Request, row.request_id), now)
    ctx.hints.outbox.set()


async def _page(ctx: Context, tx: Tx, row: Instance, problem: str, now: datetime) -> None:
    sentence = (
        f"{row.cloud} does not terminate {row.name} ({row.ref}): {problem}. GPU Shopper keeps trying until it is gone."
    )
    await page_in(ctx, tx, row.id, sentence, now)
