"""Build the answers to `/gpu budget` and `/gpu costs`: what is spent, reserved and remaining."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from bot.blockkit import escape
from bot.rules.budgets.budget import BudgetLine, Period, said
from bot.rules.values.phrases import usd
from bot.services.billing.costs import SHOWN, TIERS, Costs, every_bucket, shortened
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
#: Slack shows at most this many points in a chart.
POINTS = 20


#: The longest bar of a chart in text, in signs: with its day and its amount it fits a phone.
BAR = 12


def spend_bars(whose: str, days: Sequence[tuple[datetime, Decimal]]) -> list[Block]:
    """Draw one line for each day, in text: Slack documents its own chart for messages only, not for a Home tab."""
    most_usd = max((amount for _, amount in days), default=Decimal(0))
    if most_usd <= 0:
        return []
    amounts = [usd(max(amount, Decimal(0))) for _, amount in days]
    wide = max(map(len, amounts))
    lines = [
        f"{f'{began:%b} {began.day}':<6} {written:>{wide}} {_bar(amount, most_usd)}".rstrip()
        for (began, amount), written in zip(days, amounts, strict=True)
    ]
    return [section("```" + escape("\n".join(lines)) + "```"), context(f"{whose} per day, in UTC.")]


def _bar(amount_usd: Decimal, most_usd: Decimal) -> str:
    # A day that cost anything has a bar, however short.
    length = int(amount_usd * BAR / most_usd)
    return "█" * max(length, 1) if amount_usd > 0 else ""


def spend_chart(title: str, buckets: Sequence[tuple[datetime, Decimal]], period: Period) -> list[Block]:
    """Draw the newest buckets as bars, in Slack's own chart, from the first that cost anything; none for one bar."""
    paid = [began for began, amount in buckets if amount > 0]
    # A day without a cost has its place on the axis, too.
    shown = every_bucket(buckets, TIERS[period], paid[0], buckets[-1][0])[-POINTS:] if paid else ()
    if len(shown) < 2:
        return []
    points = [(_label(began, period), amount) for began, amount in shown]
    names = [name for name, _ in points]
    data = [{"label": name, "value": float(max(cents(amount), Decimal(0)))} for name, amount in points]
    axes = {"categories": names, "x_label": _UNITS.get(period, "month"), "y_label": "US dollars"}
    chart = {"type": "bar", "axis_config": axes, "series": [{"name": "spent", "data": data}]}
    return [{"type": "data_visualization", "title": title, "chart": chart}]


def _label(began: datetime, period: Period) -> str:
    if period is Period.DAILY:
        return f"{began:%b} {began.day}"
    return f"{began:%H:00}" if period is Period.HOURLY else f"{began:%Y-%m}"


def _name(by: str, name: str) -> str:
    return person(name) if by == "owner" and ":" in name else safe(name, 60) or "none"
