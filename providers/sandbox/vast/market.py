"""Vast.ai's market as the sandbox plays it: machines with GPUs, and the offers cut from them.

A machine with free GPUs is offered in slices of 1, 2, 4, 8. Renting one makes every overlapping slice vanish; what is
given back returns under a new offer id, as the real market does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

from providers.gpus.table import GPUS, spellings
from providers.sandbox.timeline import usd

MONTH_H = Decimal(720)
LISTED_S = 30 * 86400.0
#: canonical name → typical dollars per GPU-hour on demand, machines on offer, GPUs per machine, highest CUDA.
MODELS: tuple[tuple[str, str, int, tuple[int, ...], str], ...] = (
    ("RTX5090", "0.42", 10, (1, 2, 4, 8), "13.0"),
    ("RTX4090", "0.33", 14, (1, 2, 4, 8), "12.8"),
    ("RTX3090", "0.17", 12, (1, 2, 4, 8), "12.6"),
    ("H100-SXM", "2.15", 9, (8, 8, 4, 2), "12.8"),
    ("H100-PCIE", "1.75", 4, (1, 2, 4), "12.4"),
    ("H100-NVL", "1.95", 4, (2, 4, 8), "12.8"),
    ("H200", "2.70", 5, (8, 8, 4), "12.8"),
    ("B200", "3.90", 3, (8, 8, 4), "13.0"),
    ("A100-SXM-80GB", "0.88", 8, (8, 4, 8, 2), "12.4"),
    ("A100-SXM-40GB", "0.66", 4, (8, 4), "12.4"),
    ("A100-PCIE-80GB", "0.80", 5, (1, 2, 4, 8), "12.4"),
    ("L40S", "0.62", 6, (1, 2, 4, 8), "12.6"),
    ("RTX6000Ada", "0.58", 4, (1, 2, 4), "12.6"),
    ("A6000", "0.42", 6, (1, 2, 4, 8), "12.4"),
    ("A5000", "0.22", 4, (1, 2, 4), "12.4"),
    ("A40", "0.33", 4, (1, 2, 4, 8), "12.4"),
    ("RTXPRO6000-WS", "0.98", 4, (1, 2, 4), "13.0"),
    ("RTX5080", "0.21", 3, (1, 2), "13.0"),
    ("RTX4080S", "0.19", 3, (1, 2, 4), "12.6"),
    ("V100-16GB", "0.14", 3, (4, 8), "12.4"),
    ("T4", "0.12", 2, (1, 4), "12.4"),
)
#: One host in ten of the recorded market (56 of 589) has a driver from before the images that people use.
OLD_CUDA, OLD_DRIVER_EVERY, OLD_DRIVER_AT = "12.2", 10, 4
PLACES = (
    "Texas, US",
    "California, US",
    "Quebec, CA",
    "Oslo, NO",
    "Sweden, SE",
    ", DE",
    "Poland, PL",
    "Iceland, IS",
    ", CN",
)
#: Usable MB where a data sheet or a recorded row gives it; elsewhere nominal GB × 1024.
USABLE_MB = {"RTX5090": 32607, "RTX4090": 24564, "A5000": 24564, "T4": 15360, "H100-SXM": 81559, "B200": 183359}
#: Machines whose price is bad data, as real markets have had them. A client must leave them out.
BAD_PRICES: tuple[Decimal | None, ...] = (Decimal(0), None, Decimal("-0.10"))


@dataclass(slots=True)
class VastMachine:
    """One host machine. `gpu_usd_h` is dollars per GPU-hour (None and ≤ 0 are bad rows); storage is $/GB/month."""

    machine_id: int
    host_id: int
    gpu: str
    gpus: int
    gpu_usd_h: Decimal | None
    bid_share: Decimal
    storage_usd_gb_month: Decimal
    place: str
    reliability: float
    verified: bool
    datacenter: bool
    cuda: float
    disk_gb: float
    down_mbps: float
    up_usd_gb: float
    down_usd_gb: float
    free: int = 0
    #: slice size → the id under which it is offered now.
    offers: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slice:
    """One offer: `size` GPUs of a machine under an id that is used once."""

    offer_id: int
    size: int
    machine: VastMachine

    @property
    def min_bid_usd_h(self) -> Decimal | None:
        """The lowest bid, in dollars per hour for all of it, that runs now; nobody's bid moves it."""
        base = self.machine.gpu_usd_h
        return None if base is None else round(base * self.size * self.machine.bid_share, 4)

    def outbids(self, bid_usd_h: Any) -> bool:
        """Whether a bid is below the lowest one that runs; None is no bid."""
        least = self.min_bid_usd_h
        return bid_usd_h is not None and least is not None and Decimal(str(bid_usd_h)) < least


