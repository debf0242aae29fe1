"""Run the practice workspace, the sandbox clouds and the real bot together in one process.

They share one clock that can travel, so the page's time travel moves messages, clouds and deadlines together. Nothing
needs a key, nothing leaves loopback, and the ledger is a file that is deleted at the end.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bot import logs
from bot.cli.demo import history
from bot.cli.demo.demo_agent import demo_agent
from bot.cli.demo.scratch_folder import scratch_folder
from bot.clock import TravelClock
from bot.http_server import http
from bot.main import SLACK_PATH, Bot, listen
from bot.practice.app import Practice
from bot.practice.workspace import Workspace
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.values.labels import LabelKey
from bot.services.audit.invariants import Truth
from bot.services.runtime import liveness
from bot.services.runtime.clock_guard import GuardedClock
from bot.services.runtime.context import Context
from bot.services.runtime.rate_limits import LedgerPacer
from bot.slack.settings import SlackSettings
from bot.wiring import assemble, close
from ledger.core.claims import next_due
from ledger.engine.db import Database
from ledger.kernel.clock import Clock
from migrations.run import upgrade
from providers.contract import Provider
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import SandboxCloud, truth
from providers.sandbox.nodes.process_nodes import ProcessNodes
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app

MANIFEST = Path(__file__).resolve().parents[3] / "manifest.yml"
DEPLOYMENT = "try1"
#: Alice's name at a terminal or in a program: the same person as in the practice workspace.
ALICE = "operator:alice"
#: Bob's name there, who approves, and that of an administrator.
BOB, ADMIN = "operator:bob", "operator:root"
#: Bob and Carol of the practice workspace approve; operators' messages go to its #gpu channel.
POLICY = Policy(
    approvers=("U0BOB", "U0CAROL"),
    may_approve_not_pinged=(BOB,),
    same_person=(("U0ALICE", ALICE), ("U0BOB", BOB)),
    webhook_networks=("127.0.0.0/8", "::1/128"),
)
OPERATORS_CHANNEL = "C0GPU"
#: Everything happens within seconds: the sandbox clouds answer at once, and people do not want to wait in a demo.
TIMING = Timing(
    tick_s=0.25,
    sweep_s=3.0,
    label_search_s=2.0,
    quarantine_floor_s=20.0,
    absence_apart_s=1.0,
    absence_over_s=3.0,
    orphan_apart_s=2.0,
    boot_poll_s=0.5,
    reach_timeout_s=2.0,
    terminate_retry_s=1.0,
    outbox_retry_s=0.5,
    pace=0.01,
).validated(practice=True)
#: Real seconds that a stop of the clock waits for the ticker, and how many after it was too slow the last time.
PASS_S, IMPATIENT_S = 10.0, 0.5


@dataclass(frozen=True, slots=True)
class Playground:
    """The parts of a running demo.

    `url` is the practice page; `clouds` know what was really rented; no output may contain `secrets`.
    """

    url: str
    practice: Practice
    clouds: Mapping[str, SandboxCloud]
    bot: Bot
    clock: TravelClock
    secrets: tuple[str, ...]
    #: Says what runs where, where machines are real processes.
    explained: str = ""

    @property
    def ctx(self) -> Context:
        """Return the bot's own context."""
        return self.bot.ctx

    def truth(self) -> Truth:
        """Return what the clouds really did, whatever the ledger says."""
        return truth(next(iter(self.clouds.values())).engine, self.clouds.values())


