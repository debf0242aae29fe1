"""Judge budgets: whom each one covers, for which period, and whether one more amount still fits.

What counts against a budget is what was spent in its time and what approvals in force may still spend. An hourly budget
is a rate: the sum of the approved prices per hour.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from bot.rules.values.phrases import Verdict, deny, usd
from bot.rules.values.reply_code import ReplyCode

#: `user:*` is a budget for each user on their own; `user:U012AB3CD` takes its place for that one.
SCOPE = re.compile(r"global|team:[\w-]{1,40}|label:(?:\*|[\w.-]{1,40})|(?:user|consumer):(?:\*|[\w:.@-]{1,80})")


class Period(StrEnum):
    HOURLY = "hourly"
    DAILY = "daily"
    MONTHLY = "monthly"
    TOTAL = "total"


class CostView(StrEnum):
    """How costs are cut: by the name of the bucket, or by that of the whole time, as people say either."""

    HOURLY = "hourly"
    DAILY = "daily"
    MONTHLY = "monthly"
    TOTAL = "total"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"

    @property
    def period(self) -> Period:
        """Return the period of the buckets: `month` is this month by the day, and so on."""
        return _WHOLE[self] if self in _WHOLE else Period(self.value)


_WHOLE = {CostView.DAY: Period.HOURLY, CostView.MONTH: Period.DAILY, CostView.YEAR: Period.MONTHLY}


def problems(budgets: Mapping[str, Mapping[str, Decimal]], teams: Collection[str]) -> Iterator[str]:
    """Say what is wrong with the budgets of a policy: one sentence each."""
    for scope, limits in budgets.items():
        if not SCOPE.fullmatch(scope):
            yield f"budgets: `{scope}` is not one of global, team:NAME, user:ID, consumer:NAME, label:NAME"
        if scope.startswith("team:") and scope.removeprefix("team:") not in teams:
            yield f"budgets: `{scope}` names a team that `teams` does not list"
        for period, limit in limits.items():
            if period not in set(Period) or not limit.is_finite() or limit < 0:
                yield f"budgets: `{scope}` needs amounts for hourly, daily, monthly or total, not {period}: {limit}"


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """Describe one budget as it is now, in dollars (an hourly one in dollars per hour).

    `key` names whose it is (`user:U012AB3CD`, also where the policy says `user:*`), `scope` is the policy's own word,
    `since` when its time began. `open_usd` is what approvals in force may still spend.
    """

    key: str
    scope: str
    period: Period
    limit_usd: Decimal
    spent_usd: Decimal
    open_usd: Decimal
    since: datetime | None = None

    @property
    def committed_usd(self) -> Decimal:
        """Return what counts against the limit."""
        return self.spent_usd + self.open_usd

    def adds(self, total_usd: Decimal, rate_usd_h: Decimal) -> Decimal:
        """Return what a new approval adds to this budget."""
        return rate_usd_h if self.period is Period.HOURLY else total_usd


def begins(period: Period, now: datetime) -> datetime | None:
    """Return when a budget's period began: the day or month in UTC; None where all or only running costs count."""
    if period is Period.DAILY:
        return now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period is Period.MONTHLY:
        return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return None


def together(
    policy: Mapping[str, Mapping[str, Decimal]], put: Mapping[str, Mapping[str, Decimal]]
) -> dict[str, dict[str, Decimal]]:
    """Merge the budgets of the policy with those that were set later: the lower limit holds where both name one.

    A name's own budget replaces the one for each, so it begins with that one's limits.
    """
    found = {scope: dict(limits) for scope, limits in policy.items()}
    for scope, limits in put.items():
        each = policy.get(f"{scope.partition(':')[0]}:*", {})
        held = found.setdefault(scope, dict(each))
        for period, limit in limits.items():
            held[period] = min(limit, held.get(period, limit))
    return found


def scopes_of(
    budgets: Collection[str], people: Iterable[str], programs: Iterable[str], teams: Iterable[str], label: str
) -> list[tuple[str, str]]:
    """Return the `(key, scope)` of each budget that a spend counts against.

    `people` and `programs` are the names of the spender, `teams` those that they belong to.
    """
    keys = ["global", *(f"team:{team}" for team in teams), *(f"user:{name}" for name in people)]
    keys += [*(f"consumer:{name}" for name in programs), *([f"label:{label}"] if label else [])]
    found = []
    for key in dict.fromkeys(keys):
        each = f"{key.partition(':')[0]}:*"
        scope = key if key in budgets else each if each in budgets else ""
        if scope:
            found.append((key, scope))
    return found


def fits(lines: Iterable[BudgetLine], total_usd: Decimal, rate_usd_h: Decimal) -> Verdict:
    """Whether a new approval fits into every budget; a refusal names the budget that it exceeds most."""
    over = [line for line in lines if line.committed_usd + line.adds(total_usd, rate_usd_h) > line.limit_usd]
    if not over:
        return Verdict(True, ReplyCode.OK, "It fits every budget.")
    worst = max(over, key=lambda line: line.committed_usd + line.adds(total_usd, rate_usd_h) - line.limit_usd)
    unit = "/h" if worst.period is Period.HOURLY else ""
    limit, committed, more = worst.limit_usd, worst.committed_usd, worst.adds(total_usd, rate_usd_h)
    sentence = (
        f"This doesn't fit the {worst.period} budget of {worst.key}. It may cost {usd(more)}{unit}, and "
        f"{usd(max(limit - committed, Decimal(0)))}{unit} of {usd(limit)}{unit} is left."
    )
    return deny(ReplyCode.OVER_BUDGET, sentence)


def reached(line: BudgetLine, total_usd: Decimal, rate_usd_h: Decimal, thresholds: Sequence[Decimal]) -> list[Decimal]:
    """Return the thresholds of a budget that are reached once this amount is added."""
    if line.limit_usd <= 0:
        return []
    used = line.committed_usd + line.adds(total_usd, rate_usd_h)
    return [share for share in sorted(thresholds) if share * line.limit_usd <= used]


def said(line: BudgetLine, added_usd: Decimal = Decimal(0)) -> str:
    """Write a budget in one line: `monthly $180.00 left of $300.00 (40% used: $100.00 spent, $20.00 reserved)`."""
    committed, reserved_usd = line.committed_usd + added_usd, line.open_usd + added_usd
    unit = "/h" if line.period is Period.HOURLY else ""
    left_usd = line.limit_usd - committed
    left = f"{usd(left_usd)}{unit} left of" if left_usd >= 0 else f"{usd(-left_usd)}{unit} above"
    percent = committed / line.limit_usd * 100 if line.limit_usd > 0 else None
    used = f"{round(percent, 0):f}% used" if percent is not None else "no spending allowed"
    parts = "" if unit else f": {usd(line.spent_usd)} spent"
    parts += f", {usd(reserved_usd)} reserved" if parts and reserved_usd else ""
    return f"{line.period} {left} {usd(line.limit_usd)}{unit} ({used}{parts})"
