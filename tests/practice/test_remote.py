"""The same verbs from another process, and what the page's own endpoints refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from bot.practice.app import Practice
from bot.practice.driver import Driver
from bot.practice.faults import SlackFault
from bot.practice.reader import button_texts
from bot.practice.remote import RemoteDriver
from bot.practice.workspace import Workspace
from tests.practice.echo_app import EchoApp


@pytest.fixture
async def remote(practice: Practice, echo: EchoApp) -> AsyncIterator[RemoteDriver]:
    async with RemoteDriver(practice.workspace.base_url) as driver:
        yield driver


async def test_the_whole_walk(remote: RemoteDriver, echo: EchoApp, ws: Driver) -> None:
    assert (await remote.as_("alice").command("/gpu offer")).ok
    offer = (await remote.until(lambda: remote.channel_messages("#gpu")))[0]
    assert button_texts(offer) == ["Approve", "Reject"]
    await remote.as_("dave").click(offer, "reject")
    refusal = (await remote.until(lambda: remote.ephemerals("dave")))[0]
    assert refusal.text == "You may not decide this"
    await remote.as_("bob").click(offer, "Approve")
    assert (await remote.until(lambda: remote.dm_messages("bob")))[0].text == "You approved it"
    assert remote.now(offer).text == "Approved by <@U0BOB>"
    assert (await remote.as_("carol").click(offer, "Approve")).ok
    assert [m.text for m in remote.thread(offer)] == [m.text for m in ws.thread(offer)]
    assert any(line["name"] == "chat.update" for line in await remote.log())


async def test_dialogs_home_messages_and_time(remote: RemoteDriver, echo: EchoApp) -> None:
    alice = remote.as_("alice")
    await alice.command("/gpu ask")
    view = await alice.view()
    await alice.click(view, "more", values={"reason": "half"})
    two = await remote.until(lambda: (v := remote.view("alice")) and v.title == "Two" and v)
    assert two
    assert (await alice.submit(two, {})).ok is True
    await alice.command("/gpu ask")
    await alice.close(await alice.view(), everything=True)
    assert await remote.until(lambda: remote.view("alice") is None)
    await alice.open_home()
    assert await remote.until(lambda: remote.home("alice"))
    assert remote.home("bob") is None
    said = await alice.say("hello")
    before = remote.state["now"]
    await remote.travel(3600)
    assert remote.state["now"] - before >= 3600
    await remote.delete_message(said)
    assert remote.channel_messages() == []
    assert remote.now(said).deleted


async def test_faults_and_notices(remote: RemoteDriver) -> None:
    await remote.fault(SlackFault("delivery", "slash_commands", "lose"))
    assert (await remote.as_("alice").command("/gpu help")).error == "operation_timeout"
    assert len(remote.notices("alice")) == 1


async def test_what_does_not_exist_is_a_lookup_error(remote: RemoteDriver) -> None:
    with pytest.raises(LookupError, match="nobody is called"):
        remote.as_("zoe")
    with pytest.raises(LookupError, match="no channel is called"):
        remote.channel_messages("#nowhere")
    with pytest.raises(LookupError, match="no messages with the app"):
        remote.dm_messages("erin")
    said = await remote.as_("alice").say("hello")
    with pytest.raises(LookupError, match="nothing to click is called 'approve'"):
        await remote.as_("bob").click(said, "approve")
    said.ts = "1.2"
    with pytest.raises(LookupError, match="no message"):
        await remote.delete_message(said)
    with pytest.raises(LookupError, match="no message"):
        remote.now(said)
    with pytest.raises(TimeoutError, match="hello"):
        await remote.until(lambda: False, timeout_s=0.1)


@pytest.mark.parametrize(
    ("verb", "body", "status", "words"),
    [
        ("command", {"as": "alice"}, 400, "'text' is missing"),
        ("command", [], 400, "JSON object"),
        ("say", {"as": "alice", "text": "x", "channel": "#nowhere"}, 404, "no channel"),
        ("say", {"as": "alice", "text": "x", "thread_ts": "1.2"}, 400, "thread_not_found"),
        ("travel", {"seconds": -1}, 400, "only travel forward"),
        ("fault", {"where": "api"}, 400, "missing"),
    ],
)
async def test_bad_calls_say_what_is_wrong(
    practice: Practice, verb: str, body: object, status: int, words: str
) -> None:
    async with httpx.AsyncClient(base_url=practice.workspace.base_url, trust_env=False) as http:
        answer = await http.post(f"/practice/api/{verb}", json=body)
        assert (answer.status_code, words in answer.json()["error"]) == (status, True)
        form = await http.post(f"/practice/api/{verb}", data={"as": "alice"})
        assert form.status_code == 415
        assert (await http.get("/practice/api/state", params={"as": "zoe"})).status_code == 404


async def test_one_viewer_sees_only_what_is_meant_for_them(practice: Practice, echo: EchoApp) -> None:
    await practice.driver.as_("alice").command("/gpu help")
    async with httpx.AsyncClient(base_url=practice.workspace.base_url, trust_env=False) as http:
        bob = (await http.get("/practice/api/state", params={"as": "bob"})).json()
        alice = (await http.get("/practice/api/state", params={"as": "alice"})).json()
    assert bob["messages"] == []
    assert [m["text"] for m in alice["messages"]] == ["at once"]
    assert {c["id"] for c in bob["channels"]} == {"C0GPU", "C0GENERAL", "D0BOB"}


async def test_changes_are_streamed(practice: Practice) -> None:
    versions: list[int] = []
    async with (
        asyncio.timeout(10),
        httpx.AsyncClient(base_url=practice.workspace.base_url, trust_env=False) as http,
        http.stream("GET", "/practice/api/events") as stream,
    ):
        async for line in stream.aiter_lines():
            if not line.startswith("data: "):
                continue
            versions.append(json.loads(line.removeprefix("data: "))["version"])
            if len(versions) == 2:
                break
            await practice.driver.as_("alice").say("news")
    assert versions[1] > versions[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "localhost:80"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({}, 200),
    ],
)
async def test_only_the_own_page_on_loopback_is_served(
    practice: Practice, headers: dict[str, str], status: int
) -> None:
    async with httpx.AsyncClient(base_url=practice.workspace.base_url, trust_env=False) as http:
        answer = await http.get("/", headers=headers)
        assert answer.status_code == status
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        own = await http.get("/", headers={"origin": practice.workspace.base_url})
        assert own.status_code == 200
        assert "GPU Shopper practice" in own.text


async def test_a_foreign_page_cannot_open_the_socket(practice: Practice) -> None:
    url = practice.workspace.base_url.replace("http", "ws") + "/socket"
    with pytest.raises(InvalidStatus):
        await connect(url, proxy=None, origin="http://evil.example")  # type: ignore[arg-type]


async def test_the_base_url_is_learnt_from_the_first_request(workspace: Workspace) -> None:
    transport = httpx.ASGITransport(app=Practice(workspace).app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:5") as http:
        assert (await http.get("/practice/api/log?after=x")).json() == {"log": []}
    assert workspace.base_url == "http://127.0.0.1:5"
