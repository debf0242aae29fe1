"""One machine of the TensorDock sandbox: what it says and what it costs at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from providers.sandbox.instance import PhasedInstance
from providers.sandbox.tensordock.market import Place, TensorDockStock
from providers.sandbox.timeline import Timeline

#: The share of the boot at which each word begins; the address follows at its end.
CREATING_AT, RUNNING_AT = 0.1, 0.5


@dataclass(frozen=True, slots=True)
class TensorDockPhase:
    """What the API says in one stretch: the status, and whether it shows the address."""

    status: str
    address: bool = False


RUNNING = TensorDockPhase("running", address=True)
#: The GPU is kept and paid for.
RESERVED = TensorDockPhase("stopped", address=True)
#: The GPU was given back; only the disk is paid for.
RELEASED = TensorDockPhase("stoppeddisassociated")


@dataclass(kw_only=True)
class TensorDockInstance(PhasedInstance[TensorDockPhase]):
    """State of one machine. `ghost` hides it while it is still billed."""

    phases: Timeline[TensorDockPhase] = field(default_factory=lambda: Timeline(TensorDockPhase("queued")))
    place: Place
    stock: TensorDockStock
    vcpus: int
    ram_gb: int
    disk_gb: int
    image: str
    compute_usd_h: Decimal
    storage_usd_h: Decimal
    cloud_init: dict[str, Any]
    holds_gpu: bool = True
    ports_ignored: bool = False
    ghost: bool = False

    def boot(self, boot_s: float, address_s: float = 0.0) -> None:
        """Plan the walk to running; everything is billed from the creation on."""
        self.phases.plan(
            self.created_at,
            (0.0, TensorDockPhase("queued")),
            (boot_s * CREATING_AT, TensorDockPhase("creating")),
            (boot_s * RUNNING_AT, TensorDockPhase("running")),
            (boot_s + address_s, RUNNING),
        )
        self.meter.start("gpu", self.created_at, self.compute_usd_h)
        self.meter.start("storage", self.created_at, self.storage_usd_h)

    def halt(self, now: datetime, after_s: float, *, releases: bool) -> None:
        """Stop. Releasing gives the GPU back and ends its billing; otherwise the machine costs what it did."""
        last = RELEASED if releases else RESERVED
        self.phases.plan(now, (0.0, TensorDockPhase("stopping")), (after_s, last))
        if releases:
            self.meter.stop("gpu", now)

    def resume(self, now: datetime, after_s: float) -> None:
        """Start again."""
        self.phases.plan(now, (0.0, TensorDockPhase("starting")), (after_s, RUNNING))
        if not self.meter.rate_usd_h("gpu", now):
            self.meter.start("gpu", now, self.compute_usd_h)

    def status(self, now: datetime) -> str:
        """The API's word."""
        return "deleting" if self.ended_at is not None and now >= self.ended_at else self.phases.at(now).status

    def answers(self, now: datetime) -> bool:
        """While it runs with an address, and a port leads there."""
        return self.phases.at(now) == RUNNING and not self.ports_ignored

    def in_full(self, now: datetime, ssh_port: int | None) -> dict[str, Any]:
        """`GET /instances/ID`, in its casing. The port of a machine with its own address is shown too: here every
        machine shares one address, where a real one has 22.
        """
        phase = self.phases.at(now)
        forwards = [] if ssh_port is None or self.ports_ignored else [{"internal_port": 22, "external_port": ssh_port}]
        gpu = {"count": self.gpu_count, "v0Name": self.stock.slug}
        return {
            "type": "virtualmachine",
            "id": self.ref,
            "name": self.name,
            "status": self.status(now),
            "ipAddress": "127.0.0.1" if phase.address and self.ended_at is None else "",
            "portForwards": forwards,
            "resources": {
                "vcpu_count": self.vcpus,
                "ram_gb": self.ram_gb,
                "storage_gb": self.disk_gb,
                "gpus": {self.stock.slug: gpu},
            },
            "rateHourly": _usd(self.compute_usd_h + self.storage_usd_h),
        }

    def row(self, now: datetime) -> dict[str, Any]:
        """One flat row of a listing."""
        phase = self.phases.at(now)
        return {
            "id": self.ref,
            "name": self.name,
            "status": self.status(now),
            "ipAddress": "127.0.0.1" if phase.address and self.ended_at is None else "",
            "gpu_model": self.stock.slug,
            "gpu_count": self.gpu_count,
            "vcpus": self.vcpus,
            "ram_gb": self.ram_gb,
            "storage_gb": self.disk_gb,
            "price_per_hour": _usd(self.compute_usd_h + self.storage_usd_h),
            "created_at": self.created_at.isoformat().replace("+00:00", "Z"),
            "location_id": self.place.id,
        }


def _usd(value: Decimal) -> float:
    return round(float(value), 6)
