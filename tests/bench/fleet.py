"""What a fleet costs the scheduler: each of its passes over 1k, 10k and 100k live instances, on both databases.

The listings are injected above the transport, so what is measured is our own CPU and the database's time.
"""

from __future__ import annotations

import asyncio
import gc
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from sqlalchemy import insert, text

from bot.main import GC_THRESHOLDS
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import stored_job
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.values.labels import LabelKey, instance_name
from bot.services.billing import metering, rollup
from bot.services.budgets import enforcement
from bot.services.instances import reconcile
from bot.services.nodes import enrollment
from bot.services.nodes.checkins import GROUP_MAX, Checkins
from bot.services.runtime.context import Context
from bot.services.sessions import expiration, idle_termination, overspend
from bot.wire.checkin import Checkin
from bot.wiring import assemble
from ledger.engine.db import Database
from ledger.kernel.ids import bare_id, new_id
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.models import Approval, Base, GrantRow, Instance, Node, Option, Quote, Request, Session
from providers.capabilities import Capabilities
from providers.contract import InstanceStatus, Listing, ObservedInstance, Provider, SshEndpoint
from providers.gpus.constraint import GpuConstraint
from tests.bench.databases import Line, on_both
from tests.bench.market import CLOUDS
from tests.support.clock import SteppedClock

SIZES = (1_000, 10_000, 100_000)
AIMED = 10_000
AIM_S = 5.0
SEED = 8
NOW = datetime(2026, 10, 31, 9, 0, tzinfo=UTC)
PEOPLE, LABELS, HOURS = 300, 12, 12
JOB = stored_job(JobRequest(GpuConstraint(), Decimal(HOURS)))
ACCOUNT = "a"
OFFER = {"gpu": "RTX4090", "gpu_count": 1}
CHUNK = 2_000
LABEL_KEY = LabelKey("test", b"a label key for benches only")
Rows = dict[type[Base], list[dict[str, Any]]]


class Shelf:
    """A cloud whose listing is already parsed."""

    def __init__(self, name: str, clock: SteppedClock) -> None:
        self.name, self.account = name, ACCOUNT
        self.calls = 0
        self.items: list[ObservedInstance] = []
        self._clock = clock
        self.capabilities = Capabilities(stop=True, spot=True, labels=True, balance=True, charges=True, logs=True)

    async def list(self) -> Listing:
        """Everything, in one call: the transport costs nothing here."""
        self.calls += 1
        return Listing(self.name, self.account, self._clock.now(), tuple(self.items))

    async def close(self) -> None:
        """Nothing to give back."""


