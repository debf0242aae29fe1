"""A request that cannot be quoted: tried again a few times, then closed, so that nobody waits for ever unknowing."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from bot.services import asking
from bot.services.context import Context
from ledger.claims import Claim, release
from ledger.events import record
from ledger.journal import quote_failures
from ledger.models import Request
from ledger.moves import StaleMove, move
from ledger.states import RequestState
from ledger.values import SYSTEM

#: After so many failures in a row the request is closed; the pauses between them double.
TRIES_MAX: Final = 5
FIRST_PAUSE_S: Final = 5.0
FAILED: Final = "request.unquoted"

log = logging.getLogger(__name__)


async def may_try(ctx: Context, held: Claim) -> bool:
    """Whether to quote it (again). Whoever had it before and never came back has failed as well: what kills one
    process would kill every other that takes it over.
    """
    what = "the process that asked for offers was not heard of again"
    return not held.taken_over or await _note(ctx, held, what, again=False)


async def failed(ctx: Context, held: Claim, incident: str) -> None:
    """Note one failure of ours; the log alone says what happened, under the incident that people are told."""
    await _note(ctx, held, f"incident {incident}", again=True)


async def _note(ctx: Context, held: Claim, what: str, *, again: bool) -> bool:
    """Count a failure, and where it is tried `again`, give the request back until then. False after the last one."""
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            failures = await quote_failures(tx, held.row_id, FAILED) + 1
            record(tx, at=now, actor=SYSTEM, subject=held.row_id, kind=FAILED, reason=what)
            if failures < TRIES_MAX:
                pause = timedelta(seconds=FIRST_PAUSE_S * 2 ** (failures - 1))
                return not again or await release(tx, Request, held, due_at=now + pause)
            sentence = f"No offers could be read: something went wrong here, {what}. Ask again, or tell an operator."
            request = await move(
                tx,
                Request,
                held.row_id,
                RequestState.UNAVAILABLE,
                at=now,
                actor=SYSTEM,
                reason=sentence,
                claim=held.token,
                values={"outcome": sentence, "due_at": None, "claim_token": None, "claim_until": None},
            )
            await asking.close_family(tx, request, RequestState.CANCELLED, sentence, now, SYSTEM)
    except StaleMove:
        log.info("request %s was moved by somebody else", held.row_id)
    ctx.hints.outbox.set()
    return False
