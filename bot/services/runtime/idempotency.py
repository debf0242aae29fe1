"""Calls with an Idempotency-Key: the same call again is answered as the first time, and does nothing again.

What the first call did is safe by itself (a request is asked once for its key, a decision is made once); the stored
answer makes the second one look like the first. A refusal changed nothing and is not stored: it is judged anew.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import Reply
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor
from ledger.queries.access import first_answer, forget_answers, keep_answer

#: For this long a call may be repeated; afterwards its key is new again.
KEPT = timedelta(hours=48)
FORGET_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class IdempotentCall:
    """One call: `key` is unique to it and names it in the ledger too; `answer` is set when it was answered before."""

    key: str
    status: int | None = None
    answer: dict[str, Any] | None = None


async def begin(ctx: Context, actor: Actor, sent: str, what: str) -> IdempotentCall | Reply:
    """Look a call up by the key that was sent. `what` is everything that must be the same the second time.

    A refusal when the key was used for another call.
    """
    key = f"{actor.ref}/{hashlib.sha256(sent.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"
    body_hash = hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()
    async with ctx.db.write() as tx:
        row = await first_answer(tx, key, body_hash, ctx.clock.now())
        if row.body_hash != body_hash:
            sentence = "This Idempotency-Key (--again) was used for another call; take a new one for a new call."
            return Reply(False, ReplyCode.IDEMPOTENCY_MISMATCH, sentence)
        return IdempotentCall(key, row.status, row.answer)


async def finish(ctx: Context, call: IdempotentCall, status: int, answer: dict[str, Any]) -> None:
    """Store what the call was answered."""
    async with ctx.db.write() as tx:
        await keep_answer(tx, call.key, status, answer)


async def forget_due(ctx: Context) -> int:
    """Drop the answers that nobody may ask for any more; returns how many."""
    before: datetime = ctx.clock.now() - KEPT
    async with ctx.db.write() as tx:
        return await forget_answers(tx, before)
