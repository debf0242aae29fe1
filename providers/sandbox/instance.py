"""One instance of a sandbox: when the API shows it, when its SSH answers, and what it costs, at any moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, TypeVar

from providers.sandbox.engine import TrueInstance
from providers.sandbox.timeline import BilledTime, Timeline

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
