"""The organization of the TensorDock sandbox: machines, secrets, credit, and what commands do to them. No HTTP here."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.gpus.table import canonical
from providers.sandbox.account import SandboxAccount
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.tensordock.instance import TensorDockInstance, TensorDockPhase
from providers.sandbox.tensordock.market import Place, TensorDockMarket, TensorDockStock

CREDIT_USD = Decimal(1000)
#: How long stopped machines survive a balance below zero.
GRACE_S = 96 * 3600.0
OWNERS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOwn3rs0wnK3yAAAAAAAAAAAAAAAAAAAAAAAAAAA owner@laptop"


class TensorDockAccount(SandboxAccount[TensorDockInstance]):
    """Everything one organization has."""

    def __init__(self, cloud: SandboxCloud) -> None:
        super().__init__(cloud, CREDIT_USD)
        self.market = TensorDockMarket(self.engine.random("tensordock"))
        self.broke_at: datetime | None = None
        self._ids = self.engine.random("tensordock/ids")
        self.secrets: dict[str, dict[str, str]] = {}
        self.add_secret("laptop", OWNERS_KEY, "SSHKEY")

    def new_id(self) -> str:
        """A UUID."""
        return str(uuid.UUID(int=self._ids.getrandbits(128), version=4))

    def add_secret(self, name: str, value: str, kind: str) -> dict[str, str]:
        """Keep a secret."""
        secret = {"id": self.new_id(), "name": name, "type": kind, "value": value}
        self.secrets[secret["id"]] = secret
        return secret

    def deploy(
        self, place: Place, stock: TensorDockStock, attributes: dict[str, Any], lands_in_s: float
    ) -> TensorDockInstance:
        """Make a machine. The caller has checked the request and taken the GPUs."""
        timing, fault = self.engine.timing, self.cloud.fault
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
            # Some locations ignore forwarded ports, which leaves a machine without an own address unreachable.
            ports_ignored=fault("ports_ignored") is not None
            or not (place.forwards or attributes.get("useDedicatedIp")),
            **self.times(lands_in_s),
        )
        machine.boot(timing.boot_s, self.lag_s("late_address", 0.0))
        if fault("never_boots") is not None:
            machine.phases.plan(machine.created_at, (0.0, TensorDockPhase("queued")))
        elif fault("boot_error") is not None:
            machine.phases.plan(
                machine.created_at, (0.0, TensorDockPhase("creating")), (timing.boot_s, TensorDockPhase("error"))
            )
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
        """Stop it, and give its GPU back or keep it reserved at the full price."""
        machine.halt(self.now, self.engine.timing.stop_s, releases=releases)
        if releases:
            self._release(machine)

    def start(self, machine: TensorDockInstance) -> bool:
        """Plan the way back to running; False when its GPUs were given back and are taken."""
        if not machine.holds_gpu and not self.market.take(machine.stock, machine.gpu_count):
            return False
        machine.holds_gpu = True
        machine.resume(self.now, self.engine.timing.start_s)
        return True

    def delete(self, machine: TensorDockInstance) -> None:
        """End all billing and free the GPUs."""
        self._release(machine)
        machine.end(self.now, self.engine.timing.destroy_s)

    def _release(self, machine: TensorDockInstance) -> None:
        if machine.holds_gpu:
            machine.holds_gpu = False
            self.market.give_back(machine.stock, machine.gpu_count)

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    def hourly_usd(self) -> Decimal:
        """What everything costs per hour now."""
        now = self.now
        rates = (m.meter.rate_usd_h(part, now) for m in self.living.at(now) for part in ("gpu", "storage"))
        return sum(rates, Decimal(0))

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
                    rows.append(ids | {"rate_hourly": float(rate), "total_amount": round(float(amount), 6)})
        return found
