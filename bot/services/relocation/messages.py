"""Say how far a migration is, and notify its owner where no other message does: the run moved, or the move failed."""

from __future__ import annotations

from datetime import datetime

from bot.rules.nodes.checkins import NodeStatus
from bot.rules.relocation.text import progress_line
from bot.rules.values.command_text import cli_command
from bot.services.people import direct_messages
from bot.services.relocation.movable import SILENT
from bot.services.runtime.context import Context
from ledger.core import Tx, announce_once
from ledger.kernel.ids import short_id
from ledger.kernel.states import LIVE_SESSION, NotificationKind, RequestState, SessionState
from ledger.kernel.steps.relocation_step import TARGET_MAY_RUN, MigrationStep
from ledger.models import Migration, Request, Session

_M = MigrationStep


def progress(moved: Migration, request_id: str) -> str:
    """Say how far a migration is, for the card of its source's request or of its target's."""
    here, there = short_id(moved.source_request_id), short_id(moved.request_id)
    return progress_line(moved.step, moved.note, here, there, is_target=moved.request_id == request_id)


async def notify(
    ctx: Context,
    tx: Tx,
    moved: Migration,
    before: MigrationStep,
    source: Session,
    target: Session | None,
    why: str,
    now: datetime,
) -> None:
    """Notify the owner of the step that a migration just reached, before what follows from it is ordered."""
    text = await _text(tx, moved, before, source, target, why)
    if text:
        subject = f"{source.id}/{moved.id}/{moved.step}"
        await direct_messages.notify_owner(tx, ctx.policy, now, source, subject=subject, text=text)


async def notify_waiting(
    ctx: Context, tx: Tx, moved: Migration, source: Session, agent: NodeStatus | None, now: datetime
) -> None:
    """Notify the owner once that a move waits for a machine that doesn't report, and that both are paid meanwhile."""
    if source.state is not SessionState.RUNNING or agent is None or agent.at is None or now - agent.at < SILENT:
        return
    here, there = source.short_id, short_id(moved.request_id)
    text = (
        f"Session {here} has not reported since {agent.at:%H:%M} UTC, so its move to {there} waits. "
        f"{there} is kept, and you pay for both. If {here} is lost, {there} continues from its last verified save. "
        f"To stop the move: {cli_command(f'terminate {there}')}."
    )
    for to in await direct_messages.places(tx, ctx.policy, source):
        subject = f"{source.id}/{moved.id}/waits"
        await announce_once(tx, now, NotificationKind.REPLY, subject, destination=to, body={"text": text})


async def _text(
    tx: Tx, moved: Migration, before: MigrationStep, source: Session, target: Session | None, why: str
) -> str:
    here, there = source.short_id, short_id(moved.request_id)
    if moved.step is _M.ADVANCED:
        return f"The run of session {here} moved to {there}. {why}"
    if moved.step is _M.PRESENT and before is not _M.VERIFIED:
        if source.state is SessionState.RUNNING:
            why = f"The machine of session {here} doesn't work. It is kept, and its job stays paused if it comes back."
        else:
            why = f"Session {here} lost its machine while it moved."
        return f"{why} Its run continues as {there}, from its last save."
    if moved.step is _M.ENDING:
        return await _failed(tx, moved, source, target, why)
    if moved.step is not _M.FAILED:
        return ""
    if before in TARGET_MAY_RUN:
        return f"The move of session {here} to {there} did not finish. {why} {there} is left until its approved end."
    if moved.started_at is None:
        return ""  # The message about its end said everything.
    return f"The new machine {there} is gone. {_goes_on(source, 'continues now', moved)}"


async def _failed(tx: Tx, moved: Migration, source: Session, target: Session | None, why: str) -> str:
    request = await tx.get_one(Request, moved.request_id)
    is_closed = request.state in (RequestState.REJECTED, RequestState.CANCELLED, RequestState.EXPIRED)
    if target is None and is_closed and source.state is SessionState.RUNNING:
        return ""  # The answer to the request says it.
    ends = f" The new machine {short_id(moved.request_id)} is being ended." if target is not None else ""
    waits = moved.started_at is not None
    when = "continues when the new machine is proved gone," if waits else "continues"
    return f"The move of session {source.short_id} failed. {why}{ends} {_goes_on(source, when, moved)}"


def _goes_on(source: Session, how: str, moved: Migration) -> str:
    if source.state in LIVE_SESSION and source.state is not SessionState.TERMINATING:
        return f"Its run {how} on its own machine."
    return f"Its own machine has ended. Its last verified save is {moved.saved_from.partition('?')[0]}."
