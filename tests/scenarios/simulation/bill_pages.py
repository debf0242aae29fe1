"""Do what operators are paged for when a bill is above what its instance can have cost: look why, and confirm it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from decimal import Decimal

from bot.rules.billing.metering import so_far
from bot.services.billing import bill_confirmation
from bot.services.runtime.commands import Reply
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor, ActorKind
from ledger.queries.cloud_bills import BillSubject, subject_of
from providers.sandbox.engine import TrueInstance

OPERATOR = Actor(ActorKind.OPERATOR, "ada")
#: What such a page tells the operator to type.
COMMAND = re.compile(r"gpu-shopper bills confirm (\S+) --amount ([\d.]+) ")


async def confirm_explained(
    ctx: Context, pages: Iterable[str], instances: Collection[TrueInstance], hidden: Collection[str]
) -> list[Reply]:
    """Confirm each bill that the pages ask about and its cloud explains. Return the replies.

    A cloud explains it by a rate above the approved one, or because it had the instance in no listing (`hidden`). Any
    other bill stays in question: then it is the ledger that has the wrong time.
    """
    true = {(one.cloud, one.ref): one for one in instances}
    replies = []
    for row_id, amount in dict.fromkeys(found for page in pages for found in COMMAND.findall(page)):
        async with ctx.db.read() as tx:
            subject = await subject_of(tx, row_id)
        if subject is None:
            continue
        one = true[subject.cloud, subject.ref]
        if one.ref in hidden or one.total_usd > _at_the_approved_rate(ctx, subject, one):
            why = "The cloud shows why it charged that."
            replies.append(await bill_confirmation.confirm(ctx, row_id, Decimal(amount), OPERATOR, why))
    return replies


def _at_the_approved_rate(ctx: Context, subject: BillSubject, one: TrueInstance) -> Decimal:
    """Return what the time that it really existed costs at the most that was approved for an hour."""
    rule = ctx.providers[subject.cloud].capabilities.billing
    return so_far(one.created_at, one.ended_at or ctx.clock.now(), subject.most_usd_h, rule)
