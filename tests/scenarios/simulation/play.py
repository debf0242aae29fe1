"""Play one seed: people and faults, then nothing but rest, and the invariants all the way."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random

from sqlalchemy.exc import SAWarning

from bot.rules.billing.true_up import SETTLED
from ledger.kernel.ids import Ids, ids_from
from ledger.queries.audit import Books, values_of
from tests.scenarios.month.faults import FACTORS
from tests.scenarios.simulation.loop import SimulatedClock, VirtualLoop
from tests.scenarios.simulation.people import People
from tests.scenarios.simulation.place import Place, place
from tests.scenarios.simulation.troubles import bringing, ends_only, keeping, previous_release, restored, restoring
from tests.scenarios.simulation.troubles.watchdogs import Watchdogs
from tests.support.databases import copy_sqlite

TROUBLE_S, REST_S, REST_STEP_S = 2700.0, 16_200.0, 1800.0
#: By then so many processes must have been killed: one is killed at once, or as soon as one works, if there were fewer.
KILLED_BY_S = {700.0: 1, 1150.0: 2, 1600.0: 3}
KILL_AGAIN_S = 120.0
#: The invariants are read whole, so they are checked at every so many steps, and after a crash.
CHECKED_EVERY = 90
#: How often a kill or a pause waits for one of the failpoints: the functions in which a step can be half done.
AIMED = 0.7
FAILPOINTS = (
    "_commit_to_send",
    "_commit_to_send",
    "_create",
    "_create",
    "_refused",
    "_resolve",
    "give_up",
    "_terminate",
    "_absent",
    "_present",
    "note_orphans",
    "_deadline",
    "_deliver",
    "_accrue_together",
    "decide",
    "switch",
    "_quote",
)


@dataclass(frozen=True)
class Outcome:
    """What became of a seed."""

    seed: int
    violations: list[str]
    digest: str
    history: list[str] = field(repr=False)
    kills: int = 0
    sessions: int = 0
    steps: int = 0
    journal: list[str] = field(default_factory=list, repr=False)
    cpu_s: float = 0.0


def play(seed: int, migrated: Path, folder: Path, *, every: int = CHECKED_EVERY) -> Outcome:
    """Play a seed on a fresh copy of the migrated ledger in `folder`."""
    clock = SimulatedClock()
    began_s = time.process_time()
    with ExitStack() as stack:
        # Each seed has a folder of its own, because a killed process leaves its write-ahead log.
        url = copy_sqlite(migrated, Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder))))
        stack.enter_context(quiet())
        stack.enter_context(ids_from(Ids(Random(f"{seed} ids"))))
        run = stack.enter_context(asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)))
        outcome = run.run(_play(seed, url, clock, every))
    return replace(outcome, cpu_s=time.process_time() - began_s)


async def _play(seed: int, url: str, clock: SimulatedClock, every: int) -> Outcome:
    async with place(url, seed, clock) as here:
        people = People(here)
        people.plan()
        _trouble(here)
        bringing.plan(here)
        watchdogs = Watchdogs(here)
        restoring.plan(here, watchdogs)
        previous_release.plan(here, watchdogs)
        end = here.now + timedelta(seconds=TROUBLE_S)
        while here.now < end and not here.violations:
            await here.run(end, steps=every)
            here.violations += await here.check()
        keeps_rules = not here.violations
        if keeps_rules:
            await _rest(here)
        books = await here.books()
        if keeps_rules:
            here.violations += here.bill_differences(books) + here.broken_promises(books)
            here.violations += keeping.broken(keeping.Seen(here, here.troubles, here.now), books)
            here.violations += restored.broken(here.restored, here, here.troubles, books)
            here.violations += ends_only.broken(
                here.ends_only, here, here.troubles, books, is_restored=here.restored is not None
            )
        sessions = here.rented
        return Outcome(
            seed, here.violations, digest(books), here.history, here.kills, sessions, here.steps, journal(books)
        )


async def _rest(here: Place) -> None:
    """No more faults: everything must come to its end."""
    here.note("everything works again")
    here.calm()
    end = here.now + timedelta(seconds=REST_S)
    while here.now < end and not here.violations:
        await here.run(here.now + timedelta(seconds=REST_STEP_S))
        if not here.alive() and not here.expected and not await here.check(healed=True):
            break
        here.violations += await here.check()
    else:
        here.violations += await here.check(healed=True)
    # Two days pass at once: everything rests, and the clouds' bills are whole.
    here.clock.advance(SETTLED + timedelta(hours=2))
    await here.run(here.now + timedelta(hours=1))
    await here.answer_bill_pages()


def _trouble(here: Place) -> None:
    """Put the seed's faults on the agenda."""
    random, profile = here.random, here.profile
    for _ in range(profile.kills):
        here.after(random.uniform(0, TROUBLE_S), partial(_kill, here))
    for seconds, kills in KILLED_BY_S.items():
        here.after(seconds, partial(_kill_if_fewer, here, kills))
    for _ in range(profile.pauses):
        here.after(random.uniform(0, TROUBLE_S), partial(_pause, here))
    for _ in range(profile.clock_steps):
        here.after(random.uniform(0, TROUBLE_S), partial(_step_clock, here))
    for _ in range(profile.slack_outages):
        here.after(random.uniform(0, TROUBLE_S), partial(_mute, here))
    for _ in range(profile.dark):
        here.after(random.uniform(0, TROUBLE_S), partial(_darken, here))
    for _ in range(profile.repricings):
        here.after(random.uniform(0, TROUBLE_S), partial(_reprice, here))
    for one in profile.disturbances:
        here.after(random.uniform(300, TROUBLE_S), partial(_disturb, here, one.cloud, one.what, one.undone_by))


