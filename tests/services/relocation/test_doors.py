"""Asking for a move: what is refused before anything is spent, and a call that comes twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bot.rules.instances.power import PowerAction
from bot.rules.jobs.stored import job_of
from bot.services.access import authorization
from bot.services.instances import power
from bot.services.relocation.start import Migrate, migrate
from bot.services.runtime.commands import Switch
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState
from ledger.kernel.steps.relocation_step import MigrationStep
from tests.api.door import Door, code_of, opened
from tests.services.relocation.run import SOURCE, Run, running
from tests.support.world import BOB, World, facts

_M = MigrationStep
ATLAS = Actor(ActorKind.CONSUMER, "atlas")


async def refused(run: Run, code: str, word: str = "", to: str = "", who: Actor | None = None) -> None:
    reply = await migrate(run.w.ctx, Migrate("refused", run.request_id, facts(who or run.owner), to))
    assert (reply.ok, reply.code, word in reply.sentence) == (False, code, True), reply


async def posted(door: Door, key: str, run: Run, body: Any, once: str) -> Any:
    path = f"/sessions/{run.request_id}/migrate"
    return await door.call("POST", path, key, json=body, headers={"Idempotency-Key": once})


async def test_what_can_not_be_moved_is_refused_before_anything_is_requested(w: World) -> None:
    async with running(w) as run:
        agent, shelf = run.first, run.shelf
        await refused(run, "not_yours", who=BOB)
        await refused(run, "unknown_cloud", to="nowhere")
        shelf.down = True
        await refused(run, "unreachable", "can't be read")
        shelf.down = False
        agent.saved_step = 10**9
        await run.tick()
        await run.tick()
        await run.tick()
        await run.tick()
        await refused(run, "behind", "older than")
        agent.saved_step = 1
        known, shelf.files = shelf.files, {}
        agent.silent = True
        w.clock.advance(400)
        await refused(run, "cannot_migrate", "no agent reports")
        agent.silent, shelf.files = False, known
        async with w.ctx.db.read() as tx:
            assert run.owner.ref in await authorization.mine(tx, w.ctx.policy, run.owner)
        assert len((await w.books()).requests) == 1
        reply = await migrate(w.ctx, Migrate("x", "zzzzzz", facts(run.owner)))
        assert reply.code == "unknown_id"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["run", "checkpoint"])
async def test_a_session_without_a_command_or_a_store_can_not_be_moved(w: World, what: str) -> None:
    lacks: Any = {what: None}
    async with running(w, **lacks) as run:
        await refused(run, "cannot_migrate", f"no `{what}=`")


async def test_a_move_over_rest_comes_once_and_its_cards_say_how_far_it_is(w: World) -> None:
    async with running(w, actor=ATLAS) as run, opened(w) as door:
        atlas = await door.key("atlas")
        before = await w.session((await run.sessions())[0].id)
        assert before.migration is None
        first = await posted(door, atlas, run, {"to": "cheaper"}, "one")
        assert first.status_code == 202, first.text
        again = await posted(door, atlas, run, {"to": "cheaper"}, "one")
        assert (again.status_code, again.json()) == (202, first.json())
        wrong = await posted(door, atlas, run, {"to": "vast"}, "one")
        assert code_of(wrong) == "idempotency_mismatch"
        another = await posted(door, atlas, run, {"to": ""}, "two")
        assert code_of(another) == "already_requested"
        request = await door.request(atlas, first.json()["request_id"])
        assert (request["kind"], request["requested"].startswith("Move to")) == ("migrate", True)
        row = await run.row(SOURCE)
        asked = (await w.view(request["id"])).request
        assert asked.failed_machines == [row.machine_id]
        limit_usd_h = job_of(asked.job).max_price_usd_h
        assert limit_usd_h is not None
        assert limit_usd_h < row.price_usd_h
        shown = (await door.call("GET", f"/sessions/{run.request_id}", atlas)).json()["migration"]
        assert (shown["step"], shown["number"]) == ("checked", 1)
        assert shown["line"].startswith("Move to ")
        # The same key at the service itself, as when the process was killed before its answer was kept.
        books = await w.books()
        reply = await migrate(w.ctx, Migrate(asked.inbox_key, run.request_id, facts(ATLAS), "cheaper"))
        assert (reply.code, reply.data["request_id"]) == ("submitted", request["id"])
        assert len((await w.books()).requests) == len(books.requests)


@pytest.mark.slow
async def test_a_machine_whose_run_moves_is_neither_restarted_nor_moved_twice(w: World) -> None:
    async with running(w, hours=6) as run:
        await run.approved()
        await run.until(_M.READY)
        restart = Switch(run.request_id, facts(run.owner), PowerAction.RESTART)
        assert (await power.switch(w.ctx, restart)).code == "migrating"
        await refused(run, "already_requested")
        assert (await run.over()).step is _M.DONE


@pytest.mark.slow
async def test_a_request_that_expires_leaves_the_run_alone(w: World) -> None:
    async with running(w, hours=6) as run:
        assert (await run.ask()).ok
        w.tune(end_when_unresponsive=False)
        await w.settle()
        w.clock.advance(timedelta(seconds=w.ctx.policy.request_ttl_s))
        row = await run.over()
        assert row.step is _M.FAILED
        assert (await w.view(run.target_id)).request.state is RequestState.EXPIRED
        assert len(w.alive()) == 1
