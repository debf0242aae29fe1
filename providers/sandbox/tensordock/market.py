"""TensorDock's market as the sandbox plays it: locations, the GPUs free at each, and what parts cost there."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

#: The largest number of GPUs in one machine.
MACHINE_MAX = 8
#: city, state, country, tier, own addresses to give, forwarded ports work.
PLACES: tuple[tuple[str, str, str, int, bool, bool], ...] = (
    ("Chubbuck", "Idaho", "United States", 2, True, True),
    ("Joplin", "Missouri", "United States", 1, True, False),
    ("Dallas", "Texas", "United States", 4, True, True),
    ("Wilmington", "Delaware", "United States", 3, False, True),
    ("Montreal", "Quebec", "Canada", 3, True, True),
    ("Frankfurt", "Hesse", "Germany", 4, True, True),
    ("Warsaw", "Masovia", "Poland", 2, False, True),
    ("Mumbai", "Maharashtra", "India", 1, True, True),
    ("Stockholm", "Stockholm", "Sweden", 3, True, True),
)
#: slug, name shown, dollars per GPU-hour, locations that have it, GPUs in each.
GPUS: tuple[tuple[str, str, str, int, tuple[int, int]], ...] = (
    ("geforcertx5090-pcie-32gb", "NVIDIA GeForce RTX 5090 PCIe 32GB", "0.56", 3, (2, 8)),
    ("geforcertx4090-pcie-24gb", "NVIDIA GeForce RTX 4090 PCIe 24GB", "0.35", 5, (8, 18)),
    ("geforcertx3090-pcie-24gb", "NVIDIA GeForce RTX 3090 PCIe 24GB", "0.20", 3, (4, 12)),
    ("geforcertx4080-pcie-16gb", "NVIDIA GeForce RTX 4080 PCIe 16GB", "0.24", 1, (1, 4)),
    ("rtxa6000-pcie-48gb", "NVIDIA RTX A6000 PCIe 48GB", "0.42", 3, (2, 10)),
    ("rtxa5000-pcie-24gb", "NVIDIA RTX A5000 PCIe 24GB", "0.22", 2, (2, 8)),
    ("rtxa4000-pcie-16gb", "NVIDIA RTX A4000 PCIe 16GB", "0.11", 2, (4, 10)),
    ("rtx6000ada-pcie-48gb", "NVIDIA RTX 6000 Ada PCIe 48GB", "0.72", 2, (2, 8)),
    ("l40s-pcie-48gb", "NVIDIA L40S PCIe 48GB", "0.69", 2, (2, 8)),
    ("l40-48gb", "NVIDIA L40 48GB", "0.60", 1, (1, 4)),
    ("a100-pcie-80gb", "NVIDIA A100 PCIe 80GB", "1.20", 2, (2, 8)),
    ("a100-sxm4-80gb", "NVIDIA A100 SXM4 80GB", "1.35", 2, (8, 16)),
    ("h100-sxm5-80gb", "NVIDIA H100 SXM5 80GB", "2.25", 3, (8, 16)),
    ("v100-sxm2-16gb", "NVIDIA V100 SXM2 16GB", "0.19", 2, (4, 8)),
)
#: Rows with bad data, as real markets have them: the market has to leave these out.
BAD_PRICES: tuple[Decimal | None, ...] = (Decimal(0), None)


@dataclass(slots=True)
class TensorDockStock:
    """One GPU at one location. `gpu_usd_h` is per GPU; the other rates are per vCPU, GB of memory and GB of disk."""

    slug: str
    shown: str
    gpu_usd_h: Decimal | None
    free: int
    vcpu_usd_h: Decimal
    ram_usd_h: Decimal
    disk_usd_h: Decimal
    disk_gb: int
    #: False for a row whose resources the API does not tell.
    sized: bool = True

    @property
    def most(self) -> int:
        """GPUs that one machine can have now."""
        return min(self.free, MACHINE_MAX)

    def compute_usd_h(self, count: int, vcpus: int, ram_gb: int) -> Decimal:
        """Dollars per hour for everything but the disk."""
        return (self.gpu_usd_h or Decimal(0)) * count + self.vcpu_usd_h * vcpus + self.ram_usd_h * ram_gb

    def pricing(self) -> dict[str, float]:
        """The parts' prices as the API prints them."""
        return {
            "per_vcpu_hr": float(self.vcpu_usd_h),
            "per_gb_ram_hr": float(self.ram_usd_h),
            "per_gb_storage_hr": float(self.disk_usd_h),
        }


@dataclass(slots=True)
class Place:
    """One location."""

    id: str
    city: str
    state: str
    country: str
    tier: int
    own_ips: bool
    forwards: bool
    stock: dict[str, TensorDockStock] = field(default_factory=dict)


