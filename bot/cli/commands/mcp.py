"""`gpu-shopper mcp`: the same services for AI agents, over the Model Context Protocol on standard input and output.

An agent looks around, plans and asks; a person decides. There is no tool that approves, and on the server the agent has
none of the operator's rights to. With `GPU_SHOPPER_URL` and a program's key it acts as that program.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import httpx
import typer
from mcp.server import MCPServer
from mcp_types import ToolAnnotations
from pydantic import Field

from bot import logs
from bot.api.schemas.requests import RequestOut
from bot.cli.access.api_client import ApiClient, RefusedCall, connected, elsewhere
from bot.cli.terminal.views import when
from bot.rules.access.scopes import PLAIN
from bot.rules.values.text_table import TextReport

app = typer.Typer(add_completion=False)

INSTRUCTIONS = (
    "Look at GPU offers of several clouds, plan what a run needs and costs, and ask for a GPU. Asking rents nothing: a "
    "person decides about every request, and `request` says for whom it waits. Nothing here can approve. Words are "
    "those of the /gpu language: `1x4090 2h`, `8xH100 model=7B tokens=2B max=$50`."
)
#: Looks at a request that was just made, until its offers are there or it is plain that they take longer.
LOOKS, PAUSE_S = 20, 0.5

Words = Annotated[str, Field(description="The job in the /gpu language: 1x4090 2h, or model=7B tokens=2B.")]
Request = Annotated[
    str, Field(description="The id of a request, or its last characters.", pattern=r"^[A-Za-z0-9_]{4,64}$")
]
LOOK = ToolAnnotations(read_only_hint=True, open_world_hint=True)
ASK = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)


@app.command()
def mcp() -> None:
    """Serve until the client closes standard input."""
    asyncio.run(_serve())


async def _serve() -> None:
    async with connected(**_limits()) as door:
        await server(door).run_stdio_async()


def _limits() -> dict[str, Any]:
    """On the server an agent has the rights of a program; elsewhere its key says which."""
    return {} if elsewhere() else {"scopes": PLAIN}


def server(door: ApiClient) -> MCPServer[Any]:
    """The tools over the REST API."""
    made: MCPServer[Any] = MCPServer("gpu-shopper", instructions=INSTRUCTIONS, log_level="ERROR")
    tools = Tools(door)
    for look in (
        tools.inventory,
        tools.plan,
        tools.compare,
        tools.request,
        tools.requests,
        tools.sessions,
        tools.costs,
    ):
        made.add_tool(look, annotations=LOOK, structured_output=False)
    for act in (tools.ask, tools.cancel):
        made.add_tool(act, annotations=ASK, structured_output=False)
    return made


class Tools:
    """What an agent can do. Each answers with text; a refusal is an answer too, with its stable code."""

    def __init__(self, door: ApiClient) -> None:
        self._door = door

    async def inventory(
        self,
        gpu: Annotated[str, Field(description="GPU names with commas: 4090,a100.")] = "",
        count: Annotated[str, Field(description="How many: 2 or 1-4.")] = "",
        min_vram: Annotated[str, Field(description="Least memory per GPU in GB.")] = "",
        max_price: Annotated[str, Field(description="The most per hour in dollars.")] = "",
        provider: Annotated[str, Field(description="Only these clouds: vast,runpod.")] = "",
        region: Annotated[str, Field(description="Only these regions: US,EU.")] = "",
    ) -> str:
        """What is for sale now at every cloud, ranked by what it would really cost; rents nothing."""
        asked = {"gpu": gpu, "count": count, "min_vram": min_vram, "max_price": max_price}
        found = await self._get("/inventory", **asked, provider=provider, region=region)
        if isinstance(found, str):
            return found
        found["options"] = found["options"][:10]
        return json.dumps(found)

    async def plan(self, words: Words) -> str:
        """What a run needs, how long it takes and what it costs on every offer; rents nothing."""
        found = await self._said(self._door.post("/plans", {"words": words}))
        return found if isinstance(found, str) else _text(found["told"])

    async def compare(
        self,
        budget: Annotated[str, Field(description="What there is to spend, in dollars.")] = "",
        hours: Annotated[str, Field(description="How long one run takes: 1h, 90m.")] = "",
    ) -> str:
        """Dollars per run and runs per budget on every GPU for sale; rents nothing."""
        words = {name: value for name, value in (("budget", budget), ("hours", hours)) if value}
        found = await self._said(self._door.post("/compare", {"words": words}))
        return found if isinstance(found, str) else _text(found["told"])

    async def ask(
        self,
        words: Words,
        reason: Annotated[str, Field(description="Why; the people who decide read this.", max_length=500)],
    ) -> str:
        """Ask for a GPU. It rents nothing: a person decides, and the answer says for whom it waits."""
        made = await self._said(self._door.post("/sessions", {"words": words, "reason": reason}))
        if isinstance(made, str):
            return made
        for _ in range(LOOKS):
            found = await self._said(self._door.get(f"/requests/{made['request_id']}"))
            if isinstance(found, str):
                return found
            if found["state"] != "quoting":
                break
            await asyncio.sleep(PAUSE_S)
        return _waits(RequestOut.model_validate(found))

    async def request(self, request: Request) -> str:
        """How a request stands: for whom it waits, how it was decided, and its session when it has one."""
        found = await self._get(f"/requests/{request}")
        return found if isinstance(found, str) else _waits(RequestOut.model_validate(found))

    async def requests(self) -> str:
        """The newest requests that you may see."""
        found = await self._get("/requests", limit=20)
        return found if isinstance(found, str) else json.dumps(found["items"])

    async def sessions(self) -> str:
        """What runs: its cost so far, its approved end, and how to connect to your own."""
        found = await self._get("/sessions", limit=20)
        return found if isinstance(found, str) else json.dumps(found["items"])

    async def costs(self) -> str:
        """What was spent today and this month, and what the budgets still allow."""
        spent, left = await self._get("/costs"), await self._get("/budgets")
        return next(
            (one for one in (spent, left) if isinstance(one, str)), json.dumps({"costs": spent, "budgets": left})
        )

    async def cancel(
        self, request: Request, reason: Annotated[str, Field(description="Why.", max_length=500)] = ""
    ) -> str:
        """Withdraw a request of yours that nobody has decided yet."""
        done = await self._said(self._door.post(f"/requests/{request}/cancel", {"reason": reason}))
        return done if isinstance(done, str) else str(done["sentence"])

    async def _get(self, path: str, **params: Any) -> Any:
        return await self._said(self._door.get(path, **params))

    async def _said(self, call: Any) -> Any:
        """The answer, or the sentence of a refusal: an agent reads it and goes on."""
        try:
            return await call
        except RefusedCall as refused:
            return f"Refused ({refused.code}): {logs.visible(logs.redact(str(refused)))}"
        except httpx.TransportError as error:
            return f"The service cannot be reached: {type(error).__name__}."


def _waits(one: RequestOut) -> str:
    """A request in words: an agent must see at once that a person decides."""
    said = [f"Request {one.id} is {one.state}."]
    if one.waiting:
        names = [f"@{name}" for name in (*one.waiting.approvers, *one.waiting.approver_groups)]
        said.append(f"It is waiting for {' or '.join(names) or 'somebody to be named as approver in the policy'}.")
        said.append(f"{one.waiting.rule} It expires {when(one.waiting.until)}.")
    said += [
        f"{option.rank}: {option.gpu_count}x {option.gpu} at {option.cloud} ({option.offer_id}), "
        f"${option.price_usd_h}/h, expected ${option.expected_usd} in all."
        for option in one.options
        if one.waiting
    ]
    if one.decided_by:
        said.append(f"Decided by {one.decided_by}. {one.outcome}".strip())
    elif one.outcome:
        said.append(one.outcome)
    if one.session_id:
        said.append(f"Its session is {one.session_id}.")
    return "\n".join(said)


def _text(told: Any) -> str:
    """Tables and sentences as plain lines."""
    found = TextReport.model_validate(told)
    lines = [found.lead]
    for table in found.tables:
        lines += [" | ".join(row) for row in (table.head, *table.rows)]
    return "\n".join(line for line in (*lines, *found.sentences) if line)
