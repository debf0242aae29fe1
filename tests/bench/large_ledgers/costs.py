"""A month's costs over a million entries, from the rollup and by grouping the entries, on both databases."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import delete, insert, text

from bot.rules.budgets.budget import Period
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import stored_job
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.reports.digest import day_before
from bot.rules.values.labels import LabelKey
from bot.services.billing import costs
from bot.services.billing.rollup import BATCH, entry_hash
from bot.services.reports import digest
from bot.wiring import assemble
from ledger.engine.db import Database
from ledger.kernel.calendar_spans import ORDER, begin
from ledger.kernel.entry_kind import SPENT
from ledger.kernel.ids import new_id
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.models import Approval, Base, GrantRow, Instance, LedgerEntry, Request, Session, Unrolled
from ledger.queries.rollup import FACETS, TOTAL, add, fold, raw
from ledger.queries.spend import EVERYBODY
from providers.gpus.constraint import GpuConstraint
from tests.bench.databases import Line, on_both
from tests.support.clock import SteppedClock

SIZES = (10_000, 100_000, 1_000_000)
AIM_MS = 200.0
ROUNDS = 7
SEED = 5
MONTH = datetime(2026, 10, 1, tzinfo=UTC)
NOW = datetime(2026, 10, 31, 9, 0, tzinfo=UTC)
#: Hours of one session; each hour books the GPU and the storage.
HOURS = 12
JOB = stored_job(JobRequest(GpuConstraint(), Decimal(HOURS)))
MICRO = Decimal("0.000001")
PEOPLE, CLOUDS, GPUS, LABELS = 300, 5, 8, 12
#: Entries that the job itself folds; the others are loaded as folded.
FOLDED = 4_800

Rows = dict[type[Base], list[dict[str, Any]]]


def sessions(count: int, draw: random.Random) -> Rows:
    """Sessions all over the month with whatever must exist before their entries."""
    found: Rows = {model: [] for model in (Request, Approval, GrantRow, Session, Instance, LedgerEntry)}
    for _ in range(count):
        _session(found, draw)
    return found


def _session(found: Rows, draw: random.Random) -> None:
    at = MONTH + timedelta(seconds=draw.randrange(30 * 86_400 - HOURS * 3600))
    ids = {name: new_id(name, at) for name in ("req", "apr", "grt", "ses", "ins")}
    person = draw.randrange(PEOPLE)
    owner, cloud = f"slack:T1/U{person:04}", f"cloud{draw.randrange(CLOUDS)}"
    label = f"project-{(person + draw.randrange(2)) % LABELS}"
    rate = Decimal(draw.randrange(100_000, 9_000_000)) / 1_000_000
    money = {"price_cap_usd_h": rate, "total_cap_usd": rate * HOURS, "hours": str(HOURS)}
    found[Request].append(
        {
            "id": ids["req"], "kind": "provision", "state": RequestState.APPROVED, "quote_version": 1, "job": JOB,
            "inbox_key": ids["req"], "requester": owner, "channel": "C1", "expires_at": at, "created_at": at,
            "reason": "", "rule": "", "required_approvals": 1, "version": 1,
        }
    )  # fmt: skip
    found[Approval].append(
        {
            "id": ids["apr"], "request_id": ids["req"], "quote_version": 1, "approver": "slack:T1/UBOB", "at": at,
            "decision": "approve", "reason": "", **money,
        }
    )  # fmt: skip
    found[GrantRow].append(
        {
            "id": ids["grt"], "request_id": ids["req"], "approval_id": ids["apr"], "session_id": ids["ses"],
            "kind": "create", "seq": 1, "state": GrantState.USED, "version": 1, "until": at, "created_at": at, **money,
        }
    )  # fmt: skip
    found[Session].append(
        {
            "id": ids["ses"], "request_id": ids["req"], "state": SessionState.TERMINATED, "version": 1, "owner": owner,
            "channel": "C1", "hours": str(HOURS), "created_at": at, "ended_at": at + timedelta(hours=HOURS),
            "end_code": "deadline", "end_reason": "", "replacements_left": 0, "label": label, "gpu_count": 1,
            "gpu": f"GPU-{draw.randrange(GPUS)}",
        }
    )  # fmt: skip
    found[Instance].append(
        {
            "id": ids["ins"], "session_id": ids["ses"], "request_id": ids["req"], "grant_id": ids["grt"],
            "option_id": "opt", "n": 1, "state": InstanceState.GONE, "version": 1, "cloud": cloud, "account": "a",
            "label": ids["ins"], "name": ids["ins"], "offer": {}, "created_at": at, "price_usd_h": rate,
            "storage_usd_h": Decimal(0), "status": "", "status_text": "", "absent_at": [], "outcome_code": "",
            "outcome": "",
        }
    )  # fmt: skip
    for hour in range(HOURS):
        booked = at + timedelta(hours=hour + 1)
        for component, share in (("gpu", Decimal("0.9")), ("storage", Decimal("0.1"))):
            amount_usd = (rate * share).quantize(MICRO)
            found[LedgerEntry].append(
                {
                    "id": new_id("led", booked), "key": f"{ids['ins']}/{component}/h{hour}", "kind": "accrue",
                    "debit": f"session:{ids['ses']}", "credit": f"payable:{cloud}:a", "amount_usd": amount_usd,
                    "at": booked, "session_id": ids["ses"], "instance_id": ids["ins"], "component": component,
                    "note": "",
                }
            )  # fmt: skip


async def fill(db: Database, entries: int, draw: random.Random) -> None:
    """Add so many entries, rolled up."""
    left = entries // (HOURS * 2)
    while left > 0:
        batch = sessions(min(left, 2_000), draw)
        left -= 2_000
        async with db.write() as tx:
            for model, rows in batch.items():
                await tx.execute(insert(_table(model)), rows)
            await _roll(tx, batch)
    async with db.write() as tx:
        await tx.execute(text("ANALYZE"))
    if db.writer.dialect.name == "postgresql":
        # As the server does by itself within a minute of such a load: what was folded leaves its queue empty.
        async with db.writer.execution_options(isolation_level="AUTOCOMMIT").connect() as alone:
            await alone.execute(text("VACUUM ANALYZE"))


async def _roll(tx: Any, batch: Rows) -> None:
    """What the job does, without its seals: a million hashes are no part of what is measured here."""
    cloud = {row["session_id"]: row["cloud"] for row in batch[Instance]}
    facet = {row["id"]: (row["owner"], cloud[row["id"]], row["gpu"], row["label"], "") for row in batch[Session]}
    added: defaultdict[Any, Decimal] = defaultdict(Decimal)
    for row in batch[LedgerEntry]:
        for tier in ORDER:
            added[facet[row["session_id"]], tier, begin(tier, row["at"])] += row["amount_usd"]
    await add(tx, added)
    await tx.execute(delete(_table(Unrolled)))


def _table(model: type[Base]) -> Any:
    return model.__table__


async def fold_rate(db: Database, draw: random.Random) -> float:
    """Entries per second that the job folds and seals."""
    batch = sessions(FOLDED // (HOURS * 2), draw)
    async with db.write() as tx:
        for model, rows in batch.items():
            await tx.execute(insert(_table(model)), rows)
    done, began = 0, time.perf_counter()
    while done < len(batch[LedgerEntry]):
        async with db.write() as tx:
            done += await fold(tx, BATCH, entry_hash)
    return done / (time.perf_counter() - began)


async def from_rollup(db: Database) -> Decimal:
    """What `/gpu costs` reads."""
    async with db.read() as tx:
        return (await costs.of_purse(tx, EVERYBODY, Period.DAILY, NOW)).total_usd


async def digested(db: Database) -> Decimal:
    """The figures of a day's digest."""
    labels = LabelKey("test", b"a label key for benches only")
    ctx = assemble(db, SteppedClock(NOW), {}, labels, policy=Policy(), timing=Timing())
    async with db.read() as tx:
        return (await digest.digest(ctx, tx, day_before(NOW.date(), "Europe/Berlin"), weekly=False)).spent_usd


