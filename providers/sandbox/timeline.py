"""State and money as functions of time: what a sandbox instance says at a moment and what it cost until then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")
HOUR_S = Decimal(3600)


class Timeline(Generic[T]):
    """A value that changes at known times, future ones included. Before the first change it is `initial`."""

    def __init__(self, initial: T) -> None:
        self._initial = initial
        self._steps: list[tuple[datetime, T]] = []

    def at(self, when: datetime) -> T:
        value = self._initial
        for at, step in self._steps:
            if at > when:
                break
            value = step
        return value

    def since(self, when: datetime) -> datetime | None:
        """When the value of `when` began; None while it is still the initial one."""
        began = None
        for at, _ in self._steps:
            if at > when:
                break
            began = at
        return began

    def plan(self, now: datetime, *steps: tuple[float, T]) -> None:
        """Drop whatever lay ahead of `now` and plan `steps` as (seconds from now, value)."""
        self._steps = [s for s in self._steps if s[0] < now]
        self._steps += [(now + timedelta(seconds=after_s), value) for after_s, value in steps]

    def extend(self, now: datetime, *steps: tuple[float, T]) -> None:
        """Like `plan`, keeping what already lay ahead and earlier than the first new step."""
        first = now + timedelta(seconds=min(after_s for after_s, _ in steps))
        self._steps = [s for s in self._steps if s[0] < first]
        self._steps += [(now + timedelta(seconds=after_s), value) for after_s, value in steps]


@dataclass(slots=True)
class BilledSpan:
    """One stretch at one rate; `end` None means that it still runs."""

    component: str
    usd_h: Decimal
    start: datetime
    end: datetime | None = None


@dataclass(slots=True)
class BilledTime:
    """Billed stretches of one instance. Components: gpu, storage. A start may lie in the future."""

    spans: list[BilledSpan] = field(default_factory=list)
    #: When each component that is billed no more ended, with all that it cost: an account adds up its dead for ever.
    _closed: dict[str, tuple[datetime, Decimal]] = field(default_factory=dict, repr=False, compare=False)

    def start(self, component: str, at: datetime, usd_h: Decimal) -> None:
        """Bill `component` at `usd_h` from `at`, ending what it was billed before at that moment."""
        self.stop(component, at)
        self.spans.append(BilledSpan(component, usd_h, at))

    def change(self, component: str, at: datetime, usd_h: Decimal) -> None:
        """Bill `component` at another rate from `at`, if it is billed then."""
        if self.rate_usd_h(component, at):
            self.start(component, at, usd_h)

    def stop(self, component: str, at: datetime) -> None:
        """Stop billing `component` at `at`; stretches planned for later never happen."""
        self._closed.pop(component, None)
        self.spans = [s for s in self.spans if s.component != component or s.start < at]
        for span in self.spans:
            if span.component == component and (span.end is None or span.end > at):
                span.end = at

    def stop_all(self, at: datetime) -> None:
        for component in {s.component for s in self.spans}:
            self.stop(component, at)

    def seconds(self, component: str, until: datetime, since: datetime | None = None) -> Decimal:
        """Billed seconds in [since, until), to the microsecond."""
        return sum((Decimal(str(_overlap_s(s, since, until))) for s in self._of(component)), Decimal(0))

    def usd(self, component: str, until: datetime, since: datetime | None = None) -> Decimal:
        """Dollars in [since, until), per second, never rounded."""
        closed = self._closed.get(component) if since is None else None
        if closed is not None and closed[0] <= until:
            return closed[1]
        spans = self._of(component)
        parts = (Decimal(str(_overlap_s(s, since, until))) * s.usd_h / HOUR_S for s in spans)
        total = sum(parts, Decimal(0))
        ends = [s.end for s in spans if s.end is not None]
        if since is None and spans and len(ends) == len(spans) and max(ends) <= until:
            self._closed[component] = max(ends), total
        return total

    def total_usd(self, until: datetime) -> Decimal:
        """Dollars of all components until then."""
        return self.usd("gpu", until) + self.usd("storage", until)

    def rate_usd_h(self, component: str, at: datetime) -> Decimal:
        """What `component` costs per hour at this moment; zero when it is not billed."""
        return sum(
            (s.usd_h for s in self._of(component) if s.start <= at and (s.end is None or at < s.end)), Decimal(0)
        )

    def total_rate_usd_h(self, at: datetime) -> Decimal:
        """What all components cost per hour at this moment."""
        return self.rate_usd_h("gpu", at) + self.rate_usd_h("storage", at)

    def _of(self, component: str) -> list[BilledSpan]:
        return [s for s in self.spans if s.component == component]


def usd(value: Decimal | None) -> float | None:
    """An amount as an API prints it; None for a price that is missing."""
    return None if value is None else round(float(value), 6)


def _overlap_s(span: BilledSpan, since: datetime | None, until: datetime) -> float:
    start = span.start if since is None else max(span.start, since)
    end = until if span.end is None else min(span.end, until)
    return max((end - start).total_seconds(), 0.0)


class Living(Generic[T]):
    """Those of an account's instances that can still change: what has ended finally is not looked at any more.

    `everything` only grows. What `is_over` once says of an instance stays so, and so does what `usd` says of it then.
    """

    def __init__(
        self, everything: Mapping[Any, T], is_over: Callable[[T, datetime], bool], usd: Callable[[T, datetime], Decimal]
    ) -> None:
        self._everything, self._is_over, self._usd = everything, is_over, usd
        self._known = 0
        self._living: list[T] = []
        self._over_usd = Decimal(0)

    def at(self, now: datetime) -> list[T]:
        """In the order in which they were made."""
        if len(self._everything) > self._known:
            self._living += islice(self._everything.values(), self._known, None)
            self._known = len(self._everything)
        over = [one for one in self._living if self._is_over(one, now)]
        if over:
            self._over_usd += sum((self._usd(one, now) for one in over), Decimal(0))
            self._living = [one for one in self._living if not self._is_over(one, now)]
        return self._living

    def spent_usd(self, now: datetime) -> Decimal:
        """Dollars that everything has cost until now, with what has ended."""
        running_usd = sum((self._usd(one, now) for one in self.at(now)), Decimal(0))
        return self._over_usd + running_usd
