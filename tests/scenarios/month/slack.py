"""The month's messages in the Slack stand-in, through the product's own door: rendered, limited, refused, edited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from bot.practice.app import Practice
from bot.practice.faults import SlackFault
from bot.practice.model import User
from bot.practice.workspace import Workspace
from bot.services.runtime.context import Context
from bot.slack.notifier import Notifier
from bot.slack.settings import SlackSettings
from bot.slack.web import Web
from ledger.kernel.clock import Clock

MANIFEST = Path(__file__).parents[3] / "manifest.yml"
BOT_TOKEN, SECRET = "xoxb-practice-token", "a signing secret for tests only"  # Of nobody's app.
CHANNEL = "C0GPU"


class StandIn:
    """One workspace for all lives; each life has a door of its own."""

    def __init__(self, practice: Practice) -> None:
        self._practice = practice
        self._web: Web | None = None
        self._read = 0
        self._refused: list[str] = []

    def door(self, ctx: Context) -> Notifier:
        """The door of a life that begins."""
        settings = SlackSettings(BOT_TOKEN, SECRET, base_url=self._practice.api_url)
        self._web = Web(settings)
        return Notifier(ctx, settings, self._web)

    async def leave(self) -> None:
        """The life is over."""
        if self._web is not None:
            await self._web.close()

    def switch(self, *, down: bool) -> None:
        """From now on every call fails, or none does."""
        faults = self._practice.workspace.faults
        faults.clear()
        if down:
            faults.add(SlackFault("api", "*", "http_500", times=10**9))

    def look(self) -> None:
        """Read the log of calls, of which only the newest are kept."""
        for one in self._practice.workspace.log:
            if one.number > self._read:
                self._read = one.number
                if one.response.get("error") in REFUSED:
                    self._refused.append(f"Slack refuses: {one.name} {one.response}")

    def broken(self) -> list[str]:
        """What stands there twice, and what Slack would not have taken."""
        twice = [f"twice in Slack: {group[0].text[:120]}" for group in self._practice.driver.duplicates()]
        return twice + self._refused


#: Answers that say that a message of ours is not as Slack wants it.
REFUSED = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long", "no_text"})


@asynccontextmanager
async def stand_in(clock: Clock, people: Iterable[str]) -> AsyncIterator[StandIn]:
    """Serve a workspace with these people in it."""
    space = Workspace(clock, signing_secret=SECRET, bot_token=BOT_TOKEN, manifest=MANIFEST, signing_clock=clock)
    for name in people:
        space.add_user(User(name, name.lower(), name, f"{name.lower()}@practice.example"))
        space.channels[CHANNEL].members.add(name)
    practice = Practice(space)
    async with practice.serve():
        built = StandIn(practice)
        try:
            yield built
        finally:
            await built.leave()
