"""The table of faults of the month, and who injects them.

The rates are higher than what is documented of any cloud, so that each fault happens in a month and rare pairs meet.
What each is about is in the pages of facts that the sandboxes were written from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from tests.scenarios.month.shares import SHARE
from tests.scenarios.month.town import Month

HOUR_S, DAY_S = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class AtCreate:
    """A fault of the next create at a cloud, and how often of 100 creates. `clouds`: where it exists."""

    name: str
    percent: float
    clouds: tuple[str, ...] = tuple(SHARE)
    params: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class WhileRunning:
    """A disturbance of a machine in use, how often of 100 machines, and what undoes it after how many seconds."""

    cloud: str
    what: str
    percent: float
    undone_by: str = ""
    after_s: tuple[float, float] = (0, 0)


@dataclass(frozen=True, slots=True)
class Burst:
    """Calls that fail in a row, and how many bursts a day each cloud has."""

    name: str
    a_day: float
    times: int
    clouds: tuple[str, ...] = tuple(SHARE)


PAID = ("vast", "runpod", "lambda", "tensordock")
#: Ambiguous creates, capacity that is gone, boots that fail, listings that lag.
AT_CREATE = (
    AtCreate("create_lost_reply", 1.5),
    AtCreate("create_503_after", 1.0),
    AtCreate("create_lands_late", 0.5),
    AtCreate("create_stale_offer", 3.0, PAID),
    AtCreate("create_429", 1.5),
    AtCreate("create_list_lag", 2.0),
    AtCreate("never_boots", 0.7, PAID),
    AtCreate("boot_error", 0.7, ("vast", "tensordock")),
    AtCreate("boots_unhealthy", 0.7, ("lambda",)),
    AtCreate("exit_loop", 0.7, ("runpod",)),
    AtCreate("running_before_reachable", 2.0, PAID, {"after_s": 90}),
    AtCreate("price_higher_than_quoted", 0.5, PAID),
    AtCreate("create_two", 0.5, ("lambda",)),
    AtCreate("other_gpu", 2.0, ("vast",)),
)
#: Hosts that are lost, machines that vanish, spot machines that are outbid, prices and bids that rise.
WHILE_RUNNING = (
    WhileRunning("vast", "offline", 2.0, "online", (60, 1800)),
    WhileRunning("vast", "vanish", 1.0),
    WhileRunning("runpod", "host_failure", 1.0),
    WhileRunning("runpod", "exit", 1.0),
    WhileRunning("runpod", "vanish", 1.0),
    WhileRunning("lambda", "unhealthy", 1.5, "healthy", (60, 1800)),
    WhileRunning("lambda", "preempted", 1.0),
    WhileRunning("tensordock", "error", 1.0),
    WhileRunning("tensordock", "vanish", 1.0),
    WhileRunning("tensordock", "ghost", 1.0, "ghost_over", (120, 1800)),
    WhileRunning("kaggle", "fail", 2.0),
    WhileRunning("vast", "dearer", 6.0),
    WhileRunning("vast", "much_dearer", 3.0),
    WhileRunning("runpod", "dearer", 6.0),
    WhileRunning("runpod", "much_dearer", 3.0),
)
#: The disturbances that raise what a machine costs, and break nothing.
RAISES = frozenset({"dearer", "much_dearer"})
#: The disturbance that takes a machine out of every listing while it lives.
HIDES = "ghost"
#: Of 100 spot machines, how many are outbid, and when the bid wins again.
OUTBID = WhileRunning("vast", "outbid_a", 25.0, "outbid_over", (120, 2400))
#: Of 100 machines with an agent, how many fall silent for good while they work.
SILENT_PERCENT = 1.0
BURSTS = (
    Burst("list_503", 1.0, 8),
    Burst("search_503", 0.5, 4),
    Burst("get_503", 0.5, 4),
    Burst("destroy_429", 0.7, 4),
    Burst("destroy_not_done", 0.3, 1, PAID),
    Burst("list_empty", 0.15, 1, ("vast", "lambda")),
)
#: Each cloud cannot be reached for an hour, so many times in 30 days; Slack is down for hours; a process dies.
DARK_A_MONTH, DARK_S = 4, (1800.0, 5400.0)
SLACK_A_MONTH, SLACK_S = 5, (1800.0, 4 * HOUR_S)
DEATHS_A_DAY, DOWN_S = 1.5, (5.0, 90.0)
LONG_DOWN_A_MONTH, LONG_DOWN_S = 2, (1200.0, 3600.0)
PRICES_A_DAY, FACTORS = 1.0, ("0.9", "0.95", "1.05", "1.15", "1.3")
#: How late lines of the clouds' own bills are, drawn anew each day.
BILL_LAG_S = (600.0, 3600.0, 6 * HOUR_S, 30 * HOUR_S)
#: Billing rules that no document settles, and the fault that switches each on for the whole month when the seed says.
UNCONFIRMED = (("lambda", "billed_from_active"), ("tensordock", "stop_releases"))


class Injector:
    """Injects the table. What it did is counted in the month's `injected`; the sandboxes count what they were told."""

    def __init__(self, month: Month, times: float = 1.0) -> None:
        self._month = month
        #: How many times as often as the table says what befalls creates and machines happens.
        self._times = times
        #: The machines that were disturbed, as (cloud, ref), with what was done to them.
        self.disturbed: dict[tuple[str, str], list[str]] = {}
        #: What the GPUs of machines cost per hour after each rise of their price: cloud, ref, since when, dollars.
        self.raised: list[tuple[str, str, datetime, Decimal]] = []
        #: Which unconfirmed rules hold this month.
        self.rules: list[tuple[str, str]] = []

    def draw_rules(self) -> None:
        """Settle the clouds' unconfirmed billing rules for this seed."""
        for cloud, name in UNCONFIRMED:
            if cloud in self._month.clouds and self._month.random.random() < 0.5:
                self._month.engine.faults.arm(cloud, name, None)
                self.rules.append((cloud, name))

    def before_create(self, cloud: str) -> None:
        """Somebody is about to rent there."""
        for fault in AT_CREATE:
            if cloud in fault.clouds and self._happens(fault.percent):
                self._month.engine.faults.arm(cloud, fault.name, 1, **(fault.params or {}))

    def in_use(self, cloud: str, ref: str, *, spot: bool, left_s: float) -> None:
        """A machine is ready: decide what will become of it."""
        random = self._month.random
        for one in (*WHILE_RUNNING, *((OUTBID,) if spot else ())):
            if one.cloud == cloud and self._happens(one.percent):
                self._month.after(random.uniform(60, max(left_s, 61)), partial(self._disturb, one, ref))
        if self._happens(SILENT_PERCENT):
            self._month.after(random.uniform(60, max(left_s, 61)), lambda: self._silence(cloud, ref))

    async def _disturb(self, one: WhileRunning, ref: str) -> None:
        cloud = self._month.clouds[one.cloud]
        if not any(item.alive and item.ref == ref for item in cloud.instances()):
            return
        cloud.disturb(ref, one.what)
        self._count(one.cloud, one.what)
        self.disturbed.setdefault((one.cloud, ref), []).append(one.what)
        if one.what in RAISES:
            self.raised.append((one.cloud, ref, self._month.now, _gpu_rate(cloud, ref, self._month.now)))
        if one.undone_by:
            pause_s = self._month.random.uniform(*one.after_s)
            self._month.after(pause_s, partial(self._undo, one, ref))
            if one.what == HIDES:
                stretch = (self._month.now, self._month.now + timedelta(seconds=pause_s))
                self._month.hidden.setdefault((one.cloud, ref), []).append(stretch)

    async def _undo(self, one: WhileRunning, ref: str) -> None:
        cloud = self._month.clouds[one.cloud]
        if any(item.alive and item.ref == ref for item in cloud.instances()):
            cloud.disturb(ref, one.undone_by)

    async def _silence(self, cloud: str, ref: str) -> None:
        node = self._month.engine.nodes.running.get(f"{cloud}/{ref}")
        if node is not None:
            node.silent = True
            self._count(cloud, "silent")
            self.disturbed.setdefault((cloud, ref), []).append("silent")

    def day(self, start: datetime, end: datetime) -> None:
        """Plan what befalls the clouds, Slack and the service on a day, or in what there is of it."""
        month, random = self._month, self._month.random
        for cloud in month.clouds:
            for burst in BURSTS:
                if cloud in burst.clouds:
                    for at in self._moments(start, end, burst.a_day):
                        month.at(at, partial(self._burst, cloud, burst))
            for at in self._moments(start, end, DARK_A_MONTH / 30):
                month.at(at, partial(self._darken, cloud, random.uniform(*DARK_S)))
            for at in self._moments(start, end, PRICES_A_DAY):
                month.at(at, partial(self._reprice, cloud))
        for at in self._moments(start, end, SLACK_A_MONTH / 30):
            month.at(at, partial(self._mute, random.uniform(*SLACK_S)))
        for at in self._moments(start, end, DEATHS_A_DAY):
            month.at(at, lambda: self._kill(DOWN_S))
        for at in self._moments(start, end, LONG_DOWN_A_MONTH / 30):
            month.at(at, lambda: self._kill(LONG_DOWN_S))
        month.at(start, self._lag)

    async def _burst(self, cloud: str, burst: Burst) -> None:
        faults = self._month.engine.faults
        known = self._month.clouds[cloud].FAULTS.own_name(burst.name)
        # Bursts that wait for a call do not add up: no cloud refuses for as long as ten of them.
        if not any(one.name in (burst.name, known) for one in faults.armed(cloud)):
            faults.arm(cloud, burst.name, burst.times)

    async def _darken(self, cloud: str, seconds: float) -> None:
        self._month.dark[cloud].append((self._month.now, self._month.now + timedelta(seconds=seconds)))
        self._count(cloud, "unreachable")

    async def _reprice(self, cloud: str) -> None:
        factor = Decimal(self._month.random.choice(FACTORS))
        if self._month.clouds[cloud].reprice("*", factor):
            self._count(cloud, "price changes")
            self._month.after(DAY_S / 4, lambda: self._price_back(cloud, 1 / factor))

    async def _price_back(self, cloud: str, factor: Decimal) -> None:
        self._month.clouds[cloud].reprice("*", factor)

    async def _mute(self, seconds: float) -> None:
        self._month.board.switch(down=True)
        self._count("slack", "down")
        self._month.after(seconds, self._unmute)

    async def _unmute(self) -> None:
        self._month.board.switch(down=False)

    async def _kill(self, down_s: tuple[float, float]) -> None:
        self._count("service", "killed")
        await self._month.die(self._month.random.randrange(400), self._month.random.uniform(*down_s))

    async def _lag(self) -> None:
        engine = self._month.engine
        engine.timing = replace(engine.timing, charges_lag_s=self._month.random.choice(BILL_LAG_S))

    def heal(self) -> None:
        """No more faults."""
        engine = self._month.engine
        for cloud in self._month.clouds:
            engine.faults.disarm(cloud)
        for cloud, name in self.rules:
            engine.faults.arm(cloud, name, None)
        self._month.board.switch(down=False)
        engine.timing = replace(engine.timing, charges_lag_s=BILL_LAG_S[0])

    def _moments(self, start: datetime, end: datetime, a_day: float) -> list[datetime]:
        """A Poisson number of moments."""
        found, at = [], start
        while (at := at + timedelta(days=self._month.random.expovariate(a_day * self._times))) < end:
            found.append(at)
        return found

    def _happens(self, percent: float) -> bool:
        return self._month.random.uniform(0, 100) < percent * self._times

    def _count(self, where: str, what: str) -> None:
        self._month.injected[where, what] += 1


def _gpu_rate(cloud: Any, ref: str, now: datetime) -> Decimal:
    """What a machine's GPUs are really billed per hour now, where prices rise; 0 while it is stopped."""
    held = cloud.account.instances[int(ref) if cloud.name == "vast" else ref]
    return Decimal(held.meter.rate_usd_h("gpu", now))
