"""Start the previous release in the middle of a seed: it does not know the ledger's schema, so it serves ends only.

Somebody goes back from an upgrade whose schema the earlier release can't read. Its process looks at what must end, and
does nothing else; it may be killed as any other. Then the newer release comes back. Where a seed has several replicas,
the others may work on meanwhile, or stop as well.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from bot.rules.jobs.stored import checkpoint_of
from ledger.queries.ends import forget_replica, must_end
from migrations import run as schema
from tests.scenarios.processes.way_back import LATER, set_schema
from tests.scenarios.simulation.place import Place
from tests.scenarios.simulation.process import Interrupted, Process
from tests.scenarios.simulation.troubles.ends_only import EndsOnly
from tests.scenarios.simulation.troubles.watchdogs import OPERATORS, WATCHES_S, Watchdogs
from tests.support.clock import MachineClock

#: Its name among what a seed expects.
PREVIOUS = "previous release"
#: Of 100 seeds, in so many the previous release starts.
STARTED = 25.0
AT_S = (500.0, 2600.0)
#: How long nothing runs before it and after it, and how long it runs.
DOWN_S = (0.0, 5.0, 300.0)
LASTS_S = (90.0, 900.0, 2400.0, 4500.0)
#: How often it looks, which is every five seconds in production, and how seldom it is killed meanwhile.
LOOKS_S = 20.0
KILLED = 0.3
#: How many of its steps it does before.
KILLED_AFTER = (1, 400)
WHY = "the ledger has another schema"


def plan(here: Place, watchdogs: Watchdogs) -> None:
    """Put the start on the agenda, if the seed has one. It has a stream of its own: other seeds stay as they are."""
    random = Random(f"{here.seed} previous release")
    if random.uniform(0, 100) >= STARTED:
        return
    here.expected.add(PREVIOUS)
    here.after(random.uniform(*AT_S), PreviousRelease(here, random, watchdogs).stop)


@dataclass
class PreviousRelease:
    """The one time of a seed in which it runs."""

    here: Place
    random: Random
    watchdogs: Watchdogs
    starts: int = 0
    #: The machines whose processes the newer release starts again afterwards.
    stopped: list[tuple[int, MachineClock]] = field(default_factory=list)
    #: What the ledger said of its schema before.
    _schema: schema.SchemaState = field(default_factory=partial(schema.SchemaState, None))

    @property
    def time(self) -> EndsOnly:
        """What it did."""
        assert self.here.ends_only is not None
        return self.here.ends_only

    async def stop(self) -> None:
        """Stop the newer release once each of its processes works: all of them, or one while the others go on."""
        here = self.here
        there = list(here.processes)
        if len(there) < len(here.machines) or not all([await self.watchdogs.look(each) for each in there]):
            here.after(WATCHES_S / 2, self.stop)
            return
        leaving = there if len(there) == 1 or self.random.random() < 0.5 else [there[-1]]
        is_clean = self.random.random() < 0.5
        if is_clean:
            for each in leaving:
                with suppress(Interrupted):
                    await each.do(_sign_off(self.watchdogs, each))
        async with here.ledger.read() as tx:
            rows = tuple(await must_end(tx, checkpoint_of))
        graces = frozenset(grace.id for grace in (await here.books()).graces if grace.ended_at is None)
        self.stopped = [(each.number, each.machine) for each in leaving]
        if len(leaving) < len(there):
            self.watchdogs.part(leaving[-1].number)
        here.ends_only = EndsOnly(here.now, len(leaving) < len(there), rows, graces, may_doubt=len(there) > 1)
        await here.kill(*leaving)
        self._schema = await set_schema(here.ledger, LATER)
        down_s = self.random.choice(DOWN_S)
        here.note(f"{len(leaving)} of {len(there)} processes {'stop' if is_clean else 'are killed'} for {down_s:.0f} s")
        here.after(down_s, self.start)
        here.after(down_s + self.random.choice(LASTS_S), self.come_back)
        if self.time.others:
            await self.watchdogs.watch()

    async def start(self) -> None:
        """Start the previous release. Its own check refuses the ledger."""
        here, (number, machine) = self.here, self.stopped[-1]
        if self.time.over_at is not None:
            return
        process = self.watchdogs.refused = here.begin(number, machine)
        self.starts += 1
        try:
            await process.do(schema.require_newest(process.life.ctx.db))
            self.time.wrong.append("ends only: a release works on a schema that it does not know")
        except schema.SchemaError:
            self.watchdogs.of(process, f"previous-{self.starts}").refused = WHY
        here.note(f"the previous release starts: {WHY}")
        self.time.began.append(here.now)
        if self.starts == 1 and self.random.random() < KILLED:
            process.kill_after(self.random.randint(*KILLED_AFTER))
        await self.look(process)

    async def look(self, process: Process) -> None:
        """Let it look at what must end, until it is killed or the newer release comes back."""
        here, time = self.here, self.time
        if time.over_at is not None or process is not self.watchdogs.refused:
            return
        since = len(self.watchdogs.said)
        works = await self.watchdogs.look(process)
        time.pages += [(at, said) for at, to, said in self.watchdogs.said[since:] if to == OPERATORS]
        time.was_dark = time.was_dark or any(until > here.now for until in here.weather.dark.values())
        await self._note_orders(process)
        if works:
            here.after(LOOKS_S, partial(self.look, process))
            return
        await process.bury()
        self.watchdogs.refused = None
        down_s = self.random.choice(DOWN_S)
        here.note(f"the previous release died after {process.steps} steps, and is away for {down_s:.0f} s")
        here.after(down_s, self.start)

    async def _note_orders(self, process: Process) -> None:
        """Note what it sent since the last look, and whether the ledger knew a later end."""
        sent = self.watchdogs.of(process).copy.sent
        for order in sent:
            if (order.instance_id, order.order) in self.time.sent or not order.from_copy:
                continue
            self.time.sent[order.instance_id, order.order] = order
            async with self.here.ledger.read() as tx:
                row = next(iter(await must_end(tx, checkpoint_of, order.instance_id)), None)
            self.here.note(f"the previous release sent a {order.order} for {order.instance_id}")
            until = row.deadline if row is not None and not row.ending else None
            if until is not None and until > self.here.now and self.time.doubts < 2:
                self.time.wrong.append(f"ends only: {order.instance_id} ended before its end, {until:%H:%M:%S}")

    async def come_back(self) -> None:
        """Stop the previous release, and start the newer one again."""
        here, process = self.here, self.watchdogs.refused
        if process is not None:
            process.cut()
            await process.bury()
        self.watchdogs.refused = None
        self.time.over_at = here.now
        self.time.befalls(here.troubles)
        await set_schema(here.ledger, self._schema)
        down_s = self.random.choice(DOWN_S)
        here.note(f"the newer release comes back in {down_s:.0f} s")
        for number, machine in self.stopped:
            here.after(down_s, partial(here.start, number, machine))
        here.after(down_s, self._is_back)

    async def _is_back(self) -> None:
        self.here.expected.discard(PREVIOUS)
        await self.watchdogs.watch()


async def _sign_off(watchdogs: Watchdogs, process: Process) -> None:
    dog = watchdogs.of(process)
    async with dog.ctx.db.write() as tx:
        await forget_replica(tx, dog.me)
