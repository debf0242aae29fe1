"""A caller without a key fills connections or resolver threads: approved ends come on time."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from datetime import datetime, timedelta

import httpx
import pytest

from bot.outbound.names import PER_USER
from bot.rules.values.labels import LabelKey
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import SessionState
from tests.scenarios.processes.processes import fork
from tests.support.personas import STEP_S
from tests.support.slow_names import SLOW
from tests.support.stack import LABEL_KEY, Town

pytestmark = pytest.mark.slow
#: The files that the bot may have open, and the sockets of a caller who says nothing.
DESCRIPTORS, IDLE = 600, 620
#: How many names that no name server answers a caller gives.
SLOW_NAMES = 40
#: How long before its approved end a session is looked at.
BEFORE_S = 4.0
#: No machine outlives its end by more than this. On a busy machine the start of the process takes a part of it.
LATE_S = 60.0
#: The log of a few seconds, however often somebody is refused.
LOG_MAX = 100_000


async def near_its_end(place: Town) -> datetime:
    """Bring a session to shortly before its approved end, which this returns; no process runs any more."""
    await place.ask()
    await place.approve()
    await place.ready()
    deadline = (await place.books()).sessions[0].deadline
    assert deadline is not None
    await place.kill()
    place.clock.travel((deadline - place.clock.now() - timedelta(seconds=BEFORE_S)).total_seconds())
    return deadline


async def test_names_that_no_name_server_answers_do_not_delay_an_approved_end(sqlite_place: Town) -> None:
    """Without threads of their own, 40 of them fill those in which the clouds' names are resolved."""
    place = sqlite_place
    deadline = await near_its_end(place)
    labels = LabelKey("e2e1", bytes.fromhex(LABEL_KEY))
    key = NewKey("atlas", "operator:ada")
    made = await api_keys.create(place.db, labels, key, Actor(ActorKind.OPERATOR, "ada"), place.clock.now())
    # An address in digits needs no resolver, and those of real clouds are names.
    named = {name: value.replace("127.0.0.1", "localhost") for name, value in place.environment.items()}
    bot = fork(place.nursery, named, place.log, place.clock.ahead_s, slow_names=True)
    place.bots.append(bot)
    await bot.ready()
    caller = {"Authorization": f"Bearer {made.data['token']}"}
    async with httpx.AsyncClient(trust_env=False, headers=caller, timeout=STEP_S) as client:

        async def register(number: int) -> int:
            body = {"url": f"https://h{number}{SLOW}/"}
            own = {"Idempotency-Key": f"hook-{number}"}
            answer = await client.post(f"http://127.0.0.1:{bot.port}/api/v1/webhooks", json=body, headers=own)
            return answer.status_code

        codes = await asyncio.gather(*(register(number) for number in range(SLOW_NAMES)))
        await place.until(lambda books: books.sessions[0].state is SessionState.TERMINATED)
        late_s = (place.clock.now() - deadline).total_seconds()
    assert set(codes) <= {422, 503}
    assert codes.count(503) >= SLOW_NAMES - PER_USER
    assert place.alive() == []
    assert late_s < LATE_S
    await place.comes_to_rest()


async def test_idle_connections_do_not_delay_an_approved_end(sqlite_place: Town) -> None:
    place = sqlite_place
    deadline = await near_its_end(place)
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
