"""Run the whole bot in one process: Slack, REST, health and the ticker, with an ordered start and stop.

Start: private modes, one `serve` per SQLite file, schema, context, Slack, ticker, HTTP. Stop is the reverse: no new
connection is accepted, running work is finished, Slack's accepted messages are stored, connections are closed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from textwrap import wrap

from starlette.types import ASGIApp, Receive, Scope, Send

from bot import logs
from bot.api.app import build_api
from bot.api.dependencies import CALLS_PER_MINUTE, ApiSettings, Dependencies
from bot.api.health import CLOCK, CONFIRMED, ENDS, LEDGER, TICKER
from bot.callers import SLACK_PATH as SLACK_PATH_BYTES
from bot.callers import BotCallers
from bot.end_watch import EndWatch
from bot.http_server import BACKLOG, http, limits_for, raise_descriptor_limit
from bot.http_shares import Callers
from bot.outbound.service_calls import WRITABLE
from bot.rules.policy.changes import changes
from bot.services.notifications.paging import page
from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock, approved_now, clock_problem
from bot.services.runtime.context import Context
from bot.services.runtime.serve_lock import AlreadyServed, serve_lock
from bot.settings import PolicyFile, PolicyFileError, Settings
from bot.settings.policy_watch import PolicyWatch
from bot.slack.app import SlackApp
from bot.slack.settings import SlackSettings
from bot.startup import prepared, prepared_in_time
from bot.ticker.schedule import Ticker
from bot.ticker.sweeps import jobs
from bot.wiring import close
from ledger.kernel.clock import Clock
from ledger.kernel.ids import new_id
from ledger.queries.audit import ping

SLACK_PATH = SLACK_PATH_BYTES.decode()
#: The event loop shows that it takes its turns this often; after so long without one it is blocked.
BEAT_S, STALLED_S = 1.0, 30.0
#: The policy file is looked at this often.
POLICY_S = 5.0
#: Rows of a large ledger are many short-lived objects without cycles. The garbage collector took a quarter of the time
#: of a pass over a fleet, so it runs less often.
GC_THRESHOLDS = (20_000, 50, 100)
#: A longer list of changes is sent as several messages.
PAGE_CHARS = 2_000
NEW_POLICY, SAME_POLICY = "The new policy is in force.", "It allows what it allowed before."
KEPT = "The last good policy stays in force; mend the file."

log = logging.getLogger(__name__)


class CannotServe(RuntimeError):
    """This process must not start; the message says why and what to do."""


class Bot:
    """Slack, the API and the ticker over one context. `start` once, then `stop` once."""

    def __init__(
        self,
        ctx: Context,
        slack: SlackSettings,
        *,
        calls_per_minute: int = CALLS_PER_MINUTE,
        ends: EndWatch | None = None,
        policy_file: PolicyWatch | None = None,
    ) -> None:
        self._ends, self._policy_file = ends, policy_file
        self._beats_at_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.slack_app = SlackApp(ctx, slack)
        ctx = self.ctx = self.slack_app.ctx
        self.ticker = Ticker(jobs(ctx, self.slack_app.messenger, self._recover))
        self._slack_over_http = not slack.app_token
        self._slack = self.slack_app.asgi if self._slack_over_http else None
        #: How the HTTP server recognizes who calls.
        self.callers = BotCallers(self._slack)
        shown_in = slack.approvals_channel or slack.operators_channel or ""
        checks: dict[str, Callable[[], Awaitable[None]]]
        checks = {LEDGER: self._ledger_answers, TICKER: self._ticker_runs, CLOCK: self._clock_is_trusted}
        checks[CONFIRMED] = self._clock_is_confirmed
        if ends is not None:
            checks |= {WRITABLE: self._ledger_takes_writes, ENDS: self._ends_are_watched}
        self._api = build_api(Dependencies(ctx, ApiSettings(shown_in, calls_per_minute)), checks)
        logs.guard_handlers()

    async def _recover(self) -> int:
        return await self.slack_app.recover(self.ctx.clock.now())

    async def _ledger_answers(self) -> None:
        await ping(self.ctx.db)

    async def _ticker_runs(self) -> None:
        if not self.ticker.running or self.ticker.failing:
            raise CannotServe(f"jobs that fail: {', '.join(self.ticker.failing) or 'none of them runs'}")

    async def _clock_is_trusted(self) -> None:
        if doubt := clock_problem(self.ctx.clock):
            raise CannotServe(doubt)

    async def _clock_is_confirmed(self) -> None:
        if approved_now(self.ctx.clock) is None:
            raise CannotServe(clock_problem(self.ctx.clock))

    async def _ledger_takes_writes(self) -> None:
        if self._ends is None or not self._ends.writable:
            raise CannotServe(self._ends.problem if self._ends else "nobody tries")

    async def _ends_are_watched(self) -> None:
        if self._ends is None or not self._ends.healthy:
            raise CannotServe("the end watchdog has not looked lately")

    def well(self) -> bool:
        """Whether the jobs run and the event loop takes its turns. May be called from another thread."""
        beats = self.ctx.clock.monotonic() - self._beats_at_s < STALLED_S
        return beats and self.ticker.running and not self.ticker.failing

    async def _beat(self) -> None:
        while True:
            self._beats_at_s = self.ctx.clock.monotonic()
            await self.ctx.clock.sleep(BEAT_S)

    async def _follow_policy(self, file: PolicyWatch) -> None:
        """Take up a good edit of the policy file; keep the last good policy and page on a broken one."""
        while True:
            await self.ctx.clock.sleep(POLICY_S)
            try:
                edited = file.edited()
                if edited is not None:
                    await self._take_up(edited)
            except PolicyFileError as error:
                await self._say("policy/broken", f"The policy file was edited and cannot be used: {error}. {KEPT}")
            except Exception:
                log.exception("the policy file was not followed; it is looked at again")

    async def _take_up(self, edited: PolicyFile) -> None:
        changed = changes(self.ctx.policy, edited.policy)
        self.slack_app.take_up(edited.policy)
        if self._ends is not None:
            self._ends.take_up(edited.policy)
        lead = f"The policy file was edited. {NEW_POLICY if changed else SAME_POLICY}"
        if edited.timing != self.ctx.timing:
            lead += " Its timing section takes effect at the next start of gpu-shopper serve."
        # Each edit is a message of its own, and nothing of it is cut off: a later one must not hide who was added.
        edit_id = new_id("pol", self.ctx.clock.now())
        for number, text in enumerate(wrap(" ".join((lead, *changed)), PAGE_CHARS)):
            await self._say(f"policy/edited/{edit_id}/{number}", text)

    async def _say(self, subject: str, said: str) -> None:
        """Page the operators: through the outbox, or directly where the ledger takes no write."""
        log.warning("%s", said)
        if self._ends is None or self._ends.writable:
            await page(self.ctx, subject, said)
        else:
            self._ends.page(subject, said)

    async def asgi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an HTTP request.

        Slack's requests go straight to the signature check; nothing reads them before.
        """
        if self._slack is not None and scope["type"] == "http" and scope["path"] == SLACK_PATH:
            await self._slack(scope, receive, send)
        else:
            await self._api(scope, receive, send)

    async def start(self) -> None:
        """Connect to Slack, then start the jobs."""
        await self.slack_app.start()
        self.ticker.start()
        self._tasks.append(asyncio.create_task(self._beat(), name="beat"))
        self._tasks.append(asyncio.create_task(self.slack_app.meet_approvers(), name="approvers"))
        if self._policy_file is not None:
            self._tasks.append(asyncio.create_task(self._follow_policy(self._policy_file), name="policy-file"))
        if self._ends is not None:
            self._ends.well = self.well

    async def stop(self) -> None:
        """Finish what runs, then disconnect from Slack."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.ticker.stop()
        await self.slack_app.stop()


def slack_settings(settings: Settings) -> SlackSettings:
    """Return the settings of the Slack client. `CannotServe` names what is missing."""
    missing = settings.missing_for_slack()
    if missing or settings.slack_bot_token is None:
        raise CannotServe(f"Slack needs {' and '.join(missing)}; gpu-shopper doctor says where to find them")
    secret, app_token = settings.slack_signing_secret, settings.slack_app_token
    return SlackSettings(
        bot_token=settings.slack_bot_token.get_secret_value(),
        signing_secret=secret.get_secret_value() if secret else "",
        app_token=app_token.get_secret_value() if app_token and settings.socket_mode else None,
        base_url=settings.slack_api_url,
        command=settings.slack_command,
        approvals_channel=settings.approvals_channel,
        operators_channel=settings.operators_channel,
        team_id=settings.slack_team_id,
        proxy=settings.slack_proxy,
    )


@contextmanager
def only_one(file: Path | None, *, allow_shared: bool) -> Iterator[None]:
    """Take the lock of the `serve` role on one SQLite file. The command line may still open the file."""
    try:
        with serve_lock(None if allow_shared else file):
            yield
    except AlreadyServed as error:
        raise CannotServe(
            f"another gpu-shopper serve works on {file} (process {error}); stop it first, "
            "or put the ledger on PostgreSQL to run several"
        ) from None


def listen(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket; `CannotServe` names the setting to change when that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # asyncio sends small responses at once only on sockets that name their protocol; otherwise each waits 40 ms for
        # the client's acknowledgement.
        return socket.socket(made.family, made.type, socket.IPPROTO_TCP, fileno=made.detach())
    except OSError as error:
        raise CannotServe(f"port {port} on {host} cannot be used ({error.strerror}); set another one") from error


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets. A second signal ends the process at once, as a crash would."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopping.is_set():
            os._exit(130)
        stopping.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, on_signal)
    return stopping


async def serve(
    settings: Settings,
    clock: Clock,
    *,
    migrate: bool = True,
    allow_shared: bool = False,
    on_ready: Callable[[str], None] = log.info,
) -> None:
    """Run until SIGTERM or SIGINT. Raises `CannotServe`, `SchemaError` or `ValueError` when it must not start."""
    stopping = stop_on_signals()
    descriptors = raise_descriptor_limit()
    slack = slack_settings(settings)
    settings.identity_dir.mkdir(parents=True, exist_ok=True, mode=0o700)  # Its mode is checked with the rest.
    with only_one(settings.sqlite_file, allow_shared=allow_shared), listen(settings.host, settings.port) as listening:
        policy_file = PolicyWatch(settings.policy, practice=settings.practice)
        # One for both threads, so that what a cloud shows to one of them counts for the other.
        guarded = GuardedClock(clock, confirm_s=CONFIRM_S)
        ends = EndWatch(settings, guarded, slack)

        def serving(app: ASGIApp, callers: Callers | None = None) -> AbstractAsyncContextManager[None]:
            return http(app, listening.dup(), limits=limits_for(descriptors), callers=callers)

        try:
            ctx = await prepared_in_time(
                lambda: prepared(settings, guarded, ends, migrate=migrate), ends, serving, stopping
            )
            if ctx is None:
                return
            try:
                if not ctx.providers:
                    raise CannotServe("no cloud has its credentials set; gpu-shopper doctor says which are missing")
                ends.start()
                await ends.first_look()
                bot = Bot(
                    ctx, slack, calls_per_minute=settings.api_calls_per_minute, ends=ends, policy_file=policy_file
                )
                try:
                    await bot.start()
                    # Imported and built objects live as long as the process. A garbage collector that walks them again
                    # and again delays every acknowledgement for as long as that takes.
                    gc.collect()
                    gc.freeze()
                    gc.set_threshold(*GC_THRESHOLDS)
                    async with serving(bot.asgi, bot.callers):
                        on_ready(_greeting(settings, ctx, listening.getsockname()[1]))
                        await stopping.wait()
                        log.info("stopping: no new work is taken, running claims are finished")
                finally:
                    await bot.stop()
            finally:
                await close(ctx)
        finally:
            await ends.stop()
    log.info("stopped")


def _greeting(settings: Settings, ctx: Context, port: int) -> str:
    how = "Socket Mode" if settings.socket_mode else f"HTTP at {SLACK_PATH}"
    return f"serving on {settings.host}:{port}; Slack by {how}; clouds: {', '.join(ctx.clouds)}"
