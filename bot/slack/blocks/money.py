"""Build the answers to `/gpu budget` and `/gpu costs`: what is spent, reserved and remaining."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from bot.blockkit import escape
from bot.rules.budgets.budget import BudgetLine, Period, said
from bot.services.billing.costs import SHOWN, Costs, shortened
from bot.services.billing.shared_ledger import Summary
from bot.slack.blocks.elements import Block, Message, clip, context, dollars, person, safe, section, when
from ledger.kernel.money import cents


def budget(lines: Sequence[BudgetLine]) -> Message:
    """Show the budgets that apply to somebody."""
    if not lines:
        nothing = "You have no budget."
        return Message.of(nothing)
    keys = dict.fromkeys(line.key for line in lines)
    parts = [f"*{_whose(key)}*: " + "; ".join(escape(said(one)) for one in lines if one.key == key) for key in keys]
    blocks: list[Block] = [section("\n".join([":bank: *Budgets*", *parts]))]
    hint = "What approvals may still spend counts as reserved. Days and months are counted in UTC."
    return Message(clip(" ".join(parts), 3_900), (*blocks, context(hint)))


def _whose(key: str) -> str:
    kind, _, name = key.partition(":")
    return f"<@{name}>" if kind == "user" and name.isalnum() and name[:1] in "UW" else safe(key, 80)


def costs(found: Costs, *, everybody: bool) -> Message:
    """Show what was spent in a time, by when and by what."""
    lead = "Everybody's costs" if everybody else "Your costs"
    total = f"*{lead}*: {dollars(found.total_usd)} since {when(found.since)}, {dollars(found.today_usd)} of it today."
    total += f" {dollars(found.running_usd)} of it is still running." if found.running_usd else ""
    parts = [total]
    for by, rows in found.groups.items():
        named = [row for row in rows if row[0] or by not in ("consumer", "tool")]
        if not named or (by == "owner" and not everybody):
            continue
        parts.append(f"*By {_BY[by]}*: {', '.join(f'{_name(by, n)} {dollars(a)}' for n, a in shortened(tuple(named)))}")
    if found.finished.runs:
        parts.append(f"*Finished*: {escape(found.finished.sentence)}")
    hint = "Days and months are counted in UTC. `/gpu list` shows each machine."
    hint += "" if everybody else " Approvers see everybody's costs here."
    graph = spend_chart(_TITLES[found.period], found.buckets, found.period)
    return Message(clip(" ".join(parts), 3_900), (section(":receipt: " + "\n".join(parts)), *graph, context(hint)))


def summary(found: Summary, *, everybody: bool) -> Message:
    """Show everything that was ever spent, by tool, provider and owner, with the budgets."""
    lead = "Everybody's costs" if everybody else "Your costs"
    parts = [f"*{lead} in all*: {dollars(found.total_usd)}"]
    for title, by, rows in (
        ("tool", "tool", found.tools),
        ("provider", "cloud", found.providers),
        ("owner", "owner", found.owners),
    ):
        if rows and (by != "owner" or everybody):
            parts.append(f"*Per {title}*: {', '.join(f'{_name(by, n)} {dollars(a)}' for n, a in shortened(rows))}")
    budgets = [f":bank: {safe(line, 200)}" for line in found.budgets[:SHOWN]] or ["No budget is set."]
    hint = "`gpu-shopper ledger summary --out cost_summary.md` writes it into a file."
    blocks = (section(":receipt: " + "\n".join(parts)), section("\n".join(budgets)), context(hint))
    return Message(clip(" ".join([*parts, *budgets]), 3_900), blocks)


_BY = {
    "owner": "owner",
    "consumer": "program",
    "cloud": "cloud",
    "gpu": "GPU",
    "label": "project",
    "tool": "other tool",
}
_TITLES = {
    Period.HOURLY: "Dollars per hour, UTC",
    Period.DAILY: "Dollars per day",
    Period.MONTHLY: "Dollars per month",
    Period.TOTAL: "Dollars per month",
}
_UNITS = {Period.HOURLY: "hour (UTC)", Period.DAILY: "day"}
_LABELS = {Period.HOURLY: "%H:00", Period.DAILY: "%b %d"}
#: Slack shows at most this many points in a chart.
POINTS = 20


def spend_chart(title: str, buckets: Sequence[tuple[datetime, Decimal]], period: Period) -> list[Block]:
    """Draw the newest buckets as bars, in Slack's own chart, from the first that cost anything; none for one bar."""
    first = next((n for n, (_, amount) in enumerate(buckets) if amount > 0), len(buckets))
    shown = _without_gaps(buckets[first:], period)[-POINTS:]
    if len(shown) < 2:
        return []
    points = [(f"{began:{_LABELS.get(period, '%Y-%m')}}", amount) for began, amount in shown]
    names = [name for name, _ in points]
    data = [{"label": name, "value": float(max(cents(amount), Decimal(0)))} for name, amount in points]
    axes = {"categories": names, "x_label": _UNITS.get(period, "month"), "y_label": "US dollars"}
    chart = {"type": "bar", "axis_config": axes, "series": [{"name": "spent", "data": data}]}
    return [{"type": "data_visualization", "title": title, "chart": chart}]


def _without_gaps(buckets: Sequence[tuple[datetime, Decimal]], period: Period) -> list[tuple[datetime, Decimal]]:
    """Add the hours or days in between that cost nothing, so that equal distances are equal times."""
    step = {Period.HOURLY: timedelta(hours=1), Period.DAILY: timedelta(days=1)}.get(period)
    if step is None or not buckets:
        return list(buckets)
    spent, last = dict(buckets), buckets[-1][0]
    moments = [buckets[0][0] + step * number for number in range((last - buckets[0][0]) // step + 1)]
    return [(moment, spent.get(moment, Decimal(0))) for moment in moments]


def _name(by: str, name: str) -> str:
    return person(name) if by == "owner" and ":" in name else safe(name, 60) or "none"
