"""Learn from own sessions how long machines take to start, to set up and to be replaced, and how often they are lost.

Each figure is pooled with what is assumed without sessions. An assumed time counts as so many sessions as its weight
says, and the mean of both is taken: a cloud's typical boot is pulled to the boots that were seen there, and those of
one GPU are pulled from their cloud's to their own. Losses are a Poisson process: the assumed rate counts as
`LOSS_PRIOR_H` machine-hours (the mean of the Gamma distribution that follows from a Gamma prior; A. Gelman et al.,
"Bayesian Data Analysis", 3rd edition, 2013, section 2.6).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from bot.rules.sizing.interruptions import MOST_CHANCE
from bot.rules.values.phrases import plural

#: What is assumed counts as so many sessions.
PRIOR_SESSIONS = 5
#: At the reliability that the policy assumes, about one loss is expected in so many machine-hours.
LOSS_PRIOR_H = 500.0
#: Seconds of a step of the start-up that are assumed until sessions show others.
STEP_S: Mapping[str, float] = {"environment": 1, "packages": 30, "driver": 5, "python packages": 180, "repo": 15}
#: Seconds of any other step, and from a loss until a replacement is created: listings must prove the loss first.
OTHER_STEP_S, WAIT_S = 30.0, 300.0
#: Seconds in which a training compiles its kernels and fills its caches at each start.
WARM_UP_S = 60.0


@dataclass(frozen=True, slots=True)
class InstanceHistory:
    """Hold what one instance of an ended session showed; None is not known. `hours` are those that it was ready.

    `wait_s` is the time from the loss of its predecessor until its own create.
    """

    cloud: str
    gpu: str
    spot: bool
    boot_s: float | None = None
    hours: float = 0.0
    lost: bool = False
    wait_s: float | None = None
    steps: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SeenTimes:
    """Hold how many sessions showed a time, and its sum in seconds."""

    count: int = 0
    total_s: float = 0.0

    def plus(self, seconds: float) -> SeenTimes:
        """Add one session."""
        return SeenTimes(self.count + 1, self.total_s + seconds)

    def pooled_s(self, assumed_s: float) -> float:
        """Return the mean in seconds, pooled with what is assumed."""
        return (PRIOR_SESSIONS * assumed_s + self.total_s) / (PRIOR_SESSIONS + self.count)


@dataclass(frozen=True, slots=True)
class Losses:
    """Hold how many machines were lost in how many machine-hours."""

    count: int = 0
    hours: float = 0.0

    @property
    def known(self) -> bool:
        """Whether there was any session to learn from."""
        return self.hours > 0 or self.count > 0

    def chance(self, assumed: Decimal, window_h: Decimal) -> Decimal:
        """Return the chance that a host is lost within the window, where `assumed` is that without own sessions."""
        if not self.known:
            return assumed
        rate = -math.log1p(-min(float(assumed), MOST_CHANCE)) / float(window_h)
        pooled = (rate * LOSS_PRIOR_H + self.count) / (LOSS_PRIOR_H + self.hours)
        return Decimal(repr(-math.expm1(-pooled * float(window_h))))


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Hold what own sessions say about one run on one GPU of one cloud. Empty, nothing is added to what is assumed.

    `boot_s` is None for the cloud's typical boot. The machine is billed during `ready_s`: its start-up steps and the
    warm-up of the job. `losses` and `spot_losses` are those of the cloud. `said` names what was learnt or assumed.
    """

    boot_s: Decimal | None = None
    ready_s: Decimal = Decimal(0)
    wait_s: Decimal = Decimal(0)
    losses: Losses = Losses()
    spot_losses: Losses = Losses()
    boots: int = 0
    said: tuple[str, ...] = ()

    def lost(self, *, spot: bool) -> Losses:
        """Return the losses of spot instances, or of others."""
        return self.spot_losses if spot else self.losses

    def sentences(self, *, spot: bool) -> tuple[str, ...]:
        """Say what was learnt or assumed about a run on spot instances, or on others."""
        lost = self.lost(spot=spot)
        if not lost.known:
            return self.said
        kind, hours = "spot" if spot else "on-demand", plural(round(lost.hours), "hour")
        return (*self.said, f"Your {kind} sessions at this cloud lost {plural(lost.count, 'machine')} in {hours}.")


