"""List sessions, show one, and end one for its owner or an approver."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from decimal import Decimal

from bot.rules.instances.power import PowerAction
from bot.rules.jobs.stored import job_of
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.billing.metering import cost_now
from bot.services.checkpoints import hold
from bot.services.instances import power
from bot.services.instances.termination import end_session
from bot.services.notifications import end_of_session
from bot.services.notifications.interruption import notify_ended_by
from bot.services.runtime import recovery_mode
from bot.services.runtime.commands import FinishSession, Reply, Switch, Terminate, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import StaleMove, Tx, amend, record
from ledger.kernel.actor import Actor
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import ENDABLE_SESSION, SessionState
from ledger.kernel.volume_name import volume_of
from ledger.models import Request, Session
from ledger.queries.journal import done_before
from ledger.queries.lookups import instances_of_session, open_instances_of_session
from ledger.queries.runs.volumes_by_name import live_jobs
from ledger.queries.views import (
    RequestView,
    SessionView,
    pending_requests,
    request_view,
    resolve,
    session_to_change,
    session_view,
    session_views,
    sessions_page,
)
from providers.profiles import model

#: More sessions than a team runs at once; the list of the team reads no more.
TEAM_SESSIONS = 500
#: In these states a session can stop, or has, so that its disk stays.
STOPPABLE = frozenset({SessionState.RUNNING, SessionState.STOPPED})
NO_SESSION = refuse(ReplyCode.NO_SESSION, f"That request has no session yet. To cancel it: {cli_command('cancel ID')}.")


@dataclass(frozen=True, slots=True)
class Overview:
    """The live sessions, and the requests that wait for offers or a decision, as `/gpu list` shows them."""

    sessions: tuple[SessionView, ...]
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """One request in full, and its session when there is one."""

    request: RequestView
    session: SessionView | None


async def listing(ctx: Context, actor: Actor | None = None) -> Overview:
    """List everybody's sessions and requests, or only one person's, under all of their names.

    A 12-hour override is approved with its request, so it is left out where that is listed.
    """
    async with ctx.db.read() as tx:
        whose = await authorization.mine(tx, ctx.policy, actor) if actor else None
        waiting = await pending_requests(tx, whose=whose)
        listed = {row.id for row in waiting}
        own = (row for row in waiting if row.kind is not RequestKind.OVERRIDE_12H or row.parent_id not in listed)
        return Overview(tuple(await session_views(tx, whose=whose, with_shared=True)), tuple(own))


async def team(ctx: Context) -> tuple[SessionView, ...]:
    """List everybody's sessions that have not ended, the soonest to end first, so that their rates can be summed."""
    async with ctx.db.read() as tx:
        return tuple(await session_views(tx, limit=TEAM_SESSIONS))


async def history(ctx: Context, actor: Actor | None, limit: int) -> tuple[SessionView, ...]:
    """List the newest sessions that ended: everybody's, or only one person's, under all of their names."""
    async with ctx.db.read() as tx:
        whose = await authorization.mine(tx, ctx.policy, actor) if actor else None
        return tuple(await sessions_page(tx, whose=whose, live=False, before=None, limit=limit, ended=True))


async def status(ctx: Context, text: str) -> Status:
    """Return the request or session that `text` names. LookupError with the sentence for people when it names none."""
    async with ctx.db.read() as tx:
        request, session = await resolve(tx, text, past=True)
        shown = await session_view(tx, session.id) if session else None
        return Status(await request_view(tx, request.id), shown)


async def terminate(ctx: Context, command: Terminate) -> Reply:
    """Terminate a session now, for its owner or an approver. Its cost is booked when its end is proved."""
    return await _end(ctx, command, EndReason.ASKED, command.reason.strip() or "Ended on request.")


@dataclass(frozen=True, slots=True)
class Stakes:
    """What ending a session now means: the session, its cost in dollars, and the data that is lost.

    `keeps_disk`: a stop instead keeps data, and costs less.
    """

    view: SessionView
    cost_usd: Decimal
    lost: str
    keeps_disk: bool = False


