"""A real trainer moves to another real machine, while the controller is killed after each step of the move."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby

import pytest
from sqlalchemy import select
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import SessionState
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.models import Migration, Session
from tests.scenarios.nodes import trainer
from tests.scenarios.nodes.conftest import Build, NodeTown
from tests.scenarios.nodes.test_jobs import SPEED
from tests.support.serving import serving
from tests.support.stack import LOOK_S
from tests.support.stores import Shelf

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_M = MigrationStep
PLACE = "s3://bucket/run"
STEPS = (_M.CHECKED, _M.PROVISIONED, _M.READY, _M.VERIFIED, _M.PRESENT, _M.STARTED, _M.ADVANCED, _M.DESTROYED)
MOVE_S = 240.0


@dataclass
class Store:
    """An S3 stand-in that trainers write to, and tell which step they work on."""

    here: NodeTown | None = None
    shelf: Shelf = field(default_factory=Shelf)
    #: Who worked on which step, and who wrote which file, in order.
    works: list[tuple[str, int]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)

    async def put(self, request: Request) -> Response:
        """A trainer uploads a file."""
        assert self.here is not None
        self.shelf.put(request.path_params["path"], len(await request.body()), self.here.town.clock.now())
        self.writes.append(request.path_params["path"].rpartition("/")[2])
        return Response()

    async def step(self, request: Request) -> Response:
        """A trainer works on a step."""
        self.works.append((request.path_params["name"], request.path_params["step"]))
        return Response()

    @property
    def workers(self) -> list[str]:
        """Who worked, one after another."""
        return [name for name, _ in groupby(name for name, _ in self.works)]

    @property
    def saves(self) -> set[str]:
        """Who wrote."""
        return set(self.writes)


@asynccontextmanager
async def run_with_a_store(build: Build) -> AsyncIterator[tuple[NodeTown, Store, str]]:
    """A machine trains and has saved; yields the town, the store, and the session's id."""
    store = Store()
    routes = [
        Route("/works/{name}/{step:int}", store.step, methods=["PUT"]),
        Route("/bucket/{path:path}", store.put, methods=["PUT"]),
        Route("/{bucket}", store.shelf.s3),
    ]
    policy = {"checkpoint_places": [PLACE], "replacements": 0, "failover": False}
    async with serving(Starlette(routes=routes)) as url:
        secrets = {"AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "sssssss", "AWS_ENDPOINT_URL_S3": url}
        async with build("vast", policy, clock_speed=SPEED, environment=secrets) as here:
            store.here = here
            await here.town.ask(f'checkpoint={PLACE} run="{sys.executable} {trainer.__file__} {url}"')
            await here.town.approve()
            await here.town.ready()
            await here.until(lambda: store.shelf.files)
            await here.row_where(lambda row: row.report.get("checkpoint_step"))
            yield here, store, (await here.town.books()).sessions[-1].id


async def asked(here: NodeTown, session_id: str) -> None:
    """Alice asks for the move."""
    await here.town.acked(here.town.ws.as_("alice").command(f"/gpu migrate {session_id} to vast"))


async def migration(here: NodeTown) -> Migration | None:
    """The move as the ledger has it."""
    async with here.town.db.read() as tx:
        return await tx.scalar(select(Migration))


async def reached(here: NodeTown, *steps: MigrationStep) -> Migration:
    """Wait until the move is at one of these steps."""
    row = None
    try:
        async with asyncio.timeout(MOVE_S):
            while (row := await migration(here)) is None or row.step not in steps:  # noqa: ASYNC110 # As below.
                await asyncio.sleep(LOOK_S)  # The ledger of another process tells nobody when it changes.
            return row
    except TimeoutError:
        raise TimeoutError(f"the move is at {row and (row.step, row.note)}, and not at {steps}") from None


async def sessions(here: NodeTown) -> list[Session]:
    """The source's session and the target's."""
    return sorted((await here.town.books()).sessions, key=lambda one: one.created_at)


async def test_a_run_moves_while_the_controller_is_killed_after_each_step(build: Build) -> None:
    async with run_with_a_store(build) as (here, store, source_id):
        place = here.town
        await asked(here, source_id)
        for number, step in enumerate(STEPS):
            row = await reached(here, *STEPS[number:], *OVER)
            assert row.step not in OVER or step is _M.DESTROYED, row.note
            await place.kill()
            assert store.shelf.files
            await place.restart(1)
            if step is _M.CHECKED:
                await place.approve()
        row = await reached(here, *OVER)
        assert row.step is _M.DONE, row.note
        source, target = await sessions(here)
        assert (source.state, source.end_code) == (SessionState.TERMINATED, EndReason.MIGRATED)
        assert target.state is SessionState.RUNNING
        assert len(place.alive()) == 1
        assert "# Continuation context" in row.context
        assert row.saved_from in row.context
        await place.screens.wrote("alice", "moved to")
        await moved_once(here, store, row)
        await place.acked(place.ws.as_("alice").command(f"/gpu terminate {target.id} now"))
        await place.until(lambda books: all(one.state is SessionState.TERMINATED for one in books.sessions))
        await place.comes_to_rest(creates=2)
        await here.nothing_left()


async def moved_once(here: NodeTown, store: Store, row: Migration) -> None:
    """The first trainer worked, then the second, from the last save on; each step is in the audit log once."""
    first, second = store.workers
    assert "-first" in first
    assert "-resumed" in second
    (began, *_) = [step for name, step in store.works if name == second]
    assert began == row.saved_step
    assert [name for name, _ in groupby(store.writes)] in ([f"{first}.pt"], [f"{first}.pt", f"{second}.pt"])
    books = await here.town.books()
    events = [one for one in books.events if one.kind == EventKind.MIGRATION_STEP]
    at = {one.after: one.at for one in events}
    assert [one.after for one in sorted(events, key=lambda one: (one.at, one.id))] == [*STEPS, _M.DONE]
    ordered = [one.at for one in books.events if one.after == SessionState.TERMINATING]
    assert ordered
    assert min(ordered) >= at[_M.ADVANCED]


async def test_a_target_that_never_boots_leaves_the_run_on_its_machine(build: Build) -> None:
    async with run_with_a_store(build) as (here, store, source_id):
        place = here.town
        place.clouds["vast"].engine.faults.arm("vast", "never_boots", None)
        await asked(here, source_id)
        await place.approve()
        await reached(here, _M.PROVISIONED)
        await place.kill()
        place.clock.travel(900)
        await place.restart()
        row = await reached(here, _M.FAILED)
        assert "new machine" in row.note
        source, target = await sessions(here)
        assert source.state is SessionState.RUNNING
        await place.until(lambda books: books.sessions[-1].state in (SessionState.TERMINATED, SessionState.FAILED))
        await place.screens.wrote("alice", "failed")
        worked = len(store.works)
        await here.until(lambda: len(store.works) > worked + 5)
        assert len(store.workers) == 1
        assert len(place.alive()) == 1
        await place.acked(place.ws.as_("alice").command(f"/gpu terminate {source.id} now"))
        await place.until(lambda books: not [one for one in books.sessions if one.state is SessionState.TERMINATING])
        await place.comes_to_rest(creates=2)
        await here.nothing_left()
        assert target.id != source.id
