"""Instance types as offers: one per type and region that has capacity now."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from providers.adapter_helpers import fits, number, part
from providers.clouds.lambda_cloud.errors import CLOUD
from providers.contract import Offer
from providers.errors import UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS, canonical

#: "8x H100 (80 GB SXM5)", with or without the count: the memory is stated nowhere else.
MEMORY = re.compile(r"\((\d+(?:\.\d+)?) ?GB\b")
COUNTED = re.compile(r"^\s*\d+x\s+")
#: The last word of a region's description ("Virginia, USA") as ISO 3166; a country that is not here stays unknown.
COUNTRIES: Mapping[str, str] = {
    "usa": "US", "united states": "US", "canada": "CA", "germany": "DE", "italy": "IT", "spain": "ES", "france": "FR",
    "united kingdom": "GB", "uk": "GB", "india": "IN", "japan": "JP", "australia": "AU", "israel": "IL",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def offers(body: Any, constraint: GpuConstraint, *, disk_gb: int, at: datetime) -> tuple[Offer, ...]:
    """The offers of `GET /instance-types` that meet the constraint; a CPU-only type is none.

    A row that cannot be read is left out; an answer that is not a map of types raises `UnexpectedResponse`.
    """
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, dict):
        raise UnexpectedResponse(CLOUD, "Lambda's answer has no map of instance types")
    found = (offer for row in data.values() if isinstance(row, dict) for offer in _offers(row, at))
    return tuple(offer for offer in found if fits(offer, constraint, disk_gb))


def _offers(row: Mapping[str, Any], at: datetime) -> Iterator[Offer]:
    kind, regions = row.get("instance_type"), row.get("regions_with_capacity_available")
    if not isinstance(kind, dict) or not isinstance(regions, list):
        return
    name, specs = kind.get("name"), part(kind, "specs")
    count = specs.get("gpus")
    hardware = gpu_of(kind)
    if not isinstance(name, str) or not _WORD.fullmatch(name) or not isinstance(count, int) or hardware is None:
        return
    gpu, memory_gb = hardware
    price = price_usd_h(kind)
    disk, ram = number(specs.get("storage_gib")), number(specs.get("memory_gib"))
    known = GPUS.get(gpu)
    for region in regions:
        place = region.get("name") if isinstance(region, dict) else None
        if count < 1 or not isinstance(place, str) or not _WORD.fullmatch(place):
            continue
        yield Offer(
            cloud=CLOUD,
            key=f"{name}/{place}",
            gpu=gpu,
            gpu_count=count,
            memory_gb=memory_gb,
            region=place,
            spot=False,
            price_usd_h=price,
            fetched_at=at,
            gpu_usd_h=price,
            country=country(region.get("description")),
            datacenter=True,
            linked=True,
            compute_capability=known.compute_capability if known else None,
            vcpus=specs["vcpus"] if isinstance(specs.get("vcpus"), int) else None,
            ram_gb=ram,
            disk_gb_max=None if disk is None else int(disk),
            ticket={"instance_type": name, "region": place},
        )


def gpu_of(kind: Mapping[str, Any]) -> tuple[str, Decimal] | None:
    """The canonical name (or Lambda's own words) and the nominal GB per GPU; None when the memory is not stated."""
    words = kind.get("gpu_description") or kind.get("description")
    stated = MEMORY.search(words) if isinstance(words, str) else None
    if stated is None:
        return None
    spelling = COUNTED.sub("", str(words))
    memory_gb = Decimal(stated[1])
    name = canonical(CLOUD, spelling, memory_gb) or canonical(CLOUD, spelling.split("(")[0].strip(), memory_gb)
    if name is None:
        return spelling, Decimal(math.ceil(memory_gb))
    return name, Decimal(GPUS[name].memory_gb)


def price_usd_h(kind: Mapping[str, Any]) -> Decimal | None:
    """Whole cents per hour for the whole instance, as dollars; a price that is no number is None."""
    cents = number(kind.get("price_cents_per_hour"))
    return None if cents is None else cents / 100


def country(description: Any) -> str | None:
    """`US` of "Virginia, USA"; None when the last word is no country that is known here."""
    return COUNTRIES.get(str(description or "").rpartition(",")[2].strip().lower())
