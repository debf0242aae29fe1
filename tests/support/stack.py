"""Everything around a real `serve` process: the practice workspace and the sandbox clouds, each behind a gate.

The stand-ins live in the test's own event loop and speak real HTTP; the bot is a process of its own on a ledger that
the test may read. One clock serves the stand-ins and, through `ahead_s`, every process that is started.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from bot.clock import TravelClock
from bot.practice.app import Practice
from bot.practice.driver import Driver
from bot.practice.model import ActionResult, ChatMessage
from bot.practice.server import serve_on_loopback
from bot.practice.workspace import Workspace
from bot.services.audit import invariants
from ledger.engine.db import Database
from ledger.queries.audit import Books, read_books
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import SandboxCloud, truth
from providers.sandbox.nodes.process_nodes import ProcessNodes
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.scenarios.processes.processes import Nursery, Served, fork, launch
from tests.support import canaries
from tests.support.barriers import Gate, Which
from tests.support.personas import STEP_S, Screens
from tests.support.serving import serving

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
SIGNING, BOT_TOKEN, LABEL_KEY = canaries.SLACK_SIGNING, canaries.SLACK_TOKEN, canaries.LABEL_KEY
LOOK_S = 0.1
#: Leases of claims and creates, and how long the machine is down after a crash, by the clocks: longer than any lease.
#: What a cloud bills while nobody looks is known only roughly, so it is not much longer.
LEASE_S, DOWN_S = 15.0, 20.0
#: Longer than an unclear create is searched for at any cloud.
LONG_DOWN_S = 400.0
#: What production waits minutes for happens within a second.
TIMING = {
    "claim_ttl_s": LEASE_S,
    "create_patience": 0.1,  # 9 s at most clouds, and no more than LEASE_S at any.
    "tick_s": 0.1,
    "sweep_s": 0.5,
    "label_search_s": 0.2,
    "absence_apart_s": 0.15,
    "absence_over_s": 0.3,
    "orphan_apart_s": 0.3,
    "boot_poll_s": 0.15,
    "reach_timeout_s": 2.0,
    "terminate_retry_s": 0.3,
    "outbox_retry_s": 0.2,
    "pace": 0.01,
}

#: The calls that a step of the walk ends in, per cloud.
CALLS: Mapping[str, Mapping[str, Which]] = {
    "vast": {
        "search": Which("POST", "/vast/api/v0/bundles/"),
        "create": Which("PUT", r"/vast/api/v0/asks/\d+/"),
        "list": Which("GET", "/vast/api/v1/instances/"),
        "destroy": Which("DELETE", r"/vast/api/v0/instances/\d+/"),
    },
    "runpod": {
        "search": Which("GET", "/runpod/v2/catalog/gpus"),
        "create": Which("POST", "/runpod/v2/pods"),
        "list": Which("GET", "/runpod/v2/pods"),
        "destroy": Which("DELETE", r"/runpod/v2/pods/\w+"),
    },
    "lambda": {
        "search": Which("GET", "/lambda/api/v1/instance-types"),
        "create": Which("POST", "/lambda/api/v1/instance-operations/launch"),
        "list": Which("GET", "/lambda/api/v1/instances"),
        "destroy": Which("POST", "/lambda/api/v1/instance-operations/terminate"),
    },
    "tensordock": {
        "search": Which("GET", "/tensordock/api/v2/hostnodes"),
        "create": Which("POST", "/tensordock/api/v2/instances"),
        "list": Which("GET", "/tensordock/api/v2/instances"),
        "destroy": Which("DELETE", r"/tensordock/api/v2/instances/[\w-]+"),
    },
}


def slack(method: str, verb: str = "POST") -> Which:
    """The bot's calls of one Web API method."""
    return Which(verb, f"/api/{method}")


