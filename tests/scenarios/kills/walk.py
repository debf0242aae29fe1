"""One walk from request to bill during which the process is killed once in each phase, and once more on its return."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bot.practice.model import ActionResult
from bot.slack.app import NOT_TAKEN
from ledger.kernel.states import InboxState, InstanceState, NotificationState, RequestState, SessionState
from ledger.queries.audit import Books
from tests.scenarios.kills.cuts import Aim
from tests.scenarios.kills.failpoints import Arm, Failpoint, Phase
from tests.scenarios.kills.way_back import WayBack
from tests.scenarios.processes.processes import Served, fork
from tests.support.stack import DOWN_S, LONG_DOWN_S, LOOK_S, Town

#: What people wait for comes within this time, however busy the machine is with other work.
LIMIT_S = 300.0
BILL = "the ledger agrees with the bill"
#: After so long without an effect people do the same again.
PATIENCE_S = 3.0
OPEN = frozenset({SessionState.TERMINATED, SessionState.FAILED})


class Kill(NamedTuple):
    """A failpoint, and at how many steps inside it the process dies."""

    point: Failpoint
    awaits: int

    def __str__(self) -> str:
        """Write it for the log."""
        return f"{self.point}#{self.awaits}"


@dataclass
class Walk:
    """People who insist, and a guardian that starts a dead process again."""

    place: Town
    plan: Mapping[Phase, Kill]
    arm: Arm
    arm_path: Path
    #: Which COMMITs lose their connections, where the processes reach PostgreSQL through the proxy.
    aim: Aim = field(default_factory=lambda: Aim({}))
    #: How operators go back once, if they do.
    back: WayBack | None = None
    #: The failpoints at which a process died, with the number of the await.
    killed: list[Kill] = field(default_factory=list)
    #: The invariant that does not count: of a machine that started while nobody looked, the ledger knows only roughly
    #: when its billing began, until the cloud's own bill says so.
    _but: str = ""
    _armed: Kill | None = None
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _accepting: asyncio.Task[None] | None = None
    #: Nobody reads the ledger while it is away.
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def play(self) -> None:
        """Walk to the end. AssertionError when an invariant is broken, TimeoutError when something never happens."""
        await self.start()
        tasks = [asyncio.create_task(self._guard()), asyncio.create_task(self._walk())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks += [self._accepting] if self._accepting is not None else []
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _walk(self) -> None:
        await self._phase(Phase.ASK, self._ask, lambda books: bool(self.place.screens.decidable()))
        await self._phase(Phase.APPROVE, self._approve, _runs)
        hours = (await self.books()).sessions[-1].hours
        await self._phase(Phase.EXTEND, self._extend, lambda books: books.sessions[-1].hours > hours)
        await self._phase(Phase.END, self._end, lambda books: all(one.state in OPEN for one in books.sessions))
        self.arm.clear()
        self.aim.phase(None)
        if self.back is not None:
            await self.back.check()
        await self.place.comes_to_rest(creates=len(self.place.creates), but=self._but, limit_s=LIMIT_S)

    async def _phase(
        self, phase: Phase, act: Callable[[Books], Awaitable[ActionResult | None]], is_done: Callable[[Books], object]
    ) -> None:
        """Kill once while people wait for something, and let them insist until it is so."""
        if self.back is not None:
            await self.back.begin(phase)
        self._arm(phase)
        self.aim.phase(phase)
        try:
            async with asyncio.timeout(LIMIT_S):
                while not is_done(await self.books()):
                    await self._up.wait()
                    await self._try(act)
                    await self._wait(is_done)
                if self._accepting is not None:
                    await self._accepting
        except TimeoutError:
            raise TimeoutError(f"{phase} never came to its end: {await self._states()}") from None
        self.arm.clear()

    async def _states(self) -> str:
        books = await self.books()
        rows: list[Any] = [*books.requests, *books.sessions, *books.instances]
        late = [note.kind for note in books.notifications if note.state is NotificationState.PENDING]
        dead, cut = list(map(str, self.killed)), [f"{phase} {made}" for phase, made in self.aim.made]
        return f"{[str(row.state) for row in rows]}, not shown {late}, killed at {dead}, cut {cut}"

    async def _try(self, act: Callable[[Books], Awaitable[ActionResult | None]]) -> None:
        """Do something; what was acknowledged must stay for ever."""
        books = await self.books()
        if any(row.state is InboxState.NEW for row in books.inbox):
            return  # It came through, though the person was not told.
        before, is_back = {row.key for row in books.inbox}, self._is_back
        outcome = await act(books)
        if outcome is not None and outcome.ok and outcome.response.get("text") not in NOT_TAKEN:
            new = {row.key for row in (await self.books()).inbox} - before
            assert new or self._is_back != is_back, "it was acknowledged before it was on disk"
            self.place.acknowledged |= new

    async def _wait(self, is_done: Callable[[Books], object]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not is_done(await self.books()):  # noqa: ASYNC110 # Another process's ledger tells nobody.
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return

    # ── what people do, once more when it had no effect ──────────────────────────────────────────

    async def _ask(self, books: Books) -> ActionResult | None:
        if any(one.state not in (RequestState.UNAVAILABLE, RequestState.EXPIRED) for one in books.requests):
            return None
        gpu = self.place.clouds[self.place.cloud].STAPLE
        return await self.place.ws.as_("alice").command(
            f'/gpu provision 1x{gpu} 2h clouds={self.place.cloud} for="kills"'
        )

    async def _approve(self, books: Books) -> ActionResult | None:
        waiting = [one for one in books.requests if one.state is RequestState.PENDING]
        shown = self.place.screens.decidable()
        if not waiting or not shown:
            return None
        return await self.place.ws.as_("bob").click(shown[-1], "approve:1")

    async def _extend(self, books: Books) -> ActionResult | None:
        if any(one.state is RequestState.PENDING for one in books.requests):
            return await self._approve(books)
        return await self.place.ws.as_("alice").command(f"/gpu extend {books.sessions[-1].id} 1h")

    async def _end(self, books: Books) -> ActionResult | None:
        if books.sessions[-1].state not in (SessionState.RUNNING, SessionState.PROVISIONING):
            return None
        return await self.place.ws.as_("alice").command(f"/gpu terminate {books.sessions[-1].id} now")

    # ── the process ──────────────────────────────────────────────────────────────────────────────

    def _arm(self, phase: Phase) -> None:
        self.arm.clear()
        self._armed = self.plan.get(phase)
        if self._armed is not None:
            self.arm.set(*self._armed)

    @property
    def _is_back(self) -> bool:
        """Whether an older copy is in the ledger's place, which lacks what was acknowledged since."""
        return self.back is not None and self.back.is_done

    async def books(self) -> Books:
        """Read the ledger."""
        async with self._reading:
            return await self.place.books()

    def fork(self) -> Served:
        """Start a process."""
        place = self.place
        return fork(place.nursery, place.environment, place.log, place.clock.ahead_s, dies_at=self.arm_path)

    async def start(self) -> None:
        """Start a process, and let people reach it when it serves."""
        bot = self.fork()
        self.place.bots.append(bot)
        await bot.ready()
        self.place.listen_to(bot)
        self._up.set()

    def is_down(self) -> bool:
        """Whether the process has died."""
        return not self.place.bot.runs

    async def bury(self) -> int:
        """Take leave of a process that died. Returns its exit code."""
        return await self.place.bots.pop().finished()

    async def _down_s(self) -> float:
        """Longer than what a dead process leaves behind: a lease of a check, or a create that nobody heard of."""
        rows = (await self.books()).instances
        if any(row.state is InstanceState.SENDING for row in rows):
            self._but = BILL
            return LONG_DOWN_S
        now = self.place.clock.now()
        leases = [(row.login_until - now).total_seconds() for row in rows if row.login_until is not None]
        return max([DOWN_S, *leases])

    async def _guard(self) -> None:
        """Start a process that died again, once with another failpoint in what it does first."""
        while True:
            await asyncio.sleep(LOOK_S)  # A process that is not ours tells nobody that it died.
            if not self.is_down():
                continue
            self._up.clear()
            armed, log = self._armed, self.place.bot
            code = await self.bury()
            assert code == -signal.SIGKILL, f"it ended by itself with {code}:\n{log.said()}"
            assert armed is not None
            self.killed.append(armed)
            self._armed = self.plan.get(Phase.RECOVER) if armed.point.phase is not Phase.RECOVER else None
            self.arm.clear()
            self.place.clock.travel(await self._down_s())
            await self._go_back(armed.point.phase)
            self.aim.phase(Phase.RECOVER)
            if self._armed is not None:
                self.arm.set(*self._armed)
            try:
                await self.start()
            except TimeoutError:
                if self._armed is None or not self.is_down():
                    raise  # Otherwise it died before it served, which the next look counts.

    async def _go_back(self, phase: Phase) -> None:
        if self.back is None:
            return
        await self.back.after_death(phase, self._reading)
        if self.back.is_older and self._accepting is None:
            self._but = BILL
            self._accepting = asyncio.create_task(self.back.accept(self.books))


def _runs(books: Books) -> bool:
    return bool(books.sessions) and books.sessions[-1].state is SessionState.RUNNING
