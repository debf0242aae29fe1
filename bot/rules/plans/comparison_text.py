"""Write a comparison as the page that people keep (`environment-options.md`) and as plain JSON with every figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from bot.rules.plans.comparison import ComparedGpu, Comparison, ComparisonQuestion, PerRun
from bot.rules.plans.environments import Environment
from bot.rules.values.phrases import hours, rate, usd
from bot.rules.values.text import in_markdown

HEAD = ("GPU", "VRAM", "Spot $/Run", "Spot Runs", "On-Demand $/Run", "On-Demand Runs")
#: Columns that differ from budget to budget; all the rest is the same for each.
_OF_BUDGET = frozenset({"Spot Runs", "On-Demand Runs", "Training hours", "Successes", "Net"})


def markdown(found: Comparison) -> str:
    """Write the whole comparison as Markdown: one table per budget, then what cannot be rented here."""
    return "\n".join(_page(found)).rstrip() + "\n"


def _page(found: Comparison) -> Iterator[str]:
    question = found.question
    yield "# Environment options"
    yield ""
    yield (
        f"One run of {hours(question.hours)}, with a buffer of {question.buffer:.0%} for retries and restarts. "
        "Runs are the budget divided by the cost of a run, rounded down."
    )
    for place, budget in enumerate(question.budgets_usd):
        yield from ("", f"## {usd(budget)}", "")
        yield from _table(columns(question), (cells(row, place, question) for row in found.clouds))
    for note in found.notes:
        yield from ("", in_markdown(note))
    if found.elsewhere:
        yield from ("", "## Environments that cannot be rented here", "")
        head = elsewhere_columns(question)
        yield from _table(head, (elsewhere(row) for row in found.elsewhere))
        yield from _described(found.elsewhere)


def columns(question: ComparisonQuestion) -> tuple[str, ...]:
    """Return the head of the table: the six columns that people print, then what the question adds."""
    extra = ["Training hours"]
    extra += ["Savings"] if question.baseline_usd_h is not None else []
    extra += ["$/Success", "Successes"] if question.success_rate is not None else []
    extra += ["Return", "Net"] if _valued(question) else []
    return (*HEAD, *extra)


def _valued(question: ComparisonQuestion) -> bool:
    return question.success_rate is not None and question.value_usd is not None


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for cells in rows:
        yield f"| {' | '.join(in_markdown(cell) for cell in cells)} |"


def cells(row: ComparedGpu, place: int, question: ComparisonQuestion) -> tuple[str, ...]:
    """Return one line; the columns behind the two prices belong to the cheaper of the two."""
    cells = [row.option.gpu, f"{row.option.memory_gb}GB"]
    for side in (row.spot, row.on_demand):
        cells += ["-", "-"] if side is None else [usd(side.cost_usd), f"{side.budgets[place].runs:,}"]
    side = cheaper(row)
    line = side.budgets[place]
    cells.append(f"{line.training_hours.normalize():,f}")
    cells += [] if side.savings_percent is None else [f"{side.savings_percent:,}%"]
    if side.per_success_usd is not None and line.successes is not None:
        cells += [usd(side.per_success_usd), f"{line.successes:,}"]
    if side.roi_percent is not None and line.net_usd is not None and _valued(question):
        cells += [f"{side.roi_percent:,.0f}%", usd(line.net_usd)]
    return tuple(cells)


def together(found: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and lines of one table for all budgets: what differs between them has a column for each."""
    question = found.question
    head, budgets = columns(question), question.budgets_usd
    if len(budgets) == 1:
        return head, [cells(row, 0, question) for row in found.clouds]
    same = [place for place, name in enumerate(head) if name not in _OF_BUDGET]
    other = [place for place, name in enumerate(head) if name in _OF_BUDGET]
    named = [f"{head[place]} of {usd(budget)}" for budget in budgets for place in other]
    rows = []
    for row in found.clouds:
        each = [cells(row, place, question) for place in range(len(budgets))]
        rows.append((*(each[0][place] for place in same), *(line[place] for line in each for place in other)))
    return (*(head[place] for place in same), *named), rows


def cheaper(row: ComparedGpu) -> PerRun:
    """Return the cheaper side of a line, spot at the same cost. ValueError for a line without any price."""
    sides = [side for side in (row.spot, row.on_demand) if side is not None]
    return min(sides, key=lambda side: side.cost_usd)


def elsewhere_columns(question: ComparisonQuestion) -> tuple[str, ...]:
    """Return the head of the table of what cannot be rented here."""
    return (*HEAD[:2], "Environment", "$/h", "$/Run", f"Runs in {usd(question.budgets_usd[0])}", "Price of")


def elsewhere(row: ComparedGpu) -> tuple[str, ...]:
    """Return one line of what cannot be rented here. ValueError for a row of the market."""
    one, side = _environment(row), row.on_demand
    name = f"{one.name} ({one.quota})" if one.quota else one.name
    spot = f" (spot {rate(row.spot.price_usd_h)})" if row.spot is not None else ""
    paid = ("-", "-", "-")
    if side is not None:
        paid = (f"{rate(side.price_usd_h)}{spot}", usd(side.cost_usd), f"{side.budgets[0].runs:,}")
    return (row.option.gpu, f"{row.option.memory_gb}GB", name, *paid, one.as_of.isoformat())


def _described(rows: tuple[ComparedGpu, ...]) -> Iterator[str]:
    """Write pros, cons, verdict and sources, once per environment."""
    seen: dict[str, list[Environment]] = {}
    for row in rows:
        one = _environment(row)
        seen.setdefault(one.name, []).append(one)
    for name, same in seen.items():
        first = same[0]
        yield from ("", f"### {name}", "", first.verdict, "")
        yield from (f"- For: {word}" for word in first.pros)
        yield from (f"- Against: {word}" for word in first.cons)
        yield from dict.fromkeys(f"- Source: {one.source}" for one in same)
        yield from (f"- {one.gpu}: {one.note}" for one in same if one.note)


def _environment(row: ComparedGpu) -> Environment:
    if row.option.environment is None:
        raise ValueError(f"{row.option.gpu} is not an environment")
    return row.option.environment


def to_json(found: Comparison) -> dict[str, Any]:
    """Write every figure as plain JSON types; decimals become strings so that nothing passes through a float."""
    plain = _plain(asdict(found))
    return {"question": plain["question"], **{name: plain[name] for name in ("clouds", "elsewhere", "notes")}}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if hasattr(value, "isoformat") else value
