"""Troubles in which waiting costs little: what each seed gets of them, when, and which machines they befell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from random import Random


class Kind(StrEnum):
    """What befalls an account, a host, an answer or a job for a while."""

    CREDIT = "the account can't pay: machines are stopped, and launches are refused"
    OFFLINE = "a host loses contact, and bills nothing meanwhile"
    SHORT_MARKET = "a search lacks rows, or a whole page"
    SHORT_VOLUMES = "the listing of volumes lacks rows, or all of them"
    ONE_REFUSED = "one create is refused for calling too often"
    ALL_REFUSED = "each create is refused for calling too often"
    AT_ZERO = "the jobs work, and their GPUs are at 0 %"
    SILENT = "the agents are silent, and their machines work"


@dataclass(frozen=True, slots=True)
class Rate:
    """How often of 100 seeds a trouble comes, when it begins, how long it lasts, and at which clouds it exists."""

    percent: float
    begins_s: tuple[float, float]
    lasts_s: tuple[float, float]
    clouds: frozenset[str] = frozenset()


ALL = frozenset({"vast", "runpod", "lambda", "tensordock"})
#: The clouds that rent out volumes.
WITH_VOLUMES = ("runpod", "lambda")
RATES: Mapping[Kind, Rate] = {
    Kind.CREDIT: Rate(25, (500, 2400), (600, 3600), ALL),
    Kind.OFFLINE: Rate(60, (300, 2400), (300, 5400), frozenset({"vast"})),
    Kind.SHORT_MARKET: Rate(20, (0, 2400), (60, 900), ALL),
    Kind.SHORT_VOLUMES: Rate(70, (600, 2400), (60, 1200), frozenset(WITH_VOLUMES)),
    Kind.ONE_REFUSED: Rate(30, (0, 1500), (0, 0), ALL),
    Kind.ALL_REFUSED: Rate(15, (0, 1500), (60, 600), ALL),
    Kind.AT_ZERO: Rate(70, (0, 900), (2700, 9000)),
    Kind.SILENT: Rate(40, (300, 2400), (300, 5400)),
}
#: Of 100 seeds, in how many nothing of this happens, somebody rents a volume, and machines have agents and jobs.
QUIET, VOLUMES, AGENTS = 10.0, 30.0, 12.0
#: How many seconds a refusal of ours asks to wait; None: it does not say.
RETRY_AFTER_S = (None, None, 7, 20, 45, 300)
#: Which share of its rows a short answer still has.
SHARES = (0.0, 0.5, 0.9)
ABOUT_AGENTS = frozenset({Kind.AT_ZERO, Kind.SILENT})


@dataclass(frozen=True, slots=True)
class Planned:
    """One trouble of a seed. `cloud` is empty for what concerns the machines of every cloud."""

    kind: Kind
    cloud: str
    begins_s: float
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which a machine could not work, and what its owner would lose with it was still there."""

    kind: Kind
    cloud: str
    ref: str
    since: datetime


@dataclass
class Troubles:
    """The troubles of one seed, with a stream of their own, so that the other faults of the seed stay as they are."""

    random: Random
    planned: tuple[Planned, ...] = ()
    #: The cloud at which somebody rents a volume; empty: nobody does.
    volume_at: str = ""
    has_agents: bool = False
    #: What ends each trouble that is under way.
    ongoing: dict[Planned, Callable[[], None]] = field(default_factory=dict)
    stretches: list[Stretch] = field(default_factory=list)
    #: When each stretch was over.
    over_at: dict[Stretch, datetime] = field(default_factory=dict)
    #: The machines that something else befell, too: what became of them is judged by other rules.
    disturbed: set[tuple[str, str]] = field(default_factory=set)
    #: The shares of their rows that the answers of a cloud have now.
    short: dict[tuple[str, Kind], float] = field(default_factory=dict)

    def begin(self, kind: Kind, cloud: str, refs: Collection[str], now: datetime) -> list[Stretch]:
        """Note that these machines can't work from now on."""
        begun = [Stretch(kind, cloud, ref, now) for ref in refs]
        self.stretches += begun
        return begun

    def end(self, stretches: Collection[Stretch], now: datetime) -> None:
        """Note that these are over."""
        self.over_at |= {stretch: now for stretch in stretches if stretch not in self.over_at}


def draw(random: Random, clouds: Collection[str]) -> Troubles:
    """Draw the troubles of a seed that rents at these clouds."""
    if random.uniform(0, 100) < QUIET:
        return Troubles(random)
    renting = [name for name in WITH_VOLUMES if name in clouds]
    volume_at = random.choice(renting) if renting and random.uniform(0, 100) < VOLUMES else ""
    has_agents = random.uniform(0, 100) < AGENTS
    planned = []
    for kind, rate in RATES.items():
        where = [name for name in clouds if name in rate.clouds] or [""]
        cloud = volume_at if kind is Kind.SHORT_VOLUMES else random.choice(where)
        exists = has_agents if kind in ABOUT_AGENTS else bool(cloud)
        comes = random.uniform(0, 100) < rate.percent
        coming = Planned(kind, cloud, random.uniform(*rate.begins_s), random.uniform(*rate.lasts_s))
        if exists and comes:
            planned.append(coming)
    return Troubles(random, tuple(planned), volume_at, has_agents)