async def before_end(ctx: Context, command: Terminate) -> Reply | Stakes:
    """Return what `terminate` would end, for the confirmation before it, or its refusal. Changes nothing."""
    try:
        async with ctx.db.read() as tx:
            _, session = await resolve(tx, command.session)
            if session is None:
                return NO_SESSION
            if not await authorization.may_act(tx, ctx.policy, session, command.decider):
                return _not_yours(session)
            rows = await open_instances_of_session(tx, session.id)
            view = await session_view(tx, session.id)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    held = hold.waiting(rows)
    if session.state not in ENDABLE_SESSION and not held:
        return _ending_already(session.short_id, session.state, {"session_id": session.id})
    clouds = sorted({row.cloud for row in rows} & ctx.providers.keys())
    lost = [model.load(cloud).over for cloud in clouds]
    lost += ["It is saving a checkpoint. Ending it now doesn't wait for that."] if held else []
    return Stakes(view, cost_now(ctx, view, ctx.clock.now()), " ".join(filter(None, lost)), _keeps_disk(ctx, view))


def _keeps_disk(ctx: Context, view: SessionView) -> bool:
    """Whether a stop of the session's instance keeps data and saves money."""
    row = view.instance
    if row is None or row.cloud not in ctx.providers or view.session.state not in STOPPABLE:
        return False
    able = ctx.providers[row.cloud].capabilities
    return able.stop and not able.billing.gpu_while_stopped and model.load(row.cloud).stop_keeps_data


async def done(ctx: Context, command: FinishSession) -> Reply:
    """End a session whose work is done, or stop it to retain its disk, and record how the work went."""
    if command.preserve:
        return await _preserve(ctx, command)
    sentence = f"The work was reported as {'done' if command.succeeded else 'failed'}."
    return await _end(ctx, command, EndReason.COMPLETED if command.succeeded else EndReason.WORK_FAILED, sentence)


async def _preserve(ctx: Context, command: FinishSession) -> Reply:
    hint = f"The session continues. To end it with its disk: {cli_command('shutdown ID')}."
    how = "The work is done" if command.succeeded else "The work failed"
    actor, now = command.decider.actor, ctx.clock.now()
    try:
        # `preserve` is stored in the transaction that orders the stop. Otherwise a crash could lose it, and the disk.
        async with ctx.db.write() as tx:
            session = await session_to_change(tx, command.session)
            if session is None:
                return refuse(ReplyCode.NO_SESSION, "That request has no session yet.")
            stop = Switch(command.session, command.decider, PowerAction.STOP, keep=True)
            before = await done_before(tx, session.id, {EventKind.SESSION_WORK_OVER}, command.key, now - KEPT)
            already = f"Session {session.short_id} is stopping already."
            reply = Reply(True, ReplyCode.POWER_ACTION, already, {"session_id": session.id}) if before else None
            reply = reply or await _already_stopped(ctx, tx, session, command)
            reply = reply or await power.order(ctx, tx, session, stop, now)
            if reply.ok and before is None:
                await amend(tx, Session, session.id, preserve=True)
                said = f"{how}, and the disk stays."
                record(tx, now, actor, session.id, EventKind.SESSION_WORK_OVER, reason=said, key=command.key)
            rows = await instances_of_session(tx, session.id)
            until = await hold.preserved_until(ctx, tx, rows[-1], session, now) if reply.ok and rows else None
    except LookupError as error:
        reply = refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    if not reply.ok:
        return replace(reply, sentence=f"The disk can't be kept. {reply.sentence} {hint}")
    ctx.hints.instances.set()
    ctx.hints.outbox.set()
    kept = f" The disk is deleted at about {until:%Y-%m-%d %H:%M} UTC." if until is not None else ""
    return replace(reply, code=ReplyCode.PRESERVING, sentence=f"{how}. {reply.sentence}{kept}")


async def _already_stopped(ctx: Context, tx: Tx, session: Session, command: FinishSession) -> Reply | None:
    """Return the reply where it is stopped already, or its stop is under way and keeps its data; None where it runs."""
    rows = await instances_of_session(tx, session.id)
    row = rows[-1] if rows else None
    if row is None or row.cloud not in ctx.providers or not model.load(row.cloud).stop_keeps_data:
        return None
    stopping = session.state is SessionState.RUNNING and row.wanted == PowerAction.STOP
    if not stopping and (session.state is not SessionState.STOPPED or row.wanted is not None):
        return None
    if not await authorization.may_act(tx, ctx.policy, session, command.decider):
        return None  # `power.order` refuses it with its own sentence.
    now = "is stopping already" if stopping else "is stopped already"
    return Reply(True, ReplyCode.POWER_ACTION, f"Session {session.short_id} {now}.", {"session_id": session.id})


