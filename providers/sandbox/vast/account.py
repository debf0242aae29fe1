"""The account of the Vast.ai sandbox: contracts, credit and what commands do to them. No HTTP here."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.sandbox.engine import Engine, SandboxCloud
from providers.sandbox.timeline import Living, Settled
from providers.sandbox.vast.instance import STOPPED, Contract, Phase
from providers.sandbox.vast.market import Market, Slice

CREDIT_USD = Decimal(1000)
DAY_S = 86400


class Account:
    """Everything one customer has. Times come from the engine's clock."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.market = Market(engine.random("vast"), engine.clock.now())
        self.contracts: dict[int, Contract] = {}
        self.credit_usd = CREDIT_USD
        self.living = Living(self.contracts, _over, lambda contract, now: contract.meter.total_usd(now))
        self._settled = Settled()
        self.ssh_keys: list[dict[str, Any]] = []
        self.queued: set[int] = set()
        self._next_ref = 26_500_000

    @property
    def now(self) -> datetime:
        """The sandbox's time."""
        return self.engine.clock.now()

    def rent(self, part: Slice, body: dict[str, Any], faults: SandboxCloud, lands_in_s: float = 0.0) -> Contract:
        """Make a contract from an offer. The caller has checked that the offer is there."""
        now = self.now + timedelta(seconds=lands_in_s)
        self.market.take(part.machine, part.size, part.offer_id)
        self._next_ref += 7
        higher = faults.fault("price_higher_than_quoted")
        factor = Decimal(str(higher.get("factor", "1.5"))) if higher is not None else Decimal(1)
        bid = body.get("price")
        base = Decimal(str(bid)) if bid is not None else (part.machine.gpu_usd_h or Decimal(0)) * part.size
        contract = Contract(
            ref=self._next_ref,
            label=body.get("label"),
            machine=part.machine,
            size=part.size,
            gpu_usd_h=base * factor,
            disk_gb=float(body.get("disk") or 10),
            image=str(body.get("image")),
            extra_env=[[str(k), str(v)] for k, v in (body.get("env") or {}).items()],
            onstart=str(body.get("onstart") or ""),
            created_at=now,
            shown_at=now + timedelta(seconds=self._lag(faults, "create_get_lag", self.engine.timing.get_lag_s)),
            listed_at=now + timedelta(seconds=self._lag(faults, "create_list_lag", self.engine.timing.list_lag_s)),
            bid_usd_h=None if bid is None else Decimal(str(bid)),
            reachable_s=self._lag(faults, "running_before_reachable", self.engine.timing.reachable_s, 120),
        )
        other = faults.fault("other_gpu")
        if other is not None:
            contract.other_gpu = str(other.get("gpu", "RTX3090"))
        contract.meter.start("storage", now, contract.storage_usd_h)
        self._boot(contract, now, faults)
        self.contracts[contract.ref] = contract
        return contract

    @staticmethod
    def _lag(faults: SandboxCloud, name: str, usual_s: float, default_s: float = 60.0) -> float:
        params = faults.fault(name)
        return usual_s if params is None else float(params.get("after_s", default_s))

    def _boot(self, contract: Contract, now: datetime, faults: SandboxCloud) -> None:
        contract.boot(now, self.engine.timing.boot_s)
        contract.uptime_hidden = faults.fault("uptime_hidden") is not None
        broken = f"Error response from daemon: manifest unknown: {contract.image}"
        if faults.fault("boot_error") is not None:
            oci = ": OCI runtime create failed: unable to retrieve OCI runtime error"
            contract.hang(now, Phase("created", msg=oci))
        elif faults.fault("pull_error") is not None:
            contract.hang(now, Phase("loading", msg=broken))
        elif faults.fault("never_boots") is not None:
            contract.hang(now, Phase("loading", msg="pulling image layers"))
        elif (nothing := faults.fault("null_status")) is not None:
            later = now + timedelta(seconds=float(nothing.get("after_s", 60)))
            contract.hang(now, Phase(None))
            contract.meter.start("gpu", later + timedelta(seconds=self.engine.timing.boot_s), contract.gpu_usd_h)
            running = Phase("running", msg=f"success, running {contract.image}/ssh", ports=True)
            contract.phases.extend(later, (0.0, Phase("loading")), (self.engine.timing.boot_s, running))

    def half_make(self, part: Slice, body: dict[str, Any], faults: SandboxCloud) -> Contract:
        """The bid was too low to start: the contract exists, stopped, and its disk is billed."""
        contract = self.rent(part, body, faults)
        contract.hang(self.now, STOPPED)
        self._release(contract)
        return contract

    # ── what is seen ─────────────────────────────────────────────────────────────────────────────

    def shown(self, ref: int) -> Contract | None:
        """What a read by id finds."""
        contract = self.existing(ref)
        return contract if contract is not None and self.now >= contract.shown_at else None

    def existing(self, ref: int) -> Contract | None:
        """What a command finds."""
        contract = self.contracts.get(ref)
        return contract if contract is not None and contract.exists(self.now) else None

    def listed(self) -> list[Contract]:
        """What a listing finds, by id."""
        now = self.now
        return [c for c in self.living.at(now) if c.exists(now) and now >= c.listed_at]

    def port(self, contract: Contract) -> int | None:
        """The published SSH port, while ports are published."""
        if not contract.exists(self.now) or not contract.phases.at(self.now).ports:
            return None
        return self.engine.doors.reserve(f"vast/{contract.ref}")

    # ── commands ─────────────────────────────────────────────────────────────────────────────────

    def stop(self, contract: Contract, phase: Phase = STOPPED) -> None:
        """End GPU billing, give the GPUs back, cancel a queued start."""
        self.queued.discard(contract.ref)
        contract.halt(self.now, self.engine.timing.stop_s, phase)
        self._release(contract)

    def start(self, contract: Contract) -> bool:
        """Plan the way back to running; False when the GPUs are taken, with the start left in the queue."""
        if contract.holds_gpu and contract.phases.at(self.now).intended == "running":
            return True
        if not contract.holds_gpu and not self.market.take(contract.machine, contract.size):
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
            running = Phase("running", msg=f"success, running {contract.image}/ssh", ports=True)
            contract.phases.plan(self.now, (0.0, Phase("exited", cur="stopped")), (flips_s, running))
            contract.meter.start("gpu", at, contract.gpu_usd_h)

    def reboot(self, contract: Contract) -> None:
        """Restart in place: the GPU stays rented and billed."""
        running = Phase("running", msg=f"success, running {contract.image}/ssh", ports=True)
        contract.phases.plan(self.now, (0.0, Phase("rebooting")), (self.engine.timing.start_s, running))

    def destroy(self, contract: Contract) -> None:
        """End all billing and free the machine."""
        self.queued.discard(contract.ref)
        self._release(contract)
        contract.end(self.now, self.engine.timing.destroy_s)

    def _release(self, contract: Contract) -> None:
        if contract.holds_gpu:
            contract.holds_gpu = False
            self.market.give_back(contract.machine, contract.size)

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    def spent_usd(self) -> Decimal:
        """The whole bill so far."""
        return self.living.spent_usd(self.now)

    def left_usd(self) -> Decimal:
        """Credit minus spending; may be negative."""
        return self.credit_usd - self.spent_usd()

    def settle(self) -> None:
        """Fire queued starts whose GPUs came free, and stop everything once the credit is gone."""
        for ref in sorted(self.queued):
            contract = self.existing(ref)
            if contract is not None and not contract.phases.at(self.now).ports:
                self.start(contract)
        if self._settled.before(self.now, self.credit_usd):
            return
        if self.contracts and self.left_usd() <= 0:
            for contract in self.living.at(self.now):
                if contract.exists(self.now) and contract.phases.at(self.now).intended == "running":
                    self.stop(contract)

    def charges(self, since: datetime, until: datetime) -> list[dict[str, Any]]:
        """Bill rows per contract and UTC day, oldest first; nothing younger than the charges' lag."""
        until = min(until, self.now - timedelta(seconds=self.engine.timing.charges_lag_s))
        rows = []
        for contract in self.contracts.values():
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
        "metadata": {"label": contract.label} if contract.label else {},
        "items": items,
    }


def _over(contract: Contract, now: datetime) -> bool:
    return contract.created_at <= now and not contract.exists(now)
