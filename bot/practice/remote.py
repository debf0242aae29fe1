"""Drive a practice workspace that another process serves: the same verbs and questions, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import asdict
from types import TracebackType
from typing import Final, Self, TypeVar

import httpx

from bot.practice.faults import SlackFault
from bot.practice.model import ChatMessage, Json, OpenView
from bot.practice.reader import WAIT_S, Person, Reader, describe

T = TypeVar("T")
POLL_S: Final = 5.0
TIMEOUT_S: Final = 40.0


class RemoteDriver(Reader):
    """Drive a workspace over HTTP: `async with RemoteDriver("http://127.0.0.1:4711") as ws: …`.

    The questions of `Reader` are answered from the last fetched state; each verb and `until` fetch it again.
    """

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url.rstrip("/")
        # trust_env=False: a proxy from the environment must never carry what belongs on loopback.
        self._client = httpx.AsyncClient(base_url=f"{self.base_url}/practice/api", trust_env=False, timeout=TIMEOUT_S)
        self.state: Json = {}

    async def __aenter__(self) -> Self:
        await self.refresh()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    def as_(self, who: str) -> Person:
        """Return somebody to act as. LookupError for an unknown name."""
        self.user_id(who)
        return Person(self, who)

    async def refresh(self, *, after: int = -1, wait_s: float = 0) -> None:
        """Fetch the state; with `after` and `wait_s`, as soon as there is a newer version than `after`."""
        answer = await self._client.get("/state", params={"after": after, "wait_s": wait_s})
        answer.raise_for_status()
        self.state = answer.json()

    async def call(self, verb: str, body: Json) -> Json:
        """Call one verb. Raises LookupError or, for a wrong argument, ValueError, with the server's sentence."""
        answer = await self._client.post(f"/{verb}", json=body)
        if answer.status_code in {400, 404, 415}:
            kind = LookupError if answer.status_code == 404 else ValueError
            raise kind(answer.json()["error"])
        answer.raise_for_status()
        await self.refresh()
        result: Json = answer.json()
        return result

    async def until(self, look: Callable[[], T], timeout_s: float = WAIT_S) -> T:
        """Wait until `look()` is true and return its result."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.refresh()
                while not (found := look()):
                    await self.refresh(after=self.state["version"], wait_s=POLL_S)
                return found
        except TimeoutError:
            raise TimeoutError(f"nothing became true within {timeout_s} s; {describe(self.all_messages())}") from None

    async def fault(self, fault: SlackFault) -> None:
        """Order a fault."""
        await self.call("fault", asdict(fault))

    async def delete_message(self, message: ChatMessage) -> None:
        """Delete a message, as an administrator can."""
        await self.call("delete_message", {"channel": message.channel, "ts": message.ts})

    async def log(self, after: int = 0) -> list[Json]:
        """Return the raw log: requests and answers in both directions."""
        answer = await self._client.get("/log", params={"after": after})
        lines: list[Json] = answer.json()["log"]
        return lines

    # ── Reader ───────────────────────────────────────────────────────────────────────────────────

    def all_messages(self) -> Iterable[ChatMessage]:
        return [ChatMessage.from_state(data) for data in self.state["messages"]]

    def channel_id(self, which: str) -> str:
        bare = which.removeprefix("#")
        for channel in self.state["channels"]:
            if bare == channel["id"] or (bare == channel["name"] and not channel["dm_user"]):
                return str(channel["id"])
        raise LookupError(f"no channel is called {which!r}")

    def user_id(self, who: str) -> str:
        for user in self.state["users"]:
            if who.removeprefix("@") in {user["id"], user["name"]}:
                return str(user["id"])
        raise LookupError(f"nobody is called {who!r}")

    def dm_id(self, who: str) -> str:
        person = self.user_id(who)
        for channel in self.state["channels"]:
            if channel["dm_user"] == person:
                return str(channel["id"])
        raise LookupError(f"{who} has no messages with the app yet")

    def view_stack(self, who: str) -> list[OpenView]:
        return [OpenView.from_state(data) for data in self.state["stacks"].get(self.user_id(who), [])]

    def home(self, who: str) -> OpenView | None:
        found = self.state["homes"].get(self.user_id(who))
        return OpenView.from_state(found) if found else None
