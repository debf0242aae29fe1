"""The real process told to stop in the middle of its work, ended at once, and one of several that dies."""

from __future__ import annotations

import signal

import pytest

from ledger.kernel.states import InstanceState, RequestState
from ledger.queries.audit import Books
from tests.support.stack import CALLS, Town

pytestmark = pytest.mark.slow


def last_instance(books: Books) -> InstanceState | None:
    """The state of the newest instance row."""
    return books.instances[-1].state if books.instances else None


async def finish(place: Town) -> None:
    """From a running instance to the end of everything, with one create in all."""
    await place.ready()
    await place.terminate()
    await place.gone()
    await place.comes_to_rest()


async def test_sigterm_waits_for_the_answer_of_a_create(empty_place: Town) -> None:
    """The installed program, as a service manager stops it: what was sent is heard, and the exit is a clean one."""
    place = empty_place
    bot = await place.launch()
    await place.ask()
    offers = await place.offers()
    create = place.cloud_gate.hold(CALLS[place.cloud]["create"], answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    bot.signal(signal.SIGTERM)
    await bot.says("stopping")
    create.let_go()
    place.bots.remove(bot)
    assert await bot.finished() == 0
    assert "Traceback" not in bot.said()
    assert last_instance(await place.books()) is InstanceState.LIVE
    await place.start()
    await finish(place)


async def test_ctrl_c_while_the_clouds_are_asked_leaves_the_request_to_the_next_process(empty_place: Town) -> None:
    place = empty_place
    bot = await place.start()
    search = place.cloud_gate.hold(CALLS[place.cloud]["search"])
    await place.ask()
    await search.caught()
    bot.signal(signal.SIGINT)
    await bot.says("stopping")
    search.let_go()
    place.bots.remove(bot)
    assert await bot.finished() == 0
    assert "Traceback" not in bot.said()
    (request,) = (await place.books()).requests
    # Without the rest of the market in time, the next process asks again.
    assert request.state in (RequestState.QUOTING, RequestState.PENDING)
    await place.start()
    await place.approve()
    await finish(place)


async def test_a_second_signal_ends_it_at_once_as_a_crash_would(place: Town) -> None:
    await place.ask()
    offers = await place.offers()
    create = place.cloud_gate.hold(CALLS[place.cloud]["create"], answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    bot = place.bots.pop()
    bot.signal(signal.SIGTERM)
    await bot.says("stopping")
    bot.signal(signal.SIGTERM)
    assert await bot.finished() == 130
    create.drop()
    assert last_instance(await place.books()) is InstanceState.SENDING
    await place.restart()
    await finish(place)


async def test_another_process_takes_over_from_one_that_died_during_a_create(shared_place: Town) -> None:
    place = shared_place
    await place.start()
    await place.ask()
    offers = await place.offers()
    create = place.cloud_gate.hold(CALLS[place.cloud]["create"], answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    (died,) = place.bots
    await place.start()
    place.bots.remove(died)
    await died.kill()
    create.drop()
    await finish(place)


async def test_a_process_that_was_paused_during_a_create_wakes_up_to_a_finished_one(shared_place: Town) -> None:
    """No lock fences a process that sleeps; nothing that it does afterwards may be done twice."""
    place = shared_place
    paused = await place.start()
    await place.ask()
    offers = await place.offers()
    create = place.cloud_gate.hold(CALLS[place.cloud]["create"], answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await create.caught()
    paused.signal(signal.SIGSTOP)
    await place.start()
    await place.until(lambda books: last_instance(books) is InstanceState.LIVE)
    create.let_go()
    paused.signal(signal.SIGCONT)
    await paused.says("was moved by somebody else")
    await finish(place)


async def test_of_two_processes_either_may_die_at_any_step(shared_place: Town) -> None:
    """Both work on everything; now one dies, now the other, and people notice nothing."""
    place = shared_place
    first, second = await place.start(), await place.start()
    place.listen_to(first)
    await place.ask()
    place.bots.remove(second)
    await second.kill()
    await place.approve()
    # One that dies after its intent and before its call is held for the quarantine, which has a test of its own.
    await place.until(lambda books: last_instance(books) is InstanceState.LIVE)
    third = await place.start()
    place.bots.remove(first)
    await first.kill()
    await place.ready()
    fourth = await place.start()
    await place.terminate()
    place.bots.remove(third)
    await third.kill()
    await place.gone()
    assert place.bots == [fourth]
    await place.comes_to_rest()