async def from_entries(db: Database) -> Decimal:
    """The month grouped by everything, from the entries."""
    total = Decimal(0)
    async with db.read() as tx:
        query = raw(*FACETS.values(), TOTAL).where(LedgerEntry.kind.in_(SPENT), LedgerEntry.at >= MONTH)
        for *_, amount_usd in await tx.execute(query.group_by(*FACETS.values())):
            total += amount_usd
    return total


async def median_ms(db: Database, read: Callable[[Database], Awaitable[Any]], rounds: int) -> tuple[float, Any]:
    """Median milliseconds of one read, and its answer."""
    found = await read(db)
    took = []
    for _ in range(rounds):
        gc.collect()
        began = time.perf_counter()
        found = await read(db)
        took.append((time.perf_counter() - began) * 1_000)
    return statistics.median(took), found


async def measure(name: str, db: Database) -> AsyncIterator[tuple[str, str, str]]:
    """The lines of the report for one database."""
    draw = random.Random(SEED)
    rate = await fold_rate(db, draw)
    yield f"{name}: entries folded and sealed", f"{rate:,.0f} /s", f"{BATCH} in a transaction"
    there = FOLDED
    for size in SIZES:
        await fill(db, size - there, draw)
        there = size
        ours, total = await median_ms(db, from_rollup, ROUNDS)
        grouped, raw_total = await median_ms(db, from_entries, 1)
        if total != raw_total:
            raise SystemExit(f"{name}: the rollup says {total} and the entries {raw_total}")
        aim = f"aim ≤ {AIM_MS:.0f} ms; " if size == SIZES[-1] else ""
        yield f"{name}: costs of {size:,} entries", f"{ours:.0f} ms", f"{aim}grouping the entries {grouped:.0f} ms"
        told, _ = await median_ms(db, digested, ROUNDS)
        yield f"{name}: digest over {size:,} entries", f"{told:.0f} ms", aim.removesuffix("; ")


def report() -> AsyncIterator[Line]:
    """Both databases, one after the other."""
    return on_both(measure)
