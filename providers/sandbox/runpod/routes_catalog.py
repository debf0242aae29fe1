"""The read-only catalogue routes of REST v2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.sandbox.runpod.market import DATA_CENTERS, GpuType, RunPodMarket
from providers.sandbox.runpod.responses import RunPodProblem

TIERS = ("SECURE", "COMMUNITY")


def gpus_body(market: RunPodMarket, query: Mapping[str, str]) -> dict[str, Any]:
    """`GET /v2/catalog/gpus`. Every type is listed, sold in the asked tier or not. Raises `Problem` 400."""
    return {"gpus": [gpu_row(market, gpu, query) for gpu in market.types.values()]}


def gpu_row(market: RunPodMarket, gpu: GpuType, query: Mapping[str, str]) -> dict[str, Any]:
    """One type; with `include=AVAILABILITY` the stock of the asked tier and count as well."""
    row: dict[str, Any] = {
        "id": gpu.id,
        "name": gpu.name,
        "pool": gpu.pool,
        "manufacturer": gpu.manufacturer,
        "memory": gpu.memory_gb,
        "secure": gpu.sells("SECURE"),
        "community": gpu.sells("COMMUNITY"),
        "price": {tier.lower(): _price(gpu, tier) for tier in TIERS},
        "maxCount": {tier.lower(): gpu.most[tier] for tier in TIERS},
    }
    if "include" not in query:
        return row
    tier, count = _asked(query)
    row["availability"] = market.stock(gpu, tier, count)
    row["cudaVersions"] = market.cuda(gpu)
    # Community hosts belong to no datacenter, and an empty list is left out.
    if tier == "SECURE":
        centers = market.centers(gpu, count)
        if centers:
            row["dataCenters"] = [{"id": name, "name": name, "availability": level} for name, level in centers.items()]
    return row


def centers_body(market: RunPodMarket, query: Mapping[str, str]) -> dict[str, Any]:
    """`GET /v2/catalog/datacenters`, with `include=GPU_AVAILABILITY` also what each has in stock."""
    regions = {r for r in query.get("regions", "").split(",") if r}
    rows = []
    for name, region, _ in DATA_CENTERS:
        if regions and region not in regions:
            continue
        row: dict[str, Any] = {
            "id": name,
            "name": name,
            "region": region,
            "globalNetwork": True,
            "networkVolumeTypes": ["STANDARD"],
            "compliance": [],
        }
        if "GPU_AVAILABILITY" in query.get("include", ""):
            stock = [
                {"id": gpu.id, "name": gpu.name, "availability": level}
                for gpu in market.types.values()
                if (level := market.centers(gpu, 1).get(name)) is not None
            ]
            if stock:
                row["gpuAvailability"] = stock
        rows.append(row)
    return {"dataCenters": rows}


def _price(gpu: GpuType, tier: str) -> float | None:
    if not gpu.sells(tier):
        return 0.0
    price = gpu.price_usd_h[tier]
    return None if price is None else float(price)


def _asked(query: Mapping[str, str]) -> tuple[str, int]:
    if "product" not in query:
        raise RunPodProblem(400, "product is required when include is given")
    tier, count = query.get("cloud", "SECURE"), query.get("count", "1")
    if tier not in TIERS:
        raise RunPodProblem(400, "cloud must be one of SECURE, COMMUNITY")
    if not count.isdigit() or int(count) < 1:
        raise RunPodProblem(400, "count must be a positive integer")
    return tier, int(count)