@dataclass
class Town:
    """One ledger, one workspace, all clouds, and the processes that work on them. Requests go to `cloud` only."""

    db: Database
    clock: TravelClock
    practice: Practice
    clouds: Mapping[str, SandboxCloud]
    slack: Gate
    cloud_gate: Gate
    cloud: str
    environment: Mapping[str, str]
    nursery: Nursery
    log: Path
    bots: list[Served] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)

    @property
    def ws(self) -> Driver:
        """The hands and eyes of the people."""
        return self.practice.driver

    @property
    def screens(self) -> Screens:
        """What the people read."""
        return Screens(self.ws)

    @property
    def bot(self) -> Served:
        """The process that gets Slack's requests."""
        return self.bots[-1]

    @property
    def timing(self) -> SandboxTiming:
        """How quick the clouds are."""
        return next(iter(self.clouds.values())).engine.timing

    @timing.setter
    def timing(self, timing: SandboxTiming) -> None:
        next(iter(self.clouds.values())).engine.timing = timing

    # ── processes ────────────────────────────────────────────────────────────────────────────────

    async def start(self, descriptors: int | None = None) -> Served:
        """Start one more process, with at most so many open files; Slack's requests go to it from now on."""
        return await self._up(fork(self.nursery, self.environment, self.log, self.clock.ahead_s, descriptors))

    async def launch(self, **changes: str) -> Served:
        """The same with the installed program and the machine's clock."""
        return await self._up(launch({**self.environment, **changes}, self.log))

    async def _up(self, bot: Served) -> Served:
        self.bots.append(bot)
        await bot.ready()
        self.listen_to(bot)
        return bot

    def listen_to(self, bot: Served) -> None:
        """Send Slack's requests to this process."""
        self.practice.workspace.request_url = f"http://127.0.0.1:{bot.port}/slack/events"

    async def kill(self) -> None:
        """`kill -9` of the process that gets Slack's requests."""
        await self.bots.pop().kill()

    async def restart(self, down_s: float = DOWN_S) -> None:
        """Some time later, a new process on the same ledger."""
        self.clock.travel(down_s)
        await self.start()

    # ── what people do ───────────────────────────────────────────────────────────────────────────

    async def acked(self, act: Awaitable[ActionResult]) -> None:
        """Do something that must be acknowledged, and remember which message the ledger has to keep for ever."""
        before = {row.key for row in (await self.books()).inbox}
        outcome = await act
        assert outcome.ok, outcome
        new = {row.key for row in (await self.books()).inbox} - before
        assert new, "it was acknowledged before it was on disk"
        self.acknowledged |= new

    async def ask(self, words: str = "") -> None:
        """Alice asks for a GPU, with these words more."""
        gpu = self.clouds[self.cloud].STAPLE
        line = f'/gpu provision 1x{gpu} 2h clouds={self.cloud} for="a walk that is cut short" {words}'.strip()
        await self.acked(self.ws.as_("alice").command(line))

    async def offers(self) -> ChatMessage:
        """The request's message once it can be decided."""
        return await self.screens.offers()

    async def approve(self) -> None:
        """Bob approves the first option."""
        offers = await self.offers()
        await self.acked(self.ws.as_("bob").click(offers, "approve:1"))

    async def ready(self) -> None:
        """Alice reads how to connect, once, and exactly one instance runs."""
        await self.screens.wrote("alice", "ssh -p")
        assert len(self.alive()) == 1, self.alive()

    async def terminate(self) -> None:
        """Alice ends it."""
        session = (await self.books()).sessions[-1]
        await self.acked(self.ws.as_("alice").command(f"/gpu terminate {session.id} now"))

    async def gone(self) -> None:
        """Everybody is told that it is gone, and it is."""
        await self.screens.wrote("alice", "* ended.")
        assert self.alive() == []

    async def finish(self) -> None:
        """From a running instance to the end of everything, with no message twice."""
        await self.ready()
        await self.terminate()
        await self.gone()
        await self.comes_to_rest()
        assert self.ws.duplicates() == []

    # ── what is really so ────────────────────────────────────────────────────────────────────────

    def alive(self) -> list[str]:
        """The names of what really runs."""
        return [str(item.name) for cloud in self.clouds.values() for item in cloud.instances() if item.alive]

    @property
    def creates(self) -> list[Any]:
        """Every create call that reached a cloud."""
        return next(iter(self.clouds.values())).engine.creates

    async def books(self) -> Books:
        """The ledger, read from outside while the processes work."""
        return await read_books(self.db)

    async def until(self, look: Callable[[Books], T]) -> T:
        """Wait until the ledger says so. TimeoutError with the states of its rows."""
        books = await self.books()
        try:
            async with asyncio.timeout(STEP_S):
                while not (found := look(books)):
                    await asyncio.sleep(LOOK_S)  # The ledger of another process tells nobody when it changes.
                    books = await self.books()
                return found
        except TimeoutError:
            rows: list[Any] = [*books.inbox, *books.requests, *books.sessions, *books.instances]
            raise TimeoutError(f"the ledger is at {[str(row.state) for row in rows]}") from None

    async def comes_to_rest(self, *, creates: int = 1, but: str = "", limit_s: float = STEP_S) -> None:
        """Everything is over: every invariant holds, liveness and the bill included, and no secret is in a log.

        `but` names an invariant that does not count.
        """
        found = await self._violations(but)
        try:
            async with asyncio.timeout(limit_s):
                while found:
                    await asyncio.sleep(LOOK_S)
                    found = await self._violations(but)
        except TimeoutError:
            raise AssertionError("\n".join(found)) from None
        assert self.alive() == []
        assert len(self.creates) == creates, self.creates
        text = self.log.read_text()
        assert not [secret for secret in self._secrets() if secret in text], "a secret is in the log"

    async def _violations(self, but: str) -> list[str]:
        clouds = self.clouds.values()
        seen = truth(next(iter(clouds)).engine, clouds)
        found = await invariants.check(
            self.db,
            self.clock,
            seen,
            is_settled=True,
            secrets=self._secrets(),
            acknowledged=self.acknowledged,
        )
        return [text for text in map(str, found) if not but or not text.startswith(but)]

    def _secrets(self) -> tuple[str, ...]:
        return (SIGNING, BOT_TOKEN, LABEL_KEY, *(cloud.API_KEY for cloud in self.clouds.values()))


