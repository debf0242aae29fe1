"""Two programs call every operation with generated arguments: no 5xx, and neither reads or changes what is the other's.

`make test-all` sends 10,000 calls, half of them on each database (about six minutes on one core):
`.venv/bin/python -m pytest --all tests/api/generated`
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from random import Random
from typing import Any

import pytest

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.rules.access.scopes import PLAIN, Scope
from bot.rules.budgets.budget import Period
from bot.services.budgets import setting
from bot.services.plans import run_history
from bot.services.runtime.event_order import number_all
from bot.services.webhooks import delivery
from bot.wire import variables
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, RequestState
from tests.api.door import ADA, Door, opened
from tests.api.generated.calls import OPERATIONS, Call, Caller, Things, send, without_ids
from tests.api.generated.ownership import Judge, read_rows
from tests.support.agents import listening
from tests.support.clock import SteppedClock
from tests.support.world import BOB, World, checked_world

#: Two programs that different people answer for. Whatever the one writes of itself in the set-up has its name in it.
PROGRAMS = {"atlas-seven": "operator:ada", "hermes-nine": "operator:ben"}
SCOPES = (*PLAIN, Scope.METRICS_READ, Scope.LEDGER_WRITE)
PATIENT = ApiSettings("C0GPU", calls_per_minute=10**6, wrong_keys_per_minute=10**6, checkins_per_minute=10**6)
ROUND, CALLS = 50, 500
SEEDS = range(10)
RUN = ("model=1B", "tokens=30M", "seq=2048", "batch=64")
#: What only the key of a person may do; a program's is refused.
FOR_PEOPLE = {Scope.APPROVALS_WRITE, Scope.ADMIN}
#: Successes of these need what nobody brings about here: a machine with an API of its own.
NEVER = {"POST /api/v1/sessions/{session}/token"}


@dataclass
class Town:
    """One service, its two programs and their judge."""

    w: World
    door: Door
    app: Any
    callers: dict[str, Caller]
    judge: Judge
    statuses: Counter[tuple[str, int]]
    broken: list[str]

    async def live(self) -> None:
        """Between two rounds: what was asked for happens, and each program has a session, a request and a webhook."""
        w = self.w
        w.clock.advance(20)
        await w.settle()
        for caller in self.callers.values():
            await self._provide(caller)
        await number_all(w.ctx)
        await delivery.fan_out(w.ctx)
        await delivery.deliver_due(w.ctx)
        await self.refresh()

    async def _provide(self, caller: Caller) -> None:
        books, actor = await self.w.books(), f"consumer:{caller.name}"
        own = {one.id for one in books.requests if one.requester == actor}
        live = [one for one in books.instances if one.request_id in own and one.state is InstanceState.LIVE]
        pending = [one for one in books.requests if one.id in own and one.state is RequestState.PENDING]
        for row in pending[3:]:
            await self.door.call("POST", f"/requests/{row.id}/cancel", caller.token, json={})
        if not live:
            await self._begin_session(caller)
        if not pending:
            await self.door.asked(caller.token, reason=f"private plan of {caller.name}")
        if len((await self.door.call("GET", "/webhooks", caller.token)).json()) < 2:
            url = f"http://127.0.0.1:9/{caller.name}"
            made = await self.door.call("POST", "/webhooks", caller.token, json={"url": url, "note": caller.name})
            assert made.status_code == 201, made.text
            self.judge.private[actor].append(made.json()["secret"])

    async def _begin_session(self, caller: Caller) -> None:
        """A session whose machine runs, and whose speed an operator recorded."""
        w = self.w
        held = await self.door.asked(caller.token, candidates=["vast"], reason=f"private work of {caller.name}")
        assert (await w.decide(held, BOB)).ok
        await w.settle()
        await w.run(40, 20)
        session = next(one for one in (await w.books()).sessions if one.request_id == held)
        rate, now = Decimal(9000), w.clock.now()
        ran = await run_history.record_run(w.ctx.db, RUN, session.gpu, 1, rate, ADA, now, session=session)
        assert ran.ok, ran

    async def refresh(self) -> None:
        """Each program learns what there is now, and the judge what is whose."""
        known = await self.judge.look()
        for name, caller in self.callers.items():
            (other,) = [one for one in self.callers if one != name]
            agents = self.w.engine.nodes.running.values()
            tokens = [one.env.get(variables.TOKEN, "") for one in agents]
            mine = known[f"consumer:{name}"]
            caller.node_token = next((one for one in tokens if f"ins_{one.split('_')[1]}" in mine.ids), "")
            caller.knows(mine.things, known[f"consumer:{other}"].things, [other, f"consumer:{other}"])

    async def send(self, name: str, call: Call, rng: Random) -> None:
        """Send one call and judge it; a call that names another's thing is sent again with an id that never was."""
        answer = await send(self.app, call)
        self.statuses[call.operation, answer.status] += 1
        if answer.status >= 500 or not answer.status:
            self.broken.append(f"{answer.status}: {call} {answer.text}")
        await self.judge.judge(f"consumer:{name}", call, answer)
        if call.probe:
            twin = call.twin(rng)
            other = await send(self.app, twin)
            self.statuses[call.operation, other.status] += 1
            if without_ids(answer, call.probe) != without_ids(other, twin.probe):
                self.judge.found.append(f"{name} learned that {call.probe} exists: {answer} {other}")


