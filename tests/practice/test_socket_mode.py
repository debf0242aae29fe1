"""A real Bolt app on Socket Mode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from websockets.asyncio.client import connect

from bot.practice.app import Practice
from bot.practice.driver import Driver
from bot.practice.socket_mode import CONNECTIONS_MAX
from tests.practice.echo_app import APP_TOKEN, EchoApp


@asynccontextmanager
async def connected(practice: Practice, count: int = 1) -> AsyncIterator[list[EchoApp]]:
    apps = [EchoApp(practice.api_url) for _ in range(count)]
    handlers = [AsyncSocketModeHandler(app.bolt, APP_TOKEN) for app in apps]
    for handler in handlers:
        await handler.connect_async()  # type: ignore[no-untyped-call]
    try:
        yield apps
    finally:
        for handler in handlers:
            await handler.close_async()  # type: ignore[no-untyped-call]


async def test_commands_clicks_dialogs_and_events(practice: Practice) -> None:
    ws: Driver = practice.driver
    async with connected(practice) as (echo,):
        assert (await ws.as_("alice").command("/gpu help")).ok
        assert ws.ephemerals("alice")[0].text == "at once"
        await ws.as_("alice").command("/gpu offer")
        offer = (await ws.until(lambda: ws.channel_messages("#gpu")))[0]
        assert (await ws.as_("bob").click(offer, "Approve")).ok
        await ws.until(lambda: ws.now(offer).text == "Approved by <@U0BOB>")
        await ws.as_("alice").command("/gpu ask")
        view = await ws.as_("alice").view()
        echo.answer = {"response_action": "errors", "errors": {"reason": "Say more"}}
        assert (await ws.as_("alice").submit(view, {"reason": "x"})).errors == {"reason": "Say more"}
        await ws.as_("alice").open_home()
        assert await ws.until(lambda: ws.home("alice"))


async def test_no_connection_is_a_failed_dispatch(practice: Practice) -> None:
    outcome = await practice.driver.as_("alice").command("/gpu help")
    assert (outcome.error, outcome.status) == ("dispatch_failed", None)
    assert "no Socket Mode connection" in practice.workspace.log[-1].response["body"]["detail"]


async def test_each_envelope_goes_to_one_of_the_connections(practice: Practice) -> None:
    ws = practice.driver
    async with connected(practice, 3) as apps:
        assert practice.hub.count == 3
        for number in range(6):
            assert (await ws.as_("alice").command(f"/gpu quiet {number}")).ok
        got = [[body["text"] for kind, body in app.seen if kind == "command"] for app in apps]
        assert sorted(text for texts in got for text in texts) == [f"quiet {n}" for n in range(6)]
        assert [len(texts) for texts in got] == [2, 2, 2]


async def test_an_app_that_does_not_ack_is_a_timeout(practice: Practice) -> None:
    practice.workspace.ack_limit_s = 0.2
    async with connected(practice):
        assert (await practice.driver.as_("alice").command("/gpu silence")).error == "operation_timeout"


async def test_a_refresh_makes_the_app_connect_again(practice: Practice) -> None:
    ws = practice.driver
    async with connected(practice):
        await practice.hub.refresh()
        await ws.until(lambda: practice.hub.opened >= 2)
        # Slack's client connects once for each notice, so the first of the new connections may close again.
        async with asyncio.timeout(10):
            while not (await ws.as_("alice").command("/gpu help")).ok:  # noqa: ASYNC110 # Each call asks anew.
                await asyncio.sleep(0)
        assert practice.hub.count == 1


async def test_the_eleventh_connection_is_turned_away(practice: Practice) -> None:
    url = practice.workspace.base_url.replace("http", "ws") + "/socket"
    sockets = [await connect(url, proxy=None) for _ in range(CONNECTIONS_MAX)]
    for socket in sockets:
        assert json.loads(await socket.recv())["type"] == "hello"
    last = await connect(url, proxy=None)
    assert json.loads(await last.recv())["reason"] == "too_many_websockets"
    for socket in [*sockets, last]:
        await socket.close()


async def test_noise_is_ignored_and_a_lost_connection_fails_what_was_on_its_way(practice: Practice) -> None:
    url = practice.workspace.base_url.replace("http", "ws") + "/socket"
    socket = await connect(url, proxy=None)
    await socket.recv()
    for noise in ("not json", "[]", '{"envelope_id": "unknown"}'):
        await socket.send(noise)
    command = asyncio.ensure_future(practice.driver.as_("alice").command("/gpu help"))
    envelope = json.loads(await socket.recv())
    assert envelope["type"] == "slash_commands"
    assert envelope["accepts_response_payload"]
    await socket.close()
    outcome = await command
    assert outcome.error == "dispatch_failed"
    assert "before the app acknowledged" in outcome.response["detail"]


async def test_events_are_retried_with_their_number(practice: Practice) -> None:
    url = practice.workspace.base_url.replace("http", "ws") + "/socket"
    socket = await connect(url, proxy=None)
    await socket.recv()
    practice.workspace.ack_limit_s = 0.1
    await practice.driver.as_("alice").open_home()
    first, second = json.loads(await socket.recv()), json.loads(await socket.recv())
    assert (first["retry_attempt"], second["retry_attempt"]) == (0, 1)
    assert second["retry_reason"] == "http_timeout"
    assert first["payload"]["event_id"] == second["payload"]["event_id"]
    await socket.send(json.dumps({"envelope_id": second["envelope_id"]}))
    await socket.close()
