"""`kill -9` of the service inside the steps of a migration: the run moves or stays, with one copy and one trainer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState, SessionState
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from tests.services.relocation.run import LONGEST_TWO, SOURCE, TARGET, Death, Run, Work, running
from tests.support.world import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_M = MigrationStep
#: The transactions of one look at a migration: its claim, what it orders, what it stores; each dies before and after.
DEATHS = [Death(number, after) for number in (1, 2, 3) for after in (False, True)]


@dataclass
class AtEachCommit:
    """In each step of the migration the process dies before and after each transaction of a look, once each."""

    run: Run
    left: dict[MigrationStep, list[Death]] = field(default_factory=dict)

    def __call__(self, work: Work) -> Death | None:
        seen = self.run.seen
        if work is not Work.MIGRATIONS or not seen or seen[-1] in OVER:
            return None
        left = self.left.setdefault(seen[-1], list(DEATHS))
        return left.pop(0) if left else None


async def once(run: Run) -> None:
    """Each step is in the audit log once, the owner read each message once, and nothing is paid that is not used."""
    w = run.w
    steps = Counter(one.after for one in (await w.books()).events if one.kind == EventKind.MIGRATION_STEP)
    assert set(steps.values()) == {1}, steps
    texts = await run.texts()
    assert len(set(texts)) == len(texts), texts
    assert run.two_for < LONGEST_TWO
    assert max(run.writers) == 1
    requests = [run.request_id, run.target_id]
    creates = Counter(one.request_id for one in (await w.books()).instances if one.sent_at is not None)
    assert set(creates) <= set(requests)
    assert len(w.engine.creates) <= sum(creates.values()), "no create is sent twice"
    assert await w.violations() == []


async def test_killed_before_and_after_each_commit_of_each_step(w: World) -> None:
    async with running(w, hours=10) as run:
        await run.approved()
        run.dies = AtEachCommit(run)
        row = await run.over()
        assert row.step is _M.DONE, row.note
        assert run.processes.kills >= 24
        run.dies = None
        await once(run)
        assert len(await run.texts()) == 1
        assert len(w.alive()) == 1
        assert run.second.step > int(row.saved_step or 0)
        assert "Continuation context" in row.context
    await w.heal()
    assert await w.violations(healed=True) == []


def _vanishes(which: int, at: MigrationStep) -> Callable[[Run], None]:
    def trouble(run: Run) -> None:
        seen = set(run.seen)
        if at not in seen or run.__dict__.setdefault("vanished", False):
            return
        agent = run.first if which == SOURCE else run.second
        key = next(key for key, one in run.w.engine.nodes.running.items() if one is agent)
        run.w.clouds["vast"].disturb(key.partition("/")[2], "vanish")
        run.__dict__["vanished"] = True

    return trouble


def _refuses(*words: str) -> Callable[[Run], None]:
    return lambda run: run.refuses.update(words)


def _store_down(run: Run) -> None:
    run.shelf.down = _M.PROVISIONED in run.seen


#: What goes wrong → whether the run then is on its new machine.
TROUBLES: dict[str, tuple[Callable[[Run], None], bool]] = {
    "nothing": (lambda run: None, True),
    "source lost when the target is there": (_vanishes(SOURCE, _M.PROVISIONED), True),
    "source lost when it was asked to pause": (_vanishes(SOURCE, _M.READY), True),
    "source lost when it paused": (_vanishes(SOURCE, _M.VERIFIED), True),
    "source lost when the target may start": (_vanishes(SOURCE, _M.PRESENT), True),
    "target lost when it paused": (_vanishes(TARGET, _M.VERIFIED), False),
    "target lost when it may start": (_vanishes(TARGET, _M.PRESENT), False),
    "target never boots": (lambda run: None, False),
    "stale checkpoint": (_refuses("save"), False),
    "no pause": (_refuses("pause"), False),
    "store down": (_store_down, False),
    "target does not start": (_refuses("start"), False),
    "target does not train": (_refuses("train"), False),
}


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_killed_anywhere_while_something_else_goes_wrong(w: World, trouble: str) -> None:
    w.tune(replacements=0)
    chance = random.Random(trouble)
    happens, moves = TROUBLES[trouble]

    def dies(work: Work) -> Death | None:
        most = 2 if work is Work.MIGRATIONS else 6
        return Death(chance.randint(1, most), chance.random() < 0.5) if chance.random() < 0.4 else None

    async with running(w, hours=12) as run:
        if trouble == "target never boots":
            w.arm("never_boots", "vast", times=None)
        await run.approved()
        run.dies, run.on_tick = dies, lambda: happens(run)
        row = await run.over()
        run.dies = run.on_tick = None
        if row.step is _M.FAILED and moves:  # It died while the create was on its way, so nobody may send it again.
            assert (await run.row(TARGET)).state is InstanceState.TOMBSTONE
            moves = False
        assert row.step is (_M.DONE if moves else _M.FAILED), row.note
        for _ in range(8):
            await run.tick()
        assert run.processes.kills >= 3
        await once(run)
        assert await run.texts()
        assert len(w.alive()) == 1
        source, target = await run.sessions()
        on = target if moves else source
        assert on is not None
        assert on.state is SessionState.RUNNING
        assert [one.job for one in run.agents] == ["running"]
        assert (run.agents[0] is run.first) is not moves
