"""Lambda's list prices as offers, for people without a key: Lambda's API shows nothing to them.

The prices, their day and their source are in `list_prices.toml` beside this file. A list price says nothing about what
is free, and where.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from providers.adapter_helpers import fits
from providers.clouds.lambda_cloud.errors import CLOUD
from providers.clouds.lambda_cloud.offers import gpu_of
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS

FILE = Path(__file__).with_name("list_prices.toml")
REGION_UNKNOWN = "any"


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def offers(constraint: GpuConstraint, *, at: datetime) -> tuple[Offer, ...]:
    """The list prices that meet the constraint; a price that cannot be read raises ValueError."""
    return tuple(offer for offer in _offers(at) if fits(offer, constraint))


def _offers(at: datetime) -> Iterator[Offer]:
    document = _document()
    day = document["as_of"]
    warning = f"List price of {day.day} {day:%B %Y} ({document['source']}). Whether one is free is unknown."
    for row in document["price"]:
        hardware = gpu_of({"gpu_description": row["gpu"]})
        if hardware is None:
            raise ValueError(f"{FILE.name}: “{row['gpu']}” has no memory; write it as “H100 (80 GB PCIe)”")
        gpu, memory_gb = hardware
        price, known = Decimal(row["usd_h"]), GPUS.get(gpu)
        yield Offer(
            cloud=CLOUD,
            key=f"list/{re.sub(r'[^A-Za-z0-9.+]+', '-', gpu)}x{row['gpus']}",
            gpu=gpu,
            gpu_count=row["gpus"],
            memory_gb=memory_gb,
            region=REGION_UNKNOWN,
            spot=False,
            price_usd_h=price,
            fetched_at=at,
            gpu_usd_h=price,
            datacenter=True,
            compute_capability=known.compute_capability if known else None,
            warning=warning,
            listed_on=day,
        )