async def moved_in(w: World, door: Door, rng: Random) -> Town:
    """Two programs with keys and budgets."""
    numbers = count()
    tokens = {name: await door.key(name, owner, scopes=SCOPES) for name, owner in PROGRAMS.items()}
    callers = {name: Caller(rng, name, token, numbers) for name, token in tokens.items()}
    for name in PROGRAMS:
        made = await setting.put(w.ctx, ADA, f"consumer:{name}", Period.TOTAL, Decimal(5000), f"of {name}")
        assert made.ok, made
    private = {f"consumer:{name}": [name, token.split("_", 2)[2]] for name, token in tokens.items()}
    town = Town(w, door, build_api(Dependencies(w.ctx, PATIENT), {}), callers, Judge(w.ctx.db, private), Counter(), [])
    town.judge.watch()
    await town.live()
    return town


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_error_of_ours_and_no_crossing(db: Database, clock: SteppedClock, seed: int) -> None:
    rng = Random(seed)
    async with checked_world(db, clock) as w, listening(w):
        w.tune(webhook_networks=("127.0.0.1/32",), max_open_requests_per_user=8)
        async with opened(w) as door:
            town = await moved_in(w, door, rng)
            operations: list[Any] = []
            while town.statuses.total() < CALLS:
                if town.statuses:
                    await town.live()
                for _ in range(ROUND):
                    operations = operations or rng.sample(OPERATIONS, len(OPERATIONS))
                    name = rng.choice(list(PROGRAMS))
                    await town.send(name, town.callers[name].call(*operations.pop()), rng)
            assert town.broken == []
            assert town.judge.found == []
            await _crosses_nothing_at_the_end(town)
            _was_worth_it(town, CALLS)


async def _crosses_nothing_at_the_end(town: Town) -> None:
    """No webhook of the one was sent an event of the other."""
    await town.live()
    known = await town.judge.look()
    rows = await read_rows(town.w.ctx.db)
    subjects = {row.id: row.subject for row in rows["events"]}
    for row in rows["webhook_deliveries"]:
        (whose,) = [one for one in known.values() if row.webhook_id in one.ids]
        assert row.kind == "webhook.test" or subjects[row.event_id] in whose.ids, row


def _was_worth_it(town: Town, calls: int) -> None:
    """Every operation was called; those that a program may call succeeded and were refused; much was written."""
    called = {operation for operation, _ in town.statuses}
    assert called == {f"{method} {path}" for method, path, _ in OPERATIONS}
    fine = {operation for operation, status in town.statuses if 200 <= status < 300}
    allowed = {f"{method} {path}" for method, path, one in OPERATIONS if one.get("x-scope") not in FOR_PEOPLE}
    assert len(fine) > len(allowed) / 2, sorted(allowed - fine)
    assert not fine - allowed
    assert town.judge.compared > calls / 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20, 24))
async def test_a_person_who_may_do_everything_gets_no_error_of_ours(
    db: Database, clock: SteppedClock, seed: int
) -> None:
    """Routes for approvers and administrators are refused to programs before their arguments are looked at."""
    rng, scopes = Random(seed), tuple(Scope)
    async with checked_world(db, clock) as w, listening(w):
        w.tune(webhook_networks=("127.0.0.1/32",), approvers=(BOB.id, "operator:root"), break_glass=("operator:root",))
        async with opened(w) as door:
            town = await moved_in(w, door, rng)
            root = Caller(rng, "operator:root", await door.key("operator:root", scopes=scopes), count())
            while town.statuses.total() < CALLS:
                w.clock.advance(20)
                await w.settle()
                known = await town.judge.look()
                ids: dict[str, list[str]] = {}
                for one in known.values():
                    for parameter, found in one.things.ids.items():
                        ids.setdefault(parameter, []).extend(found)
                root.knows(Things(ids), Things(), list(known))
                for operation in rng.sample(OPERATIONS, len(OPERATIONS)):
                    call = root.call(*operation)
                    answer = await send(town.app, call)
                    town.statuses[call.operation, answer.status] += 1
                    if answer.status >= 500 and answer.status != 503:
                        town.broken.append(f"{answer.status}: {call} {answer.text}")
            assert town.broken == []
            fine = {operation for operation, status in town.statuses if 200 <= status < 300}
            assert {"GET /api/v1/ledger/entries", "POST /api/v1/recover"} <= fine
            assert len(fine) > 25


async def test_the_judge_sees_a_crossing(sqlite_db: Database, clock: SteppedClock) -> None:
    """What one program does with its own things is a crossing where it is put down to the other."""
    rng = Random(1)
    async with checked_world(sqlite_db, clock) as w, listening(w):
        w.tune(webhook_networks=("127.0.0.1/32",))
        async with opened(w) as door:
            town = await moved_in(w, door, rng)
            hermes = town.callers["hermes-nine"]
            headers = ((b"authorization", f"Bearer {hermes.token}".encode()),)
            session = next(one for one in hermes.own.ids["session"] if one.startswith("ses_"))
            for method, path, reads, writes in (
                ("GET", f"/api/v1/sessions/{session}", 1, 0),
                ("GET", "/api/v1/webhooks", 1, 0),
                ("GET", "/api/v1/profiles", 0, 0),
                ("DELETE", "/api/v1/ssh-keys", 0, 0),
                ("DELETE", f"/api/v1/sessions/{session}", 0, 1),
            ):
                town.judge.found.clear()
                await town.send("atlas-seven", Call(f"{method} {path}", method, path, headers=headers), rng)
                said = [one.split(" ")[1] for one in town.judge.found]
                assert said == ["read"] * reads + ["changed"] * writes, town.judge.found
            # An answer that differs for an id that never was tells that this one exists.
            town.judge.found.clear()
            path = f"/api/v1/requests/{hermes.own.ids['request'][0]}"
            probe = Call(f"GET {path}", "GET", path, headers=headers, probe=hermes.own.ids["request"][0])
            await town.send("atlas-seven", probe, rng)
            assert any("learned that" in one for one in town.judge.found)
