"""Lambda's market as the sandbox plays it: instance types at fixed prices, and machines free per region.

The API tells only whether a region has capacity; how many machines are free is known here alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from random import Random
from typing import Any

REGIONS: dict[str, str] = {
    "us-east-1": "Virginia, USA",
    "us-east-3": "Washington DC, USA",
    "us-west-1": "California, USA",
    "us-west-2": "Arizona, USA",
    "us-west-3": "Utah, USA",
    "us-south-1": "Texas, USA",
    "us-midwest-1": "Illinois, USA",
    "europe-central-1": "Germany",
    "asia-northeast-1": "Osaka, Japan",
    "asia-south-1": "India",
    "australia-east-1": "Australia",
    "me-west-1": "Israel",
}


@dataclass(slots=True)
class LambdaInstanceType:
    """One instance type. `cents` is the price of an hour of the whole instance; `free` maps a region to machines."""

    name: str
    gpu: str
    gpus: int
    cents: int
    vcpus: int
    memory_gib: int
    storage_gib: int
    free: dict[str, int] = field(default_factory=dict)

    def wire(self, cents: int | None = None) -> dict[str, Any]:
        """The type as the API prints it, at its own price or at `cents`."""
        return {
            "name": self.name,
            "description": f"{self.gpus}x {self.gpu}" if self.gpus else "4x CPU General",
            "gpu_description": self.gpu if self.gpus else "N/A",
            "price_cents_per_hour": self.cents if cents is None else cents,
            "specs": {
                "vcpus": self.vcpus,
                "memory_gib": self.memory_gib,
                "storage_gib": self.storage_gib,
                "gpus": self.gpus,
            },
        }


#: name, GPU, GPUs, cents per hour, vCPUs, GiB of memory, GiB of disk, regions with free machines, machines in each.
KINDS: tuple[tuple[str, str, int, int, int, int, int, int, tuple[int, int]], ...] = (
    ("gpu_1x_a10", "A10 (24 GB PCIe)", 1, 86, 30, 200, 1400, 2, (2, 8)),
    ("gpu_1x_rtx6000", "RTX 6000 (24 GB)", 1, 58, 14, 46, 512, 3, (14, 22)),
    ("gpu_1x_a6000", "A6000 (48 GB)", 1, 92, 14, 100, 200, 1, (2, 6)),
    ("gpu_2x_a6000", "A6000 (48 GB)", 2, 184, 28, 200, 1000, 1, (1, 3)),
    ("gpu_4x_a6000", "A6000 (48 GB)", 4, 368, 56, 400, 1000, 1, (1, 3)),
    ("gpu_1x_a100_sxm4", "A100 (40 GB SXM4)", 1, 148, 30, 220, 512, 3, (1, 6)),
    ("gpu_1x_a100", "A100 (40 GB PCIe)", 1, 148, 30, 225, 512, 1, (1, 3)),
    ("gpu_2x_a100", "A100 (40 GB PCIe)", 2, 296, 60, 450, 1024, 0, (0, 0)),
    ("gpu_8x_a100", "A100 (40 GB SXM4)", 8, 1192, 124, 1800, 6144, 1, (1, 2)),
    ("gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)", 8, 1600, 240, 1800, 19968, 2, (1, 3)),
    ("gpu_1x_h100_pcie", "H100 (80 GB PCIe)", 1, 286, 26, 225, 1024, 2, (2, 8)),
    ("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)", 1, 378, 26, 225, 2816, 2, (1, 6)),
    ("gpu_2x_h100_sxm5", "H100 (80 GB SXM5)", 2, 736, 52, 450, 5632, 2, (1, 4)),
    ("gpu_4x_h100_sxm5", "H100 (80 GB SXM5)", 4, 1432, 104, 900, 11264, 1, (1, 2)),
    ("gpu_8x_h100_sxm5gdr", "H100 (80 GB SXM5)", 8, 3592, 208, 1800, 24780, 1, (1, 2)),
    ("gpu_1x_gh200", "GH200 (96 GB)", 1, 199, 64, 432, 4096, 1, (1, 5)),
    ("gpu_8x_v100", "Tesla V100 (16 GB)", 8, 440, 88, 448, 5939, 2, (1, 4)),
    ("gpu_8x_b200_sxm6", "B200 (180 GB SXM6)", 8, 3992, 208, 2900, 22528, 0, (0, 0)),
    ("cpu_4x_general", "N/A", 0, 16, 4, 16, 256, 2, (5, 9)),
)


class LambdaMarket:
    """All types, and the machines that are free now."""

    def __init__(self, random: Random) -> None:
        self.kinds: dict[str, LambdaInstanceType] = {}
        for name, gpu, gpus, cents, vcpus, memory, storage, regions, machines in KINDS:
            places = random.sample(sorted(REGIONS), regions)
            free = {place: random.randint(*machines) for place in places}
            self.kinds[name] = LambdaInstanceType(name, gpu, gpus, cents, vcpus, memory, storage, free)

    def wire(self) -> dict[str, Any]:
        """`GET /instance-types`: types without capacity stay in the map, with an empty list."""
        return {
            kind.name: {
                "instance_type": kind.wire(),
                "regions_with_capacity_available": [region(r) for r in sorted(kind.free) if kind.free[r] > 0],
            }
            for kind in self.kinds.values()
        }

    def chosen(self, key: str) -> list[tuple[LambdaInstanceType, str]]:
        """What an adapter's key `TYPE/REGION` names ("*": everything with capacity)."""
        name, _, place = key.partition("/")
        pairs = [(kind, r) for kind in self.kinds.values() for r in sorted(kind.free) if kind.free[r] > 0]
        return [(kind, r) for kind, r in pairs if key == "*" or (kind.name, r) == (name, place)]


def region(name: str) -> dict[str, str]:
    """A region as the API prints it."""
    return {"name": name, "description": REGIONS[name]}


def images() -> list[dict[str, Any]]:
    """`GET /images`: two families, each in every region; the second one also for ARM."""
    found = []
    for family, name, machines in (
        ("lambda-stack-22-04", "lambda-stack-22-04.7", ("x86_64",)),
        ("ubuntu-lts", "ubuntu-24.04.01", ("x86_64", "arm64")),
    ):
        for place in REGIONS:
            for machine in machines:
                digest = hashlib.sha256(f"{name}/{place}/{machine}".encode()).hexdigest()
                ident = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
                found.append(
                    {
                        "id": ident,
                        "created_time": "2026-02-03T04:05:06.000000Z",
                        "updated_time": "2026-02-03T04:05:06.000000Z",
                        "name": name,
                        "description": name.replace("-", " ").title(),
                        "family": family,
                        "version": name.rpartition("-")[2],
                        "architecture": machine,
                        "region": region(place),
                    }
                )
    return found