class TensorDockMarket:
    """All locations and what is free there."""

    def __init__(self, random: Random, *, bad_rows: bool = False) -> None:
        self.places: dict[str, Place] = {}
        for city, state, country, tier, own_ips, forwards in PLACES:
            ident = str(uuid.UUID(int=random.getrandbits(128), version=4))
            self.places[ident] = Place(ident, city, state, country, tier, own_ips, forwards)
        for slug, shown, usd, places, counts in GPUS:
            for place in random.sample(list(self.places.values()), places):
                place.stock[slug] = _stock(random, slug, shown, Decimal(usd), random.randint(*counts))
        staples = [place for place in self.places.values() if "geforcertx4080super-pcie-16gb" not in place.stock]
        for price, place in zip(BAD_PRICES if bad_rows else (), staples, strict=False):
            bad = _stock(random, "geforcertx4080super-pcie-16gb", "NVIDIA GeForce RTX 4080 SUPER", Decimal("0.2"), 2)
            bad.gpu_usd_h = price
            bad.sized = False
            place.stock[bad.slug] = bad

    def find(self, place_id: Any, slug: Any) -> tuple[Place, TensorDockStock] | None:
        """A GPU at a location, free or not."""
        place = self.places.get(str(place_id))
        stock = place.stock.get(str(slug)) if place is not None else None
        return None if place is None or stock is None else (place, stock)

    def take(self, stock: TensorDockStock, count: int) -> bool:
        """Occupy GPUs; False when they are not free."""
        if count > stock.most:
            return False
        stock.free -= count
        return True

    def chosen(self, key: str) -> list[TensorDockStock]:
        """What an adapter's key `LOCATION/SLUGxCOUNT` names ("*": everything with a GPU free)."""
        place_id, _, rest = key.partition("/")
        slug, _, count = rest.rpartition("x")
        if key == "*":
            return [stock for place in self.places.values() for stock in place.stock.values() if stock.free > 0]
        found = self.find(place_id, slug)
        return [found[1]] if found is not None and count.isdigit() and found[1].most >= int(count) else []

    def locations(self) -> list[dict[str, Any]]:
        """`GET /locations`. A GPU that is sold out is not shown, a location without any still is."""
        return [
            {
                "id": place.id,
                "city": place.city,
                "stateprovince": place.state,
                "country": place.country,
                "tier": place.tier,
                "gpus": [_row(place, stock) for stock in place.stock.values() if stock.most > 0],
            }
            for place in self.places.values()
        ]

    def v0_hosts(self) -> dict[str, dict[str, Any]]:
        """The older API's public list: each host of `hostnodes` by its id, sold out or not."""
        pairs = [(place, stock) for place in self.places.values() for stock in place.stock.values()]
        return {_node(*pair)["id"]: _v0_host(*pair) for pair in pairs}

    def hostnodes(self) -> list[dict[str, Any]]:
        """`GET /hostnodes`: one node per GPU and location."""
        return [_node(place, stock) for place in self.places.values() for stock in place.stock.values()]


def _stock(random: Random, slug: str, shown: str, usd: Decimal, free: int) -> TensorDockStock:
    price = round(usd * Decimal(str(round(random.uniform(0.9, 1.3), 3))), 3)
    disk = random.choice((1000, 2000, 4000))
    return TensorDockStock(slug, shown, price, free, Decimal("0.003"), Decimal("0.002"), Decimal("0.00005"), disk)


def _row(place: Place, stock: TensorDockStock) -> dict[str, Any]:
    resources: dict[str, Any] = {"max_vcpus": 24 * stock.most, "max_ram_gb": 96 * stock.most}
    resources["max_storage_gb"] = stock.disk_gb
    return {
        "v0Name": stock.slug,
        "displayName": stock.shown,
        "max_count": stock.most,
        "price_per_hr": None if stock.gpu_usd_h is None else float(stock.gpu_usd_h),
        "resources": resources if stock.sized else dict.fromkeys(resources),
        "pricing": stock.pricing(),
        "network_features": {
            "dedicated_ip_available": place.own_ips,
            "port_forwarding_available": True,
            "network_storage_available": False,
        },
    }


def _node(place: Place, stock: TensorDockStock) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid5(uuid.UUID(place.id), stock.slug)),
        "location_id": place.id,
        "engine": "sandbox",
        "uptime_percentage": 99.4,
        "available_resources": {
            "gpus": [
                {
                    "v0Name": stock.slug,
                    "availableCount": stock.free,
                    "price_per_hr": None if stock.gpu_usd_h is None else float(stock.gpu_usd_h),
                }
            ],
            "vcpu_count": 24 * stock.free,
            "ram_gb": 96 * stock.free,
            "storage_gb": stock.disk_gb,
            "max_vcpus_per_gpu": 24,
            "max_ram_per_gpu": 96,
            "available_ports": [20001, 20002, 20003],
            "has_public_ip_available": place.own_ips,
        },
        "pricing": stock.pricing(),
        "location": {
            "uuid": place.id,
            "city": place.city,
            "stateprovince": place.state,
            "country": place.country,
            "has_network_storage": False,
            "network_speed_gbps": 10,
            "network_speed_upload_gbps": 10,
            "organization": "sandbox",
            "organizationName": "Sandbox",
            "tier": place.tier,
        },
    }


def _v0_host(place: Place, stock: TensorDockStock) -> dict[str, Any]:
    prices = stock.pricing()
    gpu = {"amount": stock.most, "price": None if stock.gpu_usd_h is None else float(stock.gpu_usd_h)}
    memory_gb = int(stock.slug.rpartition("-")[2].removesuffix("gb"))
    return {
        "location": {"id": place.id, "city": place.city, "region": place.state, "country": place.country},
        "networking": {"ports": [20001, 20002, 20003], "receive": 1000, "send": 1000, "dedicated_ip": place.own_ips},
        "specs": {
            "cpu": {"amount": 24 * stock.most, "type": "AMD EPYC 7543", "price": prices["per_vcpu_hr"]},
            "ram": {"amount": 96 * stock.most, "price": prices["per_gb_ram_hr"]},
            "storage": {"amount": stock.disk_gb, "price": prices["per_gb_storage_hr"]},
            "gpu": {stock.slug: {**gpu, "vram": memory_gb, "pcie": True, "gtx": False, "rtx": "rtx" in stock.slug}},
            "restrictions": {},
        },
        "status": {"online": True, "listed": True, "reserved": False, "uptime": 99.4, "report": False},
    }