class VastMarket:
    """All machines and the offers now on them."""

    def __init__(self, random: Random, now: datetime, *, bad_rows: bool = False) -> None:
        self._random = random
        self._opened = now.timestamp()
        self._next_offer_id = 30_000_000
        self.machines: list[VastMachine] = []
        for name, usd_h, count, sizes, cuda in MODELS:
            for number in range(count):
                driver = OLD_CUDA if number % OLD_DRIVER_EVERY == OLD_DRIVER_AT else cuda
                self._add(name, Decimal(usd_h), sizes[number % len(sizes)], driver)
        for price in BAD_PRICES if bad_rows else ():
            self._add("RTX4090", Decimal("0.30"), 1, "12.8").gpu_usd_h = price
            self.machines[-1].verified = True

    def _add(self, gpu: str, usd_h: Decimal, gpus: int, cuda: str) -> VastMachine:
        rnd = self._random
        datacenter = gpu[0] in "HB" or (gpu.startswith("A100") and rnd.random() < 0.7)
        price = usd_h * Decimal(str(round(rnd.uniform(0.82, 1.45), 3)))
        machine = VastMachine(
            machine_id=51_000 + len(self.machines) * 7,
            host_id=77_000 + rnd.randrange(60),
            gpu=gpu,
            gpus=gpus,
            gpu_usd_h=round(price, 4),
            bid_share=Decimal(str(round(rnd.uniform(0.35, 0.65), 2))),
            storage_usd_gb_month=Decimal(str(round(rnd.uniform(0.08, 0.25), 2))),
            place=rnd.choice(PLACES),
            reliability=round(min(0.9999, rnd.triangular(0.90, 1.0, 0.995)), 4),
            verified=rnd.random() < 0.85,
            datacenter=datacenter,
            cuda=float(cuda),
            disk_gb=round(rnd.uniform(120, 3000), 1),
            down_mbps=round(rnd.uniform(150, 9000), 1),
            up_usd_gb=rnd.choice((0.0, 0.002, 0.005, 0.01, 0.02)),
            down_usd_gb=rnd.choice((0.0, 0.001, 0.002, 0.005)),
            free=gpus,
        )
        if len(self.machines) % 9 == 0:
            # A verified machine of every kind of place, so that a default search never depends on the seed alone.
            machine.verified = True
        self.machines.append(machine)
        self.refresh(machine)
        return machine

    def refresh(self, machine: VastMachine) -> None:
        """Make the offers of a machine agree with its free GPUs; what comes back gets a new id."""
        sizes = [size for size in (1, 2, 4, 8) if size <= machine.free]
        machine.offers = {size: machine.offers.get(size) or self._new_id() for size in sizes}

    def _new_id(self) -> int:
        self._next_offer_id += self._random.randrange(3, 900)
        return self._next_offer_id

    def find(self, offer_id: int) -> Slice | None:
        """The offer under this id, or None when it is gone."""
        for machine in self.machines:
            for size, known in machine.offers.items():
                if known == offer_id:
                    return Slice(offer_id, size, machine)
        return None

    def take(self, machine: VastMachine, size: int, offer_id: int | None = None) -> bool:
        """Occupy `size` GPUs and use the offer id up; False when they are not free."""
        if machine.free < size:
            return False
        machine.free -= size
        machine.offers = {s: i for s, i in machine.offers.items() if i != offer_id}
        self.refresh(machine)
        return True

    def give_back(self, machine: VastMachine, size: int) -> None:
        machine.free = min(machine.gpus, machine.free + size)
        self.refresh(machine)

    def slices(self) -> Iterator[Slice]:
        for machine in self.machines:
            for size, offer_id in sorted(machine.offers.items()):
                yield Slice(offer_id, size, machine)

    def row(self, part: Slice, now: datetime, *, bid: bool, disk_gb: float) -> dict[str, Any]:
        """One offer as the API prints it. `dph_total` includes storage of `disk_gb`."""
        machine = part.machine
        base = None if machine.gpu_usd_h is None else machine.gpu_usd_h * part.size
        min_bid = part.min_bid_usd_h
        storage = storage_usd_h(machine, disk_gb)
        price = min_bid if bid else base
        total = None if price is None else price + (storage if price > 0 else 0)
        left_s = LISTED_S - (now.timestamp() - self._opened) % LISTED_S
        return {
            "id": part.offer_id,
            "ask_contract_id": part.offer_id,
            "bundle_id": machine.machine_id * 10 + part.size,
            **hardware(machine, part.size),
            **host(machine),
            "direct_port_count": 12 * part.size,
            "dph_base": usd(base),
            "dph_total": usd(total),
            "min_bid": usd(min_bid),
            "storage_cost": float(machine.storage_usd_gb_month),
            "storage_total_cost": usd(storage),
            "search": rates(price, storage),
            "rentable": True,
            "rented": False,
            "is_bid": bid,
            "external": None,
            "duration": left_s,
            "start_date": self._opened,
            "end_date": now.timestamp() + left_s,
            "score": round(301.2 * machine.reliability, 1),
            "resource_type": "gpu",
        }


