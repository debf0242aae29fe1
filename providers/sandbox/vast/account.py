"""The account of the Vast.ai sandbox: contracts, credit and what commands do to them. No HTTP here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.images import cuda_of
from providers.sandbox.account import PhasedInstance, SandboxAccount
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.timeline import Timeline, usd
from providers.sandbox.vast.market import Slice, VastMachine, VastMarket, hardware, host, rates, storage_usd_h

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
#: Fault of a boot → the status word and the text in which the new instance hangs.
NO_BOOT: Mapping[str, tuple[str, str]] = {
    "boot_error": ("created", ": OCI runtime create failed: unable to retrieve OCI runtime error"),
    "pull_error": ("loading", "Error response from daemon: manifest unknown: {image}"),
    "never_boots": ("loading", "pulling image layers"),
}


#: What NVIDIA's container toolkit says of an image whose CUDA is newer than the host's driver.
OLD_DRIVER = (
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>={cuda}, please update your driver to a "
    "newer version, or use an earlier cuda container"
)


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
    ssh_keys: list[str] = field(default_factory=list)

    def status(self, now: datetime) -> str:
        return self.phases.at(now).actual or "null"

    def answers(self, now: datetime) -> bool:
        """While its ports are published and its host is in contact."""
        return self.phases.at(now).ports and not self.offline

    def reprice(self, now: datetime, factor: Decimal) -> None:
        """Bill so many times the price from now on; the bid of a spot instance is its price."""
        self.gpu_usd_h *= factor
        if self.bid_usd_h is not None:
            self.bid_usd_h = self.gpu_usd_h
        self.meter.change("gpu", now, self.gpu_usd_h)

    @property
    def running(self) -> VastPhase:
        """Up, with its ports published."""
        return VastPhase("running", msg=f"success, running {self.image}/ssh", ports=True)

    @property
    def storage_usd_h(self) -> Decimal:
        """Dollars per hour for the disk."""
        return storage_usd_h(self.machine, self.disk_gb)

    @property
    def min_bid_usd_h(self) -> Decimal:
        """The lowest bid that runs here: the machine's own, whatever this contract bids."""
        return Slice(0, self.gpu_count, self.machine).min_bid_usd_h or self.gpu_usd_h * self.machine.bid_share

    def boot(self, now: datetime, boot_s: float, *, restart: bool = False) -> None:
        """Plan the walk to running; GPU billing begins there. A restart shows *exited* first, as people saw."""
        first = VastPhase("exited") if restart else VastPhase(None)
        steps = [(0.0, first), (boot_s * LOADING_AT, BOOTING), (boot_s, self.running)]
        if not restart:
            steps.insert(1, (boot_s * CREATED_AT, VastPhase("created")))
        self.phases.plan(now, *steps)
        self.meter.start("gpu", now + timedelta(seconds=boot_s), self.gpu_usd_h)

    def hang(self, now: datetime, phase: VastPhase) -> None:
        """Stay in `phase` from now on, without GPU billing."""
        self.phases.plan(now, (0.0, phase))
        self.meter.stop("gpu", now)

    def wire(self, now: datetime, ssh_port: int | None) -> dict[str, Any]:
        """The instance as the API prints it. Rates in $/h: `instance` is now, `search` is when running."""
        phase = self.phases.at(now)
        actual = "offline" if self.offline else phase.actual
        began = self.phases.since(now) if actual == "running" and "uptime_hidden" not in self.quirks else None
        gpu_now = self.meter.rate_usd_h("gpu", now)
        storage = self.storage_usd_h
        has = hardware(replace(self.machine, gpu=self.gpu), self.gpu_count)
        ports = mapped(self.extra_env, ssh_port)
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
            "min_bid": usd(self.min_bid_usd_h),
            "dph_base": usd(self.gpu_usd_h),
            "dph_total": usd(self.gpu_usd_h + storage),
            "storage_cost": float(self.machine.storage_usd_gb_month),
            "storage_total_cost": usd(storage),
            "search": rates(self.gpu_usd_h, storage),
            "instance": rates(gpu_now, storage),
            "ssh_host": "ssh5.vast.ai",
            "ssh_idx": "5",
            "ssh_port": 10000 + self.ref % 10000,
            # The real API was seen to send a trailing blank here.
            "public_ipaddr": "127.0.0.1 ",
            "local_ipaddrs": "10.0.0.5 172.17.0.2",
            "ports": ports if phase.ports and ssh_port is not None else None,
            "image_uuid": self.image,
            "image_runtype": "ssh_direc ssh_proxy",
            "extra_env": self.extra_env,
            "onstart": self.onstart,
            "jupyter_token": f"sandbox-jupyter-{self.ref}",
            "start_date": self.created_at.timestamp(),
            "end_date": self.created_at.timestamp() + 30 * 86400,
            "uptime_mins": None if began is None else (now - began).total_seconds() / 60,
            "disk_space": self.disk_gb,
            "disk_usage": -1,
            "gpu_util": 0.0 if gpu_now else None,
            "gpu_temp": 41.0 if gpu_now else None,
        }


