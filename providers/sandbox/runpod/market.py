"""What the RunPod sandbox sells: GPU types, prices per GPU and hour, stock per datacenter, all from one seed.

Prices follow the public price page and recorded answers of 2025 and 2026. Two ids differ in a space, as in the real
catalogue; rows with a price of zero or none, which it has had too, are left out unless they are asked for.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any

from providers.gpus import table
from providers.sandbox.runpod.faults import RunPodProblem

LEVELS = ("NONE", "LOW", "MEDIUM", "HIGH")

#: id | short name | pool | GB | secure $/h | community $/h | most per pod secure | most per pod community | stock 0-3
#: `-` = the tier does not sell it, `null` = it is sold and the price is missing.
_TYPES = """
NVIDIA B300 SXM6 AC|B300|BLACKWELL_288|288|6.19|-|8|0|1
NVIDIA B200|B200|BLACKWELL_180|180|5.49|4.99|8|8|2
NVIDIA H200|H200 SXM|HOPPER_141|141|3.79|3.59|8|8|2
NVIDIA H200 NVL|H200 NVL|HOPPER_141|143|3.39|-|8|0|1
NVIDIA H100 80GB HBM3|H100 SXM|ADA_80_PRO|80|3.29|2.69|8|8|3
NVIDIA H100 PCIe|H100 PCIe|ADA_80_PRO|80|2.39|1.99|8|8|2
NVIDIA H100 NVL|H100 NVL|ADA_80_PRO|94|2.59|1.39|8|4|2
AMD Instinct MI300X OAM|MI300X||192|2.39|0.50|8|8|1
NVIDIA A100-SXM4-80GB|A100 SXM|AMPERE_80|80|1.49|1.39|8|8|3
NVIDIA A100 80GB PCIe|A100 PCIe|AMPERE_80|80|1.39|1.19|8|8|3
NVIDIA A100-SXM4-40GB|A100 SXM 40GB||40|1.09|-|8|0|1
NVIDIA A40|A40|AMPERE_48|48|0.40|0.35|10|8|3
NVIDIA A30|A30|AMPERE_24|24|-|0.22|0|4|1
NVIDIA L40S|L40S|ADA_48_PRO|48|0.86|0.79|8|8|3
NVIDIA L40|L40|ADA_48_PRO|48|0.99|0.69|8|8|2
NVIDIA L4|L4|ADA_24|24|0.39|0.32|8|4|2
NVIDIA GeForce RTX 5090|RTX 5090|ADA_32_PRO|32|0.94|0.69|8|8|3
NVIDIA GeForce RTX 5080|RTX 5080||16|-|0.39|0|4|1
NVIDIA GeForce RTX 4090|RTX 4090|ADA_24|24|0.74|0.34|8|8|3
NVIDIA GeForce RTX 4080 SUPER|RTX 4080 SUPER||16|-|0.28|0|4|1
NVIDIA GeForce RTX 4080|RTX 4080||16|-|0.27|0|4|1
NVIDIA GeForce RTX 4070 Ti|RTX 4070 Ti||12|-|0.19|0|4|1
NVIDIA GeForce RTX 3090 Ti|RTX 3090 Ti||24|-|0.27|0|4|1
NVIDIA GeForce RTX 3090|RTX 3090|AMPERE_24|24|0.46|0.22|8|8|3
NVIDIA GeForce RTX 3080 Ti|RTX 3080 Ti||12|-|0.18|0|4|1
NVIDIA GeForce RTX 3080|RTX 3080||10|-|0.17|0|4|1
NVIDIA GeForce RTX 3070|RTX 3070||8|-|0|0|4|2
NVIDIA RTX PRO 6000 Blackwell Server Edition|RTX PRO 6000|BLACKWELL_96|96|1.89|1.69|8|8|2
NVIDIA RTX PRO 6000 Blackwell Workstation Edition|RTX PRO 6000 WK|BLACKWELL_96|96|2.09|1.64|8|4|1
NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition|RTX PRO 6000 MaxQ|BLACKWELL_96|96|1.79|-|4|0|1
NVIDIA RTX PRO 4500 Blackwell|RTX PRO 4500||32|0.72|0.34|8|8|2
NVIDIA RTX 6000 Ada Generation|RTX 6000 Ada|ADA_48_PRO|48|0.77|0.74|8|8|3
NVIDIA RTX 5000 Ada Generation|RTX 5000 Ada||32|0.69|0.49|4|4|1
NVIDIA RTX 4000 Ada Generation|RTX 4000 Ada|AMPERE_16|20|0.26|0.20|8|4|2
NVIDIA RTX 4000 SFF Ada Generation|RTX 4000 Ada SFF||20|-|0.18|0|4|1
NVIDIA RTX 2000 Ada Generation|RTX 2000 Ada|AMPERE_16|16|0.24|0.16|8|4|2
NVIDIA RTX A6000|RTX A6000|AMPERE_48|48|0.49|0.33|8|8|3
NVIDIA RTX A5000|RTX A5000|AMPERE_24|24|0.27|0.16|8|8|3
NVIDIA RTX A4500|RTX A4500|AMPERE_16|20|0.25|0.19|8|4|2
NVIDIA  RTX A4500|RTX A4500|AMPERE_16|20|0.25|-|4|0|1
NVIDIA RTX A4000|RTX A4000|AMPERE_16|16|0.25|0.17|8|8|2
NVIDIA RTX A2000|RTX A2000||12|-|0.12|0|4|1
Tesla V100-SXM2-32GB|V100 SXM2 32GB||32|-|0.23|0|8|1
Tesla V100-SXM2-16GB|V100 SXM2||16|-|0.19|0|8|1
NVIDIA Prototype X1|Prototype X1||64|null|-|2|0|2
"""

#: id, region, weight: how much of a GPU type's stock a datacenter tends to have.
DATA_CENTERS: tuple[tuple[str, str, int], ...] = (
    ("EU-RO-1", "EUROPE", 3),
    ("EU-CZ-1", "EUROPE", 2),
    ("EU-SE-1", "EUROPE", 2),
    ("EU-NL-1", "EUROPE", 1),
    ("EUR-IS-1", "EUROPE", 2),
    ("EUR-NO-1", "EUROPE", 1),
    ("US-KS-2", "NORTH_AMERICA", 3),
    ("US-TX-3", "NORTH_AMERICA", 3),
    ("US-CA-2", "NORTH_AMERICA", 2),
    ("US-GA-1", "NORTH_AMERICA", 2),
    ("US-IL-1", "NORTH_AMERICA", 1),
    ("US-NC-1", "NORTH_AMERICA", 1),
    ("CA-MTL-1", "NORTH_AMERICA", 2),
    ("CA-MTL-3", "NORTH_AMERICA", 1),
    ("AP-JP-1", "ASIA", 1),
    ("OC-AU-1", "OCEANIA", 1),
)
CUDA_VERSIONS = ("12.4", "12.6", "12.8", "12.9", "13.0")


@dataclass(frozen=True, slots=True)
class GpuType:
    """One row of the catalogue. Prices are dollars per GPU and hour; `sells` says whether a tier offers it at all."""

    id: str
    name: str
    pool: str | None
    memory_gb: int
    price_usd_h: dict[str, Decimal | None]
    most: dict[str, int]
    #: 0 to 3: how much of it there is in general.
    supply: int

    def sells(self, tier: str) -> bool:
        """Whether `tier` (SECURE or COMMUNITY) offers this type."""
        return self.most[tier] > 0

    @property
    def is_priced(self) -> bool:
        """Whether every tier that sells it has a usable price."""
        return all((self.price_usd_h[tier] or 0) > 0 for tier, most in self.most.items() if most)

    @property
    def manufacturer(self) -> str:
        """NVIDIA or AMD."""
        return "AMD" if self.id.startswith("AMD") else "NVIDIA"


def _cell(text: str) -> Decimal | None:
    return None if text in ("-", "null") else Decimal(text)


def _parse() -> dict[str, GpuType]:
    types = {}
    for line in _TYPES.strip().splitlines():
        gpu_id, name, pool, memory, secure, community, most_secure, most_community, supply = line.split("|")
        types[gpu_id] = GpuType(
            id=gpu_id,
            name=name,
            pool=pool or None,
            memory_gb=int(memory),
            price_usd_h={"SECURE": _cell(secure), "COMMUNITY": _cell(community)},
            most={"SECURE": int(most_secure), "COMMUNITY": int(most_community)},
            supply=int(supply),
        )
    return types


class RunPodMarket:
    """The catalogue of one sandbox. The same seed gives the same stock; prices may be moved by a test."""

    def __init__(self, seed: int, *, bad_rows: bool = False) -> None:
        self.seed = seed
        self.types = {gpu.id: gpu for gpu in _parse().values() if bad_rows or gpu.is_priced}
        #: What somebody else has rented: (GPU id, tier, datacenter or "" for the whole tier, counts from this one on).
        self._taken: dict[tuple[str, str, str], int] = {}

    def withdraw(self, gpu_id: str, tier: str, center: str, count: int) -> None:
        """No more pods of `count` GPUs or larger, in one datacenter or, with "", in the whole tier."""
        key = (gpu_id, tier, center)
        self._taken[key] = min(count, self._taken.get(key, count))

    def move_price(self, gpu_id: str, tier: str, price_usd_h: Decimal | None) -> None:
        """From now on the tier asks this much per GPU and hour. Raises KeyError for an unknown GPU or tier."""
        gpu = self.types[gpu_id]
        if tier not in gpu.price_usd_h:
            raise KeyError(tier)
        self.types[gpu_id] = replace(gpu, price_usd_h={**gpu.price_usd_h, tier: price_usd_h})

    def by_slug(self) -> dict[str, GpuType]:
        """The spelling of each GPU in the adapter's offer keys → GPU: its canonical name, or else its id."""
        found: dict[str, GpuType] = {}
        for gpu in self.types.values():
            canonical = table.canonical("runpod", gpu.id, Decimal(gpu.memory_gb))
            words = [re.sub(r"[^A-Za-z0-9.+]+", "-", text).strip("-") for text in (canonical or gpu.id, gpu.id)]
            words.append(f"{words[1]}-{hashlib.sha256(gpu.id.encode()).hexdigest()[:4]}")
            found.setdefault(next((word for word in words if word not in found), words[-1]), gpu)
        return found

    def centers(self, gpu: GpuType, count: int) -> dict[str, str]:
        """Datacenter → stock level for `count` GPUs of the secure tier; datacenters without stock are left out."""
        if not gpu.sells("SECURE") or count > gpu.most["SECURE"]:
            return {}
        found = {}
        for name, _, weight in DATA_CENTERS:
            draw = _draw(self.seed, gpu.id, name) * weight * gpu.supply / 3
            # A pod is placed on one host, so larger pods find less.
            level = min(gpu.supply, int(draw + 0.4) - (count > 4))
            if level > 0:
                found[name] = LEVELS[level]
        found = found or {self._home(gpu): "LOW"}
        return {name: level for name, level in found.items() if not self._is_taken(gpu, "SECURE", name, count)}

    def stock(self, gpu: GpuType, tier: str, count: int) -> str:
        """The level of a whole tier for `count` GPUs in one pod."""
        if not gpu.sells(tier) or count > gpu.most[tier]:
            return "NONE"
        if tier == "SECURE":
            return max(self.centers(gpu, count).values(), key=LEVELS.index, default="NONE")
        return "NONE" if self._is_taken(gpu, tier, "", count) else LEVELS[max(1, gpu.supply - (count > 4))]

    def place(self, gpu: GpuType, tier: str, count: int, wanted: tuple[str, ...]) -> str | None:
        """The datacenter a pod lands in, "" for a community host, None when nothing fits the wish."""
        if self.stock(gpu, tier, count) == "NONE":
            return None
        if tier == "COMMUNITY":
            return None if wanted else ""
        places = [name for name in self.centers(gpu, count) if not wanted or name in wanted]
        return places[0] if places else None

    def cuda(self, gpu: GpuType) -> list[dict[str, object]]:
        """CUDA versions and whether a free host has them; old cards have no recent driver."""
        newest = 3 if gpu.id.startswith("Tesla") else len(CUDA_VERSIONS)
        return [{"version": v, "available": i < newest} for i, v in enumerate(CUDA_VERSIONS)]

    def host_cuda(self, gpu: GpuType, least: str = "", allowed: tuple[str, ...] = ()) -> str | None:
        """The CUDA of the host that a pod gets: the oldest free one that fits, because nothing makes it a newer one."""
        free = [str(row["version"]) for row in self.cuda(gpu) if row["available"]]
        fitting = [one for one in free if not allowed or one in allowed]
        return next((one for one in fitting if not least or cuda_key(one) >= cuda_key(least)), None)

    def _is_taken(self, gpu: GpuType, tier: str, center: str, count: int) -> bool:
        limits = [self._taken.get((gpu.id, tier, place)) for place in {center, ""}]
        return any(limit is not None and count >= limit for limit in limits)

    def _home(self, gpu: GpuType) -> str:
        return DATA_CENTERS[int(_draw(self.seed, gpu.id, "home") * len(DATA_CENTERS))][0]


