"""RunPod's catalogue as offers. Prices there are per GPU and hour; storage is priced by the rules of its price page.

Storage (docs, pods/pricing): container disk $0.10 per GB and month while running, volume disk $0.10 while running and
$0.20 while stopped. A month counts as 720 hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from ledger.kernel import money
from providers.adapter_helpers import fits, listed, number, part
from providers.clouds.runpod.errors import CLOUD
from providers.clouds.runpod.instances import (
    CONTAINER_DISK_GB,
    DISK_USD_GB_MONTH,
    HOURS_PER_MONTH,
    STOPPED_VOLUME_USD_GB_MONTH,
    cuda_version,
    volume_gb,
)
from providers.contract import Offer, Stock
from providers.gpus import table
from providers.gpus.constraint import GpuConstraint
from providers.http import fingerprint

TIERS = ("SECURE", "COMMUNITY")
#: The most GPUs of one type that a pod was ever offered with; larger counts are never asked for.
COUNT_MAX = 16
#: A community offer, and a secure one without stock details, does not say where it is.
REGION_UNKNOWN = "any"
#: Why an answer does not hold everything.
MORE_COUNTS = "RunPod's other GPU counts were not read."
#: The keys in the rest of a search: the GPU counts that were not read, and what it will always lack.
_COUNTS, _LACKS = "counts", "lacks"
_STOCK: Mapping[str, Stock] = {s.value.upper(): s for s in Stock}


def counts(constraint: GpuConstraint, rest: Mapping[str, str] | None) -> tuple[int, ...]:
    """The GPU counts that a search asks for: all of a constraint, or those that an earlier answer left."""
    if rest is not None:
        return tuple(map(int, rest[_COUNTS].split(",")))
    return tuple(range(max(1, constraint.count_min), min(constraint.count_max, COUNT_MAX) + 1))


def rest_of(left: Sequence[int], lacks: str) -> dict[str, str]:
    """Say where a search continues that left these counts. `lacks` is what it will always lack, "" for nothing."""
    return {_COUNTS: ",".join(map(str, left)), _LACKS: lacks}


def lacks(rest: Mapping[str, str] | None) -> str:
    """Say what the earlier answers of a search lack; "" for nothing."""
    return (rest or {}).get(_LACKS, "")


def with_disk(offer: Offer, disk_gb: int, container_gb: int = CONTAINER_DISK_GB) -> Offer:
    """The same offer with a disk of another size, as a search for that size prices it."""
    storage, gpu = storage_usd_h(disk_gb, container_gb), offer.gpu_usd_h
    return replace(
        offer,
        price_usd_h=gpu + storage if gpu is not None and gpu > 0 else gpu,
        storage_usd_h=storage,
        storage_stopped_usd_h=storage_stopped_usd_h(disk_gb),
    )


def storage_usd_h(disk_gb: int, container_gb: int = CONTAINER_DISK_GB) -> Decimal:
    """What the container disk and the volume for `disk_gb` cost per hour while running."""
    return money.amount_even((container_gb + volume_gb(disk_gb)) * DISK_USD_GB_MONTH / HOURS_PER_MONTH)


def storage_stopped_usd_h(disk_gb: int) -> Decimal:
    """What the volume for `disk_gb` costs per hour while stopped; the container disk is gone by then."""
    return money.amount_even(volume_gb(disk_gb) * STOPPED_VOLUME_USD_GB_MONTH / HOURS_PER_MONTH)


@dataclass(frozen=True, slots=True)
class CatalogPage:
    """One answer of `GET /v2/catalog/gpus`: availability there is for this tier and this count only."""

    tier: str
    count: int
    disk_gb: int
    at: datetime
    container_gb: int = CONTAINER_DISK_GB


def query(page: CatalogPage, cuda_min: Decimal | None = None) -> dict[str, str]:
    """The query of one page. `product` is required as soon as `include` is given.

    With `cuda_min` the stock is that of the hosts with at least this CUDA. The reply lists all other versions as well.
    """
    asked = {"include": "AVAILABILITY", "product": "POD", "cloud": page.tier, "count": str(page.count)}
    return asked | ({"minCudaVersion": cuda_version(cuda_min)} if cuda_min is not None else {})


def offers(body: Any, page: CatalogPage, constraint: GpuConstraint) -> tuple[Offer, ...]:
    """The offers of one page that fit the constraint's names and memory, and that have stock as far as is known."""
    rows = listed(CLOUD, body, "gpus", "runpod's catalogue has no list of GPUs")
    found: list[Offer] = []
    # Keys are given before anything is filtered, so that a key means the same GPU in every search.
    for row, gpu, slug in _named(rows):
        known = table.GPUS.get(gpu)
        memory_gb = Decimal(known.memory_gb) if known else number(row.get("memory"))
        if memory_gb is not None and _sold(row, page):
            found.extend(_offer(row, gpu, slug, memory_gb, page, *place) for place in _places(row))
    # A page holds one count, whichever the constraint has.
    asked = replace(constraint, count_min=page.count, count_max=page.count)
    return tuple(offer for offer in found if fits(offer, asked))


