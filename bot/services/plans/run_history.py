"""Record the measured speed of this installation's own runs in the journal, and read it for every plan.

A run is recorded with the measured rate and with the rate that the rules alone predicted then, so that their ratio
corrects later plans (`bot.rules.sizing.throughput.posterior`). Beside them is what a plan stated just before, corrected
by the earlier runs, with its range. A later record of a session replaces the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.rules.jobs.facets.work import workload, workload_of
from bot.rules.jobs.stored import job_of
from bot.rules.sizing.run_time import finished_run
from bot.rules.sizing.throughput import FinishedRun, say, tokens_per_s
from bot.rules.sizing.workload import Workload
from bot.rules.values.reply_code import ReplyCode
from bot.services.runtime.commands import Reply, refuse
from ledger.core import Tx, record
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.models import Event, Session
from ledger.queries.journal import latest_events
from ledger.queries.views import resolve
from providers.gpus.table import GPUS

SUBJECT = "runs"
#: Older runs than these add nothing to the newer ones.
NEWEST = 500


@dataclass(frozen=True, slots=True)
class StatedRate:
    """Hold what a plan says about a rate in tokens per second: expected, and the range of four of five runs."""

    expected: float
    low: float
    high: float

    def holds(self, tokens_s: float) -> bool:
        """Whether a measured rate is inside the range."""
        return self.low <= tokens_s <= self.high


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One recorded run: its GPU model and count, the words that describe it, and its session, if any."""

    at: datetime
    count: int
    words: tuple[str, ...]
    session_id: str
    #: The request of that session; empty without one, and in what an older release recorded.
    request_id: str
    run: FinishedRun
    #: What a plan stated just before it, with its own runs, and the range of four of five; None in older records.
    stated: StatedRate | None = None
    #: Nobody typed it: it was recorded when its session ended.
    by_itself: bool = False


async def record_session(db: Database, text: str, tokens_s: Decimal, actor: Actor, now: datetime) -> Reply:
    """Record the rate of the session that `text` names, in tokens per second over all of its GPUs."""
    async with db.read() as tx:
        try:
            request, session = await resolve(tx, text)
        except LookupError as error:
            return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    job = job_of(request.job)
    work = workload_of(job)
    if session is None or not session.gpu:
        return refuse(ReplyCode.NO_SESSION, f"{short_id(request.id)} never had a machine, so it made nothing.")
    if work is None:
        sentence = f"{session.short_id} has no description of its run. Record it with one instead."
        return refuse(ReplyCode.NO_WORK, sentence)
    words = tuple(job.work)
    gpu, count = session.gpu, session.gpu_count
    return await record_run(db, words, gpu, count, tokens_s, actor, now, session=session)


async def record_run(
    db: Database,
    words: tuple[str, ...],
    gpu: str,
    count: int,
    tokens_s: Decimal,
    actor: Actor,
    now: datetime,
    *,
    session: Session | None = None,
) -> Reply:
    """Record the rate of a run that `words` such as `model=7B` describe, in tokens per second over all GPUs."""
    try:
        work = workload(words)
        found = finished_run(work, gpu, count, tokens_s)
    except ValueError as error:
        return refuse(ReplyCode.NO_PREDICTION, str(error))
    stated = stated_rate(work, gpu, count, await runs_beside(db, session.id if session else ""))
    async with db.write() as tx:
        note(tx, now, actor, words, count, found, stated, session)
    share = found.measured_tokens_s / found.predicted_tokens_s
    sentence = (
        f"Recorded: {say(found.measured_tokens_s)} tokens/s on {count}x {gpu}, {share:.0%} of what was predicted. "
        "Plans are corrected by it from now on."
    )
    return Reply(True, ReplyCode.RECORDED, sentence)


def stated_rate(work: Workload, gpu: str, count: int, runs: tuple[FinishedRun, ...]) -> StatedRate | None:
    """Return what a plan states with these runs; None where it states nothing."""
    rate = tokens_per_s(work, GPUS[gpu], count, runs=runs)
    return None if rate is None else StatedRate(rate.expected, rate.low, rate.high)


def note(
    tx: Tx,
    now: datetime,
    actor: Actor,
    words: tuple[str, ...],
    count: int,
    found: FinishedRun,
    stated: StatedRate | None,
    session: Session | None,
    *,
    by_itself: bool = False,
) -> None:
    """Write one measured run into the journal."""
    data: dict[str, Any] = {
        "gpu": found.gpu,
        "count": count,
        "stack": found.stack,
        "predicted_tokens_s": str(found.predicted_tokens_s),
        "measured_tokens_s": str(found.measured_tokens_s),
        "words": list(words),
        "session": session.id if session else "",
        "request": session.request_id if session else "",
        "by_itself": by_itself,
    }
    if stated is not None:
        data["stated_tokens_s"] = {name: str(value) for name, value in asdict(stated).items()}
    key = session.id if session else ""
    record(tx, now, actor, SUBJECT, EventKind.RUN_MEASURED, data=data, key=key)


async def runs_beside(db: Database, session_id: str) -> tuple[FinishedRun, ...]:
    """Return the measured runs of all other sessions."""
    return tuple(one.run for one in await measured_runs(db) if not session_id or one.session_id != session_id)


async def measured_runs(db: Database) -> tuple[MeasuredRun, ...]:
    """Return the recorded runs, newest first; of a session only its latest record."""
    async with db.read() as tx:
        events = await latest_events(tx, SUBJECT, EventKind.RUN_MEASURED, NEWEST)
    return tuple(_latest(_read(event) for event in events))


def _latest(runs: Iterable[MeasuredRun]) -> list[MeasuredRun]:
    seen: dict[str, MeasuredRun] = {}
    for n, one in enumerate(runs):
        seen.setdefault(one.session_id or f"#{n}", one)
    return list(seen.values())


def _read(event: Event) -> MeasuredRun:
    data = event.data
    run = FinishedRun(
        gpu=str(data["gpu"]),
        stack=data.get("stack"),
        predicted_tokens_s=float(data["predicted_tokens_s"]),
        measured_tokens_s=float(data["measured_tokens_s"]),
    )
    session_id, request_id = str(data.get("session") or ""), str(data.get("request") or "")
    said = data.get("stated_tokens_s")
    stated = None if said is None else StatedRate(**{name: float(value) for name, value in said.items()})
    words, by_itself = tuple(data["words"]), bool(data.get("by_itself"))
    return MeasuredRun(event.at, int(data["count"]), words, session_id, request_id, run, stated, by_itself)
