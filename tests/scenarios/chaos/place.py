"""The place of a chaos run: sandboxes behind the fault proxy, a workspace, a ledger, and replicas to kill."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random

import httpx
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from bot.clock import SystemClock
from bot.practice.app import Practice
from bot.practice.server import serve_on_loopback
from bot.practice.workspace import Workspace
from bot.slack.app import NOT_TAKEN
from ledger.engine.db import Database
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.scenarios.chaos.machine import Machine
from tests.scenarios.chaos.programs import api_key
from tests.scenarios.chaos.proxy import FaultProxy, Point
from tests.scenarios.chaos.sockets import FaultySockets, relay
from tests.scenarios.chaos.verdict import Evidence, LostPart
from tests.scenarios.kills.commit_cuts import CommitCuts, Tables, Way, commit_cuts
from tests.scenarios.processes.processes import Nursery, Served, fork, nursery
from tests.support.serving import serving
from tests.support.stack import BOT_TOKEN, ROOT, SIGNING, TIMING, environment_of

#: Kaggle's runs cannot be cancelled, so nothing of theirs can outlive an end in this run's minutes.
CLOUDS = ("vast", "runpod", "lambda", "tensordock")
RATE = 0.1
#: How long an armed kill waits for the call that it is meant for.
KILL_WAITS_S = 6.0
APP_TOKEN = "xapp-chaos"
#: An unseen create is searched for this long: the sandboxes list at once, and no call is later than 25 s.
SEARCHES = {"quarantine_floor_s": 60.0, "quarantine_lags": 1.0}
TAKES_UP_S = 0.5
RESTART_S = (0.0, 3.0)
PROXIED_HEADERS = ("content-type", "x-slack-signature", "x-slack-request-timestamp", "user-agent")


@dataclass
class Outages:
    """Stretches in which something was not there, in seconds of the monotonic clock."""

    closed: list[tuple[float, float]] = field(default_factory=list)
    since: float | None = None
    _reasons: int = 0

    def begin(self) -> None:
        """Note that it went away, for one more reason."""
        self._reasons += 1
        self.since = self.since or time.monotonic()

    def end(self) -> None:
        """Note that one reason is over; without any it is back."""
        self._reasons -= 1
        if self._reasons == 0 and self.since is not None:
            self.closed.append((self.since, time.monotonic()))
            self.since = None

    def within(self, start: float, end: float) -> float:
        """Return the seconds of outage between two moments."""
        stretches = [*self.closed, *([(self.since, time.monotonic())] if self.since is not None else [])]
        return sum(max(0.0, min(end, b) - max(start, a)) for a, b in stretches)


class Replica:
    """One `gpu-shopper serve` that is started again whenever it died."""

    def __init__(
        self, number: int, parent: Nursery, environment: dict[str, str], log: Path, changed: Callable[[], None]
    ) -> None:
        self.number = number
        self._parent = parent
        self.served: Served | None = None
        self.is_ready = False
        #: What its next process starts with, and what its present one started with.
        self.environment, self.started_with = environment, dict(environment)
        #: Held while somebody kills or pauses it, so that only one does at a time.
        self.busy = asyncio.Lock()
        self._log = log
        self._changed = changed

    async def start(self, before: Callable[[Served], Awaitable[None]] | None = None) -> None:
        """Start it; it counts as ready once it serves. `before` looks at what it does before that."""
        self.started_with = dict(self.environment)
        self.served = fork(self._parent, self.started_with, self._log, 0.0)
        if before is not None:
            await before(self.served)
        await self.served.ready()
        self.is_ready = True
        self._changed()

    def strike(self) -> None:
        """Kill it now, in the middle of whatever it does."""
        self.is_ready = False
        if self.served is not None:
            self.served.signal(signal.SIGKILL)
        self._changed()

    async def buried(self) -> None:
        """Wait until the killed process is gone. AssertionError when it had ended by itself."""
        if self.served is None:
            return
        code = await self.served.finished()
        if code != -signal.SIGKILL:
            raise AssertionError(f"replica {self.number} ended by itself with {code}:\n{self.served.said()[-3000:]}")

    async def pause(self, seconds: float) -> None:
        """Stop the process with SIGSTOP for so long."""
        async with self.busy:
            if self.served is None or not self.is_ready:
                return
            self.is_ready = False
            self._changed()
            with suppress(ProcessLookupError):
                self.served.signal(signal.SIGSTOP)
                await asyncio.sleep(seconds)
                self.served.signal(signal.SIGCONT)
            self.is_ready = True
            self._changed()


class Place:
    """Everything around the replicas."""

    def __init__(
        self,
        practice: Practice,
        clouds: dict[str, SandboxCloud],
        proxy: FaultProxy,
        db: Database,
        random: Random,
        machine: Machine,
    ) -> None:
        self.practice, self.clouds, self.proxy, self.db, self.random = practice, clouds, proxy, db, random
        self.clock = SystemClock()
        self.replicas: list[Replica] = []
        self.counts: Counter[str] = Counter()
        #: Keys of the messages that were acknowledged as stored, with their words.
        self.acknowledged: dict[str, str] = {}
        #: When each button of an approval was first clicked, in seconds of the monotonic clock.
        self.clicked_s: dict[str, float] = {}
        #: How many rentals people requested.
        self.commands = 0
        self.machine = machine
        self.api_key = ""
        #: The proxy between the processes and PostgreSQL; None on SQLite.
        self.cuts: CommitCuts | None = None
        #: The workspace's side of Socket Mode; None where Slack's messages come by HTTP.
        self.sockets: FaultySockets | None = None
        #: Held by each reader of the ledger, by each lock of its file, and by a restore, which replaces it.
        self.ledger_file, self.ledger_lock = asyncio.Lock(), asyncio.Lock()
        #: What each restore took from the ledger.
        self.lost: list[LostPart] = []
        self.no_process = Outages()
        self.no_cloud = {cloud: Outages() for cloud in clouds}
        self._armed: dict[int, tuple[Point, asyncio.Event]] = {}
        proxy.on_call = self._on_call

    def changed(self) -> None:
        """Note whether any process works now."""
        works = any(replica.is_ready for replica in self.replicas)
        if works and self.no_process.since is not None:
            self.no_process.end()
        elif not works and self.no_process.since is None:
            self.no_process.begin()

    def _on_call(self, replica: int, point: Point) -> bool:
        armed = self._armed.get(replica)
        if armed is None or armed[0] != point:
            return False
        del self._armed[replica]
        self.replicas[replica].strike()
        armed[1].set()
        return True

    async def kill(self, replica: Replica, point: Point | None) -> None:
        """Kill a replica at its next call of this kind, or now when none comes, and start it again."""
        async with replica.busy:
            if replica.is_ready:
                await self._kill(replica, point)

    async def take_up(self, old: str, new: str) -> None:
        """Start every replica again with another key, as an operator does who replaces one."""
        for replica in self.replicas:
            replica.environment = {name: value.replace(old, new) for name, value in replica.environment.items()}
        for replica in self.replicas:
            while replica.started_with != replica.environment:
                await self.kill(replica, None)
                await asyncio.sleep(TAKES_UP_S)

    async def _kill(self, replica: Replica, point: Point | None) -> None:
        struck = asyncio.Event()
        if point is not None:
            self._armed[replica.number] = (point, struck)
            with suppress(TimeoutError):
                async with asyncio.timeout(KILL_WAITS_S):
                    await struck.wait()
            self._armed.pop(replica.number, None)
        if not struck.is_set():
            replica.strike()
        where = f"{'after' if point.is_after else 'before'} {point.kind}" if point and struck.is_set() else "any moment"
        self.counts[f"kill -9, {where}"] += 1
        await replica.buried()
        await asyncio.sleep(self.random.uniform(*RESTART_S))
        await replica.start()

    def cut_commit(self, way: Way) -> None:
        """Let the next COMMIT lose its connection."""

        def choose(_wrote: Tables) -> Way:
            self.spare_commits()
            self.counts[way] += 1
            return way

        if self.cuts is not None:
            self.cuts.choose = choose

    def spare_commits(self) -> None:
        """Let every COMMIT pass."""
        if self.cuts is not None:
            self.cuts.choose = lambda _wrote: None

    def away_s(self, cloud: str, start: datetime, end: datetime) -> float:
        """Return the seconds between two moments in which no process, this cloud or the ledger was there."""
        ago_s = self.clock.monotonic() - self.clock.now().timestamp()
        outages = (self.no_process, self.no_cloud[cloud])
        return sum(one.within(start.timestamp() + ago_s, end.timestamp() + ago_s) for one in outages)

    def evidence(self) -> Evidence:
        """Return what was seen from outside, for the verdict."""
        true = [item for cloud in self.clouds.values() for item in cloud.instances()]
        now = self.clock.now()
        return Evidence(
            true,
            self.proxy.sent,
            self.acknowledged,
            self.away_s,
            now,
            len(self.replicas),
            self.clicked_s,
            self.proxy.sent_s,
            self.commands,
            tuple(self.lost),
        )

    async def newest_session(self) -> str:
        """Return the id of the session that began last; empty before there is one, and while nobody can read."""
        with suppress(SQLAlchemyError, OSError):
            async with self.ledger_file, self.db.read() as tx:
                return str(await tx.scalar(text("SELECT id FROM sessions ORDER BY created_at DESC LIMIT 1")) or "")
        return ""

    def alive(self) -> list[str]:
        """Return the names of what really runs."""
        return [str(item.name) for cloud in self.clouds.values() for item in cloud.instances() if item.alive]


class LoadBalancer:
    """ASGI app that passes each of Slack's requests to a replica that is up, and notes what was acknowledged."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on; 503 when no replica is up or the chosen one dies over it."""
        request = Request(scope, receive)
        body = await request.body()
        response: Response = PlainTextResponse("no replica is up", 503)
        ready = [one.served for one in self._place.replicas if one.is_ready and one.served is not None]
        if ready:
            headers = {name: request.headers[name] for name in PROXIED_HEADERS if name in request.headers}
            url = f"http://127.0.0.1:{self._place.random.choice(ready).port}/slack/events"
            with suppress(httpx.HTTPError):
                async with httpx.AsyncClient(trust_env=False, timeout=3) as client:
                    got = await client.post(url, content=body, headers=headers)
                response = Response(got.content, got.status_code, media_type=got.headers.get("content-type"))
                if got.status_code == 200 and not _is_refused(got):
                    words = body.decode(errors="replace")
                    self._place.acknowledged[headers.get("x-slack-signature", "")] = f"{words} → {got.text}"
        await response(scope, receive, send)


