"""One rented contract ("instance") of the Vast.ai sandbox: what it says and what it costs at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.sandbox.instance import PhasedInstance
from providers.sandbox.timeline import Timeline
from providers.sandbox.vast.market import VastMachine, hardware, host, storage_usd_h

#: The share of the boot at which each status word begins, after the word-less start.
CREATED_AT, LOADING_AT = 0.1, 0.2


@dataclass(frozen=True, slots=True)
class VastPhase:
    """What the API says in one stretch: the three status fields, the text, and whether ports are published."""

    actual: str | None
    cur: str = "running"
    intended: str = "running"
    msg: str | None = None
    ports: bool = False


BOOTING = VastPhase("loading", msg="pulling image layers")
STOPPED = VastPhase("exited", cur="stopped", intended="stopped")


@dataclass(kw_only=True)
class Contract(PhasedInstance[VastPhase]):
    """State of one instance. `bid_usd_h` None means on demand."""

    phases: Timeline[VastPhase] = field(default_factory=lambda: Timeline(VastPhase(None)))
    machine: VastMachine
    gpu_usd_h: Decimal
    disk_gb: float
    image: str
    extra_env: list[list[str]]
    onstart: str
    bid_usd_h: Decimal | None = None
    holds_gpu: bool = True
    offline: bool = False
    bare: bool = False
    uptime_hidden: bool = False
    ssh_keys: list[str] = field(default_factory=list)

    def status(self, now: datetime) -> str:
        """The API's word."""
        return self.phases.at(now).actual or "null"

    def answers(self, now: datetime) -> bool:
        """While its ports are published and its host is in contact."""
        return self.phases.at(now).ports and not self.offline

    def reprice(self, now: datetime, factor: Decimal) -> None:
        """Bill so many times the price from now on; the bid of a spot instance is its price."""
        self.gpu_usd_h *= factor
        if self.bid_usd_h is not None:
            self.bid_usd_h = self.gpu_usd_h
        if self.meter.rate_usd_h("gpu", now):
            self.meter.start("gpu", now, self.gpu_usd_h)

    @property
    def storage_usd_h(self) -> Decimal:
        """Dollars per hour for the disk."""
        return storage_usd_h(self.machine, self.disk_gb)

    def boot(self, now: datetime, boot_s: float, *, restart: bool = False) -> None:
        """Plan the walk to running; GPU billing begins there. A restart shows *exited* first, as people saw."""
        first = VastPhase("exited") if restart else VastPhase(None)
        running = VastPhase("running", msg=f"success, running {self.image}/ssh", ports=True)
        steps = [(0.0, first), (boot_s * LOADING_AT, BOOTING), (boot_s, running)]
        if not restart:
            steps.insert(1, (boot_s * CREATED_AT, VastPhase("created")))
        self.phases.plan(now, *steps)
        self.meter.start("gpu", now + timedelta(seconds=boot_s), self.gpu_usd_h)

    def hang(self, now: datetime, phase: VastPhase) -> None:
        """Stay in `phase` from now on, without GPU billing."""
        self.phases.plan(now, (0.0, phase))
        self.meter.stop("gpu", now)

    def halt(self, now: datetime, after_s: float, phase: VastPhase = STOPPED) -> None:
        """End the GPU's billing now; `phase` shows after `after_s`."""
        going = replace(self.phases.at(now), intended=phase.intended, ports=False)
        self.phases.plan(now, (0.0, going), (after_s, phase))
        self.meter.stop("gpu", now)

    def _uptime_mins(self, now: datetime, actual: str | None) -> float | None:
        began = self.phases.since(now) if actual == "running" and not self.uptime_hidden else None
        return None if began is None else (now - began).total_seconds() / 60

    def wire(self, now: datetime, ssh_port: int | None) -> dict[str, Any]:
        """The instance as the API prints it. Rates in $/h: `instance` is now, `search` is when running."""
        phase = self.phases.at(now)
        actual = "offline" if self.offline else phase.actual
        gpu_now = self.meter.rate_usd_h("gpu", now)
        storage = self.storage_usd_h
        has = hardware(replace(self.machine, gpu=self.gpu), self.gpu_count)
        ports = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(ssh_port)}]}  # noqa: S104 # what Docker reports
        return {
            "id": self.ref,
            "label": self.name,
            **has,
            **host(self.machine),
            "gpu_totalram": has["gpu_total_ram"],
            "actual_status": actual,
            "intended_status": phase.intended,
            "cur_state": phase.cur,
            "next_state": phase.cur,
            "status_msg": phase.msg,
            "is_bid": self.bid_usd_h is not None,
            "min_bid": _usd(self.gpu_usd_h * self.machine.bid_share),
            "dph_base": _usd(self.gpu_usd_h),
            "dph_total": _usd(self.gpu_usd_h + storage),
            "storage_cost": float(self.machine.storage_usd_gb_month),
            "storage_total_cost": _usd(storage),
            "search": _rates(self.gpu_usd_h, storage),
            "instance": _rates(gpu_now, storage),
            "ssh_host": "ssh5.vast.ai",
            "ssh_idx": "5",
            "ssh_port": 10000 + self.ref % 10000,
            # The real API was seen to send a trailing blank here.
            "public_ipaddr": "127.0.0.1 ",
            "ports": ports if phase.ports and ssh_port is not None else None,
            "image_uuid": self.image,
            "image_runtype": "ssh_direc ssh_proxy",
            "extra_env": self.extra_env,
            "onstart": self.onstart,
            "jupyter_token": f"sandbox-jupyter-{self.ref}",
            "start_date": self.created_at.timestamp(),
            "end_date": self.created_at.timestamp() + 30 * 86400,
            "uptime_mins": self._uptime_mins(now, actual),
            "disk_space": self.disk_gb,
            "disk_usage": -1,
            "gpu_util": 0.0 if gpu_now else None,
            "gpu_temp": 41.0 if gpu_now else None,
        }


def _usd(value: Decimal) -> float:
    return round(float(value), 6)


def _rates(gpu: Decimal, storage: Decimal) -> dict[str, float]:
    return {"gpuCostPerHour": _usd(gpu), "diskHour": _usd(storage), "totalHour": _usd(gpu + storage)}
