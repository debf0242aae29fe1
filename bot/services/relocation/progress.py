"""Carry migrations on, one step at a time: look, decide, store the step, and do what follows from it.

What a step means for the machines follows from the stored step: their agents read it in the answers to their check-ins,
and an end is ordered again until it is under way. So a process that dies at any moment leaves nothing half done.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bot.rules.checkpoints import verification as checkpoint_rules
from bot.rules.checkpoints.verification import Newest, Reported
from bot.rules.instances.health import given_up_at
from bot.rules.jobs.stored import job_of
from bot.rules.nodes.checkins import NodeStatus
from bot.rules.relocation import steps as rules
from bot.rules.relocation.asks import FAST_S
from bot.rules.relocation.machines import SILENT, Machine, SourceIs
from bot.rules.relocation.resume import resume_place
from bot.rules.relocation.steps import Facts, NextStep
from bot.services.checkpoints.remote import look
from bot.services.grants import reopen
from bot.services.instances.termination import end_session
from bot.services.nodes.checkins import node_status
from bot.services.notifications import request_message
from bot.services.notifications.paging import alone
from bot.services.relocation import context_text, messages
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from bot.wire.checkin import Work
from ledger.core import StaleMove, Tx, amend, decide
from ledger.core.relocation_steps import forget_inferred_step, note_look, take_look, take_step
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import ENDABLE_SESSION, UNDECIDED, InstanceState, RequestState
from ledger.kernel.steps.relocation_step import OVER, MigrationStep
from ledger.models import GraceRow, Instance, Migration, Request, Session
from ledger.queries.lookups import instances_of_session, session_of
from ledger.queries.nodes import node_of
from ledger.queries.runs.graces import newest_grace
from ledger.queries.runs.relocations import due_migrations
from providers.contract import InstanceStatus

BATCH = 16
#: Between two looks at one migration, and how long one look may take before another process takes it over.
LOOK_S, LEASE = 5.0, timedelta(seconds=60)
#: A look that comes so late found nothing running here meanwhile: that time counts for no step.
AWAY = timedelta(minutes=3)
#: A source that works again after a take-over has read within this time that it is to pause.
BACK = timedelta(seconds=8 * FAST_S)
#: A source that was paused reports within this time that it works again, and counts as idle no sooner.
RESUMES = timedelta(minutes=10)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one migration, read in one transaction."""

    migration: Migration
    request: Request
    source: Session
    source_row: Instance | None
    source_agent: NodeStatus | None
    target: Session | None
    target_row: Instance | None
    target_agent: NodeStatus | None
    #: The newest grace of each machine, open or not.
    source_grace: GraceRow | None = None
    target_grace: GraceRow | None = None


async def migrations_due(ctx: Context) -> int:
    """Take the next step of every migration that is due; return how many moved on."""
    if clock_problem(ctx.clock):
        return 0
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        due = await due_migrations(tx, now, BATCH)
    moved = 0
    for migration_id in due:
        moved += await alone(ctx, migration_id, "a migration", _one(ctx, migration_id), 0)
    return moved


async def _one(ctx: Context, migration_id: str) -> int:
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        before = await tx.get_one(Migration, migration_id)
        was_due_at = before.due_at or now
        if not await take_look(tx, migration_id, now, now + LEASE):
            return 0
    away = now - was_due_at if now - was_due_at > AWAY else timedelta()
    rows = await _read(ctx, migration_id)
    if await _carry_out(ctx, rows, _facts(ctx, rows, away, now), now):
        rows = await _read(ctx, migration_id)
    if rows.migration.is_step_inferred and rules.has_last_machine(_facts(ctx, rows, away, now)):
        async with ctx.db.write() as tx:
            await forget_inferred_step(tx, rows.migration)
        rows = await _read(ctx, migration_id)
    found = rules.next_step(await _with_store(ctx, rows, _facts(ctx, rows, away, now), now), now)
    try:
        async with ctx.db.write() as tx:
            return await _store(ctx, tx, rows, found, now)
    except StaleMove:
        log.info("migration %s was moved by somebody else", migration_id)
        return 0