async def _end(ctx: Context, command: Terminate | FinishSession, code: EndReason, sentence: str) -> Reply:
    facts = command.decider
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            request, session = await resolve(tx, command.session)
            if session is None:
                return NO_SESSION
            short, data = session.short_id, {"session_id": session.id}
            if not await authorization.may_act(tx, ctx.policy, session, facts):
                return _not_yours(session)
            if used := await _used(tx, session):
                return used
            if not end_of_session.same_end(session, command.seen_end_s) and session.state in ENDABLE_SESSION:
                return refuse(
                    ReplyCode.STALE,
                    "The session has another end now, so nothing was changed. Use the newest message.",
                    data,
                )
            held = await open_instances_of_session(tx, session.id)
            if command.seen_end_s is not None and hold.waiting(held):
                # The button is from a message before the end: the person has not read that nothing is saved.
                return refuse(ReplyCode.STALE, "It is saving a checkpoint. Use the message about that.", data)
            if await hold.release(ctx, tx, held, facts.actor, now):
                ctx.hints.instances.set()
                said = f"Ending session {session.short_id} now, without a verified checkpoint."
                return Reply(True, ReplyCode.RELEASED, said, data)
            own = session.owner in await authorization.mine(tx, ctx.policy, facts.actor)
            if own:
                await amend(
                    tx, Session, session.id, preserve=False
                )  # The owner of the data ends it, so nothing is retained.
            unsaved = not own and bool(session.preserve or job_of(request.job).checkpoint)
            await end_session(ctx, tx, session.id, code, sentence, facts.actor, now)
            await notify_ended_by(tx, ctx.policy, session, facts.actor, sentence, now)
            clouds = {row.cloud for row in await open_instances_of_session(tx, session.id)} & ctx.providers.keys()
            reply = await recovery_mode.with_recovery_notice(tx, _ordered(ctx, session, clouds, unsaved=unsaved))
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    except StaleMove as stale:
        return _ending_already(short, SessionState(stale.now), data)
    ctx.hints.instances.set()
    ctx.hints.outbox.set()
    return reply


async def _used(tx: Tx, session: Session) -> Reply | None:
    """Refuse to delete a network volume that a machine uses; its cloud would refuse that, too."""
    if not volume_of(session.gpu):
        return None
    users = [user for user, job in await live_jobs(tx) if job_of(job).volume_session == session.id]
    if not users:
        return None
    named = ", ".join(one.short_id for one in users)
    said = f"Volume {volume_of(session.gpu)} is in use by session {named}. End that first, then delete the volume."
    return refuse(ReplyCode.VOLUME_IN_USE, said, {"session_id": session.id})


def _ordered(ctx: Context, session: Session, clouds: Collection[str], *, unsaved: bool) -> Reply:
    then = "You'll be notified when its cloud no longer lists it."
    if any(not ctx.providers[cloud].capabilities.terminate for cloud in clouds):
        then = "Its cloud can't end it, so it runs until it finishes or reaches its timeout."
    if unsaved:
        then = f"Its checkpoint is checked first. To skip that, end it once more. {then}"
    lost = "".join(f" {model.load(cloud).over}" for cloud in clouds).rstrip()
    said = f"Ending session {session.short_id}. {then}{lost}"
    return Reply(True, ReplyCode.TERMINATING, said, {"session_id": session.id})


def _not_yours(session: Session) -> Reply:
    data = {"session_id": session.id}
    return refuse(ReplyCode.NOT_YOURS, "Only its owner or an approver can end this session.", data)


def _ending_already(short: str, state: SessionState, data: dict[str, str]) -> Reply:
    over = state in (SessionState.TERMINATED, SessionState.FAILED)
    how = "has ended" if over else "is ending already"
    return refuse(ReplyCode.ALREADY_ENDING, f"Session {short} {how}.", data)
