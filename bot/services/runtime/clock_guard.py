"""Measure the machine's clock against its monotonic clock, the clouds' and the database's, and say when it is wrong.

A wall clock that jumps by itself is not followed: the time is what the monotonic clock measures since the last trusted
moment, so approved ends come when they are due. While the clocks disagree nothing is bought, nothing ends that nobody
asked for, and no final cost is booked. Of the clouds the majority counts, because a single one may be wrong itself; the
machine's own clock decides a tie. Only the clouds confirm a jump: the database often runs on the same machine.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_low
from typing import Protocol, runtime_checkable

from ledger.kernel.clock import Clock

#: Clocks that differ by more than this do not agree.
TOLERANCE = timedelta(seconds=60)
#: What another clock showed counts for so many seconds.
FRESH_S = 600.0
#: An answer that took longer says too little about the time.
ROUND_TRIP_MAX_S = 30.0
#: A process that starts waits so many seconds for a second cloud before it believes a single one.
CONFIRM_S = 60.0

log = logging.getLogger(__name__)


@runtime_checkable
class Travels(Protocol):
    """A practice clock, which people move ahead of the machine's."""

    @property
    def ahead_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What another clock showed when the monotonic clock showed `at_s`."""

    shown: datetime
    at_s: float

    def now(self, monotonic_s: float) -> datetime:
        """Return what that clock shows by now."""
        return self.shown + timedelta(seconds=monotonic_s - self.at_s)


class GuardedClock:
    """Implement `ledger.kernel.clock.Clock`: the time of `base` while it can be trusted, else the measured time.

    With `confirm_s` the clock is in doubt until a cloud's answer confirms it; after so many seconds one cloud is enough
    to correct it. The jobs and the end watchdog use one of it in two threads, so readings are copied before they are
    counted.
    """

    def __init__(self, base: Clock, *, confirm_s: float = 0.0) -> None:
        self._base = base
        self._trusted = Reading(base.now(), base.monotonic())
        self._began_s = self._trusted.at_s
        self._wait_until_s = self._began_s + confirm_s
        self._confirmed = False
        #: Whether it may do without the clouds' time, because none is to confirm it, or one answered and showed none.
        self._may_do_without = confirm_s <= 0
        #: Since when the wall clock and the measured time differ, in monotonic seconds.
        self._parted_s: float | None = None
        self._clouds: dict[str, Reading] = {}
        self._database: Reading | None = None
        #: The subject of the message that says that this clock is in doubt; "" while it is trusted.
        self.paged_as = ""
        #: Whether that message says that no cloud has confirmed it since the start.
        self.paged_unconfirmed = False
        #: Whether it was in doubt, or corrected, since the last check that trusted it; a process begins with that.
        self.was_in_doubt = True
        #: Whether the clouds had corrected it by then.
        self.was_corrected = False
        #: Whether the clouds showed, at the start, that the machine's clock was wrong, and the time is theirs since.
        self.is_corrected = False

    def now(self) -> datetime:
        """Return the trusted time, aware UTC."""
        wall, at_s = self._base.now(), self._base.monotonic()
        measured = self._trusted.now(at_s)
        if abs(wall - measured) > TOLERANCE:
            if self._parted_s is None:
                self._parted_s = at_s
                log.error("the clock jumped from %s to %s; time is measured from before", measured, wall)
            return measured
        if self._parted_s is not None:
            self._parted_s = None
            log.warning("the clock is right again: %s", wall)
        self._trusted = Reading(wall, at_s)
        return wall

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        return self._base.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`, whatever the wall clock does."""
        await self._base.sleep(seconds)

    def note_date(self, cloud: str, shown: datetime | None, took_s: float) -> None:
        """Note the time in a cloud's answer, which took `took_s` seconds; it may confirm or correct ours."""
        if took_s > ROUND_TRIP_MAX_S:
            return  # The process stood still meanwhile, or somebody moved the practice clock.
        if shown is None:
            self._may_do_without = True
            return
        now, at_s = self.now(), self._base.monotonic()
        self._clouds[cloud] = Reading(shown, at_s)
        if not self._confirmed:
            self._confirm(now, at_s)
        if self._parted_s is not None:
            wall = self._base.now()
            agree, differ = self._votes(wall, self._parted_s)
            if agree > differ:
                # The machine was corrected, or slept, so what was noted before it says nothing.
                self._clouds = {name: one for name, one in [*self._clouds.items()] if one.at_s >= self._parted_s}
                self._trusted, self._parted_s = Reading(wall, at_s), None
                self.was_in_doubt = True  # Also when no check came while it was.
                log.warning("the clouds confirm the clock's new time: %s", wall)

    def _confirm(self, now: datetime, at_s: float) -> None:
        """Compare the start's time, which nothing was measured from yet, with what the clouds show."""
        agree, differ = self._votes(now, 0.0)
        if differ <= agree:
            self._confirmed = True
        elif differ > 1 or at_s >= self._wait_until_s:
            # Two clouds are believed at once, and one when no other was there in time: it may be wrong itself.
            self._confirmed = self.is_corrected = True
            self._trusted = Reading(median_low(one.now(at_s) for one in [*self._clouds.values()]), at_s)
            self.was_in_doubt = True
            log.error("the clouds show %s and this machine %s", self._trusted.shown, now)

    def note_database(self, shown: datetime, took_s: float) -> None:
        """Note the database's time. It can be in doubt of ours, and confirms nothing."""
        if took_s <= ROUND_TRIP_MAX_S:
            # A practice clock is ahead of the machine's, and the database does not know that.
            ahead = timedelta(seconds=self._base.ahead_s if isinstance(self._base, Travels) else 0.0)
            self._database = Reading(shown + ahead, self._base.monotonic())

    def shared_now(self) -> datetime:
        """Return the time that replicas share: the database's where it was read lately, else the trusted one."""
        read = self._recent_database()
        return read.now(self._base.monotonic()) if read else self.now()

    @property
    def is_confirmed(self) -> bool:
        """Whether the clouds have shown their time since the start, or answer for long without showing one.

        That none answers for long does not confirm it: a machine that starts without a network often has no right
        time either.
        """
        waited = self._base.monotonic() >= self._wait_until_s
        return self._confirmed or (self._may_do_without and not self._clouds and waited)

    @property
    def has_jumped(self) -> bool:
        """Whether the machine's clock differs from the measured time now."""
        self.now()
        return self._parted_s is not None

    @property
    def unconfirmed_s(self) -> float:
        """Return for how many seconds since the start no cloud has confirmed it; 0 once one has."""
        return 0.0 if self.is_confirmed else self._base.monotonic() - self._began_s

    def problem(self) -> str:
        """Say why the clock is not trusted now; "" when it is."""
        now, wall = self.now(), self._base.now()
        if self._parted_s is not None:
            return f"this machine's clock shows {wall:%Y-%m-%d %H:%M} UTC, and it should be {now:%Y-%m-%d %H:%M} UTC"
        agree, differ = self._votes(now, 0.0)
        if differ > agree:
            apart = [name for name, one in sorted(self._clouds.items()) if self._differs(one, now)]
            return f"this machine's clock shows {now:%H:%M:%S} UTC, and {', '.join(apart)} another time"
        read = self._recent_database()
        if read and self._differs(read, now):
            shown = read.now(self._base.monotonic())
            return f"this machine's clock shows {now:%H:%M:%S} UTC, and the database's {shown:%H:%M:%S} UTC"
        return "" if self.is_confirmed else "no cloud has confirmed this machine's clock since the start"

    def _votes(self, time: datetime, since_s: float) -> tuple[int, int]:
        """Count the clouds that agree with `time`, and those that differ, by what they showed lately."""
        least_s = max(since_s, self._base.monotonic() - FRESH_S)
        recent = [one for one in [*self._clouds.values()] if one.at_s >= least_s]
        differ = sum(self._differs(one, time) for one in recent)
        return len(recent) - differ, differ

    def _differs(self, reading: Reading, time: datetime) -> bool:
        return abs(reading.now(self._base.monotonic()) - time) > TOLERANCE

    def _recent_database(self) -> Reading | None:
        read = self._database
        return read if read and self._base.monotonic() - read.at_s <= FRESH_S else None


