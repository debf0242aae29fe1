"""What was spent, grouped as people ask for it: from the booked entries, so the running hour is not in it yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from bot.rules.budget import Period, begins
from bot.rules.completion import WENT_WELL, WENT_WRONG, Outcome, SuccessCost, cost_per_success
from bot.services import access
from bot.services.context import Context
from ledger.spending import EVERYBODY, GROUPS, Purse, costs, outcomes, spent
from ledger.values import Actor

#: How many names of one grouping are shown; the rest is one line.
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Costs:
    """Dollars of today and of this month (UTC), and the month by owner, cloud, GPU and label.

    `finished` is about the sessions that ended this month with a word on how their work went.
    """

    since: datetime
    today_usd: Decimal
    month_usd: Decimal
    groups: dict[str, tuple[tuple[str, Decimal], ...]]
    finished: SuccessCost


async def overview(ctx: Context, actor: Actor | None = None) -> Costs:
    """One person's costs with those of the programs that they answer for; without one, everybody's."""
    now = ctx.clock.now()
    day, month = begins(Period.DAILY, now) or now, begins(Period.MONTHLY, now) or now
    async with ctx.db.read() as tx:
        purse = EVERYBODY if actor is None else Purse(await access.mine(tx, ctx.policy, actor))
        groups = {by: tuple(await costs(tx, purse, by, month, now)) for by in GROUPS}
        ended = await outcomes(tx, purse, WENT_WELL | WENT_WRONG, month, now)
        finished = cost_per_success(Outcome(amount_usd, code in WENT_WELL) for code, amount_usd in ended)
        return Costs(month, await spent(tx, purse, day), await spent(tx, purse, month), groups, finished)


def shortened(rows: tuple[tuple[str, Decimal], ...]) -> list[tuple[str, Decimal]]:
    """The greatest, and the sum of all others."""
    rest = rows[SHOWN:]
    others = [(f"{len(rest)} others", sum((amount for _, amount in rest), Decimal(0)))] if rest else []
    return [*rows[:SHOWN], *others]