def mapped(env: list[list[str]], ssh_port: int | None) -> dict[str, Any]:
    """Ports as Docker reports them: SSH's, and those asked for as `-p 10022:10022`; behind these nothing listens."""
    inside = [found[1] for name, _ in env if (found := re.fullmatch(r"-p \d+:(\d+)(?:/tcp)?", name))]
    outside = {"22": ssh_port} | {port: FIRST_PORT + int(port) % PORTS for port in inside}
    host = "0.0.0.0"  # noqa: S104 # What Docker reports.
    return {f"{port}/tcp": [{"HostIp": host, "HostPort": str(public)}] for port, public in outside.items()}


CREDIT_USD = Decimal(1000)
#: Where the public ports begin that are shown for other ports than SSH's.
FIRST_PORT, PORTS = 40_000, 20_000
DAY_S = 86400


class VastAccount(SandboxAccount[Contract]):
    """Everything one customer has."""

    def __init__(self, cloud: SandboxCloud) -> None:
        super().__init__(cloud, CREDIT_USD)
        self.market = VastMarket(self.engine.random("vast"), self.now, bad_rows=self.engine.bad_rows)
        self.ssh_keys: list[dict[str, Any]] = []
        self.queued: set[int] = set()
        self._next_ref = 26_500_000

    def rent(self, part: Slice, body: dict[str, Any], lands_in_s: float = 0.0) -> Contract:
        """Make a contract from an offer. The caller has checked that the offer is there."""
        self.market.take(part.machine, part.size, part.offer_id)
        self._next_ref += 7
        bid = body.get("price")
        base = Decimal(str(bid)) if bid is not None else (part.machine.gpu_usd_h or Decimal(0)) * part.size
        contract = Contract(
            ref=self._next_ref,
            name=body.get("label"),
            machine=part.machine,
            gpu=str(self.cloud.fault_value("other_gpu", "gpu", "RTX3090") or part.machine.gpu),
            gpu_count=part.size,
            gpu_usd_h=base * self.price_factor(),
            disk_gb=float(body.get("disk") or 10),
            image=str(body.get("image")),
            extra_env=[[str(k), str(v)] for k, v in (body.get("env") or {}).items()],
            onstart=str(body.get("onstart") or ""),
            bid_usd_h=None if bid is None else Decimal(str(bid)),
            quirks=self.quirks("uptime_hidden", *NO_BOOT),
            **self.times(lands_in_s),
        )
        contract.meter.start("storage", contract.created_at, contract.storage_usd_h)
        self._boot(contract, contract.created_at)
        return self.add(contract)

    def _boot(self, contract: Contract, now: datetime) -> None:
        contract.boot(now, self.engine.timing.boot_s)
        needed = cuda_of(contract.image)
        if needed is not None and needed > Decimal(str(contract.machine.cuda)):
            # The host's driver is older than the image: the container is refused each time that it is started.
            contract.hang(now, VastPhase("loading", msg=OLD_DRIVER.format(cuda=needed)))
            return
        for fault, (word, message) in NO_BOOT.items():
            if fault in contract.quirks:
                contract.hang(now, VastPhase(word, msg=message.format(image=contract.image)))
                return
        if (after_s := self.cloud.fault_value("null_status", "after_s", 60)) is not None:
            later = now + timedelta(seconds=float(after_s))
            contract.hang(now, VastPhase(None))
            contract.meter.start("gpu", later + timedelta(seconds=self.engine.timing.boot_s), contract.gpu_usd_h)
            contract.phases.extend(later, (0.0, VastPhase("loading")), (self.engine.timing.boot_s, contract.running))

    def half_make(self, part: Slice, body: dict[str, Any]) -> Contract:
        """The bid was too low to start: the contract exists, stopped, and its disk is billed."""
        contract = self.rent(part, body)
        contract.hang(self.now, STOPPED)
        self._release(contract)
        return contract

    # ── what is seen ─────────────────────────────────────────────────────────────────────────────

    def port(self, contract: Contract) -> int | None:
        """The published SSH port, while ports are published."""
        if not contract.exists(self.now) or not contract.phases.at(self.now).ports:
            return None
        return self.reserve_port(contract)

    # ── commands ─────────────────────────────────────────────────────────────────────────────────

    def stop(self, contract: Contract, phase: VastPhase = STOPPED) -> None:
        """End GPU billing, give the GPUs back, cancel a queued start."""
        self.queued.discard(contract.ref)
        going = replace(contract.phases.at(self.now), intended=phase.intended, ports=False)
        contract.phases.plan(self.now, (0.0, going), (self.engine.timing.stop_s, phase))
        contract.meter.stop("gpu", self.now)
        self._release(contract)

    def start(self, contract: Contract) -> bool:
        """Plan the way back to running; False when the GPUs are taken, with the start left in the queue."""
        if contract.holds_gpu and contract.phases.at(self.now).intended == "running":
            return True
        if not contract.holds_gpu and not self.market.take(contract.machine, contract.gpu_count):
            self.queued.add(contract.ref)
            return False
        contract.holds_gpu = True
        self.queued.discard(contract.ref)
        contract.boot(self.now, self.engine.timing.start_s, restart=True)
        return True

    def queue_start(self, contract: Contract, flips_s: float | None) -> None:
        """Leave the start waiting; it fires after `flips_s` unless a stop comes first, or never when that is None."""
        if flips_s is not None:
            at = self.now + timedelta(seconds=flips_s)
            contract.phases.plan(self.now, (0.0, VastPhase("exited", cur="stopped")), (flips_s, contract.running))
            contract.meter.start("gpu", at, contract.gpu_usd_h)

    def reboot(self, contract: Contract) -> None:
        """Restart in place: the GPU stays rented and billed."""
        contract.phases.plan(self.now, (0.0, VastPhase("rebooting")), (self.engine.timing.start_s, contract.running))

    def destroy(self, contract: Contract) -> None:
        self.queued.discard(contract.ref)
        self._release(contract)
        contract.end(self.now, self.engine.timing.destroy_s)

    def _release(self, contract: Contract) -> None:
        if contract.holds_gpu:
            contract.holds_gpu = False
            self.market.give_back(contract.machine, contract.gpu_count)

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Fire queued starts whose GPUs came free too."""
        for ref in sorted(self.queued):
            contract = self.instances[ref]
            if contract.exists(self.now) and not contract.phases.at(self.now).ports:
                self.start(contract)
        super().settle()

    def charge(self) -> None:
        """Stop everything once the credit is gone."""
        if self.instances and self.left_usd() <= 0:
            for contract in self.living.at(self.now):
                if contract.exists(self.now) and contract.phases.at(self.now).intended == "running":
                    self.stop(contract)

    def charges(self, since: datetime, until: datetime, *, cut: bool = False) -> list[dict[str, Any]]:
        """Return one bill row for each contract with a day in [since, until], the oldest first.

        A row covers the whole contract, or, where it is `cut`, only the asked days. Nothing is younger than the
        charges' lag.
        """
        known = self.now - timedelta(seconds=self.engine.timing.charges_lag_s)
        rows = []
        for contract in self.instances.values():
            start, end = contract.created_at, min(contract.ended_at or known, known)
            if cut:
                start, end = max(start, midnight(since)), min(end, midnight(until) + timedelta(days=1))
            overlaps = midnight(start) <= until and end > midnight(since)
            if overlaps and end > start and (row := charge_row(contract, start, end)):
                rows.append(row)
        return sorted(rows, key=lambda row: (row["start"], row["source"]))


def midnight(at: datetime) -> datetime:
    """Return the first moment of its UTC day."""
    return datetime.fromtimestamp(at.timestamp() // DAY_S * DAY_S, UTC)


def charge_row(contract: Contract, start: datetime, end: datetime) -> dict[str, Any] | None:
    """Return one bill row with its items; None when nothing was billed.

    Stamps are days, the last one included. The row's amount has three decimals.
    """
    first, last = midnight(start), midnight(end - timedelta(microseconds=1))
    stamps: dict[str, Any] = {"start": int(first.timestamp()), "end": int(last.timestamp())}
    items: list[dict[str, Any]] = []
    for component, word in (("gpu", "gpu"), ("storage", "disk")):
        amount = contract.meter.usd(component, end, start)
        hours = contract.meter.seconds(component, end, start) / 3600
        if amount:
            rate = amount / hours
            items.append(
                {
                    **stamps,
                    "type": word,
                    "description": f"{hours:.3f} hours at ${rate:.3f}/hour",
                    "amount": round(float(amount), 6),
                    "source": None,
                    "metadata": {},
                    "items": [],
                }
            )
    if not items:
        return None
    days = (last - first).days + 1
    return {
        **stamps,
        "type": "instance",
        "source": f"instance-{contract.ref}",
        "description": f"Instance {contract.ref} Charges - {days} day{'s' * (days > 1)}",
        "amount": round(sum(float(str(item["amount"])) for item in items), 3),
        "metadata": {"label": contract.name} if contract.name else {},
        "items": items,
    }
