"""A real process logs in over SSH to what each cloud rented to it: ready with the right GPUs, ended with others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from ledger.kernel.states import InstanceState, RequestState
from ledger.models import Instance
from ledger.queries.audit import Books
from providers.sandbox.machines import Flaw
from tests.scenarios.processes.processes import Nursery
from tests.support.stack import CALLS, Town, town

pytestmark = pytest.mark.slow
#: From a machine that boots within half a second to the message that it is ready.
AT_MOST = timedelta(seconds=5)


@pytest.fixture(params=list(CALLS))
async def place(
    request: pytest.FixtureRequest, sqlite_db_url: str, tmp_path: Path, processes: Nursery
) -> AsyncIterator[Town]:
    """A town with one process, whose requests go to one cloud."""
    async with town(sqlite_db_url, tmp_path, processes, request.param) as built:
        await built.start()
        yield built


async def test_a_machine_is_ready_after_a_login_that_showed_its_gpus(place: Town) -> None:
    await place.ask()
    await place.approve()
    await place.ready()
    (row,) = (await place.books()).instances
    assert row.gpu_check is not None
    assert [gpu["gpu"] for gpu in row.gpu_check["gpus"]] == [place.clouds[place.cloud].STAPLE]
    assert row.host_key is not None
    assert row.live_at is not None
    assert row.reachable_at is not None
    assert row.reachable_at - row.live_at < AT_MOST
    await place.screens.wrote("alice", "driver 580.65.06, checked")
    await place.finish()


async def test_a_machine_with_other_gpus_is_ended_and_replaced_or_asked_about(place: Town) -> None:
    place.clouds[place.cloud].engine.faults.arm(place.cloud, Flaw.WRONG_GPU)
    await place.ask()
    await place.approve()

    def ended(books: Books) -> Instance | None:
        over = (row for row in books.instances if row.outcome_code == "wrong_gpus")
        return next((row for row in over if row.state is InstanceState.GONE), None)

    first = await place.until(ended)
    assert first is not None
    assert "bought, but the machine has 1 × RTX3060." in first.outcome
    assert first.reachable_at is None
    staple = place.clouds[place.cloud].STAPLE
    await place.screens.wrote("alice", f"1 × {staple} bought, but the machine has 1 × RTX3060.")

    def went_on(books: Books) -> bool:
        replaced = any(row.reachable_at is not None for row in books.instances)
        return replaced or books.requests[0].state is RequestState.PENDING

    assert await place.until(went_on)
    booked = [entry for entry in (await place.books()).entries if entry.instance_id == first.id]
    assert booked
