"""Set budgets while the service runs; they can only tighten those of the policy file."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from bot.rules.budgets.budget import Period, problems
from bot.rules.budgets.budget import said as said_now
from bot.rules.values.phrases import usd
from bot.rules.values.reply_code import ReplyCode
from bot.services.budgets import enforcement
from bot.services.notifications.paging import page_in
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import lock_budgets, record
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.queries.spend import budgets_set, put_budget

#: What follows from a budget below what is already spent or reserved.
EXCEEDED = "Running machines keep running; new requests that count against it need a budget administrator."


async def put(
    ctx: Context,
    actor: Actor,
    scope: str,
    period: Period,
    limit_usd: Decimal | None,
    reason: str,
    thresholds: Sequence[Decimal] | None = None,
) -> Reply:
    """Set a budget, or without a limit delete the one that was set, and page the operators.

    The budgets of the policy file stay. `thresholds` are the shares at which people are notified; without them those of
    the policy.
    """
    wrong = next(problems({scope: {str(period): limit_usd or Decimal(0)}}, ctx.policy.teams), "")
    if not all(0 < share <= 1 for share in thresholds or ()):
        wrong = "a threshold is a share of the limit, above 0 and at most 1, for example 0.8"
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
        await put_budget(tx, scope, str(period), limit_usd, actor.ref, now, thresholds)
        said = f"{_amount(before)} to {_amount(limit_usd)}.{_warns(thresholds)} {reason}".strip()
        record(tx, now, actor, f"budget:{scope}", EventKind.BUDGET_SET, reason=f"{period}: {said}")
        sentence = f"{actor.ref} changed the {period} budget of {scope} from {said}"
        await page_in(ctx, tx, f"budget/{scope}/{period}", sentence, now)
        line = next(
            (one for one in await enforcement.named(ctx, tx, now) if (one.key, one.period) == (scope, period)), None
        )
    ctx.hints.outbox.set()
    held = ctx.policy.budgets.get(scope, {}).get(str(period))
    lower = (
        f" The policy's {usd(held)} is lower, so it applies." if held is not None and held < (limit_usd or held) else ""
    )
    over = (
        f" That is already exceeded: {said_now(line)}. {EXCEEDED}"
        if line and line.committed_usd > line.limit_usd
        else ""
    )
    return Reply(
        True,
        ReplyCode.BUDGET_SET,
        f"The {period} budget of {scope} is {_amount(limit_usd)}.{_warns(thresholds)}{lower}{over}",
    )


def _warns(thresholds: Sequence[Decimal] | None) -> str:
    if thresholds is None:
        return ""
    shares = ", ".join(f"{share * 100:.0f}%" for share in sorted(thresholds))
    return f" Warnings at {shares}." if shares else " Nobody is warned."


def _amount(limit_usd: Decimal | None) -> str:
    return "not set" if limit_usd is None else usd(limit_usd)
