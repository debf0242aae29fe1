"""What a look costs the ledger while all is quiet: it runs for every cloud, every few seconds, for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from bot.services import sweep, unattended
from ledger.states import StrayState
from providers.sandbox.vast.cloud import VastSandbox
from tests.support.world import World


@contextmanager
def asked() -> Iterator[list[str]]:
    """The tables that are read or written meanwhile, statement by statement."""
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        words = statement.split()
        if words[0] in ("SELECT", "UPDATE", "INSERT", "DELETE"):
            said.append(words[words.index("FROM") + 1] if "FROM" in words else words[1 if words[0] == "UPDATE" else 2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def test_a_quiet_look_asks_two_questions_and_a_twin_is_still_found(w: World) -> None:
    await w.running(candidates=("vast",))
    with asked() as said:
        found = await sweep.observe(w.ctx, "vast")
    assert (found.listed, found.urgent) == (1, False)
    assert said == ["instances", "strays"]
    with asked() as said:
        await unattended.unattended_due(w.ctx)
    assert [table for table in said if table != "marks"] == ["sessions"]
    (first,) = w.instances()
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    vast.account.rent(next(vast.account.market.slices()), {"label": first.name, "image": "x", "disk": 50}, vast)
    w.clock.advance(60)
    assert (await sweep.observe(w.ctx, "vast")).urgent
    assert [stray.state for stray in (await w.books()).strays] == [StrayState.SEEN]
