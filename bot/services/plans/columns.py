"""Name the columns of a plan's table, and choose those that a terminal shows. Light to import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.rules.values.text_table import TextReport, TextTable

#: Name for `--columns` → heading, in the table's order: what people choose by comes first, the long id last.
PLAN_COLUMNS: Mapping[str, str] = {
    "rank": "#",
    "gpu": "GPU",
    "cloud": "cloud",
    "total": "total",
    "time": "time",
    "price": "$/h",
    "range": "range",
    "region": "region",
    "tokens": "tokens/s",
    "marks": "marks",
    "offer": "offer",
}
#: What is shown unless somebody chooses: it fits 80 columns.
USUAL = ("rank", "gpu", "cloud", "total", "time", "price")
PLAN_COLUMNS_HELP = f"Which columns: {', '.join(PLAN_COLUMNS)}, or all."


def with_columns(report: TextReport, names: Sequence[str] = USUAL) -> TextReport:
    """Return a plan's report with these columns of its tables, in this order."""
    wanted = [PLAN_COLUMNS[name] for name in names]
    return report.model_copy(update={"tables": tuple(_with(table, wanted) for table in report.tables)})


def _with(table: TextTable, wanted: Sequence[str]) -> TextTable:
    # A service of another release may have fewer columns.
    places = [table.head.index(heading) for heading in wanted if heading in table.head] or range(len(table.head))
    rows = tuple(tuple(row[place] for place in places) for row in table.rows)
    return table.model_copy(update={"head": tuple(table.head[place] for place in places), "rows": rows})
