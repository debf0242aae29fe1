"""Hold the state of one practice workspace, and find and name what is in it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bot.clock import SystemClock
from bot.practice.faults import FaultPlan
from bot.practice.limits import RateLimits
from bot.practice.manifest import load_manifest
from bot.practice.model import (
    BOT_USER_ID,
    PARTNER_TEAM_ID,
    SLACKBOT_ID,
    ApiError,
    Channel,
    ChatMessage,
    Json,
    OpenView,
    Record,
    ResponseUrl,
    Trigger,
    UploadedFile,
    User,
    Usergroup,
)
from bot.practice.signal import Signal
from ledger.kernel.clock import Clock

ACK_LIMIT_S: Final = 3.0
TRIGGER_TTL: Final = timedelta(seconds=3)
LOG_KEPT: Final = 500

PEOPLE: Final = (
    ("U0ALICE", "alice", "Alice Moreau", "requester"),
    ("U0BOB", "bob", "Bob Okafor", "approver"),
    ("U0CAROL", "carol", "Carol Lindqvist", "second approver"),
    ("U0DAVE", "dave", "Dave Petrov", "outsider"),
)
#: The longest step: bills, check-ins and listings with intervals of their own must run in between.
STRIDE_S: Final = 600.0
#: At first the steps follow rows that are due again within seconds, such as a machine that boots or ends. A row that is
#: due again without end must not turn half a day into thousands of steps.
CLOSELY: Final = 120
NEAREST_S, LATER_S = 1.0, 60.0

TravelHook = Callable[[float], Awaitable[None]]
#: Returns the seconds until the app's next due row; None without one.
DueHook = Callable[[], Awaitable[float | None]]


class Workspace:
    """One workspace with one app installed in it.

    `request_url` is where the app receives signed requests; None means that it connects by Socket Mode instead.
    `manifest` is the app's manifest.yml; a file that does not exist yet grants everything. `strict_api` refuses
    unknown arguments, wrong verbs and missing scopes; `strict_rates` refuses calls above the rate limits.
    `signing_clock` stamps requests and is the machine's own by default, because the receiver compares with that.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        signing_secret: str,
        bot_token: str,
        app_token: str = "",
        request_url: str | None = None,
        manifest: Path | None = None,
        signing_clock: Clock | None = None,
        strict_api: bool = True,
        strict_rates: bool = False,
        ack_limit_s: float = ACK_LIMIT_S,
    ) -> None:
        self.clock = clock
        self.signing_clock: Clock = signing_clock if signing_clock is not None else SystemClock()
        self.signing_secret = signing_secret
        self.bot_token = bot_token
        self.app_token = app_token
        self.request_url = request_url
        self.manifest = load_manifest(manifest)
        self.strict_api = strict_api
        self.ack_limit_s = ack_limit_s
        self.base_url = ""
        self.limits = RateLimits(clock, strict=strict_rates)
        self.faults = FaultPlan()
        self.signal = Signal()
        self.on_travel: list[TravelHook] = []
        self.due_in: DueHook | None = None
        self._journey = asyncio.Lock()
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.usergroups: dict[str, Usergroup] = {}
        self.messages: list[ChatMessage] = []
        self.views: dict[str, OpenView] = {}
        self.stacks: dict[str, list[OpenView]] = {}
        self.homes: dict[str, OpenView] = {}
        self.files: dict[str, UploadedFile] = {}
        self.triggers: dict[str, Trigger] = {}
        self.response_urls: dict[str, ResponseUrl] = {}
        self.log: list[Record] = []
        self._last_ts_us = 0
        self._number = 0
        self._seed()

    def _seed(self) -> None:
        for user_id, name, real_name, role in PEOPLE:
            self.add_user(User(user_id, name, real_name, f"{name}@practice.example", role))
        self.add_user(
            User("U0ERIN", "erin", "Erin Novak", "erin@partner.example", "guest of a partner", PARTNER_TEAM_ID)
        )
        bot = self.manifest.bot_name
        self.add_user(User(BOT_USER_ID, bot, self.manifest.name, "", is_bot=True))
        self.add_user(User(SLACKBOT_ID, "slackbot", "Slackbot", "", is_bot=True))
        everybody = {user_id for user_id, *_ in PEOPLE}
        self.add_channel(
            Channel("C0GPU", "gpu", everybody | {"U0ERIN", BOT_USER_ID}, topic="Ask for GPUs here: /gpu provision")
        )
        self.add_channel(Channel("C0GENERAL", "general", set(everybody), topic="The app is not a member here"))
        for user_id, *_ in PEOPLE:
            self.dm(user_id)
        group = Usergroup("S0GPUAPPROVERS", "gpu-approvers", "GPU approvers", ["U0BOB", "U0CAROL"])
        self.usergroups[group.id] = group

    # ── change and time ──────────────────────────────────────────────────────────────────────────

    def changed(self) -> None:
        """Wake everybody who waits for a change: the driver, the page, the remote driver."""
        self.signal.notify()

    async def travel(self, seconds: float) -> None:
        """Move the clock forward in steps, and call the subscribers in `on_travel` after each step.

        A step ends at the next due row that `due_in` knows, so that a warning is sent before the end that it announces.
        Journeys run one after the other. TypeError when the clock cannot move.
        """
        move = getattr(self.clock, "travel", None)
        if move is None:
            raise TypeError("this workspace's clock cannot travel: build it with bot.clock.TravelClock")
        async with self._journey:
            left_s, steps = seconds, 0
            while steps == 0 or (left_s > 0 and not self.signal.closed):
                due_in_s = await self.due_in() if self.due_in is not None else None
                going_s = _step_s(left_s, due_in_s, steps)
                move(going_s)
                for hook in self.on_travel:
                    await hook(going_s)
                left_s, steps = left_s - going_s, steps + 1
                self.changed()

    def next_ts(self) -> str:
        """Return a message's name: seconds with six decimals, unique and growing."""
        now_us = int(self.clock.now().timestamp() * 1_000_000)
        self._last_ts_us = max(now_us, self._last_ts_us + 1)
        return f"{self._last_ts_us // 1_000_000}.{self._last_ts_us % 1_000_000:06d}"

    def number(self) -> int:
        """Return a number never used before."""
        self._number += 1
        return self._number

    def new_id(self, prefix: str) -> str:
        """Return an id in Slack's style: the prefix and ten upper-case characters."""
        return f"{prefix}{self.number():02X}{secrets.token_hex(4).upper()}"

    def record(self, kind: Any, name: str, request: Json, response: Json, status: int | None) -> None:
        """Add one line to the raw log; the oldest lines are dropped when it is full."""
        stamp = self.clock.now().isoformat()
        self.log.append(Record(self.number(), stamp, kind, name, request, response, status))
        del self.log[:-LOG_KEPT]
        self.changed()

    # ── people and places ────────────────────────────────────────────────────────────────────────

    def add_user(self, user: User) -> User:
        """Add somebody to the workspace."""
        self.users[user.id] = user
        return user

    def add_channel(self, channel: Channel) -> Channel:
        """Add a channel to the workspace."""
        self.channels[channel.id] = channel
        return channel

    def user(self, who: str) -> User:
        """Find a user by id, name or @name. LookupError lists the people."""
        bare = who.removeprefix("@")
        for user in self.users.values():
            if bare in {user.id, user.name}:
                return user
        known = ", ".join(sorted(u.name for u in self.users.values()))
        raise LookupError(f"nobody is called {who!r} here; there are {known}")

    def channel(self, which: str) -> Channel:
        """Find a channel by id, #name or name; a person's id or @name gives their direct messages with the app."""
        bare = which.removeprefix("#")
        for channel in self.channels.values():
            if bare in {channel.id, channel.name} and (not channel.is_im or bare == channel.id):
                return channel
        if which.startswith("@") or which in self.users:
            return self.dm(self.user(which).id)
        known = ", ".join(sorted(f"#{c.name}" for c in self.channels.values() if not c.is_im))
        raise LookupError(f"no channel is called {which!r} here; there are {known}")

    def dm(self, user_id: str) -> Channel:
        """Return the direct messages between a person and the app, opened when they are not open yet."""
        channel_id = f"D0{user_id.removeprefix('U0')}"
        if channel_id not in self.channels:
            self.add_channel(Channel(channel_id, "directmessage", {user_id, BOT_USER_ID}, dm_user=user_id))
        return self.channels[channel_id]

    def place_for_app(self, reference: object, *, posting: bool = False) -> Channel:
        """Return the channel that the app means, as the Web API reads it. Raises `ApiError`."""
        if not isinstance(reference, str) or not reference:
            raise ApiError("channel_not_found")
        bare = reference.removeprefix("#")
        if reference in self.users:
            channel: Channel | None = self.dm(reference)
        else:
            named = (c for c in self.channels.values() if c.name == bare and not c.is_im)
            channel = self.channels.get(reference) or next(named, None)
        if channel is None or (channel.is_private and BOT_USER_ID not in channel.members):
            raise ApiError("channel_not_found")
        if posting:
            self._may_post(channel)
        return channel

    def _may_post(self, channel: Channel) -> None:
        if channel.archived:
            raise ApiError("is_archived")
        if channel.is_im and not self.manifest.messages_tab:
            raise ApiError("messages_tab_disabled")
        if channel.dm_user in self.users and self.users[channel.dm_user].deleted:
            raise ApiError("channel_not_found")
        scopes = self.manifest.scopes
        uninvited = scopes is not None and "chat:write.public" in scopes
        if BOT_USER_ID not in channel.members and not uninvited:
            raise ApiError("not_in_channel")

    # ── messages ─────────────────────────────────────────────────────────────────────────────────

    def find_message(self, channel_id: str, ts: str) -> ChatMessage | None:
        """Return the message of that name, also when it has been deleted."""
        return next((m for m in self.messages if m.channel == channel_id and m.ts == ts), None)

    def living(self, channel_id: str) -> Iterable[ChatMessage]:
        """Return the messages of a channel that everybody sees, oldest first."""
        return (m for m in self.messages if m.channel == channel_id and not m.deleted and m.ephemeral_to is None)

    # ── rights that an interaction gives ─────────────────────────────────────────────────────────

    def new_trigger(self, user_id: str) -> str:
        """Return a new trigger_id for `user_id`."""
        trigger = Trigger(f"{self.number()}.{secrets.token_hex(12)}", user_id, self.clock.now())
        self.triggers[trigger.id] = trigger
        return trigger.id

    def use_trigger(self, trigger_id: object) -> str:
        """Use a trigger_id up and return its user. Raises `ApiError` when it is unknown, old or used."""
        trigger = self.triggers.get(trigger_id) if isinstance(trigger_id, str) else None
        if trigger is None:
            raise ApiError("invalid_trigger_id")
        if trigger.used:
            raise ApiError("exchanged_trigger_id")
        if self.clock.now() - trigger.at > TRIGGER_TTL:
            raise ApiError("expired_trigger_id")
        trigger.used = True
        return trigger.user

    def new_response_url(self, user_id: str, channel_id: str, message_ts: str | None = None) -> str:
        """Return a response_url for one interaction; `message_ts` is the message it may replace."""
        token = secrets.token_hex(16)
        self.response_urls[token] = ResponseUrl(token, user_id, channel_id, self.clock.now(), message_ts)
        return f"{self.base_url}/response/{token}"

    def close(self) -> None:
        """End the streams and waits of the workspace."""
        self.signal.close()


def _step_s(left_s: float, due_in_s: float | None, steps: int) -> float:
    """Return the seconds of the next step of a journey with `left_s` to go: to what is due next, or one stride.

    `due_in_s` is how far away the next due row is, None when there is none; `steps` were made already.
    """
    nearest_s = NEAREST_S if steps < CLOSELY else LATER_S
    wanted_s = STRIDE_S if due_in_s is None else min(STRIDE_S, max(due_in_s, nearest_s))
    return min(left_s, wanted_s)
