"""The account of the Vast.ai sandbox: contracts, credit and what commands do to them. No HTTP here."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.sandbox.account import SandboxAccount
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.vast.instance import STOPPED, Contract, VastPhase
from providers.sandbox.vast.market import Slice, VastMarket

CREDIT_USD = Decimal(1000)
DAY_S = 86400


class VastAccount(SandboxAccount[Contract]):
    """Everything one customer has."""

    def __init__(self, cloud: SandboxCloud) -> None:
        super().__init__(cloud, CREDIT_USD)
        self.market = VastMarket(self.engine.random("vast"), self.now)
        self.ssh_keys: list[dict[str, Any]] = []
        self.queued: set[int] = set()
        self._next_ref = 26_500_000

    def rent(self, part: Slice, body: dict[str, Any], lands_in_s: float = 0.0) -> Contract:
        """Make a contract from an offer. The caller has checked that the offer is there."""
        self.market.take(part.machine, part.size, part.offer_id)
        self._next_ref += 7
        bid = body.get("price")
        base = Decimal(str(bid)) if bid is not None else (part.machine.gpu_usd_h or Decimal(0)) * part.size
        other = self.cloud.fault("other_gpu")
        contract = Contract(
            ref=self._next_ref,
            name=body.get("label"),
            machine=part.machine,
            gpu=part.machine.gpu if other is None else str(other.get("gpu", "RTX3090")),
            gpu_count=part.size,
            gpu_usd_h=base * self.price_factor(),
            disk_gb=float(body.get("disk") or 10),
            image=str(body.get("image")),
            extra_env=[[str(k), str(v)] for k, v in (body.get("env") or {}).items()],
            onstart=str(body.get("onstart") or ""),
            bid_usd_h=None if bid is None else Decimal(str(bid)),
            **self.times(lands_in_s),
        )
        contract.meter.start("storage", contract.created_at, contract.storage_usd_h)
        self._boot(contract, contract.created_at)
        return self.add(contract)

    def _boot(self, contract: Contract, now: datetime) -> None:
        fault = self.cloud.fault
        contract.boot(now, self.engine.timing.boot_s)
        contract.uptime_hidden = fault("uptime_hidden") is not None
        broken = f"Error response from daemon: manifest unknown: {contract.image}"
        if fault("boot_error") is not None:
            oci = ": OCI runtime create failed: unable to retrieve OCI runtime error"
            contract.hang(now, VastPhase("created", msg=oci))
        elif fault("pull_error") is not None:
            contract.hang(now, VastPhase("loading", msg=broken))
        elif fault("never_boots") is not None:
            contract.hang(now, VastPhase("loading", msg="pulling image layers"))
        elif (nothing := fault("null_status")) is not None:
            later = now + timedelta(seconds=float(nothing.get("after_s", 60)))
            contract.hang(now, VastPhase(None))
            contract.meter.start("gpu", later + timedelta(seconds=self.engine.timing.boot_s), contract.gpu_usd_h)
            running = VastPhase("running", msg=f"success, running {contract.image}/ssh", ports=True)
            contract.phases.extend(later, (0.0, VastPhase("loading")), (self.engine.timing.boot_s, running))

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
        contract.halt(self.now, self.engine.timing.stop_s, phase)
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
            running = VastPhase("running", msg=f"success, running {contract.image}/ssh", ports=True)
            contract.phases.plan(self.now, (0.0, VastPhase("exited", cur="stopped")), (flips_s, running))
            contract.meter.start("gpu", at, contract.gpu_usd_h)

    def reboot(self, contract: Contract) -> None:
        """Restart in place: the GPU stays rented and billed."""
        running = VastPhase("running", msg=f"success, running {contract.image}/ssh", ports=True)
        contract.phases.plan(self.now, (0.0, VastPhase("rebooting")), (self.engine.timing.start_s, running))

    def destroy(self, contract: Contract) -> None:
        """End all billing and free the machine."""
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

    def charges(self, since: datetime, until: datetime) -> list[dict[str, Any]]:
        """Bill rows per contract and UTC day, oldest first; nothing younger than the charges' lag."""
        until = min(until, self.now - timedelta(seconds=self.engine.timing.charges_lag_s))
        rows = []
        for contract in self.instances.values():
            day = datetime.fromtimestamp(contract.created_at.timestamp() // DAY_S * DAY_S, contract.created_at.tzinfo)
            while day < until:
                start, end = max(day, contract.created_at), min(day + timedelta(days=1), until)
                day += timedelta(days=1)
                if end > since and end > start and (row := charge_row(contract, start, end)):
                    rows.append(row)
        return sorted(rows, key=lambda row: (row["start"], row["source"]))


def charge_row(contract: Contract, start: datetime, end: datetime) -> dict[str, Any] | None:
    """One bill row with its items; None when nothing was billed. The row's amount has three decimals."""
    source = f"instance-{contract.ref}"
    items = []
    for component, word in (("gpu", "gpu"), ("storage", "disk")):
        amount = contract.meter.usd(component, end, start)
        hours = contract.meter.seconds(component, end, start) / 3600
        if amount:
            rate = amount / hours
            items.append(
                {
                    "type": word,
                    "start": start.timestamp(),
                    "end": end.timestamp(),
                    "description": f"{hours:.3f} hours at ${rate:.4f}/hour",
                    "amount": round(float(amount), 6),
                    "source": source,
                    "metadata": {},
                    "items": [],
                }
            )
    if not items:
        return None
    return {
        "start": start.timestamp(),
        "end": end.timestamp(),
        "type": "instance",
        "source": source,
        "description": f"Instance {contract.ref} on machine {contract.machine.machine_id}",
        "amount": round(sum(float(str(item["amount"])) for item in items), 3),
        "metadata": {"label": contract.name} if contract.name else {},
        "items": items,
    }
