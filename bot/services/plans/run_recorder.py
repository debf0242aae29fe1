"""Record the run of a session when the session ends: the steady rate that its agent reported, once.

Only a described training run is recorded. A server's rate is what its users ask for, so it measures no GPU. A rate
that somebody recorded by hand stays; so does the first automatic one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any

from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.nodes.steady_rate import is_comparable, steady_rate
from bot.rules.sizing.run_time import finished_run
from bot.rules.sizing.throughput import FinishedRun
from bot.rules.sizing.workload import Workload
from bot.services.plans.run_history import SUBJECT, note, runs_beside, stated_rate
from bot.services.runtime.context import Context
from ledger.core import lock_family
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.stored_job import StoredJob
from ledger.models import Session
from ledger.queries.journal import noted_before
from ledger.queries.runs.ended import reports_of_ended

#: It is looked this often whether a session has ended.
LOOK_S = 60.0
#: The first look of a process covers what ended while nothing ran; later ones overlap by the second of these.
FIRST, OVERLAP = timedelta(days=1), timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class _Ended:
    """One session that ended, and what its run did."""

    session: Session
    words: tuple[str, ...]
    work: Workload
    found: FinishedRun


class RunRecorder:
    """Record the runs of sessions that ended since the last look. One per process."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._since: datetime | None = None

    async def look(self) -> int:
        """Run one pass. Return how many runs were recorded."""
        ctx, now = self._ctx, self._ctx.clock.now()
        if not ctx.policy.record_runs:
            return 0
        async with ctx.db.read() as tx:
            reports = await reports_of_ended(tx, self._since or now - FIRST)
        recorded = 0
        for one in _measured(reports):
            recorded += await self._record(one, now)
        self._since = now - OVERLAP
        return recorded

    async def _record(self, one: _Ended, now: datetime) -> bool:
        """Record one run unless its session has a record already, here or at another replica."""
        session, found = one.session, one.found
        earlier = await runs_beside(self._ctx.db, session.id)
        stated = stated_rate(one.work, session.gpu, session.gpu_count, earlier)
        async with self._ctx.db.write() as tx:
            await lock_family(tx, Session, session.id)
            if await noted_before(tx, [SUBJECT], session.id, session.created_at, (EventKind.RUN_MEASURED,)):
                return False
            note(tx, now, SYSTEM, one.words, session.gpu_count, found, stated, session, by_itself=True)
        return True


def _measured(reports: Iterable[tuple[Session, StoredJob, dict[str, Any]]]) -> Iterator[_Ended]:
    """Yield the sessions whose run was described and ran steadily; of several machines, the newest that did."""
    for _, group in groupby(reports, key=lambda row: row[0].id):
        found = (_run(session, job_of(job), report) for session, job, report in group)
        if (one := next(filter(None, found), None)) is not None:
            yield one


def _run(session: Session, job: JobRequest, report: dict[str, Any]) -> _Ended | None:
    work = workload_of(job)
    rate = steady_rate([Decimal(one) for one in report.get("rates", ())])
    if work is None or not work.trains or rate is None:
        return None
    try:
        found = finished_run(work, session.gpu, session.gpu_count, rate)
    except ValueError:  # The rules predict nothing for such a run, so there is nothing to correct.
        return None
    if not is_comparable(found.measured_tokens_s, found.predicted_tokens_s):
        return None
    return _Ended(session, tuple(job.work), work, found)