async def _read(ctx: Context, migration_id: str) -> _Rows:
    async with ctx.db.read() as tx:
        migration = await tx.get_one(Migration, migration_id)
        request = await tx.get_one(Request, migration.request_id)
        source = await tx.get_one(Session, migration.source_session_id)
        target = await session_of(tx, request.id)
        of_source, of_target = await _machine(tx, source), await _machine(tx, target)
        rows = _Rows(migration, request, source, *of_source, target, *of_target)
        graces = [await newest_grace(tx, row.id) if row else None for row in (rows.source_row, rows.target_row)]
        return replace(rows, source_grace=graces[0], target_grace=graces[1])


async def _machine(tx: Tx, session: Session | None) -> tuple[Instance | None, NodeStatus | None]:
    rows = await instances_of_session(tx, session.id) if session is not None else []
    node = await node_of(tx, rows[-1].id) if rows else None
    return (rows[-1] if rows else None), (node_status(node) if node is not None else None)


async def _carry_out(ctx: Context, rows: _Rows, facts: Facts, now: datetime) -> bool:
    """Order what the current step needs and is not ordered yet. True when something was."""
    migration, target = rows.migration, rows.target
    if rules.ends_source(facts):
        said = "Its run moved to another machine and is past its last save there."
        return await _end(ctx, rows.source.id, EndReason.MIGRATED, said, now)
    if migration.step is not MigrationStep.ENDING:
        return False
    if target is not None:
        said = f"The move to it failed. {migration.note}"
        ends = target.state in ENDABLE_SESSION and rules.ends_target(facts)
        return ends and await _end(ctx, target.id, EndReason.MIGRATION_FAILED, said, now)
    if rows.request.state not in UNDECIDED:
        return False
    try:
        async with ctx.db.write() as tx:
            request = await decide(tx, rows.request.id, RequestState.CANCELLED, now, SYSTEM, migration.note)
            await reopen.close_family(tx, request, RequestState.CANCELLED, migration.note, now, SYSTEM)
    except StaleMove:
        log.info("request %s got its approval or rejection at this moment", rows.request.id)
    return True


async def _end(ctx: Context, session_id: str, code: EndReason, sentence: str, now: datetime) -> bool:
    try:
        async with ctx.db.write() as tx:
            await end_session(ctx, tx, session_id, code, sentence, SYSTEM, now)
    except StaleMove:
        log.info("session %s is ending already", session_id)
    ctx.hints.instances.set()
    ctx.hints.outbox.set()
    return True


def _facts(ctx: Context, rows: _Rows, away: timedelta, now: datetime) -> Facts:
    """Return what the ledger knows of a migration."""
    migration = rows.migration
    source = _as_machine(rows.source, rows.source_row, rows.source_agent, now)
    source = _with_grace(source, rows.source_row, rows.source_grace, ctx.timing.broken_grace_s, now)
    if migration.step is MigrationStep.READY and source.agent is not None:
        # What it reported before it was asked to pause says nothing about that.
        at = source.agent.at
        source = source if at is not None and at > migration.step_at else replace(source, agent=None)
    target = _as_machine(rows.target, rows.target_row, rows.target_agent, now) if rows.target is not None else None
    if target is not None:
        target = _with_grace(target, rows.target_row, rows.target_grace, ctx.timing.broken_grace_s, now)
    step_at = migration.step_at + away
    return Facts(
        migration.step,
        step_at,
        migration.saved_step,
        rows.request.state,
        rows.request.outcome,
        source,
        target,
        clock_from=migration.clock_from,
        is_taken_over=migration.taken_over_at is not None,
    )


def _with_grace(
    machine: Machine, row: Instance | None, grace: GraceRow | None, patience_s: float, now: datetime
) -> Machine:
    """Add whether a machine is kept in grace, for how long, and whether it has worked again since."""
    if row is None or grace is None:
        return machine
    if grace.ended_at is not None:
        return replace(machine, is_back=now - grace.ended_at > BACK)
    is_stuck = now >= given_up_at(row.trouble_at or grace.since, patience_s)
    return replace(machine, in_grace=True, is_stuck=is_stuck, is_back=False)


