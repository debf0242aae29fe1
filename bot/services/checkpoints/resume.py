"""Let a replacement continue from the last verified checkpoint, and notify people of the work that is lost.

The store is read once the replacement is intended, while it boots. Its agent gets the plan of its start-up only when
the answer is known, so that no job begins anew beside its own checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from bot.outbound.checkpoint_stores import StoreUnreachable
from bot.rules.checkpoints import resume as rules
from bot.rules.checkpoints import verification
from bot.rules.checkpoints.resume import LostWork, VerifiedCheckpoint
from bot.rules.checkpoints.stores import not_listed
from bot.rules.checkpoints.verification import Newest
from bot.rules.jobs.stored import checkpoint_of
from bot.services.checkpoints.target_places import counted_files
from bot.services.notifications.paging import alone
from bot.services.people import direct_messages
from bot.services.runtime.context import Context
from ledger.core import record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.models import Instance, Session
from ledger.queries.jobs.resume_points import Unresumed, add_resume_point, unresumed
from ledger.queries.lookups import instances_of_session

#: How often replacements without a resume point are looked for, and for how long a store that does not answer is asked.
LOOK_S = 10.0
ASKED_FOR = timedelta(minutes=15)
#: Replacements that are looked at in one pass.
MOST = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """The last verified checkpoint of a place, with its address; `why` says why there is none."""

    verified: VerifiedCheckpoint | None = None
    address: str = ""
    why: str = ""


async def last_verified_checkpoint(ctx: Context, location: str | None, now: datetime) -> FoundCheckpoint:
    """Return the last verified checkpoint of a session, by its request's `checkpoint=`.

    Raises `StoreUnreachable` when its store could not be read.
    """
    where = verification.place(location)
    if where is None or ctx.checkpoints is None:
        return FoundCheckpoint(why="GPU Shopper can't read its checkpoints")
    if not_listed(location, ctx.policy.checkpoint_places) is not None:
        return FoundCheckpoint(why="The policy doesn't list the place of its checkpoints")
    stored = await counted_files(ctx, ctx.checkpoints, where)
    found = rules.last_verified([Newest(one.path, one.size, one.at, one.digest) for one in stored], now)
    if found is None:
        return FoundCheckpoint(why="No checkpoint is complete" if stored else "There is no checkpoint yet")
    return FoundCheckpoint(found, rules.address(where, found.checkpoint.path))


def to_resume(replacements: Iterable[Unresumed]) -> list[Unresumed]:
    """Return which of these replacements one pass looks at: the first whose jobs keep checkpoints.

    Jobs without checkpoints never get a resume point, so they must not take the places of others.
    """
    return list(islice((one for one in replacements if checkpoint_of(one.job) is not None), MOST))


async def resumes_due(ctx: Context) -> int:
    """Find and store the resume point of every replacement that has none; return how many were looked at."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        waiting = to_resume(await unresumed(tx))
    # A store that does not answer delays no other one.
    await asyncio.gather(
        *(alone(ctx, one.instance.id, "the search for its checkpoint", _resume(ctx, one, now), None) for one in waiting)
    )
    if waiting:
        ctx.hints.outbox.set()
    return len(waiting)


async def _resume(ctx: Context, waiting: Unresumed, now: datetime) -> None:
    row = waiting.instance
    try:
        found = await last_verified_checkpoint(ctx, checkpoint_of(waiting.job), now)
    except StoreUnreachable as error:
        if now - row.created_at < ASKED_FOR:
            log.warning("the checkpoints for %s can't be read yet: %s", row.id, error)
            return
        found = FoundCheckpoint(why=f"Its checkpoints can't be read: {error}")
    async with ctx.db.write() as tx:
        session = await tx.get_one(Session, row.session_id)
        lost = _predecessor(await instances_of_session(tx, row.session_id), row)
        point, lost_at = found.verified, _lost_at(lost, now)
        began_at = lost.reachable_at or lost_at
        saved_at = point.checkpoint.at if point is not None else None
        work = LostWork.between(max(saved_at or began_at, began_at), lost_at, lost.price_usd_h)
        said = _said(session, found, work)
        added = await add_resume_point(
            tx,
            instance_id=row.id,
            session_id=row.session_id,
            lost_instance_id=lost.id,
            path=found.address,
            step=point.checkpoint.step if point is not None else None,
            size_bytes=point.checkpoint.size if point is not None else None,
            saved_at=saved_at,
            lost_at=lost_at,
            lost_s=work.seconds,
            lost_usd=work.usd,
            said=said,
            found_at=now,
        )
        if added:
            record(tx, now, SYSTEM, row.session_id, EventKind.CHECKPOINT_RESUMED, reason=said)
            subject = f"{row.id}/resume"
            await direct_messages.notify_owner(tx, ctx.policy, now, session, subject=subject, text=said)


def _predecessor(rows: list[Instance], row: Instance) -> Instance:
    """Return the newest machine before this one that ran; where none did, the newest one, or this one itself.

    A machine that never ran loses no work. Its replacement still gets a resume point, because its agent waits for one.
    """
    before = [one for one in rows if one.n < row.n]
    ran = [one for one in before if one.live_at is not None]
    return (ran or before or [row])[-1]


def _lost_at(lost: Instance, now: datetime) -> datetime:
    """Return when a machine stopped working, as far as that is known."""
    return min(filter(None, (lost.trouble_at, lost.billing_until, lost.ended_at, now)))


def _said(session: Session, found: FoundCheckpoint, work: LostWork) -> str:
    """Write the sentence for the owner and the audit log."""
    if found.verified is None:
        return (
            f"{found.why}, so session {session.short_id} begins its work anew on its new machine. {work.words} is lost."
        )
    one = found.verified.checkpoint
    step = f" of step {one.step:,}" if one.step is not None else ""
    saved = f"its checkpoint{step}, saved at {one.at:%H:%M} UTC"
    damaged = f" Passed over: {'; '.join(found.verified.damaged[:3])}." if found.verified.damaged else ""
    return (
        f"Session {session.short_id} continues on a new machine, from {saved}. "
        f"{work.words} is lost. Its approved end and amount stay.{damaged}"
    )
