"""Run the end watchdog in a thread of its own, beside the process's event loop and whatever blocks it.

The thread has its own loop, database connections, adapters and Slack client. It pages through Slack's Web API directly,
and it sends the heartbeat only while the jobs and the ends are well.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from bot.blockkit.text import escape
from bot.outbound.service_calls import send_heartbeat, writable_replicas
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.services.runtime import ends_copy
from bot.services.runtime.context import Context
from bot.services.runtime.ends_copy import NAME, EndsCopy
from bot.services.runtime.epoch import Epoch
from bot.services.sessions.end_watchdog import EVERY_S, EndWatchdog
from bot.settings import Settings, read_policy_file
from bot.settings.policy_file import PolicyFile, PolicyFileError
from bot.slack.settings import SlackSettings
from bot.slack.web import Web, WebError
from bot.wiring import build_ends_context, close
from ledger.kernel.clock import Clock
from ledger.queries.ends import forget_replica
from providers.rate_limits import LocalPacer

#: The heartbeat is sent this often.
HEARTBEAT_S = 60.0
#: How long the stop waits for the thread; a write that is blocked must not keep the process.
STOP_S = 5.0

log = logging.getLogger(__name__)


@dataclass
class EndWatch:
    """The thread of the end watchdog. `start` once, then `stop` once; the rest may be called from any thread.

    `well` says whether the process's own jobs run; until it is set they do not count as well.
    """

    settings: Settings
    clock: Clock
    slack: SlackSettings
    well: Callable[[], bool] | None = None
    me: str = field(default_factory=lambda: secrets.token_hex(6))
    epoch: Epoch = field(init=False)
    #: Why this process may not use the ledger, though it may be open to it; "" while it may.
    refused: str = ""
    _dog: EndWatchdog | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _stopping: asyncio.Event | None = None
    _thread: threading.Thread | None = None
    #: Monotonic time of the last heartbeat that the monitor took.
    _beat_at_s: float | None = None
    #: Set when the thread must end.
    _ended: threading.Event = field(default_factory=threading.Event)
    #: Set when the first write was tried.
    _looked: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Read what earlier processes saw of the ledger."""
        self.epoch = Epoch(self.settings.epoch_folders, self.me)

    @property
    def healthy(self) -> bool:
        """Whether it looked at the ends lately."""
        return self._dog is not None and self._dog.healthy

    @property
    def writable(self) -> bool:
        """Whether the ledger took its last write."""
        return self._dog is not None and self._dog.writable

    @property
    def problem(self) -> str:
        """Why the ledger took no write; "" when it did."""
        return self._dog.problem if self._dog is not None else "not tried yet"

    @property
    def has_copy(self) -> bool:
        """Whether an earlier process left a copy, so that something may have to end although this start fails."""
        return (self.settings.identity_dir / NAME).exists()

    def copied(self) -> EndsCopy:
        """Return what the last process had copied, or what this one has."""
        return self._dog.copy if self._dog is not None else ends_copy.load(self.settings.identity_dir / NAME)

    # ── from the process's loop ──────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="end-watchdog", daemon=True)
        self._thread.start()

    async def first_look(self) -> None:
        """Wait until the ledger was tried once."""
        await asyncio.to_thread(self._looked.wait)

    async def stop(self) -> None:
        """Stop the thread; what is under way there is left after a few seconds."""
        self._ended.set()
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # The loop was closed: the thread is between two tries.
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_S)

    def page(self, subject: str, text: str) -> None:
        """Page the operators through Slack's Web API, without the outbox."""
        if self._loop is not None and self._dog is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._dog.page(subject, text), self._loop)

    def refuse(self, why: str) -> None:
        """Use the copy alone from now on, and neither read nor write the ledger; with "" use the ledger again."""
        self.refused = why
        if self._dog is not None:
            self._dog.refused = why

    def take_up(self, policy: Policy, timing: Timing | None = None) -> None:
        """Use another policy from now on, and another timing where one is given."""
        if self._dog is not None:
            self._dog.ctx.policy = policy
            self._dog.ctx.timing = timing or self._dog.ctx.timing

    # ── in the thread ────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        """Run until the stop. What fails is tried again: the cause may be the one that this thread must survive."""
        while not self._ended.is_set():
            try:
                asyncio.run(self._main())
            except Exception:
                log.exception("the end watchdog failed; it begins again")
            self._looked.set()
            self._ended.wait(EVERY_S)

    async def _main(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        if self._ended.is_set():
            return  # It was stopped before there was a loop to tell.
        ctx = build_ends_context(self.settings, self.clock, self._policy_file(), LocalPacer(self.clock))
        ctx = replace(ctx, epoch=self.epoch)
        web = Web(self.slack)
        operators = self.slack.operators_channel or self.slack.approvals_channel or ""
        path = self.settings.identity_dir / NAME
        dog = EndWatchdog(ctx, path, self.me, _sayer(web), self._ask_others, operators, refused=self.refused)
        self._dog = dog
        rounds = [self._every(EVERY_S, dog.look), self._every(1.0, dog.watch_writes), self._every(EVERY_S, self._probe)]
        if self.settings.heartbeat_url is not None:
            rounds.append(self._every(EVERY_S, self.heartbeat))
        tasks = [asyncio.create_task(one) for one in rounds]
        try:
            await self._stopping.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave(ctx, web, dog)

    def _policy_file(self) -> PolicyFile:
        """Read the policy; from the copy what was granted on top of an end, when the file is broken."""
        try:
            return read_policy_file(self.settings.policy, practice=self.settings.practice)
        except PolicyFileError:
            copy = ends_copy.load(self.settings.identity_dir / NAME)
            return PolicyFile(copy.policy_on_top(), Timing())

    async def _every(self, pause_s: float, step: Callable[[], Awaitable[Any]]) -> None:
        """Repeat a step; one that fails is logged and repeated like any other."""
        while True:
            try:
                await step()
            except Exception:
                log.exception("a step of the end watchdog failed; it is repeated")
            await self.clock.sleep(pause_s)

    async def _probe(self) -> None:
        if self._dog is not None:
            await self._dog.probe()
        self._looked.set()

    async def _ask_others(self) -> int | None:
        urls = self.settings.replica_urls
        return await writable_replicas(urls) if urls else None

    async def heartbeat(self) -> bool:
        """Send the heartbeat when it is due and the jobs and the ends are well. True when the monitor took it."""
        url, now_s = self.settings.heartbeat_url, self.clock.monotonic()
        is_due = self._beat_at_s is None or now_s - self._beat_at_s >= HEARTBEAT_S
        if url is None or not is_due or not self.healthy or self.well is None or not self.well():
            return False
        if not await send_heartbeat(url.get_secret_value()):
            return False
        self._beat_at_s = now_s
        return True

    async def _leave(self, ctx: Context, web: Web, dog: EndWatchdog) -> None:
        if dog.writable:
            try:
                async with asyncio.timeout(1), ctx.db.write() as tx:
                    await forget_replica(tx, dog.me)
            except Exception as error:  # noqa: BLE001 # Another replica forgets this one after a minute anyway.
                log.info("this replica was not signed off: %s", type(error).__name__)
        await web.close()
        await close(ctx)


def _sayer(web: Web) -> Callable[[str, str], Coroutine[Any, Any, bool]]:
    async def say(to: str, text: str) -> bool:
        try:
            await web.call("chat.postMessage", channel=to, text=escape(text), unfurl_links=False)
        except WebError as error:
            log.warning("a direct message was not sent: %s", error)
            return False
        return True

    return say
