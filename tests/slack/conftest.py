"""The whole door on a stage: the practice workspace, the sandboxes and the services, over real HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from bot.practice.app import Practice
from bot.practice.driver import Driver
from bot.practice.faults import SlackFault
from bot.practice.model import ChatMessage
from bot.practice.reader import Person, buttons
from bot.practice.workspace import Workspace
from bot.rules.policy.policy import Policy
from bot.services.runtime.context import Context
from bot.slack.app import SlackApp
from bot.slack.settings import SlackSettings
from ledger.engine.db import Database
from providers.sandbox.clock import SandboxTiming
from tests.slack.signing import SECRET
from tests.support.clock import SteppedClock
from tests.support.serving import serving
from tests.support.world import World, world

MANIFEST = Path(__file__).parents[2] / "manifest.yml"
BOT_TOKEN = "xoxb-practice-token"
APP_TOKEN = "xapp-practice-token"
APPROVERS = ("U0BOB", "U0CAROL")
#: Slack allows three seconds; a machine that runs other tests beside these may take longer.
ACK_LIMIT_S = 30.0


def words_before_the_buttons(message: ChatMessage) -> int:
    """How many words of a card stand before its buttons, as somebody counts who reads it."""
    before: list[str] = []
    for block in message.blocks:
        if block["type"] == "actions":
            break
        _words(block, before)
    # A date token is read as two words: the day and the time.
    text = re.sub(r"<!date[^>]*>", "today 8:58PM", " ".join(before))
    return len([word for word in text.split() if any(one.isalnum() for one in word)])


def _words(value: Any, found: list[str]) -> None:
    if isinstance(value, dict):
        found += [value["text"]] if isinstance(value.get("text"), str) else []
        for item in value.values():
            _words(item, found)
    elif isinstance(value, list):
        for item in value:
            _words(item, found)


def answers(stage: Stage, message: ChatMessage) -> list[ChatMessage]:
    """The replies in a request's thread beside its details."""
    return [one for one in stage.ws.thread(message) if not one.text.startswith("How each total is made")]


@dataclass
class Stage:
    """A door with everything around it. `act` waits until what somebody did has been worked on and shown."""

    w: World
    practice: Practice
    door: SlackApp
    settings: SlackSettings

    @property
    def ctx(self) -> Context:
        """The services' context."""
        return self.w.ctx

    @property
    def ws(self) -> Driver:
        """The people's hands and eyes."""
        return self.practice.driver

    def as_(self, who: str) -> Person:
        """Somebody's hands."""
        return self.ws.as_(who)

    def fault(self, name: str, kind: str, where: str = "api", **more: Any) -> None:
        """Order a fault of the practice workspace."""
        self.practice.workspace.faults.add(SlackFault(where, name, kind, **more))

    def calls(self, method: str) -> list[dict[str, Any]]:
        """The arguments of every call of a Web API method so far."""
        return [record.request for record in self.practice.workspace.log if record.name == method]

    async def settle(self) -> None:
        """Work on everything that was acknowledged, tick until nothing is due, and show it."""
        await self.door.idle()
        await self.ctx.inbox.drain()
        await self.w.settle()

    async def command(self, who: str, line: str, channel: str = "#gpu") -> Any:
        """Type a command and wait for what follows."""
        outcome = await self.as_(who).command(line, channel)
        await self.settle()
        return outcome

    async def click(self, who: str, thing: Any, what: str) -> Any:
        """Press a button and wait for what follows."""
        outcome = await self.as_(who).click(thing, what)
        await self.settle()
        return outcome

    async def submit(self, who: str, values: dict[str, Any]) -> Any:
        """Fill in the dialog on somebody's screen and wait for what follows."""
        view = self.ws.view(who)
        assert view is not None
        outcome = await self.as_(who).submit(view, values)
        await self.settle()
        return outcome

    async def ask(self, line: str = '/gpu provision 1x4090 2h for="fine-tune"', who: str = "alice") -> ChatMessage:
        """Ask for GPUs and return the message with the offers."""
        await self.command(who, line)
        return self.message()

    def message(self, channel: str = "#gpu") -> ChatMessage:
        """The newest message in a channel."""
        return self.ws.channel_messages(channel)[-1]

    def approve_button(self, message: ChatMessage) -> str:
        """The action id of the button that approves what the card shows."""
        (found,) = [str(b["action_id"]) for b in buttons(message) if b["action_id"].startswith("approve:")]
        return found

    async def choose(self, who: str, message: ChatMessage, nth: int = 1, amount: str | None = None) -> Any:
        """Approve the `nth` other offer in the dialog of *Other offers*."""
        await self.click(who, message, "offers")
        view = self.ws.view(who)
        assert view is not None
        token = view.blocks[0]["element"]["options"][nth]["value"]  # The first one is the recommended offer.
        return await self.submit(who, {"offer": token, **({"amount": amount} if amount else {})})

    async def replaced(self, **policy: Any) -> None:
        """Change the policy: a new door on the same ledger, as after a restart."""
        ctx = replace(self.ctx, policy=replace(self.ctx.policy, **policy))
        await self.restart(ctx)

    async def restart(self, ctx: Context) -> None:
        """Stop the door and build another."""
        await self.door.stop()
        self.w.ctx = ctx
        self.door = SlackApp(ctx, self.settings)
        self.w.board = cast("Any", self.door.messenger)
        await self.door.start()


@asynccontextmanager
async def staged(
    db: Database,
    clock: SteppedClock,
    *,
    socket: bool = False,
    policy: Policy | None = None,
    volumes: bool = False,
    sandbox: SandboxTiming | None = None,
    **changes: Any,
) -> AsyncIterator[Stage]:
    """Build a stage on `db`. Bob and Carol are approvers; `changes` go into the door's settings."""
    policy = policy or Policy(approvers=APPROVERS)
    async with world(db, clock, policy=policy, sandbox=sandbox or SandboxTiming.quick(), volumes=volumes) as w:
        space = Workspace(
            clock,
            signing_secret=SECRET,
            bot_token=BOT_TOKEN,
            app_token=APP_TOKEN,
            manifest=MANIFEST,
            signing_clock=clock,
            ack_limit_s=ACK_LIMIT_S,
        )
        practice = Practice(space)
        holder: list[Stage] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await holder[0].door.asgi(scope, receive, send)

        async with practice.serve(), serving(app) as url:
            space.request_url = None if socket else f"{url}/slack/events"
            settings = SlackSettings(
                bot_token=BOT_TOKEN,
                signing_secret=SECRET,
                app_token=APP_TOKEN if socket else None,
                base_url=practice.api_url,
                **changes,
            )
            door = SlackApp(w.ctx, settings)
            stage = Stage(w, practice, door, settings)
            holder.append(stage)
            w.board = cast("Any", door.messenger)
            await door.start()
            try:
                yield stage
                shown = [f"{one.text} {one.blocks}" for one in space.messages]
                shown += [str(one.body) for one in space.homes.values()]
                # Slack shows "today 9:14 AM", so no message says "at" before it.
                assert [one for one in shown if re.search(r"\bat <!date", one)] == []
            finally:
                await stage.door.stop()


@pytest.fixture
async def stage(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[Stage]:
    """The door in HTTP mode."""
    async with staged(sqlite_db, clock) as built:
        yield built


@pytest.fixture
async def socket_stage(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[Stage]:
    """The door in Socket Mode."""
    async with staged(sqlite_db, clock, socket=True) as built:
        yield built
