"""One instance of the Lambda sandbox: what it says and what it costs at any moment."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.sandbox.instance import PhasedInstance
from providers.sandbox.lambda_cloud.market import LambdaInstanceType, region
from providers.sandbox.timeline import Timeline

MINUTE_S = 60
#: Machines with several GPUs boot this many times slower.
MULTI_GPU_BOOT = 3
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
    private_ip: bool = True
    tags_shown: bool = True
    refuses_while_booting: bool = False
    price_live: bool = False
    #: How long the row stays listed as terminated.
    lingers_s: float = 0.0
    powered_off: bool = False
    file_systems: list[str] = field(default_factory=list)

    @property
    def usd_h(self) -> Decimal:
        """Dollars per hour."""
        return Decimal(self.cents) / 100

    def boot(self, asked_at: datetime, boot_s: float, *, billed_from_active: bool) -> None:
        """Plan the walk to active. Billing starts when the launch was asked for, or else at the first health check."""
        boot_s *= MULTI_GPU_BOOT if self.kind.gpus > 1 else 1
        self.phases.plan(self.created_at, (0.0, "booting"), (boot_s, "active"))
        active_at = self.created_at + timedelta(seconds=boot_s)
        self.meter.start("gpu", active_at if billed_from_active else asked_at, self.usd_h)

    def status(self, now: datetime) -> str:
        """The API's word."""
        if self.ended_at is not None and now >= self.ended_at:
            return "terminating" if self.gone_at is None or now < self.gone_at else "terminated"
        return self.phases.at(now)

    def exists(self, now: datetime) -> bool:
        """Between landing and being forgotten."""
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
        """Dollars so far."""
        return self.gpu_s(now) * self.usd_h / 3600

    def wire(self, now: datetime, ssh_port: int | None, cents: int | None = None) -> dict[str, Any]:
        """The instance as the API prints it. The port is in a tag, because every real one answers on 22."""
        status = self.status(now)
        up = status in {"active", "unhealthy"}
        tags = [*self.tags, *([{"key": "ssh-port", "value": str(ssh_port)}] if ssh_port is not None else [])]
        row: dict[str, Any] = {
            "id": self.ref,
            "name": self.name,
            "status": status,
            "ssh_key_names": [self.key_name],
            "file_system_names": self.file_systems,
            "file_system_mounts": [],
            "region": region(self.place),
            "instance_type": self.kind.wire(self.cents if cents is None else cents),
            "hostname": f"{self.ref[:8]}.example.invalid",
            "is_reserved": False,
            "actions": {name: _action(status) for name in ACTIONS},
            "tags": tags if self.tags_shown else [],
            "firewall_rulesets": [],
        }
        if up:
            row["ip"] = "127.0.0.1"
            row["jupyter_token"] = f"sandbox-jupyter-{self.ref}"
            row["jupyter_url"] = f"https://jupyter.example.invalid/?token=sandbox-jupyter-{self.ref}"
            if self.private_ip:
                row["private_ip"] = "10.19.60.24"
        return row


def _action(status: str) -> dict[str, Any]:
    if status in {"active", "unhealthy"}:
        return {"available": True}
    code = "vm-has-not-launched" if status == "booting" else "vm-is-terminating"
    return {"available": False, "reason_code": code, "reason_description": code.replace("-", " ")}