TIERS = ("SECURE", "COMMUNITY")


@cache
def _draw(seed: int, *words: str) -> float:
    """A number in [0, 1) that depends on the seed and the words only, never on the order of calls."""
    return random.Random(f"{seed}/{'/'.join(words)}").random()


@cache
def cuda_key(version: str) -> tuple[int, ...]:
    """A version as numbers, because 12.11 is above 12.2."""
    return tuple(map(int, version.split(".")))


def gpu_row(market: RunPodMarket, gpu: GpuType, query: Mapping[str, str]) -> dict[str, Any]:
    """One type, sold or not; with `include=AVAILABILITY` the stock of the asked tier and count as well."""
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
    fits = market.host_cuda(gpu, query.get("minCudaVersion", "")) is not None
    row["availability"] = market.stock(gpu, tier, count) if fits else "NONE"
    row["cudaVersions"] = market.cuda(gpu)
    # Community hosts belong to no datacenter, and an empty list is left out.
    if tier == "SECURE" and fits:
        centers = market.centers(gpu, count)
        if centers:
            row["dataCenters"] = [{"id": name, "name": name, "availability": level} for name, level in centers.items()]
    return row


def spot_usd_h(price_usd_h: Decimal) -> Decimal:
    """The lowest accepted bid per GPU and hour for a pod of this on-demand price: half of it."""
    return round(price_usd_h / 2, 3)


def centers_body(market: RunPodMarket, query: Mapping[str, str]) -> dict[str, Any]:
    """`GET /v2/catalog/datacenters`, with `include=GPU_AVAILABILITY` also what each has in stock."""
    regions = {r for r in query.get("regions", "").split(",") if r}
    rows = []
    for name, region, _ in DATA_CENTERS:
        wanted = {t for t in query.get("networkVolumeTypes", "").split(",") if t}
        if (regions and region not in regions) or not wanted <= {"STANDARD"}:
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
