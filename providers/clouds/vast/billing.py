"""Vast.ai's bill: one row for each contract, whose stamps are UTC days, the last one included.

Source: the official document of `show charges`. Its example begins at 1730419200 (1 November) and ends at 1730678400
(4 November), with "4 days" and "96.000 hours". Whether a row is cut to the asked days is not documented, so the ledger
asks for the whole time of a contract and takes its total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import MAXYEAR, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.adapter_helpers import number
from providers.clouds.vast.errors import CLOUD
from providers.clouds.vast.instances import instant_s
from providers.contract import Charge
from providers.errors import UnexpectedResponse

DAY = timedelta(days=1)
_COMPONENTS: Mapping[str, str] = {"gpu": "gpu", "disk": "storage", "bwd": "bandwidth", "bwu": "bandwidth"}


def midnight(at: datetime) -> datetime:
    """Return the first moment of the UTC day of `at`, which is a time in UTC."""
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def charge_lines(rows: Iterable[Any]) -> list[Charge]:
    """Return one line for each contract and component, over whole UTC days.

    A second row of the same contract in one answer is a line of its own, because it may be part of the first.
    Raises `UnexpectedResponse` when a row has no amount or no period.
    """
    found: list[Charge] = []
    numbers: Counter[str] = Counter()
    for line in sorted((line for row in rows for line in _of_row(row)), key=lambda line: (line.line_id, line.start)):
        number_of = numbers[line.line_id]
        numbers[line.line_id] += 1
        found.append(replace(line, line_id=f"{line.line_id}/{number_of + 1}") if number_of else line)
    return found


def _of_row(row: Any) -> list[Charge]:
    """Return the components of one row: its parts, or the row itself when it has none."""
    if not isinstance(row, dict):
        raise UnexpectedResponse(CLOUD, "Vast.ai sent a charge that is not an object")
    parts = row.get("items") or [row]
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise UnexpectedResponse(CLOUD, "Vast.ai sent a charge whose parts are not objects")
    source = str(row.get("source") or next((part["source"] for part in parts if part.get("source")), ""))
    totals: dict[str, Charge] = {}
    for part in parts:
        line = _charge(part, row, source)
        same = totals.get(line.component)
        if same is not None:  # Traffic in and out: parts of one row are parts of one total.
            start, end = min(line.start, same.start), max(line.end, same.end)
            line = replace(line, amount_usd=line.amount_usd + same.amount_usd, start=start, end=end)
        totals[line.component] = line
    return list(totals.values())


def _charge(part: Mapping[str, Any], row: Mapping[str, Any], source: str) -> Charge:
    amount: Decimal | None = number(part.get("amount"))
    start, end = (instant_s(part.get(name)) or instant_s(row.get(name)) for name in ("start", "end"))
    if amount is None or start is None or end is None or end.year == MAXYEAR:
        raise UnexpectedResponse(CLOUD, "Vast.ai sent a charge without an amount or a period")
    component = _COMPONENTS.get(str(part.get("type") or ""), "other")
    return Charge(
        cloud=CLOUD,
        line_id=f"{source}/{component}",
        ref=source.removeprefix("instance-"),
        component=component,
        amount_usd=amount,
        start=midnight(start),
        end=midnight(end) + DAY,
    )
