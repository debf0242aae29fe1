"""Page the operators, once per problem, and keep one row's failure from stopping other rows."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import TypeVar

from bot.services.runtime.context import Context
from ledger.core import StaleMove, Tx, announce, notification_of, notify_person
from ledger.kernel.states import NotificationKind
from ledger.models import Session

OPERATORS = "channel:operators"

log = logging.getLogger(__name__)

Result = TypeVar("Result")


async def page(ctx: Context, subject: str, sentence: str) -> None:
    """Page the operators: one message per subject, updated; the same sentence is repeated only after a pause."""
    async with ctx.db.write() as tx:
        said = await page_in(ctx, tx, subject, sentence, ctx.clock.now())
    if said:
        ctx.hints.outbox.set()


async def page_in(ctx: Context, tx: Tx, subject: str, sentence: str, now: datetime) -> bool:
    """Page the operators in the caller's transaction. False when they have the same sentence already."""
    kind, body = NotificationKind.OPERATOR_PAGE, {"text": sentence}
    there = await notification_of(tx, kind, subject, OPERATORS)
    pause = timedelta(seconds=ctx.timing.recovery_page_s)
    if there is not None and there.body == body and now - (there.sent_at or there.created_at) < pause:
        return False
    await announce(tx, now, kind, subject, destination=OPERATORS, body=body)
    return True


async def page_with_owner(tx: Tx, session: Session, subject: str, text: str, now: datetime) -> None:
    """Page the operators, and send the session's owner the same text."""
    await announce(tx, now, NotificationKind.OPERATOR_PAGE, subject, destination=OPERATORS, body={"text": text})
    await notify_person(tx, now, session.owner, subject=subject, text=text)


async def alone(ctx: Context, subject: str, what: str, step: Awaitable[Result], otherwise: Result) -> Result:
    """Await one row's step so that its failure stops no other row.

    A failure is logged, the operators are paged, `otherwise` is returned, and the step is tried again when the row is
    due again. `StaleMove` is no failure.
    """
    try:
        return await step
    except StaleMove:
        log.info("%s was moved by somebody else", subject)
    except Exception:
        log.exception("%s of %s failed", what, subject)
        # The same sentence whatever fails, so that a row that fails in several ways is one message and not many.
        sentence = f"A step of {subject} fails, and GPU Shopper keeps trying. See its log."
        try:
            await page(ctx, f"{subject}/failed", sentence)
        except Exception:
            log.exception("the operators could not be notified of %s", subject)
    return otherwise
