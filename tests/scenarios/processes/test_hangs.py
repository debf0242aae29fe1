"""A cloud or Slack that takes a call and does not answer: its own work waits, and nobody else's."""

from __future__ import annotations

import asyncio

import pytest

from ledger.kernel.states import SessionState
from tests.support.stack import CALLS, Town, slack

pytestmark = pytest.mark.slow
#: Well below every time-out of the bot: a caller that waits for one of them is held up.
SOON_S = 8.0


async def test_a_cloud_that_hangs_in_a_create_does_not_hold_up_another_cloud(sqlite_place: Town) -> None:
    place = sqlite_place
    await place.ask()
    offers = await place.offers()
    hanging = place.cloud_gate.hold(CALLS["vast"]["create"], answered=True)
    other = place.cloud_gate.hold(CALLS["runpod"]["create"], answered=True)
    await place.acked(place.ws.as_("bob").click(offers, "approve:1"))
    await hanging.caught()
    await place.acked(place.ws.as_("alice").command("/gpu provision 1x4090 2h clouds=runpod"))
    await place.acked(place.ws.as_("bob").click(await place.offers(), "approve:1"))
    await other.caught(limit_s=SOON_S)
    for held in (other, hanging):
        held.let_go()
    await place.until(lambda books: {row.state for row in books.sessions} == {SessionState.RUNNING})
    for session in (await place.books()).sessions:
        await place.acked(place.ws.as_("alice").command(f"/gpu terminate {session.id} now"))
    await place.until(lambda books: {row.state for row in books.sessions} == {SessionState.TERMINATED})
    await place.comes_to_rest(creates=2)


async def test_a_cloud_that_hangs_in_an_end_does_not_hold_up_another_end(sqlite_place: Town) -> None:
    place = sqlite_place
    await place.ask()
    await place.approve()
    await place.ready()
    await place.acked(place.ws.as_("alice").command("/gpu provision 1x4090 2h clouds=runpod"))
    await place.approve()
    await place.until(lambda books: [row.state for row in books.sessions] == [SessionState.RUNNING] * 2)
    hanging = place.cloud_gate.hold(CALLS["vast"]["destroy"])
    first, second = (await place.books()).sessions
    await place.acked(place.ws.as_("alice").command(f"/gpu terminate {first.id} now"))
    await hanging.caught()
    await place.acked(place.ws.as_("alice").command(f"/gpu terminate {second.id} now"))
    async with asyncio.timeout(SOON_S):
        await place.until(lambda books: books.sessions[1].state is SessionState.TERMINATED)
    hanging.let_go()
    await place.until(lambda books: books.sessions[0].state is SessionState.TERMINATED)
    await place.comes_to_rest(creates=2)


async def test_a_post_that_hangs_does_not_hold_up_an_answer_to_somebody_else(sqlite_place: Town) -> None:
    place = sqlite_place
    posts = place.slack.hold(slack("chat.postMessage"))
    await place.ask()
    await posts.caught()
    await place.acked(place.ws.as_("dave").command("/gpu status nothing"))
    async with asyncio.timeout(SOON_S):
        await place.screens.told("dave", "nothing")
    posts.let_go()
    await place.approve()
    await place.ready()
    await place.terminate()
    await place.gone()
    await place.comes_to_rest()
    assert place.ws.duplicates() == []
