"""One person at every interface: Slack's commands, buttons, dialogs and home tab, REST, the command line and MCP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import httpx

from bot.api.app import routes
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.access.in_process_api import _AsOperator
from bot.practice.model import ChatMessage
from bot.practice.reader import buttons
from bot.rules.access.scopes import Scope
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey, Principal, agent_of
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.request_kind import RequestKind
from ledger.models import Request
from tests.api.door import ADA, JOB, Door, opened
from tests.api.generated.ownership import read_rows
from tests.slack.conftest import Stage
from tests.support.world import CHANNEL

#: What of each table's rows is compared, so that what is noted of a refused call does not count.
STORED: Mapping[str, tuple[str, ...]] = {
    "requests": ("id", "state", "job"),
    "approvals": ("id",),
    "grants": ("id", "state"),
    "sessions": ("id", "hours", "deadline"),
    "instances": ("id",),
    "api_keys": ("id", "revoked_at"),
    "consumers": ("actor",),
    "delegations": ("id", "ended_at"),
    "webhooks": ("id",),
    "ssh_keys": ("owner", "public_key"),
    "budget_limits": ("scope", "limit_usd"),
}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@laptop"
Act = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Attempt:
    """One thing that somebody tries. `asks`: every member may do it, also one whom the policy does not name."""

    interface: str
    what: str
    act: Act
    asks: bool = False


@dataclass
class Everywhere:
    """One person, `name` in Slack and `operator:name` elsewhere, and what others left for them to decide."""

    stage: Stage
    rest: Door
    name: str
    #: Tokens: the person's own key, one with the scope admin, and those of their program and of their AI agent.
    keys: dict[str, str] = field(default_factory=dict)
    messages: dict[RequestKind, ChatMessage] = field(default_factory=dict)
    requests: dict[RequestKind, Request] = field(default_factory=dict)
    own: str = ""
    session: str = ""
    _tried: int = 0

    @property
    def operator(self) -> Actor:
        """The same person on the server."""
        return Actor(ActorKind.OPERATOR, self.name)

    async def stored(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that an accepted attempt would change."""
        rows = await read_rows(self.stage.ctx.db)
        return {
            table: [tuple(row._mapping[column] for column in columns) for row in rows[table]]
            for table, columns in STORED.items()
        }

    async def accepted(self, attempt: Attempt) -> dict[str, list[tuple[Any, ...]]]:
        """Try one thing; what it stored, by table."""
        before = await self.stored()
        await attempt.act()
        await self.stage.settle()
        after = await self.stored()
        return {table: new for table in STORED if (new := [row for row in after[table] if row not in before[table]])}

    # ── what there is to decide and to spend ─────────────────────────────────────────────────────

    async def prepare(self) -> None:
        """Alice's requests wait, of each kind one; the person has keys, a session and a request of their own."""
        stage, w = self.stage, self.stage.w
        self.session = await self._running(self.name)
        theirs = await self._running("alice")
        for kind, line in (
            (RequestKind.PROVISION, "provision 1x4090 2h for=a"),
            (RequestKind.OVERRIDE_12H, "provision 1x4090 20h for=b"),
            (RequestKind.EXTEND, f"extend {theirs} 3h for=c"),
        ):
            await stage.command("alice", f"/gpu {line}")
            self.requests[kind] = next(one for one in (await w.books()).requests[::-1] if one.kind is kind)
            self.messages[kind] = next(one for one in stage.ws.channel_messages()[::-1] if _buttons(one, "reject"))
        await stage.command(self.name, "/gpu provision 1x4090 1h for=mine")
        self.own = (await w.books()).requests[-1].id
        slack = f"slack:{stage.ws.user_id(self.name)}"
        for name, holder, owner, scopes in (
            ("own", self.operator.ref, "", ()),
            ("admin", self.operator.ref, "", tuple(Scope)),
            ("program", "atlas", slack, ()),
            ("agent", "agent:coder", self.operator.ref, ()),
        ):
            made = await api_keys.create(
                stage.ctx.db, stage.ctx.labels, NewKey(holder, owner, scopes), ADA, w.clock.now()
            )
            assert made.ok, made
            self.keys[name] = str(made.data["token"])

    async def _running(self, who: str) -> str:
        """A running session of somebody, approved by Carol; the end of its id."""
        message = await self.stage.ask("/gpu provision 1x4090 4h clouds=vast", who)
        await self.stage.click("carol", message, self.stage.approve_button(message))
        await self.stage.w.run(60, 20)
        return (await self.stage.w.books()).sessions[-1].id[-8:]

    # ── what they try ────────────────────────────────────────────────────────────────────────────

    def everything(self) -> Iterator[Attempt]:
        """Every attempt that needs no dialog."""
        yield from self._commands()
        yield from self._clicks()
        yield from self._with_keys()

    def _commands(self) -> Iterator[Attempt]:
        day = (self.stage.w.clock.now() + timedelta(days=1)).date()
        for line, asks in (
            ("provision 1x4090 2h for=x", True),
            ("provision 1x4090 2h clouds=vast", True),
            ("provision 2x4090 1h spot=any", True),
            ("rent 1x4090 20h for=long", True),
            ("provision model=1B tokens=30M seq=2048 batch=64 gpu=4090", True),
            (f"extend {self.session} 30m", True),
            (f"extend {self.session} 5h for=more", True),
            (f"delegate @dave until {day}", False),
            (f"break-glass {self.own[-8:]} for=urgent", False),
        ):
            yield Attempt("slack command", line, self._command(line), asks)

    def _command(self, line: str) -> Act:
        return partial(self.stage.as_(self.name).command, f"/gpu {line}")

    def _clicks(self) -> Iterator[Attempt]:
        for kind, message in self.messages.items():
            for verb in ("approve", "reject", "change"):
                for number, one in enumerate(_buttons(self.stage.ws.now(message), verb)[:2]):
                    yield Attempt(
                        "slack button", f"{verb} {kind} {number}", self._click(message, str(one["action_id"]))
                    )

    def _click(self, message: ChatMessage, action: str) -> Act:
        async def click() -> None:
            if action in {str(one["action_id"]) for one in buttons(self.stage.ws.now(message))}:
                await self.stage.as_(self.name).click(message, action)

        return click

    def _with_keys(self) -> Iterator[Attempt]:
        for key, interface in (("own", "rest"), ("admin", "rest as admin"), ("program", "program"), ("agent", "agent")):
            for method, path, body in self._calls(is_program=key in ("program", "agent")):
                act = self._call(self.rest.http, method, path, body, self.keys[key])
                yield Attempt(interface, f"{method} {path}", act, asks=_for_members(method, path))

    def on_the_server(self, http: httpx.AsyncClient, for_agent: httpx.AsyncClient) -> list[Attempt]:
        """The command line of the server, and the AI agent that it serves by MCP."""
        calls = [
            Attempt("command line", f"{method} {path}", self._call(http, method, path, body))
            for method, path, body in self._calls(is_program=False)
        ]
        calls = [replace(one, asks=_for_members(*one.what.split(" "))) for one in calls]
        words = {"words": "1x4090 2h", "reason": "agent"}
        return [*calls, Attempt("mcp", "ask", self._call(for_agent, "POST", "/sessions", words), asks=True)]

    def _calls(self, *, is_program: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """What is called over HTTP; with each key, and on the server without one."""
        yield "POST", "/sessions", dict(JOB)
        yield "POST", "/sessions", {**JOB, "hours": 20}
        yield "POST", f"/sessions/{self.session}/extend", {"hours": "30m"}
        yield "POST", f"/sessions/{self.session}/extend", {"hours": 5, "reason": "more"}
        if is_program:
            return
        day = (self.stage.w.clock.now() + timedelta(days=1)).date()
        for request in self.requests.values():
            yield "POST", f"/requests/{request.id}/approve", {"offer_id": ""}
            yield "POST", f"/requests/{request.id}/reject", {"reason": "no"}
        yield "POST", f"/requests/{self.own}/break-glass", {"reason": "urgent"}
        yield "PUT", "/delegations", {"delegate": self.stage.ws.user_id("dave"), "until": str(day)}
        yield "POST", "/keys", {"name": "hermes", "owner": self.operator.ref}

    def _call(self, http: httpx.AsyncClient, method: str, path: str, body: dict[str, Any], key: str = "") -> Act:
        async def call() -> None:
            self._tried += 1
            headers = {"Idempotency-Key": f"try-{self._tried}"}
            if key:
                headers["Authorization"] = f"Bearer {key}"
            said = dict(body)
            if "offer_id" in said:
                options = (await self.stage.w.view(path.split("/")[2])).options[:1]
                said = next(({"offer_id": o.offer_id, "amount": f"{o.expected_usd:.2f}"} for o in options), {})
            await http.request(method, f"/api/v1{path}", json=said, headers=headers)

        return call


def _for_members(method: str, path: str) -> bool:
    """Whether a call asks for something, or is what an administrator may do without approval rights."""
    return (method, path) == ("POST", "/keys") or (method == "POST" and path.startswith("/sessions"))


def _buttons(message: ChatMessage, verb: str) -> list[dict[str, Any]]:
    return [one for one in buttons(message) if str(one["action_id"]).partition(":")[0] == verb]


@asynccontextmanager
async def everywhere(stage: Stage, name: str) -> AsyncIterator[Everywhere]:
    """A person at every interface, with what there is to decide."""
    stage.w.ctx = stage.door.ctx
    async with opened(stage.w) as rest:
        person = Everywhere(stage, rest, name)
        await person.prepare()
        yield person


@asynccontextmanager
async def server(person: Everywhere) -> AsyncIterator[list[Attempt]]:
    """What the person tries on the server, where no key is needed."""
    ctx = person.stage.w.ctx
    app = routes({})
    app.state.deps = Dependencies(ctx, ApiSettings(CHANNEL))
    operator = Principal("", person.operator, person.operator, frozenset(Scope))
    agent = await agent_of(ctx.db, person.operator, ctx.clock.now())
    transports = [
        httpx.ASGITransport(app=_AsOperator(app, who), raise_app_exceptions=False) for who in (operator, agent)
    ]
    async with (
        httpx.AsyncClient(transport=transports[0], base_url="http://here") as http,
        httpx.AsyncClient(transport=transports[1], base_url="http://here") as for_agent,
    ):
        yield person.on_the_server(http, for_agent)