#: Nothing is added, and nothing was learnt.
NO_START = StartTimes()


@dataclass(frozen=True, slots=True)
class OwnTimes:
    """Hold what the sessions of this installation showed, by cloud, GPU and step."""

    boots: Mapping[tuple[str, str], SeenTimes] = field(default_factory=dict)
    steps: Mapping[str, SeenTimes] = field(default_factory=dict)
    waits: SeenTimes = SeenTimes()
    losses: Mapping[tuple[str, bool], Losses] = field(default_factory=dict)

    def boot(self, cloud: str, gpu: str, assumed_s: float) -> tuple[float, int]:
        """Return how long a machine boots, and how many sessions at the cloud say so."""
        mine = [seen for (where, _), seen in self.boots.items() if where == cloud]
        at_cloud = SeenTimes(sum(one.count for one in mine), sum(one.total_s for one in mine))
        here = self.boots.get((cloud, gpu), SeenTimes())
        return here.pooled_s(at_cloud.pooled_s(assumed_s)), at_cloud.count

    def start(self, cloud: str, gpu: str, boot_s: float, steps: Iterable[str], *, trains: bool) -> StartTimes:
        """Return the times of a run whose machine takes these steps; `boot_s` is the cloud's typical boot."""
        names = tuple(steps)
        setup_s = sum(self.steps.get(one, SeenTimes()).pooled_s(STEP_S.get(one, OTHER_STEP_S)) for one in names)
        booted_s, boots = self.boot(cloud, gpu, boot_s)
        found = StartTimes(
            boot_s=_seconds(booted_s) if boots else None,
            ready_s=_seconds(setup_s + (WARM_UP_S if trains else 0)),
            wait_s=_seconds(self.waits.pooled_s(WAIT_S)),
            losses=self.losses.get((cloud, False), Losses()),
            spot_losses=self.losses.get((cloud, True), Losses()),
            boots=boots,
        )
        return replace(found, said=tuple(self._said(names, setup_s, found, trains=trains)))

    def _said(self, names: tuple[str, ...], setup_s: float, found: StartTimes, *, trains: bool) -> Iterator[str]:
        if names:
            most = max(self.steps.get(one, SeenTimes()).count for one in names)
            yield f"Setting up takes about {setup_s:.0f} s ({_from(most)})."
        if trains:
            yield f"Compiling and warming up take about {WARM_UP_S:.0f} s at each start (assumed)."
        yield f"After a loss, a replacement is created within about {found.wait_s:.0f} s ({_from(self.waits.count)})."


#: What is known without any session.
NO_TIMES = OwnTimes()


def own_times(past: Iterable[InstanceHistory]) -> OwnTimes:
    """Sum up what the instances of ended sessions showed."""
    boots: dict[tuple[str, str], SeenTimes] = defaultdict(SeenTimes)
    steps: dict[str, SeenTimes] = defaultdict(SeenTimes)
    losses: dict[tuple[str, bool], Losses] = defaultdict(Losses)
    waits = SeenTimes()
    for one in past:
        if one.boot_s is not None:
            key = one.cloud, one.gpu
            boots[key] = boots[key].plus(one.boot_s)
        if one.wait_s is not None:
            waits = waits.plus(one.wait_s)
        for name, seconds in one.steps:
            steps[name] = steps[name].plus(seconds)
        if one.hours or one.lost:
            kind = one.cloud, one.spot
            losses[kind] = Losses(losses[kind].count + one.lost, losses[kind].hours + one.hours)
    return OwnTimes(dict(boots), dict(steps), waits, dict(losses))


def _from(sessions: int) -> str:
    return f"from {plural(sessions, 'session')} of yours" if sessions else "assumed"


def _seconds(number: float) -> Decimal:
    return Decimal(f"{number:.3f}")
