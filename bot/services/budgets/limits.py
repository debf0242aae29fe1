"""Set budgets while the service runs; they can only tighten those of the policy file."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

from bot.rules.budgets.budget import Period, problems, together
from bot.rules.values.phrases import usd
from bot.rules.values.reply_code import ReplyCode
from bot.services.notifications.paging import page_in
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, lock_budgets, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.queries.spend import budgets_set, put_budget

Limits = Mapping[str, Mapping[str, Decimal]]


async def in_force(ctx: Context, tx: Tx) -> Limits:
    """Return every budget in force: the policy file's and those set later, the lower one where both exist."""
    found = await budgets_set(tx)
    return together(ctx.policy.budgets, found) if found else MappingProxyType(dict(ctx.policy.budgets))


async def put(ctx: Context, actor: Actor, scope: str, period: Period, limit_usd: Decimal | None, reason: str) -> Reply:
    """Set a budget, or without a limit delete the one that was set, and page the operators.

    The budgets of the policy file stay.
    """
    wrong = next(problems({scope: {str(period): limit_usd or Decimal(0)}}, ctx.policy.teams), "")
    if wrong:
        return refuse(ReplyCode.BAD_BUDGET, f"{wrong.removeprefix('budgets: ')}.")
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await lock_budgets(tx)
        before = (await budgets_set(tx)).get(scope, {}).get(str(period))
        if before is None and limit_usd is None:
            return refuse(
                ReplyCode.UNKNOWN_BUDGET, f"{scope} has no {period} budget here. The policy file may have one."
            )
        await put_budget(tx, scope, str(period), limit_usd, actor.ref, now)
        said = f"{_amount(before)} to {_amount(limit_usd)}. {reason}".strip()
        record(tx, now, actor, f"budget:{scope}", EventKind.BUDGET_SET, reason=f"{period}: {said}")
        sentence = f"{actor.ref} changed the {period} budget of {scope} from {said}"
        await page_in(ctx, tx, f"budget/{scope}/{period}", sentence, now)
    ctx.hints.outbox.set()
    held = ctx.policy.budgets.get(scope, {}).get(str(period))
    lower = (
        f" The policy's {usd(held)} is lower, so it applies." if held is not None and held < (limit_usd or held) else ""
    )
    return Reply(True, ReplyCode.BUDGET_SET, f"The {period} budget of {scope} is {_amount(limit_usd)}.{lower}")


def _amount(limit_usd: Decimal | None) -> str:
    return "not set" if limit_usd is None else usd(limit_usd)
