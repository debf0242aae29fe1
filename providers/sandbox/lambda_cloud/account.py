"""The account of the Lambda sandbox: machines, keys, file systems and the audit log. No HTTP here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.gpus.table import canonical
from providers.sandbox.account import OWNERS_KEY, PhasedInstance, SandboxAccount
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.lambda_cloud.market import LambdaInstanceType, LambdaMarket, region
from providers.sandbox.network_volume import NetworkVolume
from providers.sandbox.timeline import Timeline

MINUTE_S = 60
#: Machines with several GPUs boot this many times slower.
MULTI_GPU_BOOT = 3
#: Faults that an instance keeps from its launch on.
LAUNCH_FAULTS = (
    "no_private_ip", "tags_hidden", "terminate_refused_while_booting", "price_live", "billed_from_active",
    "never_boots", "boots_unhealthy",
)  # fmt: skip
ACTIONS = ("migrate", "rebuild", "restart", "cold_reboot", "terminate")


@dataclass(kw_only=True)
class LambdaInstance(PhasedInstance[str]):
    """State of one instance. `cents` is the price it was launched at."""

    phases: Timeline[str] = field(default_factory=lambda: Timeline("booting"))
    kind: LambdaInstanceType
    place: str
    cents: int
    key_name: str
    tags: list[dict[str, str]]
    user_data: str
    #: How long the row stays listed as terminated.
    lingers_s: float = 0.0
    powered_off: bool = False
    #: The ids of its file systems, and where they are mounted if the launch said so.
    file_systems: list[str] = field(default_factory=list)
    mounts: list[dict[str, str]] = field(default_factory=list)

    @property
    def usd_h(self) -> Decimal:
        """Dollars per hour."""
        return Decimal(self.cents) / 100

    @property
    def details(self) -> dict[str, str]:
        """What an event of the audit log says about it."""
        lrn = f"lrn:cloud:instance:{self.ref}"
        return {"instance_lrn": lrn, "instance_type": self.kind.name, "region": self.place}

    def boot(self, asked_at: datetime, boot_s: float) -> None:
        """Plan the walk to active. Billing starts when the launch was asked for, or else at the first health check."""
        boot_s *= MULTI_GPU_BOOT if self.kind.gpus > 1 else 1
        self.phases.plan(self.created_at, (0.0, "booting"), (boot_s, "active"))
        active_at = self.created_at + timedelta(seconds=boot_s)
        self.meter.start("gpu", active_at if "billed_from_active" in self.quirks else asked_at, self.usd_h)

    def status(self, now: datetime) -> str:
        if self.ended_at is not None and now >= self.ended_at:
            return "terminating" if self.gone_at is None or now < self.gone_at else "terminated"
        return self.phases.at(now)

    def exists(self, now: datetime) -> bool:
        lingers = timedelta(seconds=self.lingers_s)
        return self.created_at <= now and (self.gone_at is None or now < self.gone_at + lingers)

    def answers(self, now: datetime) -> bool:
        """While it is active and switched on."""
        return self.phases.at(now) == "active" and not self.powered_off

    def gpu_s(self, now: datetime) -> Decimal:
        """Seconds that are paid: every begun minute, and at least one once it was begun."""
        begun = any(span.start <= now for span in self.meter.spans) or self.ended_at is not None
        minutes = math.ceil(self.meter.seconds("gpu", now) / MINUTE_S)
        return Decimal(max(minutes, int(begun)) * MINUTE_S)

    def gpu_usd(self, now: datetime) -> Decimal:
        return self.gpu_s(now) * self.usd_h / 3600

    def wire(self, now: datetime, ssh_port: int | None, names: list[str]) -> dict[str, Any]:
        """The instance as the API prints it. The port is in a tag, because every real one answers on 22."""
        status = self.status(now)
        up = status in {"active", "unhealthy"}
        tags = [*self.tags, *([{"key": "ssh-port", "value": str(ssh_port)}] if ssh_port is not None else [])]
        row: dict[str, Any] = {
            "id": self.ref,
            "name": self.name,
            "status": status,
            "ssh_key_names": [self.key_name],
            "file_system_names": names,
            "file_system_mounts": self.mounts,
            "region": region(self.place),
            "instance_type": self.kind.wire(None if "price_live" in self.quirks else self.cents),
            "hostname": f"{self.ref[:8]}.example.invalid",
            "is_reserved": False,
            "actions": {name: _action(status) for name in ACTIONS},
            "tags": [] if "tags_hidden" in self.quirks else tags,
            "firewall_rulesets": [],
        }
        if up:
            row["ip"] = "127.0.0.1"
            row["jupyter_token"] = f"sandbox-jupyter-{self.ref}"
            row["jupyter_url"] = f"https://jupyter.example.invalid/?token=sandbox-jupyter-{self.ref}"
            if "no_private_ip" not in self.quirks:
                row["private_ip"] = f"10.19.{int(self.ref[:2], 16)}.{int(self.ref[2:4], 16)}"
        return row


def _action(status: str) -> dict[str, Any]:
    if status in {"active", "unhealthy"}:
        return {"available": True}
    code = "vm-has-not-launched" if status == "booting" else "vm-is-terminating"
    return {"available": False, "reason_code": code, "reason_description": code.replace("-", " ")}


ACCOUNT_LRN = "lrn:cloud:account:fedcba9876543210fedcba9876543210"
KEY_LRN = "lrn:cloud:api_key:0f1e2d3c4b5a69788796a5b4c3d2e1f0"


class LambdaAccount(SandboxAccount[LambdaInstance]):
    """Everything one customer has."""

    def __init__(self, cloud: SandboxCloud) -> None:
        super().__init__(cloud)
        self.market = LambdaMarket(self.engine.random("lambda"))
        #: Made on the web page before anything else, as every account has one.
        self.ssh_keys = [{"id": "5c0ffee" + "0" * 25, "name": "laptop", "public_key": OWNERS_KEY}]
        #: Every file system that ever was, by id.
        self.file_systems: dict[str, NetworkVolume] = {}
        self.rules: list[dict[str, Any]] = [
            {"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0", "description": "SSH"},
            {"protocol": "icmp", "source_network": "0.0.0.0/0", "description": "Ping"},
        ]
        self.events: list[dict[str, Any]] = []
        self.inactive = False
        self._ids = self.engine.random("lambda/ids")

    def new_id(self) -> str:
        """32 hexadecimal digits."""
        return f"{self._ids.getrandbits(128):032x}"

    def log(self, resource: str, action: str, at: datetime, refs: list[str], **details: str) -> None:
        """One audit event."""
        self.events.append(
            {
                "service_name": "cloud",
                "resource_name": resource,
                "action": action,
                "catalog_version": "2025-09-06",
                "event_id": self.new_id(),
                "event_time": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
                "actor_lrn": None,
                "resource_lrns": [f"lrn:cloud:{resource}:{ref}" for ref in refs],
                "resource_owner_lrn": ACCOUNT_LRN,
                "request_api_key_lrn": KEY_LRN,
                "additional_details": details,
            }
        )

    def add_key(self, name: str, public_key: str) -> dict[str, str]:
        key = {"id": self.new_id(), "name": name, "public_key": public_key}
        self.ssh_keys.append(key)
        self.log("ssh_key", "created", self.now, [key["id"]])
        return key

    def launch(
        self, kind: LambdaInstanceType, place: str, body: dict[str, Any], lands_in_s: float, mounted: list[str]
    ) -> LambdaInstance:
        """Make an instance. The caller has checked the request and taken the machine from the market."""
        boot_s = self.engine.timing.boot_s
        machine = LambdaInstance(
            ref=self.new_id(),
            name=body.get("name"),
            gpu=canonical("lambda", kind.gpu) or kind.gpu,
            gpu_count=kind.gpus,
            kind=kind,
            place=place,
            cents=round(kind.cents * self.price_factor()),
            key_name=body["ssh_key_names"][0],
            tags=list(body.get("tags") or []),
            user_data=str(body.get("user_data") or ""),
            quirks=self.quirks(*LAUNCH_FAULTS),
            file_systems=mounted,
            mounts=list(body.get("file_system_mounts") or []),
            **self.times(lands_in_s),
        )
        at = machine.created_at
        machine.boot(self.now, boot_s)
        if "never_boots" in machine.quirks:
            machine.phases.plan(at, (0.0, "booting"))
        elif "boots_unhealthy" in machine.quirks:
            machine.phases.plan(at, (0.0, "booting"), (boot_s, "unhealthy"))
        # Billing begins with the request, so the log, from which the bill is derived, says the same.
        self.log("instance", "launched", self.now, [machine.ref], **machine.details)
        return self.add(machine)

    def listed(self) -> list[LambdaInstance]:
        """Newest first, so that nobody relies on an order."""
        return super().listed()[::-1]

    def wire(self, machine: LambdaInstance) -> dict[str, Any]:
        """The instance as the API prints it now."""
        up = machine.status(self.now) in {"active", "unhealthy"}
        port = self.reserve_port(machine) if up else None
        names = [str(self.file_systems[ref].name) for ref in machine.file_systems]
        return machine.wire(self.now, port, names)

    def rows(self) -> list[dict[str, Any]]:
        return [self.wire(machine) for machine in self.listed()]

    # ── commands ─────────────────────────────────────────────────────────────────────────────────

    def terminate(self, machine: LambdaInstance) -> None:
        """End billing and free the machine; the row stays for a while."""
        if machine.ended_at is not None:
            return
        machine.end(self.now, self.engine.timing.destroy_s)
        machine.kind.free[machine.place] = machine.kind.free.get(machine.place, 0) + 1
        self.log("instance", "terminated", self.now, [machine.ref], **machine.details)

    def restart(self, machine: LambdaInstance) -> None:
        """Reboot: billed on."""
        machine.powered_off = False
        machine.phases.plan(self.now, (0.0, "booting"), (self.engine.timing.start_s, "active"))
        self.log("instance", "restarted", self.now, [machine.ref])

    def visible_events(self) -> list[dict[str, Any]]:
        """The audit log as far as it has been written, oldest first."""
        until = self.now - timedelta(seconds=self.engine.timing.charges_lag_s)
        found = [e for e in self.events if datetime.fromisoformat(e["event_time"]) <= until]
        return sorted(found, key=lambda e: str(e["event_time"]))