def _is_refused(answer: httpx.Response) -> bool:
    """Tell whether a command was answered that it was not stored: its author reads that and repeats it.

    People here send no command that can't be read, so every other answer says that the message is stored.
    """
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    return is_json and answer.json().get("text") in NOT_TAKEN


@asynccontextmanager
async def place(
    db_url: str, folder: Path, replicas: int, random: Random, here: Machine, *, by_sockets: bool
) -> AsyncIterator[Place]:
    """Serve everything, start the replicas, and kill what still runs at the end.

    Slack's messages come by Socket Mode, or by HTTP through a load balancer.
    """
    clock = SystemClock()
    workspace = Workspace(
        clock, signing_secret=SIGNING, bot_token=BOT_TOKEN, app_token=APP_TOKEN, manifest=ROOT / "manifest.yml"
    )
    practice = Practice(workspace)
    made = sandboxes(clock, SandboxTiming.quick(boot_s=2.0, reachable_s=0.3, destroy_s=0.2))
    proxy = FaultProxy(build_app(made, tick_s=0.25), random, RATE)
    built = Place(practice, {name: made[name] for name in CLOUDS}, proxy, Database(db_url), random, here)
    async with (
        AsyncExitStack() as parents,
        serve_on_loopback(practice.app) as slack_url,
        serving(proxy) as clouds_url,
        serve_on_loopback(LoadBalancer(built)) as front_url,
        relay(slack_url) as (relayed_url, wire),
    ):
        served_url = db_url
        if not db_url.startswith("sqlite"):
            served_url, built.cuts = await parents.enter_async_context(commit_cuts(db_url, folder / "pg"))
        workspace.base_url = relayed_url if by_sockets else slack_url
        workspace.request_url = None if by_sockets else f"{front_url}/slack/events"
        if by_sockets:
            built.sockets = FaultySockets(workspace.changed, random, built.counts, built.acknowledged)
            built.sockets.cut = wire.cut
            practice.hub = practice.courier.hub = built.sockets
        for number in range(replicas):
            data, own = here.folder / f"data-{number}", here.environment(number)
            data.mkdir(mode=0o700)
            environment: dict[str, str] = {
                **environment_of(folder, served_url, practice.api_url, TIMING | SEARCHES),
                **{k: v for n, c in made.items() for k, v in c.environment(f"{clouds_url}/r{number}/{n}").items()},
                **own,
                **({"SLACK_APP_TOKEN": APP_TOKEN} if by_sockets else {}),
                "GPU_SHOPPER_DATA_DIR": str(data),
            }
            # Each has a parent of its own, because one parent answers one order after the other.
            parent = parents.enter_context(nursery(here.command(), own))
            log = folder / f"serve-{number}.log"
            built.replicas.append(Replica(number, parent, environment, log, built.changed))
        try:
            for replica in built.replicas:  # One after the other, because the first one migrates.
                await replica.start()
            built.api_key = await asyncio.to_thread(api_key, environment, folder)
            yield built
        finally:
            for replica in built.replicas:
                with suppress(ProcessLookupError):
                    replica.strike()
                    await replica.buried()
            await built.db.close()
            workspace.close()
            await practice.courier.aclose()


def postmaster(db_url: str) -> int:
    """Return the process of the PostgreSQL server whose socket folder is in the URL."""
    found = re.search(r"host=([^&]+)", db_url)
    if found is None:
        raise ValueError("the URL names no socket folder")
    return int((Path(found[1]) / "postmaster.pid").read_text().split()[0])
