"""The agent's boot token: exchanged once, once more after each restart, and of no use to a later reader."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import httpx
import pytest

from bot.rules.instances.power import PowerAction
from bot.services.instances import power
from bot.services.notifications.paging import OPERATORS
from bot.services.runtime.commands import Switch
from bot.wire import variables
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState
from ledger.models import Event, Instance
from ledger.queries.nodes import amend_node, nodes_of
from providers.contract import Provider
from providers.errors import Unsupported
from providers.sandbox.agents import SandboxAgent
from tests.api.door import Door, code_of
from tests.support.agents import agent, listening, pass_time
from tests.support.proxy_provider import InFront
from tests.support.world import ALICE, World, facts

PATH = "http://bot/agent/v1/checkin"
EXCHANGED, REFUSED = EventKind.INSTANCE_AGENT_TOKEN_EXCHANGED, EventKind.INSTANCE_AGENT_TOKEN_REFUSED


async def the(w: World) -> Instance:
    return (await w.books()).instances[0]


async def send(door: Door, token: str, seq: int, nonce: str | None = None) -> httpx.Response:
    body = {"seq": seq} | ({"nonce": nonce} if nonce else {})
    return await door.http.post(PATH, json=body, headers={"Authorization": f"Bearer {token}"})


async def noted(w: World, kind: EventKind) -> list[Event]:
    return [one for one in (await w.books()).events if one.kind == kind]


def notified(w: World, row: Instance) -> list[str]:
    return sorted(place for _, subject, place, _ in w.board.shown if subject == f"{row.id}/agent_token")


async def order(w: World, which: PowerAction) -> None:
    request = (await w.books()).requests[0]
    assert (await power.switch(w.ctx, Switch(request.id, facts(ALICE), which))).ok
    await w.settle()


def thief(node: SandboxAgent) -> str:
    """The token that every program on the machine can read in its environment."""
    return node.env[variables.TOKEN]


async def test_a_stolen_boot_token_is_refused_after_the_first_check_in_and_its_owner_is_notified(door: Door) -> None:
    w = door.w
    async with listening(w):
        await w.running(candidates=("vast",))
        node, row = agent(w), await the(w)
        await pass_time(w, 61)
        assert node.status == 200
        assert node.token.startswith("gpuc_")
        assert len(await noted(w, EXCHANGED)) == 1
        for seq, nonce in ((node.seq + 10, "x" * 32), (node.seq + 11, None)):
            answer = await send(door, thief(node), seq, nonce)
            assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
            assert "token" not in answer.json()
        await w.settle()
        assert notified(w, row) == sorted([ALICE.id, OPERATORS])
        assert len(await noted(w, REFUSED)) == 1
        await pass_time(w, 61)
        assert node.status == 200  # What a thief sent changed nothing for the agent, its number included.
        assert (await the(w)).state is InstanceState.LIVE
        books = await w.books()
        kept = [vars(one) for rows in (books.events, books.notifications) for one in rows]
        assert not [one for one in (node.token, node.nonce, thief(node)) if one[22:] in repr(kept)]


async def test_an_agent_whose_reply_was_lost_asks_again_with_its_nonce_and_gets_the_same_token(door: Door) -> None:
    w = door.w
    w.ctx = replace(w.ctx, node_url="http://127.0.0.1:9")
    await w.running(candidates=("vast",))
    boot, nonce = thief(agent(w)), "n" * 32
    first = await send(door, boot, 1, nonce)
    again = await send(door, boot, 2, nonce)
    assert first.json()["token"] == again.json()["token"]
    assert code_of(await send(door, boot, 2, nonce)) == "replayed"
    token = again.json()["token"]
    taken = await send(door, token, 3)
    assert (taken.status_code, taken.json()["token"]) == (200, "")
    # A retry that was under way all that time is a replay, and no theft.
    assert code_of(await send(door, boot, 2, nonce)) == "replayed"
    assert not await noted(w, REFUSED)
    assert len(await noted(w, EXCHANGED)) == 1


async def test_an_agent_reports_again_after_a_backup_was_restored(sqlite_door: Door) -> None:
    w = sqlite_door.w
    async with listening(w):
        await w.running(candidates=("vast",))
        await pass_time(w, 61)
        node, row = agent(w), await the(w)
        token = node.token
        async with w.ctx.db.write() as tx:  # As it stood before the exchange.
            await amend_node(tx, row.id, checkin_hash=None, nonce_hash=None, exchanged_at=None)
        await pass_time(w, 61)
        assert node.status == 401
        await pass_time(w, 61)
        assert (node.status, node.token) == (200, token)
        assert not await noted(w, REFUSED)


async def test_an_agent_of_before_goes_on_with_its_boot_token_until_a_newer_one_exchanges_it(door: Door) -> None:
    w = door.w
    async with listening(w):
        w.engine.nodes.exchange = False
        await w.running(candidates=("vast",))
        node = agent(w)
        await pass_time(w, 200)
        assert (node.status, node.token) == (200, "")
        newer = await send(door, thief(node), node.seq + 1, "n" * 32)
        assert newer.status_code == 200
        node.seq += 1
        await pass_time(w, 61)
        assert node.status == 401  # Whichever of the two is the thief, its people hear of it.
        await w.settle()
        assert notified(w, await the(w)) == sorted([ALICE.id, OPERATORS])


@pytest.mark.parametrize("actions", [(PowerAction.RESTART,), (PowerAction.STOP, PowerAction.START)])
async def test_after_an_ordered_restart_the_agent_exchanges_once_more(
    door: Door, actions: tuple[PowerAction, ...]
) -> None:
    w = door.w
    async with listening(w):
        await w.running(candidates=("vast",))
        await pass_time(w, 61)
        before = agent(w)
        for which in actions:
            await order(w, which)
            await w.run(120, 20)
            if which is PowerAction.STOP:
                # It is stopped, so a caller that shows the token now is not its agent.
                assert (await send(door, thief(before), before.seq + 1, "x" * 32)).status_code == 401
        await pass_time(w, 61)
        node = agent(w)
        assert node is not before
        assert (node.status, node.token != before.token, thief(node)) == (200, True, thief(before))
        assert len(await noted(w, EXCHANGED)) == 2
        assert not await noted(w, REFUSED)
        # The exchange is used up, and what the agent had before opens nothing any more.
        assert (await send(door, thief(node), node.seq + 1, "x" * 32)).status_code == 401
        assert (await send(door, before.token, node.seq + 2)).status_code == 401
        await w.settle()
        assert notified(w, await the(w)) == sorted([ALICE.id, OPERATORS])


async def test_an_ordered_restart_opens_an_exchange_when_it_is_ordered_and_when_the_cloud_accepts_it(
    sqlite_door: Door,
) -> None:
    """Its listing may never show that the instance was away for some seconds."""
    w = sqlite_door.w
    async with listening(w):
        request_id = await w.running(candidates=("vast",))
        await pass_time(w, 61)
        node, row = agent(w), await the(w)

        async def open_at() -> object:
            async with w.ctx.db.read() as tx:
                return (await nodes_of(tx, [row.id]))[row.id].exchange_open_at

        assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.RESTART))).ok
        assert await open_at() == w.clock.now()
        # The cloud could not be called for a while, and the agent, which has its memory, reports.
        w.clock.advance(660)
        assert (await send(sqlite_door, node.token, node.seq + 1)).status_code == 200
        assert await open_at() is None
        assert await power.switch_due(w.ctx) == 1
        assert await open_at() == w.clock.now()


async def test_a_restart_that_the_cloud_refused_leaves_no_exchange_open(door: Door) -> None:
    w = door.w
    async with listening(w):
        await w.running(candidates=("vast",))
        await pass_time(w, 61)
        node = agent(w)

        class Refusing(InFront):
            async def restart(self, ref: str) -> None:
                raise Unsupported("vast", f"{ref} cannot be restarted")

        w.wrap("vast", lambda inner: cast("Provider", Refusing(inner)))
        await order(w, PowerAction.RESTART)
        assert (await the(w)).wanted is None
        assert (await send(door, thief(node), node.seq + 1, "x" * 32)).status_code == 401
        assert len(await noted(w, EXCHANGED)) == 1


async def test_a_restart_that_the_cloud_reports_opens_one_more_exchange(door: Door) -> None:
    w = door.w
    async with listening(w):
        await w.running(candidates=("vast",))
        await pass_time(w, 61)
        before, row = agent(w), await the(w)
        w.clouds["vast"].disturb(str(row.ref), "offline")
        await w.run(60, 20)
        w.clouds["vast"].disturb(str(row.ref), "online")
        await w.run(120, 20)
        await pass_time(w, 61)
        node = agent(w)
        assert node is not before
        assert (node.status, len(await noted(w, EXCHANGED))) == (200, 2)
        assert not await noted(w, REFUSED)
        assert (await send(door, thief(node), node.seq + 1, "x" * 32)).status_code == 401


@pytest.mark.parametrize("cloud", ["runpod", "vast"])
async def test_a_restart_between_two_listings_shows_in_the_time_that_the_cloud_gives(
    sqlite_door: Door, cloud: str
) -> None:
    door, w = sqlite_door, sqlite_door.w
    async with listening(w):
        await w.running(candidates=(cloud,))
        await pass_time(w, 61)
        before, row = agent(w), await the(w)
        w.clock.advance(300)
        await w.ctx.providers[cloud].restart(str(row.ref))  # By somebody at the cloud's console.
        for _ in range(12):
            w.clock.advance(10)
            await w.clouds[cloud].tick()
        node = agent(w)
        assert (node is not before, node.status) == (True, 401)
        await w.run(30, 10)
        assert (await the(w)).status == "running"
        await pass_time(w, 61)
        assert (node.status, len(await noted(w, EXCHANGED))) == (200, 2)
        assert (await send(door, thief(node), node.seq + 1, "x" * 32)).status_code == 401
        await w.run(120, 30)
        assert (await send(door, thief(node), node.seq + 2, "y" * 32)).status_code == 401
