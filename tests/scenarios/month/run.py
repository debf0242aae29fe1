"""One run: plan the days, let them happen, let everything come to its end without faults, and judge."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from bot.rules.billing.true_up import SETTLED
from tests.scenarios.month.faults import Injector
from tests.scenarios.month.people import People
from tests.scenarios.month.shares import SHARE
from tests.scenarios.month.town import Month, month
from tests.scenarios.month.verdict import Verdict, judge, table

#: Longer than the longest session and the wait for a decision; then the clouds' bills are whole, after two days more.
DRAIN = timedelta(hours=20) + SETTLED


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens. `hours_max` bounds what people ask for."""

    days: float = 30
    sessions_a_day: int = 40
    clouds: tuple[str, ...] = tuple(SHARE)
    hours_max: int = 12
    #: How many times as often as its table says faults happen.
    faults: float = 1.0
    drain: timedelta = DRAIN
    #: Whether people read in the Slack stand-in, through the product's own door.
    slack: bool = False


async def play(db_url: str, seed: int, size: Size) -> tuple[Verdict, str]:
    """The verdict, and the table that people read."""
    with _quiet():
        async with month(db_url, seed, size.clouds, in_slack=size.slack) as town:
            injector = Injector(town, size.faults)
            people = People(town, injector, size.hours_max)
            town.board.on_shown = people.read
            injector.draw_rules()
            await _days(town, people, injector, size)
            injector.heal()
            await town.run(town.now + size.drain)
            verdict = await judge(town, people, injector)
            return verdict, table(verdict, town, injector)


async def _days(town: Month, people: People, injector: Injector, size: Size) -> None:
    start = town.now
    end = start + timedelta(days=size.days)
    while (morning := town.now) < end:
        evening = min(morning + timedelta(days=1), end)
        people.day(morning, evening, size.clouds, size.sessions_a_day)
        injector.day(morning, evening)
        await town.run(evening)


@contextmanager
def _quiet() -> Iterator[None]:
    """A month logs millions of lines, and a test keeps them all."""
    root = logging.getLogger()
    before = root.level, logging.getLogger("httpx").level
    root.setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before[0])
        logging.getLogger("httpx").setLevel(before[1])
