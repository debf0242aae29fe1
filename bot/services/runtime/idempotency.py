"""Answer a repeated call (the same Idempotency-Key) with the first answer, without doing it again.

What the first call did is safe by itself (one request per key, one decision per key); the stored answer makes the
second call look like the first. A refusal changed nothing and is not stored: the next call is judged afresh.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor
from ledger.queries.access import first_answer, forget_answers, keep_answer

#: For this long a call may be repeated; afterwards its key is new again.
KEPT = timedelta(hours=48)
FORGET_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class IdempotentCall:
    """One call: `key` names it here and in the ledger; `answer` is set when it was answered before."""

    key: str
    status: int | None = None
    answer: dict[str, Any] | None = None


async def begin(ctx: Context, actor: Actor, sent: str, what: str) -> IdempotentCall | Reply:
    """Look up a call by its key; refuse it if `what`, all that must stay the same, differs from the first call."""
    key = f"{actor.ref}/{hashlib.sha256(sent.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"
    body_hash = hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()
    async with ctx.db.write() as tx:
        row = await first_answer(tx, key, body_hash, ctx.clock.now())
        if row.body_hash != body_hash:
            sentence = "This idempotency key was used for another call. Use a new key for a new call."
            return refuse(ReplyCode.IDEMPOTENCY_MISMATCH, sentence)
        return IdempotentCall(key, row.status, row.answer)


async def finish(ctx: Context, call: IdempotentCall, status: int, answer: dict[str, Any]) -> None:
    """Store the answer of a call."""
    async with ctx.db.write() as tx:
        await keep_answer(tx, call.key, status, answer)


async def forget_due(ctx: Context) -> int:
    """Delete the stored answers that are past their age limit; return how many."""
    before: datetime = ctx.clock.now() - KEPT
    async with ctx.db.write() as tx:
        return await forget_answers(tx, before)
