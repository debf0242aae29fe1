"""One customer of a sandbox: the instances, which of them the API shows, and the credit that they use up."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, TypedDict, TypeVar

from providers.sandbox.engine import SandboxCloud
from providers.sandbox.instance import SandboxInstance
from providers.sandbox.timeline import Living, Settled

One = TypeVar("One", bound=SandboxInstance)


class Times(TypedDict):
    """When a new instance lands, is seen and answers: arguments of a `PhasedInstance`."""

    created_at: datetime
    shown_at: datetime
    listed_at: datetime
    reachable_s: float


class SandboxAccount(Generic[One]):
    """Everything one customer has. Times come from the engine's clock, amounts are dollars."""

    def __init__(self, cloud: SandboxCloud, credit_usd: Decimal = Decimal(0)) -> None:
        self.cloud, self.engine = cloud, cloud.engine
        #: Every instance that ever was, by id, in order of creation.
        self.instances: dict[Any, One] = {}
        self.living = Living(self.instances, lambda one, now: one.is_over(now), lambda one, now: one.usd(now))
        self.credit_usd = credit_usd
        self._settled = Settled()

    @property
    def now(self) -> datetime:
        """The sandbox's time."""
        return self.engine.clock.now()

    # ── making ───────────────────────────────────────────────────────────────────────────────────

    def lag_s(self, fault: str, usual_s: float, default_s: float = 60.0) -> float:
        """The seconds that an armed fault asks for, else the usual ones."""
        params = self.cloud.fault(fault)
        return usual_s if params is None else float(params.get("after_s", default_s))

    def price_factor(self) -> Decimal:
        """How many times the price of its offer a new instance costs."""
        higher = self.cloud.fault("price_higher_than_quoted")
        return Decimal(1) if higher is None else Decimal(str(higher.get("factor", "1.5")))

    def times(self, lands_in_s: float) -> Times:
        """The times of an instance that lands in so many seconds."""
        at, timing = self.now + timedelta(seconds=lands_in_s), self.engine.timing
        shown_s = self.lag_s("create_get_lag", timing.get_lag_s)
        listed_s = self.lag_s("create_list_lag", timing.list_lag_s)
        return Times(
            created_at=at,
            shown_at=at + timedelta(seconds=shown_s),
            listed_at=at + timedelta(seconds=listed_s),
            reachable_s=self.lag_s("running_before_reachable", timing.reachable_s, 120),
        )

    def add(self, instance: One) -> One:
        """Keep a new instance."""
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

    def settle(self) -> None:
        """Bring the account up to now; once at each moment."""
        if not self._settled.before(self.now, self.credit_usd):
            self.charge()

    def charge(self) -> None:
        """Do what the cloud does when the credit is used up; nothing where there is no credit."""