async def _with_store(ctx: Context, rows: _Rows, facts: Facts, now: datetime) -> Facts:
    """Add the newest checkpoint at the store, where the next decision needs it."""
    if not rules.looks_at_store(facts):
        return facts
    agent = facts.source.agent
    reported = Reported(now, agent.checkpoint_step, agent.checkpoint_at) if agent is not None else Reported()
    checked = await look(ctx, job_of(rows.request.job).checkpoint, reported, now)
    newest = checked.newest
    takes_over = facts.source_is is SourceIs.LOST or facts.waits_for_stuck_source
    if newest is not None and newest.at < rows.migration.saved_at and takes_over:
        newest = None  # What was verified before is newer.
    return replace(facts, remote=newest, remote_problem=checked.problem)


def _as_machine(session: Session, row: Instance | None, agent: NodeStatus | None, now: datetime) -> Machine:
    is_live = row is not None and row.state is InstanceState.LIVE
    is_ready = is_live and row is not None and row.reachable_at is not None and session.ready_at is not None
    is_silent = agent is None or agent.at is None or now - agent.at > SILENT
    is_still = row is not None and row.status == InstanceStatus.STOPPED
    return Machine(session.state, session.end_code, is_live, is_ready, agent, is_silent, is_still)


async def _store(ctx: Context, tx: Tx, rows: _Rows, found: NextStep, now: datetime) -> int:
    """Store the decision with what people read about it; 1 when it is another step."""
    migration = rows.migration
    if found.to is None:
        clock_from, due_at = now if found.stops_clock else None, now + timedelta(seconds=LOOK_S)
        if await note_look(tx, migration, found.why or migration.note, due_at, clock_from):
            await _show(tx, rows, now)
        if found.stops_clock:
            await messages.notify_waiting(ctx, tx, migration, rows.source, rows.source_agent, now)
            ctx.hints.outbox.set()
        return 0
    values: dict[str, Any] = _saved(rows, found.save, takes_over=found.takes_over) if found.save is not None else {}
    if found.takes_over:
        values["taken_over_at"] = now
    if found.to is MigrationStep.PRESENT:
        values["started_at"] = now
    why = found.why or migration.note
    if found.to is MigrationStep.DONE:
        target_row = rows.target_row
        values["context"] = await context_text.write(tx, migration, rows.request, rows.source, target_row, now)
    moved = await take_step(tx, migration, found.to, now, SYSTEM, why, **values)
    source = await tx.get_one(Session, rows.source.id)
    if found.to is MigrationStep.FAILED and rows.source_agent is not None and rows.source_agent.work is Work.PAUSED:
        kept_until = max(source.kept_running_until or now, now + RESUMES)
        await amend(tx, Session, source.id, kept_running_until=kept_until)
        await tx.refresh(source)
    await messages.notify(ctx, tx, moved, migration.step, source, rows.target, why, now)
    await _show(tx, rows, now)
    ctx.hints.outbox.set()
    if found.to in OVER:
        ctx.hints.sessions.set()
    return 1


def _saved(rows: _Rows, save: Newest, *, takes_over: bool) -> dict[str, Any]:
    """Return the columns of a newly verified save.

    Where its name has no step, its agent may have reported it. The step at which a job works says nothing about a save,
    unless the job saved and paused there: a target that continues below a step that is too high would be paused.
    """
    location, agent = job_of(rows.request.job).checkpoint or "", rows.source_agent
    where = checkpoint_rules.place(location)
    step, is_inferred = save.step, False
    if step is None and agent is not None:
        if agent.checkpoint_at is not None and abs(agent.checkpoint_at - save.at) <= rules.SKEW:
            step = agent.checkpoint_step
        if step is None and not takes_over and agent.work is Work.PAUSED:
            step, is_inferred = agent.step, True
    place = resume_place(location, where, save) if where is not None else location
    values = {"saved_from": place, "saved_step": step, "saved_bytes": save.size, "saved_at": save.at}
    return {**values, "is_step_inferred": is_inferred}


async def _show(tx: Tx, rows: _Rows, now: datetime) -> None:
    """Show the cards of both sessions again."""
    await request_message.show_again(tx, rows.request, now)
    await request_message.show_again(tx, await tx.get_one(Request, rows.source.request_id), now)
