"""One customer of a sandbox: the instances, which of them the API shows, and the credit that they use up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, TypeVar

from providers.sandbox.engine import SandboxCloud, TrueInstance
from providers.sandbox.timeline import BilledTime, Living, Timeline

Phase = TypeVar("Phase")


@dataclass(kw_only=True)
class SandboxInstance(ABC):
    """What every cloud's instance has. `gpu` is its canonical name, `gone_at` is when the API forgets it.

    `shown_at` and `listed_at` are when a read by id and the listing first see it.
    """

    ref: Any
    name: str | None
    gpu: str
    gpu_count: int
    created_at: datetime
    shown_at: datetime
    listed_at: datetime
    ended_at: datetime | None = None
    gone_at: datetime | None = None
    meter: BilledTime = field(default_factory=BilledTime)
    #: The faults that were armed for it when it was made, and that it keeps.
    quirks: frozenset[str] = frozenset()

    @abstractmethod
    def status(self, now: datetime) -> str:
        """The API's word."""

    @abstractmethod
    def reachable(self, now: datetime) -> bool:
        """True when SSH must answer."""

    def exists(self, now: datetime) -> bool:
        """Between landing and being forgotten."""
        return self.created_at <= now and (self.gone_at is None or now < self.gone_at)

    def is_over(self, now: datetime) -> bool:
        """Whether it landed and nothing about it can change any more."""
        return self.created_at <= now and not self.exists(now)

    def end(self, now: datetime, forgotten_after_s: float) -> None:
        """Billing ends now; the API forgets the instance later."""
        if self.ended_at is None:
            self.ended_at = now
            self.gone_at = now + timedelta(seconds=forgotten_after_s)
            self.meter.stop_all(now)

    def gpu_s(self, now: datetime) -> Decimal:
        """Billed GPU seconds so far."""
        return self.meter.seconds("gpu", now)

    def gpu_usd(self, now: datetime) -> Decimal:
        """Dollars for the GPUs so far."""
        return self.meter.usd("gpu", now)

    def usd(self, now: datetime) -> Decimal:
        """The whole bill so far."""
        return self.gpu_usd(now) + self.meter.usd("storage", now)

    def truth(self, cloud: str, now: datetime) -> TrueInstance:
        """What is really there, whatever the API says."""
        return TrueInstance(
            cloud=cloud,
            ref=str(self.ref),
            name=self.name,
            status=self.status(now),
            gpu=self.gpu,
            gpu_count=self.gpu_count,
            created_at=self.created_at,
            ended_at=self.ended_at,
            gpu_s=self.gpu_s(now),
            gpu_usd=self.gpu_usd(now),
            storage_usd=self.meter.usd("storage", now),
        )


@dataclass(kw_only=True)
class PhasedInstance(SandboxInstance, Generic[Phase]):
    """An instance that walks through phases. `reachable_s` is how long after it began to run its SSH answers."""

    phases: Timeline[Phase]
    reachable_s: float = 0.0

    @abstractmethod
    def answers(self, now: datetime) -> bool:
        """Whether it is in a phase in which SSH answers, once it was in it for long enough."""

    def reachable(self, now: datetime) -> bool:
        """True when SSH must answer."""
        began = self.phases.since(now)
        if not self.exists(now) or self.ended_at is not None or began is None or not self.answers(now):
            return False
        return now >= began + timedelta(seconds=self.reachable_s)


#: The key that the customer registered on the web page.
OWNERS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOwn3rs0wnK3yAAAAAAAAAAAAAAAAAAAAAAAAAAA owner@laptop"
One = TypeVar("One", bound=SandboxInstance)


class SandboxAccount(Generic[One]):
    """Everything one customer has. Times come from the engine's clock, amounts are dollars."""

    def __init__(self, cloud: SandboxCloud, credit_usd: Decimal = Decimal(0)) -> None:
        self.cloud, self.engine = cloud, cloud.engine
        #: Every instance that ever was, by id, in order of creation.
        self.instances: dict[Any, One] = {}
        self.living = Living(self.instances, lambda one, now: one.is_over(now), lambda one, now: one.usd(now))
        self.credit_usd = credit_usd
        self._settled: tuple[datetime, Decimal] | None = None

    @property
    def now(self) -> datetime:
        return self.engine.clock.now()

    # ── making ───────────────────────────────────────────────────────────────────────────────────

    def lag_s(self, fault: str, usual_s: float, default_s: float = 60.0) -> float:
        """The seconds that an armed fault asks for, else the usual ones."""
        after_s = self.cloud.fault_value(fault, "after_s", default_s)
        return usual_s if after_s is None else float(after_s)

    def quirks(self, *faults: str) -> frozenset[str]:
        """Those of these faults that are armed for the instance that is made now."""
        return frozenset(name for name in faults if self.cloud.fault(name) is not None)

    def price_factor(self) -> Decimal:
        """How many times the price of its offer a new instance costs."""
        return Decimal(str(self.cloud.fault_value("price_higher_than_quoted", "factor", "1.5") or 1))

    def times(self, lands_in_s: float) -> dict[str, Any]:
        """When an instance that lands in so many seconds is seen and answers: arguments of a `PhasedInstance`."""
        at, timing = self.now + timedelta(seconds=lands_in_s), self.engine.timing
        shown_s = self.lag_s("create_get_lag", timing.get_lag_s)
        listed_s = self.lag_s("create_list_lag", timing.list_lag_s)
        return {
            "created_at": at,
            "shown_at": at + timedelta(seconds=shown_s),
            "listed_at": at + timedelta(seconds=listed_s),
            "reachable_s": self.lag_s("running_before_reachable", timing.reachable_s, 120),
        }

    def add(self, instance: One) -> One:
        self.instances[instance.ref] = instance
        return instance

    # ── what is seen ─────────────────────────────────────────────────────────────────────────────

    def exists(self, instance: One) -> bool:
        """Whether commands find it."""
        return instance.exists(self.now)

    def existing(self, ref: Any) -> One | None:
        """What a command finds."""
        self.settle()
        instance = self.instances.get(ref)
        return instance if instance is not None and self.exists(instance) else None

    def shown(self, ref: Any) -> One | None:
        """What a read by id finds."""
        instance = self.existing(ref)
        return instance if instance is not None and self.now >= instance.shown_at else None

    def listed(self) -> list[One]:
        """What the listing finds, oldest first."""
        self.settle()
        now = self.now
        return [one for one in self.living.at(now) if self.exists(one) and now >= one.listed_at]

    def reserve_port(self, instance: One) -> int:
        """The port of 127.0.0.1 at which its SSH answers."""
        return self.engine.ssh_ports.reserve(self.cloud.port_key(str(instance.ref)))

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    def spent_usd(self) -> Decimal:
        """The whole bill so far."""
        return self.living.spent_usd(self.now)

    def left_usd(self) -> Decimal:
        """Credit minus spending; may be negative."""
        return self.credit_usd - self.spent_usd()

    def rate_usd_h(self) -> Decimal:
        """What everything costs per hour now."""
        return sum((one.meter.total_rate_usd_h(self.now) for one in self.living.at(self.now)), Decimal(0))

    def settle(self) -> None:
        """Bring the account up to now; once at each moment, because every instance that there ever was is looked at."""
        moment = (self.now, self.credit_usd)
        if moment != self._settled:
            self._settled = moment
            self.charge()

    def charge(self) -> None:
        """Do what the cloud does when the credit is used up; nothing where there is no credit."""
