"""Record the measured speed of this installation's own runs in the journal, and read it for every plan.

A run is recorded with the measured rate and with the rate that the rules alone predicted then, so that their ratio
corrects later plans (`bot.rules.sizing.throughput.posterior`). A later record of a session replaces the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from bot.rules.grammar.run_words import workload, workload_of
from bot.rules.sizing.run_time import finished_run
from bot.rules.sizing.throughput import FinishedRun, say
from bot.rules.values.reply_code import ReplyCode
from bot.services.market.catalog import ReadRuns
from bot.services.runtime.commands import Reply, refuse
from ledger.core import record
from ledger.engine.db import Database
from ledger.kernel.actor import Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.models import Event, Session
from ledger.queries.journal import latest_events
from ledger.queries.views import resolve

SUBJECT = "runs"
#: Older runs than these add nothing to the newer ones.
NEWEST = 500


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


async def record_session(db: Database, text: str, tokens_s: Decimal, actor: Actor, now: datetime) -> Reply:
    """Record the rate of the session that `text` names, in tokens per second over all of its GPUs."""
    async with db.read() as tx:
        try:
            request, session = await resolve(tx, text)
        except LookupError as error:
            return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    work = workload_of(request.job)
    if session is None or not session.gpu:
        return refuse(ReplyCode.NO_SESSION, f"{short_id(request.id)} never had a machine, so it made nothing.")
    if work is None:
        sentence = f"{session.short_id} has no description of its run. Record it with one instead."
        return refuse(ReplyCode.NO_WORK, sentence)
    words = tuple(request.job.work)
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
        found = finished_run(workload(words), gpu, count, tokens_s)
    except ValueError as error:
        return refuse(ReplyCode.NO_PREDICTION, str(error))
    data: dict[str, Any] = {
        "gpu": gpu,
        "count": count,
        "stack": found.stack,
        "predicted_tokens_s": str(found.predicted_tokens_s),
        "measured_tokens_s": str(found.measured_tokens_s),
        "words": list(words),
        "session": session.id if session else "",
        "request": session.request_id if session else "",
    }
    async with db.write() as tx:
        record(tx, now, actor, SUBJECT, EventKind.RUN_MEASURED, data=data)
    share = found.measured_tokens_s / found.predicted_tokens_s
    sentence = (
        f"Recorded: {say(found.measured_tokens_s)} tokens/s on {count}x {gpu}, {share:.0%} of what was predicted. "
        "Plans are corrected by it from now on."
    )
    return Reply(True, ReplyCode.RECORDED, sentence)


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
    return MeasuredRun(event.at, int(data["count"]), tuple(data["words"]), session_id, request_id, run)


def reader(db: Database) -> ReadRuns:
    """Return the function by which the market reads the measured runs before it ranks."""

    async def read() -> tuple[FinishedRun, ...]:
        return tuple(one.run for one in await measured_runs(db))

    return read
