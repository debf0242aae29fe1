"""Copies of random age, restored under a team that requests, extends and ends: nothing twice, and nothing early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

import pytest

from bot.services.instances.adoption import Adopt, adopt_orphan
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from tests.services.recovery.restoring import Copies, Service, lose_records, restarted
from tests.support.world import ALICE, BOB, CAROL, CHANNEL, DAVE, World, facts

pytestmark = pytest.mark.timeout(600)  # Six hours of a team on a busy machine.
SEEDS, QUICK = range(20), (0, 3)
LONGEST_S = 6 * 3600.0
CLOUDS = ("runpod", "vast", "lambda")
#: Every so many restores lose what was recorded beside the ledger, too.
LOST_EVERY = 4
ALIVE = (SessionState.PROVISIONING, SessionState.RUNNING)


@dataclass
class Team:
    """People who use one service as chance has it."""

    service: Service
    random: Random
    asked: list[str] = field(default_factory=list)

    @property
    def w(self) -> World:
        return self.service.w

    async def work(self, seconds: float) -> None:
        """Let so much time pass, with something done every few minutes."""
        end = self.w.clock.now() + timedelta(seconds=seconds)
        while self.w.clock.now() < end:
            await self._act()
            left_s = (end - self.w.clock.now()).total_seconds()
            await self.service.run(min(left_s, self.random.uniform(300, 1500)), 600)

    async def _act(self) -> None:
        act = self.random.choice((self._request, self._request, self._extend, self._end, self._wait))
        await act()
        await self.service.dog.look()  # A real one looks every five seconds.

    async def _wait(self) -> None:
        pass

    async def _request(self) -> None:
        actor, cloud = self.random.choice((ALICE, CAROL, DAVE)), self.random.choice(CLOUDS)
        reply = await self.w.ask(actor, candidates=(cloud,), hours=Decimal(self.random.choice((1, 2, 3))))
        if not reply.ok:
            return
        request_id = str(reply.data["request_id"])
        await self.w.settle()
        if (await self.w.view(request_id)).request.state is RequestState.PENDING:
            assert (await self.w.decide(request_id)).code == "approved"
            self.asked.append(request_id)

    async def _session(self) -> str | None:
        sessions = {one: (await self.w.view(one)).session for one in self.asked}
        running = [one for one, session in sessions.items() if session and session.state is SessionState.RUNNING]
        return self.random.choice(running) if running else None

    async def _extend(self) -> None:
        request_id = await self._session()
        if (
            request_id is None
            or (await self.w.more(request_id, self.random.choice(("1", "2")), BOB)).code != "extension_requested"
        ):
            return
        await self.w.settle()
        books = await self.w.books()
        waiting = [one for one in books.requests if one.parent_id == request_id and one.state is RequestState.PENDING]
        for one in waiting:
            await self.w.decide(one.id, CAROL)

    async def _end(self) -> None:
        request_id = await self._session()
        if request_id is not None:
            assert (await self.w.end(request_id, BOB)).ok

    async def ends(self) -> dict[str, datetime]:
        """The approved end of each machine that runs, by its name."""
        books = await self.w.books()
        sessions = {one.id: one for one in books.sessions if one.state in ALIVE}
        rows = [row for row in books.instances if row.state is InstanceState.LIVE and row.session_id in sessions]
        ends = {row.name: sessions[row.session_id].deadline for row in rows}
        return {name: end for name, end in ends.items() if end is not None}


async def _lives(later: Service, ends: Mapping[str, datetime], seconds: float) -> None:
    """Let time pass: nothing may end before its approved end."""
    stop = later.w.clock.now() + timedelta(seconds=seconds)
    while later.w.clock.now() < stop:
        await later.run(240, 240)
        early = {name for name, end in ends.items() if end > later.w.clock.now()} - set(later.w.alive())
        assert not early, f"{early} ended early at {later.w.clock.now()}"


async def _adopt_all(later: Service, ends: Mapping[str, datetime]) -> None:
    """An operator adopts every instance that the ledger lacks until the end that was named, or for an hour."""
    refs = {one.ref: str(one.name) for one in later.w.instances()}
    for one in (await later.w.books()).orphans:
        if one.state is OrphanState.QUARANTINED:
            left_s = (ends.get(refs[one.ref], later.w.clock.now()) - later.w.clock.now()).total_seconds()
            hours = Decimal(int(left_s // 36) + 1) / 100 if left_s > 0 else Decimal(1)
            command = Adopt(one.id, hours, facts(BOB), ALICE, "it trains", CHANNEL)
            assert (await adopt_orphan(later.w.ctx, command)).code == "adopted"


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SEEDS])
async def test_a_restored_copy_buys_nothing_twice_and_ends_nothing_early(
    running: Service, copies: Copies, seed: int
) -> None:
    random = Random(seed)
    age_s = 0.0 if seed == 0 else random.uniform(0, LONGEST_S)
    team = Team(running, random)
    await team.work(random.uniform(300, 2400))
    copy = await copies.take(*running.databases)
    copied = await running.w.books()
    await team.work(age_s)
    ends, events = await team.ends(), len((await running.w.books()).events)
    creates = len(running.w.engine.creates)
    is_lost = seed % LOST_EVERY == LOST_EVERY - 1
    if is_lost:
        lose_records(running.folder)
    async with restarted(running, copy) as later:
        w, began = later.w, later.w.clock.now()
        known = await Team(later, random).ends()
        # Without a record only what people can't have extended is certain: what has ended by the copy waits for pages.
        there = set(w.alive())
        overdue = {name: began + timedelta(seconds=1700) for name in there & known.keys() if known[name] <= began}
        await _lives(later, overdue if is_lost else ends, 1200)
        assert len(w.engine.creates) == creates
        said = await later.differences()
        assert bool(said) is (bool(copied.requests) if is_lost else events > len(copied.events))
        if said and not is_lost:
            moved = [name for name, end in ends.items() if name in known and end > known[name]]
            assert len([text for text in said if "; the ledger had" in text]) >= len(moved)
            assert (await later.accept()).ok
        elif said:
            assert (await later.accept()).ok
        await _adopt_all(later, ends)
        before = len(w.engine.creates)
        assert before == creates
        request_id = await w.approved(CAROL, candidates=("vast",), hours=Decimal(1))
        await later.run(60, 15)
        assert [row.state for row in (await w.view(request_id)).instances][-1] is InstanceState.LIVE
        await _lives(later, {} if is_lost else ends, 1800)
        own = {row.name for row in (await w.view(request_id)).instances}
        assert {str(one.name) for one in w.engine.creates[creates:]} <= own
        assert await later.violations() == []