@asynccontextmanager
async def town(
    db_url: str, folder: Path, parent: Nursery, cloud: str, processes: ProcessNodes | None = None, **timing: float
) -> AsyncIterator[Town]:
    """The stand-ins around a ledger. No process runs yet; those that still run at the end are killed.

    With `processes` the clouds' machines are real processes, too.
    """
    clock = TravelClock()
    workspace = Workspace(
        clock, signing_secret=SIGNING, bot_token=BOT_TOKEN, manifest=ROOT / "manifest.yml", signing_clock=clock
    )
    practice = Practice(workspace)
    clouds = sandboxes(
        clock, SandboxTiming.quick(boot_s=0.3, reachable_s=0.1, destroy_s=0.1), bad_rows=True, processes=processes
    )
    slack_gate, cloud_gate = Gate(practice.app), Gate(build_app(clouds, tick_s=0.05))
    db = Database(db_url)
    async with serve_on_loopback(slack_gate) as slack_url, serving(cloud_gate) as clouds_url:
        workspace.base_url = slack_url
        environment = {
            **environment_of(folder, db_url, practice.api_url, {**TIMING, **timing}),
            **{k: v for n, c in clouds.items() for k, v in c.environment(f"{clouds_url}/{n}").items()},
        }
        built = Town(
            db, clock, practice, clouds, slack_gate, cloud_gate, cloud, environment, parent, folder / "serve.log"
        )
        try:
            yield built
        finally:
            for bot in built.bots:
                await bot.kill()
            await db.close()
            workspace.close()
            await practice.courier.aclose()


def environment_of(folder: Path, db_url: str, api_url: str, timing: Mapping[str, float]) -> dict[str, str]:
    """The environment of a process, and the policy file that it names."""
    policy = folder / "policy.yml"
    policy.write_text(yaml.safe_dump({"policy": {"approvers": ["U0BOB", "U0CAROL"]}, "timing": dict(timing)}))
    return {
        "PATH": os.environ["PATH"],
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_SIGNING_SECRET": SIGNING,
        "GPU_SHOPPER_SLACK_API_URL": api_url,
        "GPU_SHOPPER_OPERATORS_CHANNEL": "C0GPU",
        "GPU_SHOPPER_DATABASE_URL": db_url,
        "GPU_SHOPPER_DATA_DIR": str(folder),
        "GPU_SHOPPER_POLICY": str(policy),
        "GPU_SHOPPER_LABEL_KEY": LABEL_KEY,
        "GPU_SHOPPER_DEPLOYMENT": "e2e1",
        "GPU_SHOPPER_PORT": "0",
        "GPU_SHOPPER_LOG_FORMAT": "json",
        "GPU_SHOPPER_PRACTICE": "true",
    }
