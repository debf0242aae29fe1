"""The organization of the TensorDock sandbox: machines, secrets, credit, and what commands do to them. No HTTP here."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.gpus.table import canonical
from providers.sandbox.account import OWNERS_KEY, PhasedInstance, SandboxAccount
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.tensordock.market import Place, TensorDockMarket, TensorDockStock
from providers.sandbox.timeline import Timeline, usd

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


#: Where the public ports begin that are shown for other ports than SSH's; nothing listens there.
FIRST_PORT, PORTS = 40_000, 20_000


def _forwarded(attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """The inner ports of a create's `port_forwards`."""
    rows = [row for row in attributes.get("port_forwards") or [] if isinstance(row, dict)]
    return tuple(row["internal_port"] for row in rows if isinstance(row.get("internal_port"), int))


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
    own_address: bool
    #: The inner ports that the create asked to forward; here, too, the outer ones are the cloud's choice.
    forwarded: tuple[int, ...] = ()
    holds_gpu: bool = True
    ghost: bool = False

    @property
    def ports_ignored(self) -> bool:
        """Some locations ignore forwarded ports, which leaves a machine without an own address unreachable."""
        return "ports_ignored" in self.quirks or not (self.place.forwards or self.own_address)

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

    def status(self, now: datetime) -> str:
        return "deleting" if self.ended_at is not None and now >= self.ended_at else self.phases.at(now).status

    def answers(self, now: datetime) -> bool:
        """While it runs with an address, and a port leads there."""
        return self.phases.at(now) == RUNNING and not self.ports_ignored

    def in_full(self, now: datetime, ssh_port: int | None) -> dict[str, Any]:
        """`GET /instances/ID`, in its casing. The port of a machine with its own address is shown too: here every
        machine shares one address, where a real one has 22.
        """
        phase = self.phases.at(now)
        forwards = []
        if ssh_port is not None and not self.ports_ignored:
            outer = {22: ssh_port} | {port: FIRST_PORT + port % PORTS for port in self.forwarded if port != 22}
            forwards = [{"internal_port": inside, "external_port": outside} for inside, outside in outer.items()]
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
            "rateHourly": usd(self.compute_usd_h + self.storage_usd_h),
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
            "price_per_hour": usd(self.compute_usd_h + self.storage_usd_h),
            "created_at": self.created_at.isoformat().replace("+00:00", "Z"),
            "location_id": self.place.id,
        }


CREDIT_USD = Decimal(1000)
#: How long stopped machines survive a balance below zero.
GRACE_S = 96 * 3600.0


