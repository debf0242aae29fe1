"""Render a plan as the table and the page that people read in every client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bot.rules.market.outlook import chances_said, points_said, range_said, speed_said
from bot.rules.market.ranking import RankedOption
from bot.rules.sizing.throughput import say
from bot.rules.values.phrases import about_hours, hours, place_name, rate, usd
from bot.rules.values.text import in_markdown
from bot.services.market.answers import cloud_cell, without_key
from bot.services.plans.columns import PLAN_COLUMNS, USUAL
from bot.services.plans.planner import Planned
from bot.services.plans.sized_text import sized_lines

HEAD = tuple(PLAN_COLUMNS.values())
#: So many columns, the first ones, are shown where there is little room; the numbers among them.
NARROW = len(USUAL)
RIGHT = (0, 3, 4, 5)


def cells(option: RankedOption) -> tuple[str, ...]:
    """Return one line of the table, in the order of `PLAN_COLUMNS`."""
    offer, costs = option.offer, option.estimate
    tokens = costs.tokens_per_s
    price = offer.price_usd_h
    return (
        str(option.rank),
        f"{offer.gpu_count}x {offer.gpu}{' spot' if offer.spot else ''}",
        cloud_cell(offer.cloud, offer.source),
        usd(costs.expected_usd),
        about_hours(costs.hours) + (" (late)" if costs.late_hours else "") + (" (guess)" if costs.unknown else ""),
        "-" if price is None else rate(price).removesuffix("/h"),
        between(option),
        place_name(offer.region, offer.country),
        "-" if tokens is None else say(float(tokens[0])) + _not_tokens(costs.rate_unit),
        ", ".join(option.marks) or "-",
        offer.id,
    )


def _not_tokens(unit: str) -> str:
    return "" if unit == "tokens" else f" {unit}"


def between(option: RankedOption) -> str:
    """Write what four of five runs cost; where only hours are known, what is expected and the most."""
    costs = option.estimate
    most_usd = costs.worst_usd if costs.outlook is None else costs.outlook.usd_high
    return f"{usd(costs.best_usd)}–{usd(most_usd)}"


def odds(option: RankedOption) -> str:
    """Say the range of the hours, the chances of what was named, and the most; empty where only hours are known."""
    seen = option.estimate.outlook
    if seen is None:
        return ""
    most = f"Never more than {usd(option.estimate.worst_usd)}."
    return " ".join(filter(None, (range_said(seen), chances_said(seen), points_said(seen), most)))


def speed(option: RankedOption) -> str:
    """Say the throughput of an option with its goodput; empty where only hours are known."""
    seen, tokens = option.estimate.outlook, option.estimate.tokens_per_s
    if seen is None or tokens is None:
        return ""
    return f"{say(float(tokens[0]))} {option.estimate.rate_unit}/s while it runs. {speed_said(seen)}"


def title(planned: Planned) -> str:
    """Return what is planned, in the words of its request."""
    if planned.sized is not None:
        return f"the model that {usd(planned.sized.question.budget_usd)} trains"
    work = " ".join(planned.job.work)
    return work or f"a machine for {hours(planned.job.hours)}"


def body(planned: Planned) -> str:
    """Return the page: recommendation, table, trade-offs, what was left out and what was assumed."""
    return "\n".join(_lines(planned)).rstrip() + "\n"


def _lines(planned: Planned) -> Iterator[str]:
    options = planned.ranked.options
    yield f"# GPU plan: {in_markdown(title(planned))}"
    yield ""
    if planned.sized is not None:
        yield from sized_lines(planned.sized)
    if planned.best is None:
        yield in_markdown(planned.nothing)
        yield from _section("What would open the market", (one.sentence for one in planned.relaxations))
    else:
        yield f"Recommended: **{in_markdown(planned.best.offer.id)}**. {in_markdown(planned.best.why)}"
        yield from _table(options)
        yield from ("", "![Cost against hours](gpu_plan.png)")
        yield from _section("Why each has its rank", (f"#{one.rank}: {one.why}" for one in options))
        yield from _section("How sure it is", (f"#{one.rank}: {said}" for one in options if (said := odds(one))))
        yield from _section("How fast it is", (f"#{one.rank}: {said}" for one in options if (said := speed(one))))
        fits = dict.fromkeys(one.estimate.fit for one in options if one.estimate.fit)
        yield from _section("Memory", fits)
        yield from (
            "",
            "## The parts of the recommended total",
            "",
            "| part | expected | at most |",
            "|---|---|---|",
        )
        for part in planned.best.estimate.components:
            yield f"| {part.name} | {usd(part.expected_usd)} | {usd(part.worst_usd)} |"
    for method in planned.methods:
        yield from ("", f"## {method.heading}", "", f"Another run, with {in_markdown(method.word)}.")
        yield from _table(method.options)
    best = planned.best.estimate.assumptions if planned.best is not None else ()
    yield from _section("What is assumed", (*planned.assumed, *best))
    yield from _section("What could not be known", planned.unknown)
    yield from _section("What was skipped", (*planned.skipped, *planned.absent))
    yield from _section("How old the prices are", (*without_key(planned.answers), *planned.ages))


def _table(options: Iterable[RankedOption]) -> Iterator[str]:
    yield from ("", f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}")
    for option in options:
        yield f"| {' | '.join(in_markdown(cell) for cell in cells(option))} |"


def _section(heading: str, sentences: Iterable[str]) -> Iterator[str]:
    lines = [f"- {in_markdown(sentence)}" for sentence in sentences]
    if lines:
        yield from ("", f"## {heading}", "", *lines)
