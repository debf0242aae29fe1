"""How much waits: counted per kind of work, and nothing once it is done."""

from __future__ import annotations

from bot.services import backlog, quoting
from ledger.inbox import Inbound
from tests.support.world import World

NOTHING = {"inbox": 0, "quotes": 0, "creates": 0, "outbox": 0}


async def test_an_idle_service_has_no_backlog(w: World) -> None:
    assert await backlog.waiting(w.ctx.db) == NOTHING


async def test_each_step_of_a_request_waits_in_its_own_place(w: World) -> None:
    await w.ask(candidates=("vast",))
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    assert await backlog.waiting(w.ctx.db) == NOTHING | {"quotes": 2}
    await quoting.quote_due(w.ctx)
    assert await backlog.waiting(w.ctx.db) == NOTHING | {"outbox": 2}
    await w.settle()
    assert await backlog.waiting(w.ctx.db) == NOTHING
    await w.decide(request_id)
    assert (await backlog.waiting(w.ctx.db))["creates"] == 1
    await w.settle()
    assert await backlog.waiting(w.ctx.db) == NOTHING


async def test_a_message_that_is_acknowledged_waits_until_it_is_worked_on(w: World) -> None:
    await w.ctx.inbox.put(Inbound("key-1", "command", {"text": "list"}, {}, w.clock.now()))
    assert (await backlog.waiting(w.ctx.db))["inbox"] == 1
