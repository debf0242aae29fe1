"""The whole product on a stopped clock: Slack, agents and clouds over real HTTP, and time that jumps to each moment.

A scene plays the life of one session: it is asked for and approved in Slack, something happens to it, and at the end
the people's screens, the cloud's truth, the ledger and the digest must tell the same story.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from bot.practice.faults import SlackFault
from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, button_texts
from bot.rules.policy.policy import Policy
from bot.services.reports import digest as report_digest
from bot.services.sessions import idle_termination, overspend
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import SessionState
from ledger.models import Instance, LedgerEntry, Session
from providers.sandbox.agents import SandboxAgent as Agent
from providers.sandbox.engine import TrueInstance
from tests.slack.conftest import APPROVERS, Stage, staged
from tests.support.agents import agent, listening
from tests.support.clock import SteppedClock

OWNER, FALLBACK, CHANNEL = "alice", "dave", "#gpu"
BOB = Actor(ActorKind.SLACK, "U0BOB", "T0PRACTICE")
#: Shorter than the pause after which a look counts as having been away.
STEP = timedelta(seconds=100)
#: Three complete lists over a minute prove an end.
PROOF_S = 90
#: Longer than the longest pause between two attempts to show something.
BACK_S = 700.0


class Slack(StrEnum):
    """How people can be reached while it happens."""

    WELL = "well"
    DOWN = "down"
    #: Only the owner cannot be reached: their account was switched off.
    AWAY = "owner-away"


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that reached somebody's screen: when, and what it said."""

    at: datetime
    text: str
    buttons: tuple[str, ...]


@dataclass
class Scene:
    """One session of Alice's. `heard` is what she and the fallback contact were sent, in order."""

    stage: Stage
    slack: Slack
    began_at: datetime
    seen: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    heard: dict[str, list[Heard]] = field(default_factory=lambda: {OWNER: [], FALLBACK: []})

    @property
    def now(self) -> datetime:
        """The time that everybody shares."""
        return self.stage.w.clock.now()

    @property
    def agent(self) -> Agent:
        """The program on the machine."""
        return agent(self.stage.w)

    async def work(self) -> None:
        """Everything that the ticker does, until nothing is due now."""
        ctx = self.stage.ctx
        await self.stage.settle()
        if (
            await idle_termination.idle_terminations_due(ctx)
            + await overspend.overspend_due(ctx)
            + await report_digest.digest_due(ctx)
        ):
            await self.stage.settle()
        for who in self.heard:
            self._look(who)

    async def to(self, at: datetime) -> None:
        """Jump to a moment and work there."""
        self.stage.w.clock.advance(at - self.now)
        await self.work()

    async def watched(self, until: datetime) -> None:
        """Let time pass while the agents report and are listened to; the rest of the work is done at the end."""
        w = self.stage.w
        while self.now < until:
            w.clock.advance(min(STEP, until - self.now))
            for cloud in {key.partition("/")[0] for key in w.engine.nodes.running}:
                await w.clouds[cloud].tick()
            await idle_termination.idle_terminations_due(w.ctx)
        await self.work()

    def _look(self, who: str) -> None:
        """What is new on somebody's screen, edits too."""
        ws, known = self.stage.ws, self.seen.setdefault(who, [])
        for message in ws.dm_messages(who):
            mark = (message.ts, message.version)
            if mark not in known:
                known.append(mark)
                self.heard[who].append(Heard(self.now, all_text(message), tuple(button_texts(message))))

    async def falls(self) -> None:
        """From now on people are reached as this scene says."""
        space = self.stage.practice.workspace
        if self.slack is Slack.DOWN:
            space.faults.add(SlackFault("api", "*", "http_500", times=10**9))
        elif self.slack is Slack.AWAY:
            space.user(OWNER).deleted = True

    async def comes_back(self) -> None:
        """Slack works again, and what was announced meanwhile is shown."""
        self.stage.practice.workspace.faults.clear()
        await self.to(self.now + timedelta(seconds=BACK_S))

    # ── what is so ───────────────────────────────────────────────────────────────────────────────

    async def session(self) -> Session:
        """Her session."""
        return (await self.stage.w.books()).sessions[0]

    async def row(self) -> Instance:
        """Its first instance."""
        return (await self.stage.w.books()).instances[0]

    def rented(self) -> TrueInstance:
        """What its cloud really rented to us, and until when."""
        return self.stage.w.instances()[0]

    async def entries(self) -> list[LedgerEntry]:
        """What is booked."""
        return list((await self.stage.w.books()).entries)

    async def is_booked(self) -> None:
        """The ledger has what the cloud bills, to the cent, and keeps nothing reserved."""
        entries = await self.entries()
        by_kind = {kind: sum((e.amount_usd for e in entries if e.kind == kind), Decimal(0)) for kind in KINDS}
        assert by_kind["reserve"] == by_kind["release"] > 0
        # A bill that is lower than what was booked is a correction the other way round.
        back = sum(
            (2 * e.amount_usd for e in entries if e.kind == "true_up" and e.debit.startswith("payable")), Decimal(0)
        )
        used = by_kind["accrue"] + by_kind["true_up"] - back + by_kind["loss"]
        assert used > 0
        assert abs(used - self.stage.w.bill()) <= HALF_A_CENT, (used, self.stage.w.bill())
        assert used <= by_kind["reserve"]

    async def digest(self) -> str:
        """The next digest that the channel reads."""
        morning = (self.now + timedelta(days=1)).replace(hour=9, minute=1, second=0)
        await self.to(morning)
        (shown,) = [m for m in self.stage.ws.channel_messages() if "GPU costs of" in all_text(m)]
        return all_text(shown)

    async def confirmed(self) -> None:
        """Time for the proof that it is gone."""
        for _ in range(3):
            await self.to(self.now + timedelta(seconds=PROOF_S / 3))


HALF_A_CENT = Decimal("0.005")
KINDS = ("reserve", "release", "accrue", "true_up", "loss")


@asynccontextmanager
async def scene(
    db: Database,
    clock: SteppedClock,
    slack: Slack,
    line: str,
    approval: Mapping[str, Any] = MappingProxyType({}),
    **policy: Any,
) -> AsyncIterator[Scene]:
    """Alice's session, ready and with its agent heard once. Afterwards every invariant holds.

    Bob approves by its button, or with changes that are in `approval`.
    """
    rules = replace(
        Policy(approvers=APPROVERS), fallback_contacts=("U0DAVE",), digest_channel="C0GPU", digest_weekly="",
        replacements=0, **policy,
    )  # fmt: skip
    async with staged(db, clock, policy=rules) as stage, listening(stage.w):
        built = Scene(stage, slack, clock.now())
        message: ChatMessage = await stage.ask(line)
        if approval:
            (request,) = (await stage.w.books()).requests
            await stage.w.decide(request.id, BOB, **approval)
        else:
            await stage.click("bob", message, stage.approve_button(message))
        for _ in range(2):
            await built.to(clock.now() + timedelta(seconds=20))
        assert (await built.session()).state is SessionState.RUNNING
        built.heard = {OWNER: [], FALLBACK: []}
        await built.falls()
        yield built
        violations = await stage.w.violations()
        assert violations == []
