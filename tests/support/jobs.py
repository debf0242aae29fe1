"""What of a service's work is due, asked once: a step of a test's clock mostly finds that nothing is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from sqlalchemy import String, bindparam, literal, select, type_coerce, union_all

from bot.services.instances import launch, power, termination, unknown_outcome
from bot.services.instances.power import SWITCHABLE
from bot.services.requests import expiry, quoting, waiting
from bot.services.runtime.context import Context
from bot.services.sessions import expiration
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, NotificationState, RequestState, SessionState
from ledger.models import Instance, Notification, Request, Session

#: The jobs without a pace that call no messenger, in the order in which one hands to the next.
JOBS: dict[str, Callable[[Context], Awaitable[int]]] = {
    "waiting-requests": waiting.look_due,
    "quotes": quoting.quote_due,
    "expiry": expiry.expire_due,
    "launches": launch.send_due,
    "unknown-outcomes": unknown_outcome.resolve_due,
    "terminations": termination.terminate_due,
    "power-actions": power.switch_due,
    "expiration": expiration.deadlines_due,
}
#: Which rows each job works on that has no pace of its own, by the job's name: it runs when one is due.
WORKS_ON: dict[str, tuple[type[Any], frozenset[Any]]] = {
    "waiting-requests": (Request, frozenset({RequestState.WAITING})),
    "quotes": (Request, frozenset({RequestState.QUOTING})),
    "expiry": (Request, frozenset({RequestState.PENDING})),
    "launches": (Instance, frozenset({InstanceState.READY, InstanceState.SENDING})),
    "unknown-outcomes": (Instance, frozenset({InstanceState.UNKNOWN})),
    "terminations": (Instance, frozenset({InstanceState.TERMINATING})),
    "power-actions": (Instance, frozenset(SWITCHABLE)),
    "expiration": (
        Session,
        frozenset({SessionState.QUEUED, SessionState.PROVISIONING, SessionState.RUNNING, SessionState.STOPPED}),
    ),
    "outbox": (Notification, frozenset({NotificationState.PENDING})),
}
_TABLES: tuple[type[Any], ...] = (Request, Instance, Session, Notification)
_DUE = union_all(
    *(
        select(literal(model.__name__), type_coerce(model.state, String))
        .where(model.due_at <= bindparam("now"))
        .distinct()
        for model in _TABLES
    )
)


async def due_jobs(db: Database, now: datetime) -> set[str]:
    """The names of the jobs that have a row to work on."""
    async with db.read() as tx:
        found = {(name, state) for name, state in await tx.execute(_DUE, {"now": now})}
    return {
        job
        for job, (model, states) in WORKS_ON.items()
        if any((model.__name__, str(state)) in found for state in states)
    }


async def work_off(ctx: Context) -> int:
    """Run the jobs that have something to do now, once each. Returns how much was worked on."""
    done, due = 0, await due_jobs(ctx.db, ctx.clock.now())
    for name, job in JOBS.items():
        if name in due:
            done += await job(ctx)
            due = await due_jobs(ctx.db, ctx.clock.now())
    return done
