"""The people of a chaos run: they ask, approve, reject, end and extend, whatever happens around them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import Random

from bot.practice.model import ActionResult, ChatMessage
from bot.practice.reader import buttons
from tests.scenarios.chaos.place import CLOUDS, Place

ASKERS, APPROVERS = ("alice", "dave"), ("bob", "carol")
#: Sessions are as short as the policy allows, so that many approved ends fall into the run. Near its end they are
#: shorter still, because the verdict waits for all of them.
MINUTES = (1, 2, 3, 4)
LAST_MINUTES = 2
MOST_ALIVE = 16
PAUSE_S = (0.5, 3.0)
REJECTED, TWICE, ENDED, EXTENDED = 0.05, 0.15, 0.05, 0.1


class People:
    """Everybody in the workspace. `asked` counts acknowledged requests, `clicked` the buttons that were pressed."""

    def __init__(self, place: Place, random: Random, seconds: float) -> None:
        """`seconds` is how long the trouble lasts."""
        self._place, self._random = place, random
        self._closing_s = time.monotonic() + seconds
        self._clicked: set[str] = set()
        self.asked = 0
        self.is_closing = False

    async def live(self) -> None:
        """Act until the run is over; while it closes, only what is open is decided."""
        while True:
            # A person whose click fails reads an error and tries again later.
            with suppress(LookupError, ValueError, TimeoutError):
                await self._act()
            await asyncio.sleep(self._random.uniform(*PAUSE_S))

    async def _act(self) -> None:
        if not self.is_closing and len(self._place.alive()) < MOST_ALIVE:
            await self._ask()
        for message in self._place.practice.driver.channel_messages("#gpu", threads=True):
            await self._decide(message)

    async def _ask(self) -> None:
        who, cloud = self._random.choice(ASKERS), self._random.choice(CLOUDS)
        gpu = self._place.clouds[cloud].STAPLE
        most = int(max(self._closing_s - time.monotonic(), 0.0) / 60) + LAST_MINUTES
        line = f"/gpu provision 1x{gpu} {min(self._random.choice(MINUTES), most)}m clouds={cloud}"
        self._place.commands += 1
        done = await self._person(who, line)
        self.asked += done.ok
        extends, ends = self._random.random() < EXTENDED, self._random.random() < ENDED
        # Nobody names a session while there is none to read: a command without its name is answered and not stored.
        session = await self._place.newest_session() if extends or ends else ""
        if extends and session:
            await self._person(who, f"/gpu extend {session} 1m")
        if ends and session:
            await self._person(who, f"/gpu terminate {session} now")

    async def _person(self, who: str, line: str) -> ActionResult:
        return await self._place.practice.driver.as_(who).command(line)

    async def _decide(self, message: ChatMessage) -> None:
        driver = self._place.practice.driver
        for button in buttons(message):
            label, value = str(button["text"]["text"]), str(button.get("value", ""))
            if not label.startswith("Approve") or value in self._clicked:
                continue
            self._clicked |= {str(one.get("value", "")) for one in buttons(message)}
            if self._random.random() < REJECTED:
                return
            self._place.clicked_s.setdefault(value.split("/", maxsplit=1)[0], time.monotonic())
            clicks = [driver.as_(who).click(message, value) for who in APPROVERS]
            if self._random.random() < TWICE:
                results = await asyncio.gather(*clicks)
            else:
                clicks.pop().close()
                results = [await clicks[0]]
            if not any(result.ok for result in results):
                self._clicked.discard(value)
            return
