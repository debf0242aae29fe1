"""Locations as offers: what a GPU count costs with the processor, memory and disk that are rented around it.

TensorDock sells parts: `price_per_hr` is per GPU alone, and vCPUs, memory and storage are priced beside it. An offer is
therefore a shape that this program chooses: 8 vCPUs and 32 GB per GPU, 12 and 64 for GPUs of 40 GB and more, less
where the location has less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from providers.adapter_helpers import fits, listed, number, part
from providers.clouds.tensordock.errors import CLOUD
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS, canonical

#: The smallest disk that TensorDock makes.
DISK_MIN_GB = 100
#: A location that promises more GPUs in one machine than this is not believed.
COUNT_MAX = 16
LARGE_GPU_GB = 40
MEMORY = re.compile(r"(\d+) ?gb\b", re.IGNORECASE)
COUNTRIES: Mapping[str, str] = {
    "united states": "US", "usa": "US", "canada": "CA", "germany": "DE", "united kingdom": "GB", "netherlands": "NL",
    "france": "FR", "poland": "PL", "finland": "FI", "sweden": "SE", "norway": "NO", "iceland": "IS", "india": "IN",
    "japan": "JP", "singapore": "SG", "australia": "AU", "taiwan": "TW", "bulgaria": "BG", "estonia": "EE",
    "slovakia": "SK", "spain": "ES", "south africa": "ZA", "israel": "IL", "brazil": "BR", "ukraine": "UA",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z0-9._-]{1,80}", re.ASCII)


def offers(body: Any, constraint: GpuConstraint, *, disk_gb: int, at: datetime) -> tuple[Offer, ...]:
    """The offers of `GET /locations` that meet the constraint; a row that cannot be read is left out.

    Raises `UnexpectedResponse` when the answer has no list of locations.
    """
    rows = listed(CLOUD, part(body, "data"), "locations", "TensorDock's answer has no list of locations")
    found: dict[str, Offer] = {}
    for place in (row for row in rows if isinstance(row, dict)):
        gpus = place.get("gpus")
        for gpu in gpus if isinstance(gpus, list) else ():
            sold = _offers(place, gpu, constraint, disk_gb, at) if isinstance(gpu, dict) else ()
            found |= {offer.key: offer for offer in sold if fits(offer, constraint, disk_size(disk_gb))}
    return tuple(found.values())


def _offers(
    place: Mapping[str, Any], row: Mapping[str, Any], constraint: GpuConstraint, disk_gb: int, at: datetime
) -> Iterator[Offer]:
    location, slug, most = place.get("id"), row.get("v0Name"), row.get("max_count")
    hardware = gpu_of(slug, row.get("displayName"))
    if not (_is_word(location) and _is_word(slug) and isinstance(most, int) and hardware is not None):
        return
    gpu, memory_gb = hardware
    disk_max = number(part(row, "resources").get("max_storage_gb"))
    known = GPUS.get(gpu)
    own_ip = part(row, "network_features").get("dedicated_ip_available") is True
    for count in range(max(1, constraint.count_min), min(most, constraint.count_max, COUNT_MAX) + 1):
        vcpus, ram_gb = _shape(count, memory_gb, part(row, "resources"))
        compute, storage = _prices(row, count, vcpus, ram_gb, disk_gb)
        yield Offer(
            cloud=CLOUD,
            key=f"{location}/{slug}x{count}",
            gpu=gpu,
            gpu_count=count,
            memory_gb=memory_gb,
            region=region(place),
            spot=False,
            price_usd_h=_total(compute, storage),
            fetched_at=at,
            gpu_usd_h=compute,
            storage_usd_h=storage or Decimal(0),
            # The least it will be: a stopped machine may keep its GPU and pay for it.
            storage_stopped_usd_h=storage or Decimal(0),
            country=COUNTRIES.get(str(place.get("country") or "").strip().lower()),
            compute_capability=known.compute_capability if known else None,
            vcpus=vcpus,
            ram_gb=Decimal(ram_gb),
            disk_gb_max=None if disk_max is None else int(disk_max),
            # Only an address of its own takes every port.
            linked=own_ip,
            ticket={
                "location": str(location),
                "gpu": str(slug),
                "vcpus": str(vcpus),
                "ram_gb": str(ram_gb),
                "own_ip": "yes" if own_ip else "no",
            },
        )


def gpu_of(slug: Any, shown: Any = None) -> tuple[str, Decimal] | None:
    """The canonical name (or TensorDock's slug) and the nominal GB per GPU; None when the memory is not stated."""
    for spelling in (slug, shown):
        stated = MEMORY.search(spelling) if isinstance(spelling, str) else None
        name = canonical(CLOUD, str(spelling), Decimal(stated[1]) if stated else None)
        if name is not None:
            return name, Decimal(GPUS[name].memory_gb)
    stated = MEMORY.search(f"{slug} {shown}")
    return None if stated is None else (str(slug), Decimal(stated[1]))


def disk_size(disk_gb: int) -> int:
    """The disk that is made when `disk_gb` is asked."""
    return max(DISK_MIN_GB, disk_gb)


def region(place: Mapping[str, Any]) -> str:
    """ "Chubbuck, Idaho, US"."""
    country = str(place.get("country") or "").strip()
    parts = (place.get("city"), place.get("stateprovince"), COUNTRIES.get(country.lower(), country))
    return ", ".join(str(part).strip() for part in parts if part)


def _shape(count: int, memory_gb: Decimal, most: Mapping[str, Any]) -> tuple[int, int]:
    """vCPUs and GB of memory around `count` GPUs. The number of vCPUs is even, as TensorDock wants it."""
    large = memory_gb >= LARGE_GPU_GB
    vcpus, ram_gb = (12 if large else 8) * count, (64 if large else 32) * count
    vcpus_max, ram_max = number(most.get("max_vcpus")), number(most.get("max_ram_gb"))
    if vcpus_max is not None:
        vcpus = max(2, min(vcpus, int(vcpus_max)) // 2 * 2)
    if ram_max is not None:
        ram_gb = max(1, min(ram_gb, int(ram_max)))
    return vcpus, ram_gb


def _prices(
    row: Mapping[str, Any], count: int, vcpus: int, ram_gb: int, disk_gb: int
) -> tuple[Decimal | None, Decimal | None]:
    """Dollars per hour for GPUs with processor and memory, and for the disk; None where a part has no price."""
    pricing = part(row, "pricing")
    gpu = number(row.get("price_per_hr"))
    vcpu, ram, disk = (number(pricing.get(name)) for name in ("per_vcpu_hr", "per_gb_ram_hr", "per_gb_storage_hr"))
    storage = None if disk is None else disk * disk_size(disk_gb)
    if gpu is None or vcpu is None or ram is None:
        return None, storage
    return (gpu if gpu <= 0 else gpu * count + vcpu * vcpus + ram * ram_gb), storage


def _total(compute: Decimal | None, storage: Decimal | None) -> Decimal | None:
    """The whole hour. A GPU for nothing, or less, is bad data: the other parts must not make it a bargain."""
    if compute is None or storage is None:
        return None
    return compute if compute <= 0 else compute + storage


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None
