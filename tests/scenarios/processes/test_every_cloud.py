"""The walk on each cloud that rents machines: a process that is killed, and an answer that is lost, at its create."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenarios.processes.processes import Nursery
from tests.support.stack import CALLS, DOWN_S, Town, town

pytestmark = pytest.mark.slow


@pytest.fixture(params=list(CALLS))
async def place(
    request: pytest.FixtureRequest, sqlite_db_url: str, tmp_path: Path, processes: Nursery
) -> AsyncIterator[Town]:
    """A town with one process, whose requests go to one cloud."""
    async with town(sqlite_db_url, tmp_path, processes, request.param) as built:
        await built.start()
        yield built


async def test_a_process_that_is_killed_before_it_hears_of_its_create(place: Town) -> None:
    await place.ask()
    offers = await place.offers()
    create = place.cloud_gate.hold(CALLS[place.cloud]["create"], answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    await place.until(lambda books: not [row for row in books.inbox if row.state == "new"])
    await place.kill()
    create.drop()
    await place.restart(DOWN_S)
    await place.finish()


async def test_an_answer_that_is_lost(place: Town) -> None:
    place.clouds[place.cloud].engine.faults.arm(place.cloud, "create_lost_reply", 1)
    await place.ask()
    await place.approve()
    await place.finish()