class TensorDockAccount(SandboxAccount[TensorDockInstance]):
    """Everything one organization has."""

    def __init__(self, cloud: SandboxCloud) -> None:
        super().__init__(cloud, CREDIT_USD)
        self.market = TensorDockMarket(self.engine.random("tensordock"), bad_rows=self.engine.bad_rows)
        self.broke_at: datetime | None = None
        self._ids = self.engine.random("tensordock/ids")
        self.secrets: dict[str, dict[str, str]] = {}
        self.add_secret("laptop", OWNERS_KEY, "SSHKEY")

    def new_id(self) -> str:
        return str(uuid.UUID(int=self._ids.getrandbits(128), version=4))

    def add_secret(self, name: str, value: str, kind: str) -> dict[str, str]:
        secret = {"id": self.new_id(), "name": name, "type": kind, "value": value}
        self.secrets[secret["id"]] = secret
        return secret

    def deploy(
        self, place: Place, stock: TensorDockStock, attributes: dict[str, Any], lands_in_s: float
    ) -> TensorDockInstance:
        """Make a machine. The caller has checked the request and taken the GPUs."""
        boot_s = self.engine.timing.boot_s
        asked = attributes["resources"]
        count = asked["gpus"][stock.slug]["count"]
        compute_usd_h = stock.compute_usd_h(count, asked["vcpu_count"], asked["ram_gb"])
        machine = TensorDockInstance(
            ref=self.new_id(),
            name=str(attributes.get("name") or ""),
            place=place,
            stock=stock,
            gpu=canonical("tensordock", stock.slug) or stock.slug,
            gpu_count=count,
            vcpus=asked["vcpu_count"],
            ram_gb=asked["ram_gb"],
            disk_gb=asked["storage_gb"],
            image=str(attributes["image"]),
            compute_usd_h=compute_usd_h * self.price_factor(),
            storage_usd_h=stock.disk_usd_h * asked["storage_gb"],
            cloud_init=dict(attributes.get("cloud_init") or {}),
            own_address=bool(attributes.get("useDedicatedIp")),
            forwarded=_forwarded(attributes),
            quirks=self.quirks("ports_ignored", "never_boots", "boot_error"),
            **self.times(lands_in_s),
        )
        machine.boot(boot_s, self.lag_s("late_address", 0.0))
        creating, error = TensorDockPhase("creating"), TensorDockPhase("error")
        if "never_boots" in machine.quirks:
            machine.phases.plan(machine.created_at, (0.0, TensorDockPhase("queued")))
        elif "boot_error" in machine.quirks:
            machine.phases.plan(machine.created_at, (0.0, creating), (boot_s, error))
        return self.add(machine)

    # ── what is seen ─────────────────────────────────────────────────────────────────────────────

    def exists(self, instance: TensorDockInstance) -> bool:
        """A ghost is not found, and is still billed."""
        return super().exists(instance) and not instance.ghost

    def port(self, machine: TensorDockInstance) -> int | None:
        """The outer port of SSH, once there is an address."""
        if not machine.phases.at(self.now).address or machine.ended_at is not None:
            return None
        return self.reserve_port(machine)

    # ── commands ─────────────────────────────────────────────────────────────────────────────────

    def stop(self, machine: TensorDockInstance, *, releases: bool) -> None:
        """Stop it. Releasing gives its GPU back and ends its billing; else it stays reserved at the full price."""
        last = RELEASED if releases else RESERVED
        machine.phases.plan(self.now, (0.0, TensorDockPhase("stopping")), (self.engine.timing.stop_s, last))
        if releases:
            machine.meter.stop("gpu", self.now)
            self._release(machine)

    def start(self, machine: TensorDockInstance) -> bool:
        """Plan the way back to running; False when its GPUs were given back and are taken."""
        if not machine.holds_gpu and not self.market.take(machine.stock, machine.gpu_count):
            return False
        machine.holds_gpu = True
        machine.phases.plan(self.now, (0.0, TensorDockPhase("starting")), (self.engine.timing.start_s, RUNNING))
        if not machine.meter.rate_usd_h("gpu", self.now):
            machine.meter.start("gpu", self.now, machine.compute_usd_h)
        return True

    def delete(self, machine: TensorDockInstance) -> None:
        """End all billing and free the GPUs."""
        self._release(machine)
        machine.end(self.now, self.engine.timing.destroy_s)

    def _release(self, machine: TensorDockInstance) -> None:
        if machine.holds_gpu:
            machine.holds_gpu = False
            machine.stock.free += machine.gpu_count

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    def charge(self) -> None:
        """Below zero all machines are stopped; after the grace they are deleted with their data."""
        living = [m for m in self.living.at(self.now) if m.exists(self.now) and m.ended_at is None]
        if not living or self.left_usd() >= 0:
            self.broke_at = None
            return
        if self.broke_at is None:
            self.broke_at = self.now
            for machine in living:
                self.stop(machine, releases=True)
        elif (self.now - self.broke_at).total_seconds() >= GRACE_S:
            for machine in living:
                self.delete(machine)

    def expenses(self, period: str) -> dict[str, list[dict[str, Any]]]:
        """The older API's summary of one month (`2026-03`); nothing younger than the bill's lag.

        ValueError when the period is not a month.
        """
        start = datetime.strptime(period, "%Y-%m").replace(tzinfo=UTC)
        following = (start + timedelta(days=32)).replace(day=1)
        end = min(following, self.now - timedelta(seconds=self.engine.timing.charges_lag_s))
        found: dict[str, list[dict[str, Any]]] = {"vm_expenses": [], "storage_expenses": []}
        for machine in self.instances.values():
            for part, rows in zip(("gpu", "storage"), found.values(), strict=True):
                amount = machine.meter.usd(part, end, start) if end > start else Decimal(0)
                rate = machine.compute_usd_h if part == "gpu" else machine.storage_usd_h
                if amount:
                    ids = {"virtual_machine_id": machine.ref, "name": machine.name}
                    rows.append(ids | {"rate_hourly": float(rate), "total_amount": usd(amount)})
        return found
