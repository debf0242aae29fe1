"""The judge of what was lost is silent on a good walk, and names each thing that may not be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from random import Random

import httpx
import pytest
from sqlalchemy import text

from bot.services.instances import launch
from ledger.engine.db import Database
from providers.sandbox.clock import SandboxTiming
from tests.scenarios.simulation.troubles.keeping import Seen, broken
from tests.scenarios.simulation.troubles.kinds import RATES, Kind, Troubles, draw
from tests.scenarios.simulation.troubles.short import kind_of, shortened
from tests.scenarios.simulation.troubles.truth import Truth
from tests.services.sessions.volumes import scene
from tests.support.clock import SteppedClock
from tests.support.world import World, world

pytestmark = pytest.mark.quick
WAITED_S = 1200.0


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A world whose history is judged by the test itself."""
    async with world(db, clock, sandbox=SandboxTiming.quick(), volumes=True) as built:
        yield built


class Scene:
    """A machine that was in use for a while, and what is seen of it from outside."""

    def __init__(self, w: World) -> None:
        self.w, self.troubles = w, Troubles(Random(1))
        self.truth = Truth(w.clouds, w.engine)

    def befalls(self, kind: Kind, cloud: str, ref: str, what: str, undone_by: str) -> Callable[[], None]:
        """Let it befall a machine; call what is returned when it is over."""
        self.w.clouds[cloud].disturb(ref, what)
        begun = self.troubles.begin(kind, cloud, [ref], self.w.clock.now())

        def over() -> None:
            self.w.clouds[cloud].disturb(ref, undone_by)
            self.troubles.end(begun, self.w.clock.now())

        return over

    async def judged(self) -> str:
        """What the judge says now."""
        seen = Seen(self.truth, self.troubles, self.w.clock.now())
        return "\n".join(broken(seen, await self.w.books()))

    async def tells(self, **columns: str) -> None:
        """Let the ledger tell another story of every machine and of its session."""
        async with self.w.ctx.db.write() as tx:
            for column, value in columns.items():
                await tx.execute(text(f"UPDATE instances SET {column} = '{value}'"))  # noqa: S608 # Our own words.


@pytest.mark.parametrize(
    ("cloud", "kind", "what", "undone_by"),
    [
        ("vast", Kind.OFFLINE, "offline", "online"),
        ("vast", Kind.CREDIT, "credit_gone", "credit_back"),
        ("tensordock", Kind.CREDIT, "credit_gone", "credit_back"),
    ],
)
async def test_an_end_of_our_own_while_waiting_costs_little_is_a_loss(
    w: World, cloud: str, kind: Kind, what: str, undone_by: str
) -> None:
    here, request_id = Scene(w), await w.running(candidates=(cloud,), hours=Decimal(6))
    (machine,) = w.instances()
    over = here.befalls(kind, cloud, machine.ref, what, undone_by)
    w.clock.advance(200)
    await w.end(request_id)
    await launch.send_due(w.ctx)
    await w.run(WAITED_S, 60)
    assert await here.judged() == ""  # Its owner ended it.
    await here.tells(outcome_code="broken")
    assert "nothing is lost where waiting costs little" in await here.judged()
    here.troubles.disturbed.add((cloud, machine.ref))
    assert await here.judged() == ""
    here.troubles.disturbed.clear()
    over()
    here.troubles.stretches[0] = replace(here.troubles.stretches[0], since=w.clock.now() - timedelta(days=1))
    assert "nothing is lost" not in await here.judged()  # It was not in use yet.


async def test_a_wait_that_costs_more_than_the_grace_is_named(w: World) -> None:
    here = Scene(w)
    await w.running(candidates=("lambda",), hours=Decimal(6))
    (machine,) = w.instances()
    here.befalls(Kind.CREDIT, "lambda", machine.ref, "unhealthy", "healthy")
    assert await here.judged() == ""
    w.clock.advance(40 * 3600)
    assert "no grace costs more than its limit" in await here.judged()


