"""`gpu-shopper mcp` over standard input and output, with the SDK's own client: an agent asks, a person decides."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.server import MCPServer
from mcp_types import CallToolResult, TextContent

from bot.api.app import build_api, routes
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.access.api_client import ApiClient, agent_header
from bot.cli.access.in_process_api import _AsOperator
from bot.cli.commands.mcp import Tools, server
from bot.rules.access.scopes import PLAIN, Scope
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey, Principal
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.ids import short_id
from ledger.kernel.states import RequestState
from tests.api.door import opened
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import ALICE, BOB, World, checked_world

PROGRAM = str(Path(sys.executable).parent / "gpu-shopper")
ADA = Actor(ActorKind.OPERATOR, "ada")
TOOLS = {
    "inventory",
    "plan",
    "compare",
    "ask",
    "request",
    "requests",
    "sessions",
    "volumes",
    "costs",
    "cancel",
    "migrate",
    "create_volume",
    "share",
    "unshare",
    "logs",
}


async def told(agent: Client, tool: str, **arguments: object) -> str:
    """What a tool answers."""
    answer = await agent.call_tool(tool, arguments)
    assert not answer.is_error, answer
    (content,) = answer.content
    assert isinstance(content, TextContent)
    return content.text


async def offers_come(w: World, number: int) -> None:
    """The service works, as soon as the `number`-th request is there."""
    while len((await w.books()).requests) < number:
        await w.ctx.hints.requests.wait()
        w.ctx.hints.requests.clear()
    await w.settle()


@asynccontextmanager
async def as_operator(w: World, scopes: Iterable[Scope] = PLAIN) -> AsyncIterator[httpx.AsyncClient]:
    """Calls of the API in this process, as the operator Ada."""
    app = routes({})
    app.state.deps = Dependencies(w.ctx, ApiSettings("C0GPU"))
    here = httpx.ASGITransport(app=_AsOperator(app, Principal("", ADA, ADA, frozenset(scopes))))
    async with httpx.AsyncClient(transport=here, base_url="http://here") as http:
        yield http


async def test_an_agent_on_an_approvers_server_has_none_of_the_approvers_rights(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(approvers=(BOB.id, ADA.ref))
        others = str((await w.ask(ALICE)).data["request_id"])
        own = str((await w.ask(ADA)).data["request_id"])
        await w.settle()
        for scopes, seen in ((PLAIN, [own]), (tuple(Scope), [own, others])):
            shown = [short_id(one) for one in seen]
            async with as_operator(w, scopes) as http:
                tools = Tools(ApiClient(http))
                assert re.findall(r"^Request (\w+)", await tools.requests(), re.MULTILINE) == shown
                if scopes is PLAIN:
                    for hidden in (await tools.cancel(others), await tools.request(others)):
                        assert hidden.startswith("Refused (unknown_id)"), hidden
                    assert await tools.sessions() == "There are no live sessions."
                    assert not (await tools.cancel(own, "not needed")).startswith("Refused")
        async with as_operator(w, frozenset(Scope) - {Scope.APPROVALS_WRITE}) as http:
            assert (await Tools(ApiClient(http)).cancel(others)).startswith("Refused (not_yours)")
        assert (await w.view(others)).request.state is RequestState.PENDING
        assert (await w.view(own)).request.state is RequestState.CANCELLED


async def test_an_agent_pages_through_the_market_with_numbers_and_reads_sentences(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, as_operator(w) as http:
        agent = server(ApiClient(http))
        wanted = {"gpu": "4090", "count": 1, "min_vram": 20, "max_price": 0.8, "sort": "price", "limit": 2}
        first, text = await page(agent, wanted)
        assert [one["rank"] for one in first["items"]] == [1, 2]
        assert {one["gpu_count"] for one in first["items"]} == {1}
        assert f"Shown: 2 of {first['rows']} offers. " in text
        assert f"1: {first['items'][0]['offer_id']}, 1x RTX4090 with 24 GB at " in text
        assert f"cursor={first['next_cursor']}." in text
        second, _ = await page(agent, {"limit": 2, "cursor": first["next_cursor"]})
        assert [one["rank"] for one in second["items"]] == [3, 4]
        _, refused = await page(agent, {"sort": "prize"})
        assert refused.startswith("Refused (bad_word)")
        _, gone = await page(agent, {"cursor": f"{'0' * 16}.2"})
        assert gone.startswith("Refused (cursor_expired)")


async def page(agent: MCPServer[Any], arguments: dict[str, Any]) -> tuple[Any, str]:
    """The document and the sentences of one call of `inventory`."""
    answer = await agent.call_tool("inventory", arguments)
    assert isinstance(answer, CallToolResult)
    (content,) = answer.content
    assert isinstance(content, TextContent)
    return answer.structured_content, content.text


@pytest.mark.slow
async def test_an_agent_asks_and_a_person_decides(sqlite_db: Database, clock: SteppedClock, tmp_path: Path) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.use({"vast": w.ctx.providers["vast"]})
        made = await api_keys.create(sqlite_db, w.ctx.labels, NewKey("agent:coder", "operator:ada"), ADA, clock.now())
        async with serving(build_api(Dependencies(w.ctx, ApiSettings("C0GPU")), {})) as url:
            env = {"GPU_SHOPPER_URL": url, "GPU_SHOPPER_API_KEY": str(made.data["token"])}
            there = StdioServerParameters(command=PROGRAM, args=["mcp"], env=env, cwd=tmp_path)
            async with Client(there) as agent:
                tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
                assert set(tools) == TOOLS
                assert not [name for name in tools if "approve" in name]
                assert agent.server_info is not None
                assert agent.server_info.version == metadata.version("gpu-shopper")
                sold = await told(agent, "inventory", gpu="4090", count=1, min_vram=24, max_price=0.9, limit=3)
                assert re.search(r"1: vast:\d+", sold), sold
                for tool, number in (("inventory", "max_price"), ("inventory", "count"), ("compare", "budget")):
                    field = tools[tool].input_schema["properties"][number]
                    assert field["type"] in ("number", "integer"), (tool, number)
                assert "RTX4090" in await told(agent, "plan", words="1x4090 2h")
                assert "run" in await told(agent, "compare", budget=50, hours=1)
                said, _ = await asyncio.gather(
                    told(agent, "ask", words="1x4090 2h", reason='a "test"'), offers_come(w, 1)
                )
                assert f"waiting for @{BOB.id}" in said
                (request,) = (await w.books()).requests
                assert (request.requester, request.reason, request.state) == (
                    "agent:coder",
                    'a "test"',
                    RequestState.PENDING,
                )
                theirs = await w.ask()
                refused = await told(agent, "cancel", request=str(theirs.data["request_id"]))
                assert refused.startswith("Refused (unknown_id)")
                assert (await told(agent, "ask", words="1xFOO 2h", reason="x")).startswith("Refused (bad_word)")
                assert (await w.decide(request.id)).ok
                await w.settle()
                assert f"Decided by {BOB.id}" in await told(agent, "request", request=request.id[-8:])
                assert "agent:coder" in await told(agent, "requests")
                assert re.search(
                    r"^Session \w+ of agent:coder is (launching|running)\.$",
                    await told(agent, "sessions"),
                    re.MULTILINE,
                )
                assert re.search(
                    r"^\$0\.00 was spent today and \$0\.00 this month\.$", await told(agent, "costs"), re.MULTILINE
                )
                waiting = await told(agent, "request", request=request.id[-8:])
                assert not re.search(r"\$\d+\.\d{3,}(?!\d*/h)", waiting)
                await w.end(request.id)
                await w.settle()


@pytest.mark.slow
async def test_on_the_server_an_agent_has_the_rights_of_a_program(sqlite_db: Database, tmp_path: Path) -> None:
    url = sqlite_db.url.render_as_string(hide_password=False)
    Path(str(sqlite_db.url.database)).parent.chmod(0o700)
    here = StdioServerParameters(
        command=PROGRAM, args=["mcp"], env={"GPU_SHOPPER_DATABASE_URL": url, "VAST_API_KEY": "none"}, cwd=tmp_path
    )
    async with Client(here) as agent:
        assert await told(agent, "requests") == "There are no requests."
        assert (await told(agent, "request", request="zzzzzz")).startswith("Refused (unknown_id)")


async def test_wrong_arguments_are_refused_in_sentences_and_nothing_is_asked(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        async with as_operator(w) as http:
            agent = server(ApiClient(http))
            for tool, arguments, said in (
                ("inventory", {"words": "8xH100"}, "inventory has no argument “words”. It takes gpu, count, min_vram,"),
                ("requests", {"all": True}, "requests has no argument “all”. It takes no arguments."),
                ("inventory", {"limit": 0}, "limit must be at least 1."),
                ("inventory", {"count": "many"}, "count must be a whole number."),
                ("ask", {"words": "1x4090 2h"}, "reason is missing."),
                ("logs", {"session": "abcdef", "source": "syslog"}, "source must be "),
                ("approve", {}, "There is no tool “approve”. The tools are inventory, plan,"),
            ):
                result = await agent.call_tool(tool, arguments)
                assert isinstance(result, CallToolResult)
                (content,) = result.content
                assert isinstance(content, TextContent)
                assert content.text.startswith(f"Refused (invalid): {said}"), content.text
                assert "pydantic" not in content.text
        assert (await w.books()).requests == ()


async def test_a_persons_key_is_auto_approved_for_the_person_and_never_for_their_agent(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(
            auto_approve_below_usd=Decimal(5),
            auto_approve_daily_usd=Decimal(50),
            auto_approve_until=date(2030, 1, 1),
            auto_approve_signed_by="UBOSS",
        )
        async with opened(w) as door:
            token = await door.key("operator:eve")
            for is_agent, state in ((True, RequestState.PENDING), (False, RequestState.APPROVED)):
                door.http.headers = httpx.Headers(
                    {"Authorization": f"Bearer {token}", **agent_header(is_agent=is_agent)}
                )
                seen = len((await w.books()).requests)
                asked, _ = await asyncio.gather(
                    Tools(ApiClient(door.http)).submit_request("1x4090 2h", "fine-tune"), offers_come(w, seen + 1)
                )
                assert ("Needs 1 approval." in str(asked)) is is_agent, asked
                assert (await w.books()).requests[-1].state is state
            await w.settle()