async def _kill(here: Place) -> None:
    process = here.a_process()
    if process is None:
        return
    if here.random.random() < AIMED:
        process.kill_after(here.random.randint(1, 12), here.random.choice(FAILPOINTS))
    else:
        process.kill_after(here.random.choice((1, 5, 20, 100, 300)) * here.random.randint(1, 5))


async def _kill_if_fewer(here: Place, kills: int, *, is_again: bool = False) -> None:
    """A kill that waits for a failpoint may wait in vain, so the next one waits for a few steps only."""
    if here.kills >= kills or here.weather.is_calm:
        return
    process = here.a_process()
    if process is not None and not is_again and here.random.random() < AIMED:
        process.kill_after(here.random.randint(1, 3), here.random.choice(FAILPOINTS))
    elif process is not None:
        process.kill_after(here.random.randint(1, 5 if is_again else 50))
    here.after(KILL_AGAIN_S, partial(_kill_if_fewer, here, kills, is_again=True))


async def _pause(here: Place) -> None:
    process = here.a_process()
    if process is None:
        return
    if here.random.random() < AIMED:
        process.pause_after(here.random.randint(1, 12), here.random.choice(FAILPOINTS))
    else:
        process.pause_after(here.random.randint(1, 600))
    seconds = here.random.choice((30, 200, 900, 1500))
    here.note(f"process {process.number} is to stand still for {seconds} s")

    async def resume() -> None:
        process.resume()

    here.after(seconds, resume)


async def _step_clock(here: Place) -> None:
    process = here.a_process()
    if process is None:
        return
    process.machine.off = timedelta(hours=here.random.choice((-24, -1, 1, 24 * 365)))
    here.note(f"the clock of process {process.number} is {process.machine.off} off")

    async def right() -> None:
        process.machine.off = timedelta()

    here.after(here.random.uniform(60, 1800), right)


async def _mute(here: Place) -> None:
    here.board.down = True
    here.note("Slack is down")

    async def unmute() -> None:
        here.board.down = False

    here.after(here.random.uniform(60, 3600), unmute)


async def _darken(here: Place) -> None:
    cloud = here.random.choice(here.profile.clouds)
    here.weather.dark[cloud] = here.now + timedelta(seconds=here.random.uniform(60, 2400))
    here.note(f"{cloud} cannot be reached until {here.weather.dark[cloud]:%H:%M:%S}")


async def _reprice(here: Place) -> None:
    cloud = here.random.choice(here.profile.clouds)
    here.clouds[cloud].reprice("*", here.decimal(FACTORS))


async def _disturb(here: Place, cloud: str, what: str, undone_by: str) -> None:
    alive = [one for one in here.clouds[cloud].instances() if one.alive and one.cloud == cloud]
    if not alive:
        return
    ref = here.random.choice(alive).ref
    here.disturb(cloud, ref, what, undone_by)
    if what == "vanish":
        books = await here.books()
        here.unseen |= {ref} - {row.ref for row in books.instances} - {orphan.ref for orphan in books.orphans}
    if undone_by:
        here.after(here.random.uniform(60, 1200), partial(here.make_good, cloud, ref))


def journal(books: Books) -> list[str]:
    """Everything that the ledger says has happened, a line each."""
    return [
        f"{one.at:%d %H:%M:%S.%f} {one.kind} {one.subject} {one.before}>{one.after} {one.actor}: {one.reason}"
        for one in books.events
    ]


def digest(books: Books) -> str:
    """One number for the whole history: the journal, the entries and the instances of the ledger."""
    lines = [repr(sorted(values_of(row).items())) for row in (*books.events, *books.entries, *books.instances)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@contextmanager
def quiet() -> Iterator[None]:
    """A seed logs thousands of lines about what went wrong, as it should."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            # A killed process gives no connection back, and does not await what it was about to.
            warnings.simplefilter("ignore", SAWarning)
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
    finally:
        logging.disable(before)