async def test_a_volume_that_is_gone_by_bookkeeping_is_named(w: World) -> None:
    request_id = await scene.ready(w, hours=Decimal(2))
    w.clock.advance(60)
    await w.end(request_id)
    await w.run(300, 60)
    here = Scene(w)
    assert scene.there(w) == []
    assert await here.judged() == ""
    await here.tells(outcome_code="lost")
    assert "data are never deleted by bookkeeping" in await here.judged()
    await here.tells(outcome_code="reservation_over")
    assert "its written end is" in await here.judged()  # An hour too early.


async def test_a_refused_create_whose_approval_is_dropped_at_once_is_named(w: World) -> None:
    w.arm("create_429", "vast", 1, retry_after=30)
    request_id = await w.approved(candidates=("vast",))
    await launch.send_due(w.ctx)
    here, (call,) = Scene(w), w.engine.creates
    assert (call.status, call.retry_after_s) == (429, 30.0)
    assert await here.judged() == ""
    await w.run(120)
    assert await here.judged() == ""
    assert w.alive()
    books = await w.books()
    (session,) = books.sessions
    event = next(each for each in books.events if each.subject == session.id)
    event.after, event.at, event.actor = "failed", call.at + timedelta(seconds=2), "system:ticker"
    seen = Seen(here.truth, here.troubles, w.clock.now())
    assert "a refusal for too many calls is waited out" in "\n".join(broken(seen, books))
    (row, *_) = books.instances
    sent = next(each for each in books.events if each.subject == row.id)
    sent.after, sent.at = "unknown", call.at - timedelta(seconds=2)  # It came after its sender was killed.
    assert broken(seen, books) == []
    assert request_id


async def test_a_job_that_ended_as_idle_and_a_silence_that_ended_a_machine_are_named(w: World) -> None:
    request_id = await w.running(candidates=("vast",), hours=Decimal(2), run="python train.py")
    await w.end(request_id)
    await w.run(300, 60)
    here = Scene(w)
    assert await here.judged() == ""
    await here.tells(outcome_code="idle")
    assert "a job that runs is work" in await here.judged()
    await here.tells(outcome_code="no_heartbeat")
    assert "an unresponsive agent alone ends nothing" in await here.judged()
    here.troubles.disturbed.add(("vast", w.instances()[0].ref))
    assert await here.judged() == ""


def test_a_seed_draws_the_same_troubles_each_time_and_only_those_that_its_clouds_have() -> None:
    drawn = [draw(Random(f"{seed} troubles"), ("vast", "runpod")) for seed in range(400)]
    again = [draw(Random(f"{seed} troubles"), ("vast", "runpod")) for seed in range(400)]
    assert [each.planned for each in drawn] == [each.planned for each in again]
    planned = [coming for each in drawn for coming in each.planned]
    assert {coming.kind for coming in planned} == set(Kind)
    assert {each.volume_at for each in drawn} == {"", "runpod"}
    for coming in planned:
        assert not coming.cloud or coming.cloud in RATES[coming.kind].clouds


@pytest.mark.parametrize(
    ("cloud", "path", "body", "left"),
    [
        (
            "runpod",
            "/runpod/v2/network-volumes",
            {"networkVolumes": [{"id": "a"}, {"id": "b"}]},
            {"networkVolumes": []},
        ),
        ("lambda", "/lambda/api/v1/instance-types", {"data": {"a": {"x": 1}, "b": {"x": 2}}}, {"data": {}}),
        (
            "tensordock",
            "/tensordock/api/v2/hostnodes",
            {"data": {"hostnodes": [{"id": 1}]}},
            {"data": {"hostnodes": []}},
        ),
    ],
)
def test_a_short_answer_keeps_its_form(cloud: str, path: str, body: object, left: object) -> None:
    request = httpx.Request("GET", f"http://clouds.test{path}")
    assert kind_of(cloud, request) is not None
    answer = httpx.Response(200, json=body, request=request)
    assert shortened(answer, 0.0, Random(1)).json() == left
    assert shortened(answer, 1.0, Random(1)).json() == body
