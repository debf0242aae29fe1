"""Check blocks that carry data: rich text, tables and charts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bot.blockkit.checker import PLAIN, Checker
from bot.blockkit.text import measure

TABLE_ROWS_MAX: Final = 100
TABLE_COLUMNS_MAX: Final = 20
TABLE_CELLS_MAX: Final = 10_000
DATA_ROWS_MIN: Final = 2
DATA_ROWS_MAX: Final = 201
DATA_CELLS_MAX: Final = 20_000
PAGE_SIZE_MAX: Final = 100
CAPTION_MAX: Final = 150
CHARTS_MAX: Final = 2
CHART_TITLE_MAX: Final = 50
SERIES_MAX: Final = 12
POINTS_MAX: Final = 20
CHART_LABEL_MAX: Final = 20
RICH_ELEMENTS_MAX: Final = 100
RICH_TEXT_MAX: Final = 3000

Block = Mapping[str, Any]

_RICH_CONTAINERS: Final = ("rich_text_section", "rich_text_quote", "rich_text_preformatted", "rich_text_list")
_RICH_LEAVES: Final = ("text", "link", "user", "channel", "usergroup", "emoji", "date", "broadcast", "color")


def check_rich_text(check: Checker, block: Block, at: str) -> int:
    """Check a rich_text block or cell. Returns its number of characters."""
    length = 0
    for value, where in check.items(block.get("elements"), f"{at}/elements", 1, RICH_ELEMENTS_MAX):
        element = check.mapping(value, where)
        if element is None:
            continue
        kind = element.get("type")
        if kind not in _RICH_CONTAINERS:
            check.fail(f"unsupported rich text type: {kind}", f"{where}/type")
        elif kind == "rich_text_list":
            length += check_rich_text(check, element, where)
        else:
            length += _rich_leaves(check, element, where)
    return length


def _rich_leaves(check: Checker, element: Block, at: str) -> int:
    length = 0
    for value, where in check.items(element.get("elements"), f"{at}/elements", 0, RICH_ELEMENTS_MAX):
        leaf = check.mapping(value, where)
        if leaf is None:
            continue
        kind = leaf.get("type")
        if kind not in _RICH_LEAVES:
            check.fail(f"unsupported rich text type: {kind}", f"{where}/type")
        elif kind == "text":
            check.string(leaf.get("text"), f"{where}/text", RICH_TEXT_MAX, required=True)
            length += measure(str(leaf.get("text", "")))
        elif kind == "link":
            check.url(leaf.get("url"), f"{where}/url", required=True)
            length += measure(str(leaf.get("text") or leaf.get("url", "")))
    return length


def check_table(check: Checker, block: Block, at: str) -> None:
    """Check a table: at most 100 rows of at most 20 cells, and 10,000 characters in all cells."""
    length = _rows(check, block.get("rows"), at, 1, TABLE_ROWS_MAX)
    if length > TABLE_CELLS_MAX:
        check.fail(f"no more than {TABLE_CELLS_MAX} characters allowed in all cells", f"{at}/rows")
    if "column_settings" in block:
        for value, where in check.items(block["column_settings"], f"{at}/column_settings", 0, TABLE_COLUMNS_MAX):
            if value is not None and (setting := check.mapping(value, where)) is not None:
                check.choice(setting.get("align"), f"{where}/align", ("left", "center", "right"))


def check_data_table(check: Checker, block: Block, at: str) -> None:
    """Check a data_table: 2 to 201 rows, a caption, 20,000 characters in all cells."""
    caption = block.get("caption")
    if isinstance(caption, Mapping):
        check.text(caption, f"{at}/caption", CAPTION_MAX, only=PLAIN)
    else:
        check.string(caption, f"{at}/caption", CAPTION_MAX, required=True)
    check.number(block.get("page_size"), f"{at}/page_size", 1, PAGE_SIZE_MAX)
    length = _rows(check, block.get("rows"), at, DATA_ROWS_MIN, DATA_ROWS_MAX)
    if length > DATA_CELLS_MAX:
        check.fail(f"no more than {DATA_CELLS_MAX} characters allowed in all cells", f"{at}/rows")


def _rows(check: Checker, rows: Any, at: str, low: int, high: int) -> int:
    length = 0
    for row, where in check.items(rows, f"{at}/rows", low, high):
        for value, cell_at in check.items(row, where, 1, TABLE_COLUMNS_MAX):
            cell = check.mapping(value, cell_at)
            if cell is not None:
                length += _cell(check, cell, cell_at)
    return length


def _cell(check: Checker, cell: Block, at: str) -> int:
    kind = cell.get("type")
    if kind == "rich_text":
        return check_rich_text(check, cell, at)
    if kind != "raw_text":
        # raw_number is documented but refused in messages, so a sender must not rely on it.
        check.fail(f"unsupported cell type: {kind}", f"{at}/type")
        return 0
    check.string(cell.get("text"), f"{at}/text", RICH_TEXT_MAX, required=True)
    return measure(str(cell.get("text", "")))


def check_chart(check: Checker, block: Block, at: str) -> None:
    """Check a data_visualization: pie with segments, or bar, line and area with series over categories."""
    check.charts += 1
    if check.charts > CHARTS_MAX:
        check.fail(f"no more than {CHARTS_MAX} data_visualization blocks allowed", at)
    check.string(block.get("title"), f"{at}/title", CHART_TITLE_MAX, required=True)
    chart = check.mapping(block.get("chart"), f"{at}/chart")
    if chart is None:
        return
    kind = chart.get("type")
    if kind == "pie":
        for value, where in check.items(chart.get("segments"), f"{at}/chart/segments", 1, SERIES_MAX):
            _point(check, value, where)
    elif kind in {"bar", "line", "area"}:
        _series(check, chart, f"{at}/chart")
    else:
        check.fail(f"unsupported chart type: {kind}", f"{at}/chart/type")


def _series(check: Checker, chart: Block, at: str) -> None:
    axis = check.mapping(chart.get("axis_config"), f"{at}/axis_config")
    categories: list[Any] = []
    for value, where in check.items((axis or {}).get("categories"), f"{at}/axis_config/categories", 1, POINTS_MAX):
        check.string(value, where, CHART_LABEL_MAX, required=True)
        categories.append(value)
    names: set[str] = set()
    for value, where in check.items(chart.get("series"), f"{at}/series", 1, SERIES_MAX):
        series = check.mapping(value, where)
        if series is None:
            continue
        check.string(series.get("name"), f"{where}/name", CHART_LABEL_MAX, required=True)
        if series.get("name") in names:
            check.fail("series names must be unique", f"{where}/name")
        names.add(str(series.get("name")))
        labels = [_point(check, p, here) for p, here in check.items(series.get("data"), f"{where}/data", 1, POINTS_MAX)]
        if labels != categories:
            check.fail("must have one data point per category, in order", f"{where}/data")


def _point(check: Checker, value: Any, at: str) -> Any:
    point = check.mapping(value, at)
    if point is None:
        return None
    check.string(point.get("label"), f"{at}/label", CHART_LABEL_MAX, required=True)
    number = point.get("value")
    if isinstance(number, bool) or not isinstance(number, int | float):
        check.fail("must be a number", f"{at}/value")
    return point.get("label")
