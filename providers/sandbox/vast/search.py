"""The search language of Vast.ai: operator objects per column, control keys, at most 64 rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import datetime
from typing import Any

from providers.sandbox.vast.market import VastMarket


class BadQuery(ValueError):
    """A search the real API answers with 400 invalid_request."""


CONTROLS = frozenset(
    {"type", "order", "limit", "allocated_storage", "disable_bundling", "target_reliability", "extra_ids",
     "show_incompatible", "template_id", "sort_option"}
)  # fmt: skip
ROWS_MAX = 64
ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
#: Filter names that the API converts before it compares.
ALIASES = {"reliability": "reliability2", "dphtotal": "dph_total", "gpu_totalram": "gpu_total_ram"}


def search(market: VastMarket, query: dict[str, Any], now: datetime) -> list[dict[str, Any]]:
    """The rows that match `query`, ordered, at most 64 whatever the limit says. Raises `BadQuery`."""
    bid = query.get("type") in {"bid", "interruptible"}
    disk_gb = float(query.get("allocated_storage", 8))
    rows = [market.row(part, now, bid=bid, disk_gb=disk_gb) for part in market.slices()]
    for key, condition in query.items():
        if key in CONTROLS:
            continue
        if not isinstance(condition, dict):
            raise BadQuery(f"{condition!r} is not a valid search op")
        rows = [row for row in rows if all(_holds(row, key, op, value) for op, value in condition.items())]
    for name, direction in reversed(query.get("order", [["score", "desc"]])):
        rows.sort(key=lambda row: _sortable(row.get(ALIASES.get(name, name))), reverse=direction == "desc")
    return rows[: min(int(query.get("limit", ROWS_MAX)), ROWS_MAX)]


def _sortable(value: Any) -> float | str:
    return -math.inf if value is None else value


def _holds(row: dict[str, Any], key: str, op: str, wanted: Any) -> bool:
    have = _column(row, key)
    if isinstance(have, int | float) and isinstance(wanted, str):
        # The official client sends the numbers of a query as text.
        wanted = _number(wanted)
    if op in {"in", "notin"}:
        return (have in wanted) is (op == "in")
    if op in {"eq", "neq"}:
        return (have == wanted) is (op == "eq")
    if have is None:
        return op in {"lt", "lte"}
    if op not in ORDERINGS:
        raise BadQuery(f"{op} is not a valid search op")
    return ORDERINGS[op](have, wanted)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _column(row: dict[str, Any], key: str) -> Any:
    """The value a filter compares: geolocation by country code, flags as booleans.

    `id` matches nothing, as people observed.
    """
    if key == "id":
        return None
    if key == "geolocation":
        return row["geolocation"].rpartition(", ")[2]
    if key == "verified":
        return row["verification"] == "verified"
    if key == "datacenter":
        return row["hosting_type"] >= 1
    if key == "external":
        return bool(row["external"])
    name = ALIASES.get(key, key)
    if name not in row:
        raise BadQuery(f"Error in query parameters: {key} is not a valid search key")
    return row[name]
