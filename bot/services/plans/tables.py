"""Build plans and comparisons as tables and sentences, for the local command line and for REST."""

from __future__ import annotations

from collections.abc import Sequence

from bot.rules.market.model_for_budget import Sized
from bot.rules.plans.comparison_text import elsewhere, elsewhere_columns, together
from bot.rules.values.phrases import hours, usd
from bot.rules.values.text_table import TextReport, TextTable
from bot.services.market.answers import lacking, refusals, without_key
from bot.services.plans import sized_text, text
from bot.services.plans.planner import Compared, Planned


def plan_table(planned: Planned) -> TextReport:
    """Return a plan: its table, the reason for each rank, the assumptions and the unknowns."""
    if planned.sized is not None:
        return _sized_table(planned, planned.sized)
    options = planned.ranked.options
    best = planned.best.estimate if planned.best is not None else None
    said: list[str] = [f"#{one.rank} {one.why}" for one in options]
    said += [f"#{one.rank} {sure}" for one in options if (sure := text.odds(one))]
    said += [text.speed(planned.best)] if planned.best is not None else []
    said += [one.sentence for one in planned.relaxations]
    said += [best.fit, *planned.assumed, *best.assumptions] if best is not None else []
    said += [*planned.unknown, *planned.skipped, *without_key(planned.answers), *refusals(planned.answers)]
    tables = [TextTable(head=text.HEAD, rows=tuple(text.cells(one) for one in options))] if options else []
    tables += [
        TextTable(
            title=f"{method.heading} ({method.word})",
            head=text.HEAD,
            rows=tuple(text.cells(one) for one in method.options),
        )
        for method in planned.methods
    ]
    first = planned.nothing or lacking(planned.answers)
    return TextReport(
        lead=f"Plan for {text.title(planned)}",
        tables=tuple(tables),
        sentences=tuple(filter(None, (first, *said))),
    )


def _sized_table(planned: Planned, sized: Sized) -> TextReport:
    """Return the models that a budget trains, and what is assumed about the first of them."""
    best = planned.best.estimate if planned.best is not None else None
    said = [*sized_text.sentences(sized), *without_key(planned.answers), *planned.absent, *planned.skipped]
    said += [best.fit, *planned.assumed, *best.assumptions] if best is not None else []
    rows = tuple(sized_text.cells(place, one) for place, one in enumerate(sized.models, 1))
    tables = (TextTable(head=sized_text.HEAD, rows=rows),) if rows else ()
    return TextReport(lead=f"Plan for {text.title(planned)}", tables=tables, sentences=tuple(filter(None, said)))


def comparison_tables(compared: Compared) -> TextReport:
    """Return a comparison: one table for every budget, then what cannot be rented here."""
    found = compared.found
    question = found.question
    tables = [_table(" and ".join(map(usd, question.budgets_usd)), *together(found))]
    apart = [elsewhere(row) for row in found.elsewhere]
    tables.append(_table("Environments that cannot be rented here", elsewhere_columns(question), apart))
    lead = f"One run of {hours(question.hours)}, {question.buffer:.0%} buffer."
    return TextReport(lead=lead, tables=tuple(tables), sentences=(*compared.absent, *found.notes, *compared.ages))


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
    return TextTable(title=title, head=tuple(head), rows=tuple(tuple(row) for row in rows))
