"""The organization of the TensorDock sandbox: machines, secrets, credit, and what commands do to them. No HTTP here."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.sandbox.engine import Engine, SandboxCloud
from providers.sandbox.tensordock.instance import Machine, Phase
from providers.sandbox.tensordock.market import Market, Place, Stock
from providers.sandbox.timeline import Living, Settled

CREDIT_USD = Decimal(1000)
#: How long stopped machines survive a balance below zero.
GRACE_S = 96 * 3600.0
OWNERS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOwn3rs0wnK3yAAAAAAAAAAAAAAAAAAAAAAAAAAA owner@laptop"


class Account:
    """Everything one organization has. Times come from the engine's clock."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.market = Market(engine.random("tensordock"))
        self.machines: dict[str, Machine] = {}
        self.credit_usd = CREDIT_USD
        self.living = Living(self.machines, _over, lambda machine, now: machine.meter.total_usd(now))
        self._settled = Settled()
        self.broke_at: datetime | None = None
        self._ids = engine.random("tensordock/ids")
        self.secrets: dict[str, dict[str, str]] = {}
        self.add_secret("laptop", OWNERS_KEY, "SSHKEY")

    @property
    def now(self) -> datetime:
        """The sandbox's time."""
        return self.engine.clock.now()

    def new_id(self) -> str:
        """A UUID."""
        return str(uuid.UUID(int=self._ids.getrandbits(128), version=4))

    def add_secret(self, name: str, value: str, kind: str) -> dict[str, str]:
        """Keep a secret."""
        secret = {"id": self.new_id(), "name": name, "type": kind, "value": value}
        self.secrets[secret["id"]] = secret
        return secret

    def deploy(
        self, place: Place, stock: Stock, attributes: dict[str, Any], faults: SandboxCloud, lands_in_s: float
    ) -> Machine:
        """Make a machine. The caller has checked the request and taken the GPUs."""
        at, timing = self.now + timedelta(seconds=lands_in_s), self.engine.timing
        asked = attributes["resources"]
        count = asked["gpus"][stock.slug]["count"]
        higher = faults.fault("price_higher_than_quoted")
        factor = Decimal(str(higher.get("factor", "1.5"))) if higher is not None else Decimal(1)
        machine = Machine(
            ref=self.new_id(),
            name=str(attributes.get("name") or ""),
            place=place,
            stock=stock,
            count=count,
            vcpus=asked["vcpu_count"],
            ram_gb=asked["ram_gb"],
            disk_gb=asked["storage_gb"],
            image=str(attributes["image"]),
            compute_usd_h=stock.compute_usd_h(count, asked["vcpu_count"], asked["ram_gb"]) * factor,
            storage_usd_h=stock.disk_usd_h * asked["storage_gb"],
            cloud_init=dict(attributes.get("cloud_init") or {}),
            created_at=at,
            shown_at=at + timedelta(seconds=_lag(faults, "create_get_lag", timing.get_lag_s)),
            listed_at=at + timedelta(seconds=_lag(faults, "create_list_lag", timing.list_lag_s)),
            reachable_s=_lag(faults, "running_before_reachable", timing.reachable_s, 120),
            # Some locations ignore forwarded ports, which leaves a machine without an own address unreachable.
            ports_ignored=faults.fault("ports_ignored") is not None
            or not (place.forwards or attributes.get("useDedicatedIp")),
        )
        machine.boot(timing.boot_s, _lag(faults, "late_address", 0.0))
        if faults.fault("never_boots") is not None:
            machine.phases.plan(at, (0.0, Phase("queued")))
        elif faults.fault("boot_error") is not None:
            machine.phases.plan(at, (0.0, Phase("creating")), (timing.boot_s, Phase("error")))
        self.machines[machine.ref] = machine
        return machine

    # ── what is seen ─────────────────────────────────────────────────────────────────────────────

    def shown(self, ref: str) -> Machine | None:
        """What a read by id finds."""
        machine = self.existing(ref)
        return machine if machine is not None and self.now >= machine.shown_at else None

    def existing(self, ref: str) -> Machine | None:
        """What a command finds."""
        self.settle()
        machine = self.machines.get(ref)
        return machine if machine is not None and machine.exists(self.now) and not machine.ghost else None

    def listed(self) -> list[Machine]:
        """What the listing finds."""
        self.settle()
        now = self.now
        return [m for m in self.living.at(now) if m.exists(now) and now >= m.listed_at and not m.ghost]

    def port(self, machine: Machine) -> int | None:
        """The outer port of SSH, once there is an address."""
        if not machine.phases.at(self.now).address or machine.ended_at is not None:
            return None
        return self.engine.doors.reserve(f"tensordock/{machine.ref}")

    # ── commands ─────────────────────────────────────────────────────────────────────────────────

    def stop(self, machine: Machine, *, releases: bool) -> None:
        """Stop it, and give its GPU back or keep it reserved at the full price."""
        machine.halt(self.now, self.engine.timing.stop_s, releases=releases)
        if releases:
            self._release(machine)

    def start(self, machine: Machine) -> bool:
        """Plan the way back to running; False when its GPUs were given back and are taken."""
        if not machine.holds_gpu and not self.market.take(machine.stock, machine.count):
            return False
        machine.holds_gpu = True
        machine.resume(self.now, self.engine.timing.start_s)
        return True

    def delete(self, machine: Machine) -> None:
        """End all billing and free the GPUs."""
        self._release(machine)
        machine.end(self.now, self.engine.timing.destroy_s)

    def _release(self, machine: Machine) -> None:
        if machine.holds_gpu:
            machine.holds_gpu = False
            self.market.give_back(machine.stock, machine.count)

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    def spent_usd(self) -> Decimal:
        """The whole bill so far."""
        return self.living.spent_usd(self.now)

    def left_usd(self) -> Decimal:
        """Credit minus spending; may be negative."""
        return self.credit_usd - self.spent_usd()

    def hourly_usd(self) -> Decimal:
        """What everything costs per hour now."""
        now = self.now
        rates = (m.meter.rate_usd_h(part, now) for m in self.living.at(now) for part in ("gpu", "storage"))
        return sum(rates, Decimal(0))

    def settle(self) -> None:
        """Below zero all machines are stopped; after the grace they are deleted with their data."""
        if self._settled.before(self.now, self.credit_usd):
            return
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
        for machine in self.machines.values():
            for part, rows in zip(("gpu", "storage"), found.values(), strict=True):
                amount = machine.meter.usd(part, end, start) if end > start else Decimal(0)
                rate = machine.compute_usd_h if part == "gpu" else machine.storage_usd_h
                if amount:
                    ids = {"virtual_machine_id": machine.ref, "name": machine.name}
                    rows.append(ids | {"rate_hourly": float(rate), "total_amount": round(float(amount), 6)})
        return found


def _lag(faults: SandboxCloud, name: str, usual_s: float, default_s: float = 60.0) -> float:
    params = faults.fault(name)
    return usual_s if params is None else float(params.get("after_s", default_s))


def _over(machine: Machine, now: datetime) -> bool:
    return machine.created_at <= now and not machine.exists(now)