def listed_name(machine: VastMachine) -> str:
    """What Vast.ai calls its GPU."""
    return spellings("vast", machine.gpu)[0]


def hardware(machine: VastMachine, size: int) -> dict[str, Any]:
    """What `size` GPUs of a machine are. Memory in MB, `cpu_ram` of the whole machine, `compute_cap` = 100 × CC."""
    gpu = GPUS[machine.gpu]
    ram_mb = USABLE_MB.get(machine.gpu, gpu.memory_gb * 1024)
    return {
        "num_gpus": size,
        "gpu_name": listed_name(machine),
        "gpu_frac": size / machine.gpus,
        "gpu_ram": ram_mb,
        "gpu_total_ram": ram_mb * size,
        "gpu_arch": "nvidia",
        "compute_cap": int((gpu.compute_capability or Decimal(0)) * 100),
        "cuda_max_good": machine.cuda,
        "driver_version": "570.124.04",
        "gpu_mem_bw": float(gpu.bandwidth_gb_s or 0),
        "dlperf": float(gpu.peak_bf16_tflops or 0) * size,
        "total_flops": float(gpu.peak_bf16_tflops or 0) * size,
        "bw_nvlink": 300.0 if "SXM" in gpu.name else 0.0,
        "cpu_arch": "amd64",
        "cpu_cores": 16 * machine.gpus,
        "cpu_cores_effective": 16.0 * size,
        "cpu_ram": 64_000 * machine.gpus,
        "pci_gen": 5.0,
        "pcie_bw": 52.1,
        "gpu_max_power": 450.0,
    }


def host(machine: VastMachine) -> dict[str, Any]:
    """What the machine's host offers around the GPUs. Disk in GB, network in Mbit/s, transfer in $/GB."""
    return {
        "machine_id": machine.machine_id,
        "host_id": machine.host_id,
        "disk_space": machine.disk_gb,
        "disk_bw": 3200.0,
        "inet_up": round(machine.down_mbps * 0.8, 1),
        "inet_down": machine.down_mbps,
        "inet_up_cost": machine.up_usd_gb,
        "inet_down_cost": machine.down_usd_gb,
        "reliability": machine.reliability,
        "reliability2": machine.reliability,
        "verification": "verified" if machine.verified else "unverified",
        "hosting_type": int(machine.datacenter),
        "static_ip": True,
        "public_ipaddr": "203.0.113.42",
        "geolocation": machine.place,
        "vms_enabled": False,
        "os_version": "22.04",
        "ubuntu_version": 22.04,
    }


def storage_usd_h(machine: VastMachine, disk_gb: float) -> Decimal:
    """Dollars per hour for `disk_gb`: $/GB/month over 720 hours, which is exact on the documented examples."""
    return machine.storage_usd_gb_month * Decimal(str(disk_gb)) / MONTH_H


def rates(gpu: Decimal | None, storage: Decimal) -> dict[str, Any]:
    total = None if gpu is None else gpu + storage
    return {"gpuCostPerHour": usd(gpu), "diskHour": usd(storage), "totalHour": usd(total)}
