"""Whoever fills connections or resolver threads, without any key: approved ends come on time."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from datetime import timedelta

import pytest

from ledger.kernel.states import SessionState
from tests.support.stack import Town

pytestmark = pytest.mark.slow
#: The files that the bot may have open, and the sockets of a caller who says nothing.
DESCRIPTORS, IDLE = 600, 620
#: How long before its approved end a session is looked at.
BEFORE_S = 4.0
#: No machine outlives its end by more than this. On a busy machine the start of the process takes a part of it.
LATE_S = 60.0
#: The log of a few seconds, however often somebody is refused.
LOG_MAX = 100_000


async def test_idle_connections_do_not_delay_an_approved_end(sqlite_place: Town) -> None:
    place = sqlite_place
    await place.ask()
    await place.approve()
    await place.ready()
    deadline = (await place.books()).sessions[0].deadline
    assert deadline is not None
    await place.kill()
    place.clock.travel((deadline - place.clock.now() - timedelta(seconds=BEFORE_S)).total_seconds())
    bot = await place.start(DESCRIPTORS)
    with ExitStack() as held:
        for _ in range(IDLE):
            held.enter_context(socket.create_connection(("127.0.0.1", bot.port), timeout=5))
        await place.until(lambda books: books.sessions[0].state is SessionState.TERMINATED)
        gone = place.alive()
        late_s = (place.clock.now() - deadline).total_seconds()
    assert gone == []
    assert late_s < LATE_S
    assert len(bot.said()) < LOG_MAX
    await place.comes_to_rest()