@dataclass
class Fleet:
    """A ledger full of live instances, and clouds that list them."""

    db: Database
    clock: SteppedClock = field(default_factory=lambda: SteppedClock(NOW))
    draw: random.Random = field(default_factory=lambda: random.Random(SEED))
    tokens: list[str] = field(default_factory=list)
    seq: int = 0
    shelves: dict[str, Shelf] = field(init=False)
    ctx: Context = field(init=False)

    def __post_init__(self) -> None:
        self.shelves = {name: Shelf(name, self.clock) for name in CLOUDS}
        limits = {"global": Decimal(10**9), "user:*": Decimal(10**7), "label:*": Decimal(10**8)}
        policy = Policy(budgets={scope: {"monthly": usd, "daily": usd} for scope, usd in limits.items()})
        clouds = cast("dict[str, Provider]", self.shelves)
        self.ctx = assemble(self.db, self.clock, clouds, LABEL_KEY, policy=policy, timing=Timing())

    async def grow(self, count: int) -> None:
        """Add so many sessions, each with a live instance that its cloud lists and whose agent has reported."""
        while count > 0:
            rows: Rows = {model: [] for model in (Request, Quote, Option, Approval, GrantRow, Session, Instance, Node)}
            for _ in range(min(count, CHUNK)):
                self._session(rows)
            count -= CHUNK
            async with self.db.write() as tx:
                for model, values in rows.items():
                    await tx.execute(insert(cast("Any", model.__table__)), values)
        async with self.db.write() as tx:
            await tx.execute(text("ANALYZE"))

    def _session(self, rows: Rows) -> None:
        now = self.clock.now()
        at = now - timedelta(seconds=self.draw.randrange(600, 3 * 3600))
        ids = {name: new_id(name, at) for name in ("req", "quo", "opt", "apr", "grt", "ses", "ins")}
        cloud = self.draw.choice(CLOUDS)
        rate = Decimal(self.draw.randrange(100_000, 9_000_000)) / 1_000_000
        ends_at, label = at + timedelta(hours=HOURS), LABEL_KEY.mint(ids["req"], 1)
        name = instance_name("bench-1x4090", label, 64, "-_")
        owner = f"slack:T1/U{self.draw.randrange(PEOPLE):04}"
        money = {"price_cap_usd_h": rate, "total_cap_usd": rate * (HOURS + 1), "hours": str(HOURS)}
        for model, values in _asked(ids, at, ends_at, owner, cloud, rate, money):
            rows[model].append(values)
        label_of = f"project-{self.draw.randrange(LABELS)}"
        rows[Session].append(
            {
                "id": ids["ses"], "request_id": ids["req"], "state": SessionState.RUNNING, "version": 1,
                "owner": owner, "channel": "C1", "hours": str(HOURS), "created_at": at, "ready_at": at,
                "deadline": ends_at, "due_at": ends_at - timedelta(hours=1), "end_code": "", "end_reason": "",
                "replacements_left": 0, "label": label_of, "gpu_count": 1, "gpu": "RTX4090",
            }
        )  # fmt: skip
        ref = bare_id(ids["ins"])
        rows[Instance].append(
            {
                "id": ids["ins"], "session_id": ids["ses"], "request_id": ids["req"], "grant_id": ids["grt"],
                "option_id": ids["opt"], "n": 1, "state": InstanceState.LIVE, "version": 1, "cloud": cloud,
                "account": ACCOUNT, "label": label, "name": name, "offer": dict(OFFER), "created_at": at, "sent_at": at,
                "ref": ref, "price_usd_h": rate, "storage_usd_h": Decimal("0.01"), "status": "running",
                "status_text": "", "ssh_host": "192.0.2.7", "ssh_port": 22, "ssh_user": "root", "live_at": at,
                "reachable_at": at, "billing_from": at, "absent_at": [], "outcome_code": "", "outcome": "",
            }
        )  # fmt: skip
        secret = secrets.token_urlsafe(32)
        rows[Node].append(
            {
                "instance_id": ids["ins"], "session_id": ids["ses"], "made_at": at, "seq": 0, "at": now,
                "token_hash": enrollment.hashed(LABEL_KEY, secret), "work": "running", "report": {}, "wanted": [],
            }
        )  # fmt: skip
        self.tokens.append(f"gpun_{ref}_{secret}")
        self.shelves[cloud].items.append(
            ObservedInstance(
                cloud, ref, name, InstanceStatus.RUNNING, gpu="RTX4090", gpu_count=1, price_usd_h=rate,
                created_at=at, started_at=at, ssh=SshEndpoint("192.0.2.7", 22, "root"),
            )
        )  # fmt: skip


def _asked(
    ids: dict[str, str], at: datetime, ends_at: datetime, owner: str, cloud: str, rate: Decimal, money: dict[str, Any]
) -> Iterable[tuple[type[Base], dict[str, Any]]]:
    """What stands before a session: its request, the option that was chosen, the approval and the grant."""
    of_request = {"request_id": ids["req"]}
    yield Request, {
        "id": ids["req"], "kind": "provision", "state": RequestState.APPROVED, "quote_version": 1,
        "job": JOB, "inbox_key": ids["req"], "requester": owner, "channel": "C1",
        "expires_at": at, "created_at": at, "reason": "", "rule": "", "required_approvals": 1, "version": 1,
    }  # fmt: skip
    yield Quote, {
        **of_request, "id": ids["quo"], "version": 1, "created_at": at, "expires_at": at, "excluded": [], "clouds": [],
    }  # fmt: skip
    total_usd = rate * HOURS
    yield Option, {
        "id": ids["opt"], "quote_id": ids["quo"], "rank": 1, "cloud": cloud, "offer_key": "1", "price_usd_h": rate,
        "best_usd": total_usd, "expected_usd": total_usd, "worst_usd": total_usd, "marks": [], "why": "", "offer": {},
        "estimate": {"hours": str(HOURS)},
    }  # fmt: skip
    yield Approval, {
        **of_request, "id": ids["apr"], "quote_version": 1, "approver": "slack:T1/UBOB", "at": at,
        "decision": "approve", "reason": "", **money,
    }  # fmt: skip
    yield GrantRow, {
        **of_request, "id": ids["grt"], "approval_id": ids["apr"], "session_id": ids["ses"], "kind": "create",
        "seq": 1, "state": GrantState.USED, "version": 1, "until": ends_at, "created_at": at, **money,
    }  # fmt: skip