def _named(rows: list[Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each row with its canonical GPU name and the unique, space-free spelling of it that goes into keys."""
    taken: set[str] = set()
    for row in rows:
        gpu_id = row.get("id") if isinstance(row, dict) else None
        if not isinstance(gpu_id, str) or not gpu_id:
            continue
        memory_gb = number(row.get("memory"))
        gpu = table.canonical(CLOUD, gpu_id, memory_gb) or gpu_id
        slug = _slug(gpu)
        if slug in taken:
            slug = _slug(gpu_id)
        if slug in taken:
            # Two ids may differ in nothing but spaces, which a key does not have.
            slug = f"{slug}-{fingerprint(gpu_id)[:4]}"
        taken.add(slug)
        yield row, gpu, slug


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+]+", "-", text).strip("-")


def _sold(row: dict[str, Any], page: CatalogPage) -> bool:
    """Whether the tier sells this GPU in this count. A missing flag or limit does not exclude."""
    tier = page.tier.lower()
    if row.get(tier) is False:
        return False
    limit = part(row, "maxCount").get(tier)
    return not isinstance(limit, int) or page.count <= limit


def _places(row: dict[str, Any]) -> list[tuple[str | None, Stock | None]]:
    """Every datacenter with its stock; without any, the tier as a whole (None) unless it says NONE.

    The top level may say NONE while a datacenter says LOW, and the other way round: the better news is taken, since
    only a create can tell.
    """
    centers = row.get("dataCenters")
    places: list[tuple[str | None, Stock | None]] = []
    for center in centers if isinstance(centers, list) else ():
        if not isinstance(center, dict) or not isinstance(center.get("id"), str):
            continue
        stock = _STOCK.get(str(center.get("availability")))
        if stock not in (None, Stock.NONE):
            places.append((center["id"], stock))
    stock = _STOCK.get(str(row.get("availability")))
    if places or stock is Stock.NONE:
        return places
    return [(None, stock)]


def _offer(
    row: dict[str, Any],
    gpu: str,
    slug: str,
    memory_gb: Decimal,
    page: CatalogPage,
    center: str | None,
    stock: Stock | None,
) -> Offer:
    each = number(part(row, "price").get(page.tier.lower()))
    gpu_usd_h = None if each is None else each * page.count
    storage = storage_usd_h(page.disk_gb, page.container_gb)
    # A price that is no price must stay visible as such: the disk's cents on top would make it look like a bargain.
    total = gpu_usd_h + storage if gpu_usd_h is not None and gpu_usd_h > 0 else gpu_usd_h
    ticket = {"gpu_id": row["id"], "cloud": page.tier}
    key = f"{page.tier.lower()}/{slug}x{page.count}"
    if center is not None:
        ticket["data_center_id"] = center
        key = f"{key}/{_slug(center)}"
    return Offer(
        cloud=CLOUD,
        key=key,
        gpu=gpu,
        gpu_count=page.count,
        memory_gb=memory_gb,
        region=center or REGION_UNKNOWN,
        spot=False,
        price_usd_h=total,
        fetched_at=page.at,
        gpu_usd_h=gpu_usd_h,
        storage_usd_h=storage,
        storage_stopped_usd_h=storage_stopped_usd_h(page.disk_gb),
        stock=stock,
        datacenter=page.tier == "SECURE",
        # Pods of a named datacenter can join the private network of their account.
        linked=page.tier == "SECURE" and center is not None,
        cuda_max=_cuda_max(row.get("cudaVersions")),
        ticket=ticket,
    )


def _cuda_max(versions: Any) -> Decimal | None:
    """The newest CUDA version that some free host has, None when the catalogue does not say."""
    known = []
    for entry in versions if isinstance(versions, list) else ():
        if isinstance(entry, dict) and entry.get("available") is True:
            version = number(entry.get("version"))
            if version is not None:
                known.append(version)
    return max(known, default=None)