@asynccontextmanager
async def playground(
    *,
    port: int,
    seed: int,
    boot_s: float,
    socket_mode: bool = False,
    policy: Policy = POLICY,
    with_history: bool = False,
    real_nodes: bool = False,
) -> AsyncIterator[Playground]:
    """Start everything, yield it, and stop it in reverse; raises OSError when `port` is taken. Port 0 picks a free one.

    The workspace sends signed requests to the bot, or with `socket_mode` the bot connects to the workspace. The ledger
    is empty, or `with_history` has two weeks of a team. With `real_nodes` each rented machine is real processes in a
    folder; without, nothing that somebody types is ever run.
    """
    clock = TravelClock()
    signing, token, label = secrets.token_hex(16), f"xoxb-practice-{secrets.token_hex(8)}", secrets.token_bytes(32)
    app_token = f"xapp-practice-{secrets.token_hex(8)}" if socket_mode else ""
    logs.register_secrets([signing, token, app_token, label.hex()])
    # The signatures carry this clock's time, because the bot compares them with its own.
    workspace = Workspace(
        clock,
        signing_secret=signing,
        bot_token=token,
        app_token=app_token,
        manifest=MANIFEST if MANIFEST.exists() else None,
        signing_clock=clock,
    )
    practice = Practice(workspace)
    with scratch_folder() as folder:
        processes = ProcessNodes(folder / "nodes") if real_nodes else None
        clouds = sandboxes(clock, SandboxTiming.quick(boot_s=boot_s), seed, processes=processes)
        keys = tuple(cloud.API_KEY for cloud in clouds.values())
        async with practice.serve(port) as url, _sandbox(clouds) as sandbox_url:
            labels = LabelKey(DEPLOYMENT, label)
            ctx = _context(folder / "ledger.db", GuardedClock(clock), clouds, sandbox_url, labels, policy)
            ctx = replace(ctx, agent=await asyncio.to_thread(demo_agent, folder)) if processes is not None else ctx
            try:
                slack = SlackSettings(
                    bot_token=token,
                    signing_secret=signing,
                    app_token=app_token or None,
                    base_url=practice.api_url,
                    operators_channel=OPERATORS_CHANNEL,
                )
                await upgrade(ctx.db)
                if with_history:
                    await history.fill(ctx)
                async with _bot(ctx, slack, workspace) as bot:
                    hidden = tuple(filter(None, (signing, token, app_token, label.hex(), *keys)))
                    explained = processes.explained() if processes is not None else ""
                    yield Playground(url, practice, clouds, bot, clock, hidden, explained)
            finally:
                await close(ctx)


@asynccontextmanager
async def _sandbox(clouds: Mapping[str, SandboxCloud]) -> AsyncIterator[str]:
    with listen("127.0.0.1", 0) as listening:
        async with http(build_app(clouds), listening, lifespan="on", date_header=False):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def demo_policy(own: Policy) -> Policy:
    """Return a policy for the demo: its approvers, and the members of its groups, become Bob and Carol.

    Nobody else of its team is in the practice workspace, so nothing could be approved otherwise.
    """
    return replace(
        own,
        approvers=POLICY.approvers,
        approver_groups=(),
        budget_admins=POLICY.approvers if own.budget_admins else (),
        approval_groups=dict.fromkeys(own.approval_groups, POLICY.approvers),
        may_approve_not_pinged=POLICY.may_approve_not_pinged,
        same_person=POLICY.same_person,
        webhook_networks=POLICY.webhook_networks,
    )


def _context(
    file: Path,
    clock: Clock,
    clouds: Mapping[str, SandboxCloud],
    sandbox_url: str,
    labels: LabelKey,
    policy: Policy,
) -> Context:
    db = Database(f"sqlite+aiosqlite:///{file}")
    pacer = LedgerPacer(db, clock, TIMING.pace)
    providers: dict[str, Provider] = {}
    for name, cloud in clouds.items():
        providers |= REGISTRY[name].connect_all(cloud.environment(f"{sandbox_url}/{name}"), clock, pacer)
    return assemble(db, clock, providers, labels, policy=policy, timing=TIMING)


@asynccontextmanager
async def _bot(ctx: Context, slack: SlackSettings, workspace: Workspace) -> AsyncIterator[Bot]:
    with listen("127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        bot = Bot(replace(ctx, node_url=url), slack)
        if not workspace.app_token:
            workspace.request_url = f"{url}{SLACK_PATH}"
        _travels(workspace, bot)
        try:
            await bot.start()
            async with http(bot.asgi, listening, callers=bot.callers):
                yield bot
        finally:
            await bot.stop()


def _travels(workspace: Workspace, bot: Bot) -> None:
    """Stop the travelling clock wherever something is due, so that the ticker runs there."""
    clock, patience = bot.ctx.clock, [PASS_S]

    async def due_in() -> float | None:
        now = clock.now()
        due_at = await next_due(bot.ctx.db, now)
        return (due_at - now).total_seconds() if due_at is not None else None

    async def pass_over(passed_s: float) -> None:
        if bot.ctx.agent is None:  # Real agents report by the computer's clock, so they were not silent meanwhile.
            await liveness.count_as_listened(bot.ctx)
        # The clock waits for a cloud that hangs once, not at each of a hundred stops.
        patience[0] = PASS_S if await bot.ticker.pass_over(passed_s, patience[0]) else IMPATIENT_S

    workspace.due_in = due_in
    workspace.on_travel.append(pass_over)