def clock_problem(clock: Clock) -> str:
    """Say why nothing may be bought, ended unasked or finally booked by this clock now; "" when it is trusted."""
    return clock.problem() if isinstance(clock, GuardedClock) else ""


class ClockInDoubt(RuntimeError):
    """A final cost was to be booked by a clock that is in doubt."""


def require_trusted(clock: Clock, what: str) -> None:
    """Raise `ClockInDoubt` while the clock is in doubt; `what` is not done then."""
    if doubt := clock_problem(clock):
        raise ClockInDoubt(f"{what} is not booked while the clock is wrong: {doubt}")


def approved_now(clock: Clock) -> datetime | None:
    """Return the time by which approved ends come, also while the clock is in doubt.

    None from the start of a process until a cloud has confirmed its clock: nothing can be terminated without a cloud
    that answers, and its answer shows the time.
    """
    return clock.now() if not isinstance(clock, GuardedClock) or clock.is_confirmed else None


def waits_for_clouds(clock: Clock) -> bool:
    """Whether the clouds' replies would settle what time it is: it jumped, or none has confirmed it since the start."""
    return isinstance(clock, GuardedClock) and (clock.has_jumped or not clock.is_confirmed)


def shared_now(clock: Clock) -> datetime:
    """Return the time by which replicas take turns: the database's where it is known."""
    return clock.shared_now() if isinstance(clock, GuardedClock) else clock.now()
