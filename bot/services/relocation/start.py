"""Ask for a migration: check the run and its newest checkpoint, and request a machine that it may move to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from bot.rules.approvals.decision import DeciderFacts
from bot.rules.checkpoints.verification import Reported
from bot.rules.jobs.stored import job_of
from bot.rules.policy.request_rate import CountedAs
from bot.rules.relocation.resume import own_place, resume_place
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.state_text import state_words
from bot.services.access import authorization, credentials, job_secrets, sharing
from bot.services.checkpoints.remote import RemoteLook, look
from bot.services.grants import authority
from bot.services.relocation.cheaper import cheaper_price
from bot.services.relocation.movable import CHEAPER, agent_of, target_job, why_not
from bot.services.requests import submit
from bot.services.runtime.commands import Provision, Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, lock_family, record
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import SessionState
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.models import Migration, Request, Session
from ledger.queries.lookups import by_inbox_key
from ledger.queries.people.credentials import secrets_named
from ledger.queries.runs.relocations import open_migration_of
from ledger.queries.views import SessionView, resolve, session_view


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move the run of a session. `to` is an offer's id, a cloud, `cheaper`, or empty for whatever fits.

    `key` identifies the inbound message: the same key asks once.
    """

    key: str
    session: str
    decider: DeciderFacts
    to: str = ""
    by_agent: bool = False


class _Refused(Exception):
    """Roll the transaction back and answer with the reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.sentence)
        self.reply = reply


async def migrate(ctx: Context, command: Migrate) -> Reply:
    """Ask for a migration. Nothing changes on the run's machine until a new machine is approved and ready."""
    now = ctx.clock.now()
    try:
        async with ctx.db.read() as tx:
            known = await by_inbox_key(tx, command.key)
            _, session = await resolve(tx, command.session)
            if session is None:
                return refuse(ReplyCode.NO_SESSION, "That request has no session to move.")
            view = await session_view(tx, session.id)
            if known is not None:
                return _asked(view.session, known.id)
            secrets = (await secrets_named(tx, [session.request_id])).get(session.request_id, ())
            if refused := await _refusal(ctx, tx, view, command, now):
                return replace(refused, data={"session_id": session.id})
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    agent = agent_of(view)
    if agent is None or view.instance is None:
        return _cannot(session, "no agent reports from it")
    reported = Reported(step=agent.checkpoint_step, at=agent.checkpoint_at)
    found = await look(ctx, job_of(view.request.job).checkpoint, reported, now)
    if found.problem:
        said = f"Session {session.short_id} can't be moved without a verified checkpoint. {found.problem}"
        return refuse(found.verdict.code, said, {"session_id": session.id})
    step = found.newest.step if found.newest is not None else None
    at_step = step if step is not None else agent.checkpoint_step
    job = target_job(view, command.to, at_step, now)
    if command.to == CHEAPER:
        cheaper = await cheaper_price(ctx, view, now)
        if cheaper.max_price_usd_h is None:
            return refuse(ReplyCode.NOTHING_CHEAPER, cheaper.why, {"session_id": session.id})
        job = cheaper.narrows(job)
    run_id, actor = authority.run_of(view.request), command.decider.actor
    if missing := await job_secrets.refusal(ctx, actor, secrets):
        return replace(missing, data={"session_id": session.id})
    asks = Provision(command.key, actor, session.channel, job, run_id, command.by_agent)

    async def store(tx: Tx, request_id: str) -> None:
        await _store(tx, view, request_id, found, command, now)
        # Under the lock of the source's family, so that nobody comes or goes meanwhile.
        await credentials.copy(tx, session.request_id, request_id, now)
        await sharing.copy(tx, ctx.policy, session.request_id, request_id, command.decider.actor, now)

    try:
        kind = RequestKind.MIGRATE
        reply = await submit.submit(ctx, asks, kind=kind, store=store, counted=CountedAs(kind, session.id))
    except _Refused as stale:
        return stale.reply
    return _asked(session, str(reply.data["request_id"])) if reply.ok else reply


def _asked(session: Session, request_id: str) -> Reply:
    sentence = (
        f"Request {short_id(request_id)}: looking for a machine that session {session.short_id} can move to. "
        "Its checkpoint is verified. Nothing changes until one is approved and ready."
    )
    return Reply(True, ReplyCode.SUBMITTED, sentence, {"request_id": request_id, "session_id": session.id})


def _cannot(session: Session, why: str) -> Reply:
    sentence = f"Session {session.short_id} can't be moved: {why}."
    return refuse(ReplyCode.CANNOT_MIGRATE, sentence, {"session_id": session.id})


async def _refusal(ctx: Context, tx: Tx, view: SessionView, command: Migrate, now: datetime) -> Reply | None:
    session, row = view.session, view.instance
    if session.owner not in await authorization.mine(tx, ctx.policy, command.decider.actor):
        return refuse(ReplyCode.NOT_YOURS, "Only its owner can move a session.")
    if session.state is not SessionState.RUNNING or session.deadline is None or row is None:
        return refuse(ReplyCode.NOT_RUNNING, f"Session {session.short_id} is {state_words(session.state)}.")
    if (moving := await open_migration_of(tx, session.id)) is not None:
        sentence = f"Session {session.short_id} is being moved already ({short_id(moving.request_id)})."
        return refuse(ReplyCode.ALREADY_REQUESTED, sentence)
    if (why := why_not(view, ctx.providers, now)) is not None:
        return _cannot(session, why)
    if command.to not in ("", CHEAPER) and command.to.partition(":")[0] not in ctx.clouds:
        clouds = ", ".join(ctx.clouds)
        said = f"“{command.to[:60]}” is no cloud or offer here. Use {CHEAPER}, an offer's id, or one of {clouds}."
        return refuse(ReplyCode.UNKNOWN_CLOUD, said)
    return None


async def _store(
    tx: Tx, view: SessionView, request_id: str, found: RemoteLook, command: Migrate, now: datetime
) -> None:
    """Store the migration with its request, in one transaction. Its first step is done: the checkpoint is verified."""
    await lock_family(tx, Session, view.session.id)
    session = await tx.get_one(Session, view.session.id, populate_existing=True)
    is_same = session.state is SessionState.RUNNING and session.owner == view.session.owner
    if not is_same or await open_migration_of(tx, session.id) is not None:
        raise _Refused(refuse(ReplyCode.STALE, f"Session {session.short_id} has changed, so nothing was requested."))
    newest, location = found.newest, job_of(view.request.job).checkpoint or ""
    if newest is None or found.where is None:
        raise ValueError(f"{session.id} has no verified checkpoint")
    agent = agent_of(view)
    migration = Migration(
        id=new_id("mig", now),
        request_id=request_id,
        source_session_id=session.id,
        source_request_id=session.request_id,
        step=MigrationStep.CHECKED,
        created_at=now,
        step_at=now,
        due_at=now,
        saved_from=resume_place(location, found.where, newest),
        saved_step=newest.step if newest.step is not None else (agent.checkpoint_step if agent else None),
        saved_bytes=newest.size,
        saved_at=newest.at,
        note=found.verdict.sentence,
        target_place=own_place(location, short_id(request_id)),
    )
    tx.add(migration)
    await tx.flush()
    if view.instance is not None and view.instance.machine_id:
        # The run's own machine is no place to move to.
        await amend(tx, Request, request_id, failed_machines=[view.instance.machine_id])
    record(
        tx,
        now,
        command.decider.actor,
        migration.id,
        EventKind.MIGRATION_STEP,
        after=str(migration.step),
        reason=found.verdict.sentence,
        data={"request_id": request_id, "session_id": session.id},
    )