Step = Callable[[Fleet], Awaitable[object]]


async def _sweep(fleet: Fleet) -> None:
    for name in fleet.shelves:
        await reconcile.observe(fleet.ctx, name)


async def _checkins(fleet: Fleet) -> None:
    fleet.seq += 1
    counter, takes = Checkins(fleet.ctx), fleet.tokens
    report = Checkin(seq=fleet.seq, utilisation=(Decimal(90),), step=100 * fleet.seq, target_step=100_000)
    for first in range(0, len(takes), GROUP_MAX):
        await asyncio.gather(*(counter.take(token, report) for token in takes[first : first + GROUP_MAX]))


async def _budget(fleet: Fleet) -> None:
    spend = enforcement.PlannedSpend("slack:T1/U0007", "project-3", Decimal(5), Decimal(1), Decimal(5))
    async with fleet.db.write() as tx:
        room = await enforcement.check_budgets(fleet.ctx, tx, spend, fleet.clock.now())
    if not room.verdict.allowed or len(room.lines) < 2:
        raise SystemExit(f"the budget was not counted: {room}")


async def _fold(fleet: Fleet) -> None:
    while await rollup.roll_due(fleet.ctx):
        pass


async def _accrue(fleet: Fleet) -> None:
    await metering.accrue_due(fleet.ctx)


async def _next_hour(fleet: Fleet) -> None:
    fleet.clock.advance(3600)
    await _accrue(fleet)


#: Name, the pass, and the most seconds that it may take with 10,000 of them, where there is an aim.
STEPS: tuple[tuple[str, Step, float | None], ...] = (
    ("metering after hours without it", _accrue, None),
    ("the rollup of that", _fold, None),
    ("metering, one hour of each", _next_hour, AIM_S),
    ("the rollup of that hour", _fold, AIM_S),
    ("metering, nothing to book", _accrue, AIM_S),
    ("check-ins of all", _checkins, AIM_S),
    ("sweep, nothing has changed", _sweep, AIM_S),
    ("silent and idle agents", lambda fleet: idle_termination.idle_terminations_due(fleet.ctx), AIM_S),
    ("spend drift", lambda fleet: overspend.overspend_due(fleet.ctx), AIM_S),
    ("one approval against its budgets", _budget, AIM_S),
    ("deadlines", lambda fleet: expiration.deadlines_due(fleet.ctx), AIM_S),
)


async def measure(name: str, db: Database) -> AsyncIterator[tuple[str, str, str]]:
    """The lines of the report for one database: seconds at the size of the aim, and the growth."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)  # As `serve` does.
    took: dict[str, list[float]] = {label: [] for label, *_ in STEPS}
    calls: list[int] = []
    fleet, there = Fleet(db), 0
    for size in SIZES:
        await fleet.grow(size - there)
        there = size
        before = sum(shelf.calls for shelf in fleet.shelves.values())
        for label, step, _ in STEPS:
            gc.collect()
            began = time.perf_counter()
            await step(fleet)
            took[label].append(time.perf_counter() - began)
        calls.append(sum(shelf.calls for shelf in fleet.shelves.values()) - before)
    for label, _, most_s in STEPS:
        aim = f"aim ≤ {most_s:.0f} s; " if most_s else ""
        growth = ", ".join(f"{size // 1000}k {s:.2f} s" for size, s in zip(SIZES, took[label], strict=True))
        yield f"{name}: {label}", f"{took[label][SIZES.index(AIMED)]:.2f} s", aim + growth
    yield f"{name}: listings per sweep", str(calls[-1]), "one per account and sweep: " + ", ".join(map(str, calls))


def report() -> AsyncIterator[Line]:
    """Both databases, one after the other."""
    return on_both(measure)
