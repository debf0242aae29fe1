"""How much waits: counted per kind of work, and nothing once it is done."""

from __future__ import annotations

from bot.services.requests import quoting
from ledger.core.inbox import Inbound
from ledger.queries.metrics import waiting_rows
from tests.support.world import World


async def waiting(w: World) -> dict[str, int]:
    """The rows that wait, by kind of work."""
    async with w.ctx.db.read() as tx:
        return await waiting_rows(tx)


NOTHING = {"inbox": 0, "quotes": 0, "creates": 0, "outbox": 0}


async def test_an_idle_service_has_no_backlog(w: World) -> None:
    assert await waiting(w) == NOTHING


async def test_each_step_of_a_request_waits_in_its_own_place(w: World) -> None:
    await w.ask(candidates=("vast",))
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    assert await waiting(w) == NOTHING | {"quotes": 2}
    await quoting.quote_due(w.ctx)
    assert await waiting(w) == NOTHING | {"outbox": 4}  # The card and its details, of each.
    await w.settle()
    assert await waiting(w) == NOTHING
    await w.decide(request_id)
    assert (await waiting(w))["creates"] == 1
    await w.settle()
    assert await waiting(w) == NOTHING


async def test_a_message_that_is_acknowledged_waits_until_it_is_worked_on(w: World) -> None:
    await w.ctx.inbox.put(Inbound("key-1", "command", {"text": "list"}, {}, w.clock.now()))
    assert (await waiting(w))["inbox"] == 1
