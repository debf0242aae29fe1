"""The walk on a batch cloud: quota, push, completion, output; with a process that is killed and an answer that is lost.

Nothing is connected to and nothing is ended from outside: the run's own end is the end of the session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.practice.model import ChatMessage
from bot.practice.reader import all_text
from ledger.kernel.states import InstanceState, SessionState
from ledger.queries.audit import Books
from providers.clouds.kaggle.adapter import KaggleProvider
from providers.registry import REGISTRY
from providers.sandbox.kaggle.sandbox import KaggleSandbox
from tests.scenarios.processes.processes import Nursery
from tests.support.barriers import Held, Which
from tests.support.matrix import clouds_with
from tests.support.stack import DOWN_S, Town, town

pytestmark = pytest.mark.slow

CREATE = Which("POST", r"/kaggle/v1/kernels\.KernelsApiService/SaveKernel")
#: How long the pushed programs work: longer than it takes to see one run, and than a process is down.
WORK_S = 4.0
#: Longer than an unclear push is searched for.
LONG_DOWN_S = 700.0


@pytest.fixture(params=clouds_with(batch=True))
async def place(
    request: pytest.FixtureRequest, sqlite_db_url: str, tmp_path: Path, processes: Nursery
) -> AsyncIterator[Town]:
    """A town with one process, whose requests go to one batch cloud."""
    async with town(sqlite_db_url, tmp_path, processes, request.param) as built:
        sandbox(built).work_s = WORK_S
        await built.start()
        yield built


def sandbox(place: Town) -> KaggleSandbox:
    cloud = place.clouds[place.cloud]
    assert isinstance(cloud, KaggleSandbox)
    return cloud


async def asked(place: Town) -> ChatMessage:
    """Alice asks for a run."""
    line = f'/gpu provision 2xT4 1h clouds={place.cloud} run="python train.py" for="a batch run"'
    await place.acked(place.ws.as_("alice").command(line))
    return await place.offers()


async def completed(place: Town, *, creates: int = 1) -> None:
    """The run ends by itself, everybody is told how, and all comes to rest."""
    ended = await place.screens.wrote("alice", "* ended.")
    assert "The run at kaggle succeeded." in all_text(ended)
    books = await place.books()
    assert (books.sessions[-1].state, books.sessions[-1].end_code) == (SessionState.TERMINATED, "run_completed")
    assert books.entries == ()
    await place.comes_to_rest(creates=creates)
    assert place.ws.duplicates() == []


def last(books: Books) -> InstanceState | None:
    return books.instances[-1].state if books.instances else None


async def crash(place: Town, held: Held, down_s: float = DOWN_S) -> None:
    await place.until(lambda books: not [row for row in books.inbox if row.state == "new"])
    await place.kill()
    held.drop()
    await place.restart(down_s)


async def test_quota_push_completion_and_output(place: Town) -> None:
    offers = await asked(place)
    for words in ("Kaggle", "$0.00"):
        assert words in all_text(offers)
    await place.approve()
    ready = await place.screens.wrote("alice", "is ready")
    assert "There is no SSH" in all_text(ready)
    assert "Its cloud can't end it" in all_text(ready)
    await completed(place)

    row = (await place.books()).instances[0]
    provider = REGISTRY[place.cloud].connect(place.environment, place.clock)
    assert isinstance(provider, KaggleProvider)
    try:
        output, quota = await provider.output(str(row.ref)), await provider.quota()
    finally:
        await provider.close()
    assert [name for name, _ in output.files] == ["result.txt"]
    assert row.name in output.log
    assert quota is not None
    assert 0 < quota.used_s <= 60
    source = sandbox(place).account.runs[0].source
    assert source["sessionTimeoutSeconds"] == 3600
    assert "Bearer" not in str(source)


async def test_an_end_that_was_asked_for_comes_when_the_run_is_over(place: Town) -> None:
    sandbox(place).work_s = 8.0
    await asked(place)
    await place.approve()
    await place.screens.wrote("alice", "is ready")
    await place.terminate()
    await place.screens.wrote("alice", "keeps running, although you ended it")
    assert len(place.alive()) == 1
    ended = await place.screens.wrote("alice", "* ended.")
    assert "The run at kaggle succeeded." in all_text(ended)
    await place.comes_to_rest()


async def test_a_process_that_is_killed_before_it_hears_of_its_push(place: Town) -> None:
    sandbox(place).work_s = DOWN_S + WORK_S
    offers = await asked(place)
    create = place.cloud_gate.hold(CREATE, answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    assert last(await place.books()) is InstanceState.SENDING
    await crash(place, create)
    await completed(place)


async def test_a_process_that_comes_back_when_the_run_is_over(place: Town) -> None:
    offers = await asked(place)
    create = place.cloud_gate.hold(CREATE, answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    await crash(place, create)
    await completed(place)


async def test_an_answer_that_is_lost(place: Town) -> None:
    sandbox(place).engine.faults.arm(place.cloud, "create_lost_reply", 1)
    await asked(place)
    await place.approve()
    await completed(place)


async def test_a_push_that_never_reached_the_cloud_is_asked_again(place: Town) -> None:
    offers = await asked(place)
    create = place.cloud_gate.hold(CREATE)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    await crash(place, create, LONG_DOWN_S)
    await place.until(lambda books: last(books) is InstanceState.TOMBSTONE)
    await place.screens.posted("Approve again?")
    await place.offers()
    assert place.creates == []
    await place.approve()
    await completed(place)
