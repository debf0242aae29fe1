"""Answers as tables and sentences: built once, shown by the command line here or through REST."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from bot.rules.comparison_text import cells, columns, elsewhere, elsewhere_columns
from bot.rules.wording import hours, rate, usd
from bot.services import plan_text
from bot.services.market_document import MarketDocument, MarketOption
from bot.services.planning import Compared, Planned


class TextTable(BaseModel):
    """A table for people."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class Told(BaseModel):
    """What people read: a line above, tables, and the sentences under them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lead: str = ""
    tables: tuple[TextTable, ...] = ()
    sentences: tuple[str, ...] = ()


def told_market(found: MarketDocument) -> Told:
    """The market: ranked offers, the age of the prices, who did not answer, what was left out and why."""
    head = ("#", "offer", "GPU", "region", "per hour", f"for {hours(found.hours)}", "why")
    answered = f"{found.answered:,} offer{'' if found.answered == 1 else 's'} answered."
    absent = [one.sentence for one in found.clouds if not one.ok]
    sentences = (*found.ages, *absent, *(one.sentence for one in found.excluded))
    if not found.options:
        return Told(sentences=("No offer fits now.", *sentences))
    table = TextTable(head=head, rows=tuple(_market_row(one) for one in found.options))
    return Told(tables=(table,), sentences=(answered, *sentences))


def _market_row(one: MarketOption) -> tuple[str, ...]:
    gpus = f"{one.gpu_count}x {one.gpu}{' spot' if one.spot else ''}"
    price = "-" if one.price_usd_h is None else rate(one.price_usd_h)
    return str(one.rank), one.offer_id, gpus, one.region, price, usd(one.expected_usd), one.why


def told_plan(planned: Planned) -> Told:
    """A plan: its table, why each stands where it stands, what was assumed and what could not be known."""
    options = planned.ranked.options
    best = planned.best.estimate if planned.best is not None else None
    said: list[str] = [*(f"#{one.rank} {one.why}" for one in options), *(one.sentence for one in planned.relaxations)]
    said += [best.fit, *planned.assumed, *best.assumptions] if best is not None else []
    said += [*planned.unknown, *(one.sentence for one in planned.ranked.excluded), *planned.absent, *planned.ages]
    table = TextTable(head=plan_text.HEAD, rows=tuple(plan_text.cells(one) for one in options))
    nothing = () if options else ("No offer fits now.",)
    return Told(
        lead=f"Plan for {plan_text.title(planned)}",
        tables=(table,) if options else (),
        sentences=(*nothing, *filter(None, said)),
    )


def told_comparison(compared: Compared) -> Told:
    """A comparison: one table per budget, then what cannot be rented here."""
    found = compared.found
    question = found.question
    tables = [
        _table(usd(budget), columns(question), [cells(row, place, question) for row in found.clouds])
        for place, budget in enumerate(question.budgets_usd)
    ]
    apart = [elsewhere(row) for row in found.elsewhere]
    tables.append(_table("Environments that cannot be rented here", elsewhere_columns(question), apart))
    lead = f"One run of {hours(question.hours)}, {question.buffer:.0%} buffer."
    return Told(lead=lead, tables=tuple(tables), sentences=(*found.notes, *compared.absent, *compared.ages))


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
    return TextTable(title=title, head=tuple(head), rows=tuple(tuple(row) for row in rows))
