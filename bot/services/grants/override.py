"""Open the 12-hour override request, and close it when it is not needed any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from bot.rules.jobs.stored import job_of, stored_job
from bot.rules.pricing import hours_cap
from bot.services.notifications.request_message import show_again
from ledger.core import Tx, decide, record
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id, url_token
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Request, Token
from ledger.queries.lookups import override_of


async def ask_override(
    tx: Tx, parent: Request, total_h: Decimal, sentence: str, now: datetime, *, due_at: datetime
) -> Request:
    """Open the override request that a person must approve before anything above the 12-hour cap is bought.

    `total_h` are all hours that it allows, including those billed before and a checkpoint hold at the end.
    """
    job = job_of(parent.job)
    job = replace(job, already_hours=max(hours_cap.rented(total_h) - job.hours, Decimal(0)))
    override = Request(
        id=new_id("req", now),
        kind=RequestKind.OVERRIDE_12H,
        state=RequestState.PENDING,
        quote_version=1,
        inbox_key=f"override/{parent.id}/{parent.quote_version}",
        parent_id=parent.id,
        requester=parent.requester,
        job=stored_job(job),
        reason=parent.reason,
        channel=parent.channel,
        rule=sentence,
        required_approvals=1,
        expires_at=parent.expires_at,
        created_at=now,
        due_at=due_at,
    )
    tx.add(override)
    await tx.flush()
    for action in ("approve", "reject"):
        tx.add(Token(token=url_token(), request_id=override.id, quote_version=1, action=action))
    record(tx, now, SYSTEM, override.id, EventKind.REQUEST_MADE, after=override.state, reason=sentence)
    await show_again(tx, parent, now)
    return override


async def close_override(tx: Tx, request_id: str, sentence: str, now: datetime, actor: Actor) -> None:
    """Cancel a pending override request that the decision made unnecessary; its message says so."""
    override = await override_of(tx, request_id)
    if override is not None and override.state is RequestState.PENDING:
        await decide(tx, override.id, RequestState.CANCELLED, now, actor, sentence)
