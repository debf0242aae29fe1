"""Driving a practice workspace that another process serves: the same verbs and questions, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from bot.practice.driver import WAIT_S, describe
from bot.practice.faults import SlackFault
from bot.practice.model import ActionResult, ChatMessage, Json, OpenView
from bot.practice.reader import Reader

T = TypeVar("T")
POLL_S: Final = 5.0
TIMEOUT_S: Final = 40.0


class RemoteDriver(Reader):
    """`async with RemoteDriver("http://127.0.0.1:4711") as ws: await ws.as_("alice").command("/gpu help")`.

    The questions of `Reader` are answered from the newest state fetched: each verb and `until` fetch it anew.
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

    def as_(self, who: str) -> RemotePerson:
        """Somebody's hands. LookupError for an unknown name."""
        self.user_id(who)
        return RemotePerson(self, who)

    async def refresh(self, *, after: int = -1, wait_s: float = 0) -> None:
        """Fetch the state; with `after` and `wait_s`, as soon as there is a newer version than `after`."""
        answer = await self._client.get("/state", params={"after": after, "wait_s": wait_s})
        answer.raise_for_status()
        self.state = answer.json()

    async def call(self, verb: str, body: Json) -> Json:
        """One verb. LookupError for what does not exist, ValueError for a wrong argument, with the server's words."""
        answer = await self._client.post(f"/{verb}", json=body)
        if answer.status_code in {400, 404, 415}:
            kind = LookupError if answer.status_code == 404 else ValueError
            raise kind(answer.json()["error"])
        answer.raise_for_status()
        await self.refresh()
        result: Json = answer.json()
        return result

    async def until(self, look: Callable[[], T], timeout_s: float = WAIT_S) -> T:
        """Wait until `look()` is true and return what it said; it is asked again after every change.

        Raises TimeoutError, with what is on the screens, after `timeout_s` real seconds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.refresh()
                while not (found := look()):
                    await self.refresh(after=self.state["version"], wait_s=POLL_S)
                return found
        except TimeoutError:
            raise TimeoutError(f"nothing became true within {timeout_s} s; {describe(self.all_messages())}") from None

    async def travel(self, seconds: float) -> None:
        """Move the workspace's clock forward."""
        await self.call("travel", {"seconds": seconds})

    async def fault(self, fault: SlackFault) -> None:
        """Order a fault."""
        names = ("where", "name", "kind", "times", "seconds", "error")
        await self.call("fault", {name: getattr(fault, name) for name in names})

    async def delete_message(self, message: ChatMessage) -> None:
        """Take a message away, as an administrator can."""
        await self.call("delete_message", {"channel": message.channel, "ts": message.ts})

    async def log(self, after: int = 0) -> list[Json]:
        """The raw log: what went over the wire in both directions."""
        answer = await self._client.get("/log", params={"after": after})
        lines: list[Json] = answer.json()["log"]
        return lines

    # ── Reader ───────────────────────────────────────────────────────────────────────────────────

    def all_messages(self) -> Iterable[ChatMessage]:
        """Every message, oldest first."""
        return [ChatMessage.from_state(data) for data in self.state["messages"]]

    def channel_id(self, which: str) -> str:
        """The id of a channel."""
        bare = which.removeprefix("#")
        for channel in self.state["channels"]:
            if bare == channel["id"] or (bare == channel["name"] and not channel["dm_user"]):
                return str(channel["id"])
        raise LookupError(f"no channel is called {which!r}")

    def user_id(self, who: str) -> str:
        """The id of a person."""
        for user in self.state["users"]:
            if who.removeprefix("@") in {user["id"], user["name"]}:
                return str(user["id"])
        raise LookupError(f"nobody is called {who!r}")

    def dm_id(self, who: str) -> str:
        """The id of somebody's direct messages with the app."""
        person = self.user_id(who)
        for channel in self.state["channels"]:
            if channel["dm_user"] == person:
                return str(channel["id"])
        raise LookupError(f"{who} has no messages with the app yet")

    def view_stack(self, who: str) -> list[OpenView]:
        """The modals on somebody's screen, the top one last."""
        return [OpenView.from_state(data) for data in self.state["stacks"].get(self.user_id(who), [])]

    def home(self, who: str) -> OpenView | None:
        """Somebody's home tab."""
        found = self.state["homes"].get(self.user_id(who))
        return OpenView.from_state(found) if found else None


class RemotePerson:
    """One person's hands, in another process."""

    def __init__(self, driver: RemoteDriver, name: str) -> None:
        self._driver = driver
        self.name = name

    async def _do(self, verb: str, **body: Any) -> ActionResult:
        return ActionResult(**await self._driver.call(verb, {"as": self.name, **body}))

    async def command(self, line: str, channel: str = "#gpu", thread_ts: str | None = None) -> ActionResult:
        """Type a slash command."""
        return await self._do("command", text=line, channel=channel, thread_ts=thread_ts)

    async def say(self, text: str, channel: str = "#gpu", thread_ts: str | None = None) -> ChatMessage:
        """Write a message."""
        body = {"as": self.name, "text": text, "channel": channel, "thread_ts": thread_ts}
        return ChatMessage.from_state((await self._driver.call("say", body))["message"])

    async def click(
        self, thing: ChatMessage | OpenView, what: str, value: Any = None, values: Mapping[str, Any] | None = None
    ) -> ActionResult:
        """Press a button or choose in a menu, on the message or view as this snapshot shows it."""
        if isinstance(thing, OpenView):
            return await self._do("view_click", view_id=thing.id, what=what, value=value, values=values)
        return await self._do(
            "click", channel=thing.channel, ts=thing.ts, what=what, value=value, version=thing.version
        )

    async def submit(self, view: OpenView, values: Mapping[str, Any] | None = None) -> ActionResult:
        """Fill in a modal (by block_id, action_id or label) and submit it."""
        return await self._do("submit", view_id=view.id, values=values)

    async def close(self, view: OpenView, *, everything: bool = False) -> ActionResult:
        """Close a modal."""
        return await self._do("close", view_id=view.id, everything=everything)

    async def open_home(self) -> ActionResult:
        """Look at the app's home tab."""
        return await self._do("home")

    async def view(self, timeout_s: float = WAIT_S) -> OpenView:
        """The modal on this person's screen, waited for."""
        found = await self._driver.until(lambda: self._driver.view(self.name), timeout_s)
        if found is None:
            raise TimeoutError(f"{self.name} has no dialog on the screen")
        return found
