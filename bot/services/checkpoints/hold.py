"""Hold an instance, or retain its disk, at its end: authority, money, messages, and people's replies."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import assert_never

from bot.rules.approvals.approvers import slack_accounts
from bot.rules.checkpoints import verification as rules
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.billing.metering import rule_of, running_usd
from bot.services.grants import reopen, reservations
from bot.services.notifications import end_of_session, interruption
from bot.services.people import direct_messages
from bot.services.runtime.commands import AnswerCheckpointHold, Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, announce, move, notifications_of, record, wake
from ledger.kernel import money
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.checkpoint_step import BEHIND, WAITS, CheckpointStep
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import GrantState, InstanceState, NotificationKind
from ledger.models import GrantRow, Instance, Session
from ledger.queries.lookups import open_instances_of_session
from ledger.queries.retained_disks import open_disks
from ledger.queries.session_costs import booked, extension_cap
from providers.capabilities import Capabilities

#: Longest time that a disk is retained without a reply, even where the unspent approved amount would pay for more.
LONGEST = timedelta(days=7)
KIND = NotificationKind.SESSION_CHECKPOINT_HOLD
#: The message to the fallback contacts when the owner does not answer.
ASKED = "asked"
#: The message before a retained disk is deleted.
DISK = "disk"


async def note(tx: Tx, row: Instance, step: CheckpointStep, said: str, now: datetime, until: datetime) -> None:
    """Record the checkpoint step of a termination, and update the messages about it."""
    await amend(tx, Instance, row.id, checkpoint_step=step, checkpoint_until=until, gate_note=said)
    record(tx, now, SYSTEM, row.session_id, _event(step), reason=said)
    if step in BEHIND:
        await _close_extensions(tx, row, said, now, SYSTEM)
    await refresh(tx, row, now)


def _event(step: CheckpointStep) -> EventKind:
    """Return the event kind of a checkpoint step."""
    match step:
        case CheckpointStep.SAVING:
            return EventKind.CHECKPOINT_SAVING
        case CheckpointStep.STOPPING:
            return EventKind.CHECKPOINT_STOPPING
        case CheckpointStep.HELD:
            return EventKind.CHECKPOINT_HELD
        case CheckpointStep.PASSED:
            return EventKind.CHECKPOINT_PASSED
        case CheckpointStep.RELEASED:
            return EventKind.CHECKPOINT_RELEASED
        case CheckpointStep.DESTROYED:
            return EventKind.CHECKPOINT_DESTROYED
        case _:
            assert_never(step)


async def _close_extensions(tx: Tx, row: Instance, said: str, now: datetime, actor: Actor) -> None:
    """Close the extension requests of an instance that is not held any more."""
    session = await tx.get_one(Session, row.session_id)
    await reopen.close_extensions(tx, session.request_id, said, now, actor)


def reserved(row: Instance) -> rules.Reserved:
    """Return what was reserved for the checkpoint hold when the instance was approved."""
    return rules.Reserved.of(row.hold_usd, row.hold_s)


async def left_usd(ctx: Context, tx: Tx, row: Instance, now: datetime) -> Decimal:
    """Return the dollars that were approved for this instance and are not spent.

    What earlier instances cost is not subtracted again: a replacement's grant covers what they had left over, and an
    attempt after a new approval has its own amount.
    """
    grant, before = await tx.get_one(GrantRow, row.grant_id), await booked(tx, row)
    disk = next(iter(await open_disks(tx, [row.session_id])), None)
    used = before.usd + running_usd(row, before, now, rule_of(ctx, row), disk)
    nodes = (await tx.get_one(Session, row.session_id)).nodes
    return grant.total_cap_usd + money.share(await extension_cap(tx, row.session_id), nodes) - used


async def latest_hold_end(ctx: Context, tx: Tx, row: Instance, now: datetime, able: Capabilities) -> datetime:
    """Return the latest end of a hold: as long as was reserved, and as the unspent amount pays for."""
    most = timedelta(seconds=reserved(row).longest_s(ctx.policy, keeps_disk=able.keeps_disk))
    ordered_at = row.terminate_asked_at or now
    return min(ordered_at + most, rules.hold_ends_at(now, await left_usd(ctx, tx, row, now), row.price_usd_h, LONGEST))


def disk_rate(row: Instance) -> Decimal:
    """Return the dollars per hour of an instance's disk while it is stopped."""
    # What a disk costs while stopped is known for few offers; the running disk's rate is never below it by much.
    return max(row.storage_usd_h, Decimal(str(row.offer.get("storage_stopped_usd_h") or 0)))


async def disk_paid_until(ctx: Context, tx: Tx, row: Instance, now: datetime, most: timedelta) -> datetime:
    """Return until when the unspent approved amount pays for the disk alone, at most `most` from now."""
    return rules.hold_ends_at(now, await left_usd(ctx, tx, row, now), disk_rate(row), most)


async def preserved_until(ctx: Context, tx: Tx, row: Instance, session: Session, now: datetime) -> datetime | None:
    """Return when the disk of a stopped machine is deleted that its owner asked to preserve; None without an end.

    It outlives the approved end by at most `LONGEST`, and never what the approved amount pays for.
    """
    if session.deadline is None:
        return None
    longest = session.deadline + LONGEST
    return max(await disk_paid_until(ctx, tx, row, now, longest - now), session.deadline)


async def runs_until(ctx: Context, tx: Tx, row: Instance, now: datetime, most: timedelta) -> datetime:
    """Return until when that amount pays for the instance, which costs its full rate until it is listed as stopped."""
    return rules.hold_ends_at(now, await left_usd(ctx, tx, row, now), row.price_usd_h, most)


async def authorize(tx: Tx, row: Instance, until: datetime, now: datetime) -> None:
    """Create the grant of a hold; it adds no dollars, because they were reserved at the approval."""
    used = await tx.get_one(GrantRow, row.grant_id)
    grant = await reservations.new_grant(
        tx,
        GrantKind.HOLD,
        request_id=row.request_id,
        approval_id=used.approval_id,
        session_id=row.session_id,
        price_cap_usd_h=used.price_cap_usd_h,
        total_cap_usd=used.total_cap_usd * 0,
        hours=f"{reserved(row).granted_h:.4f}",
        until=until,
        now=now,
    )
    await move(tx, GrantRow, grant.id, GrantState.USED, now, SYSTEM)


# ── messages ─────────────────────────────────────────────────────────────────────────────────────


def subject_of(row: Instance, step: str) -> str:
    """Return the subject of a message about a hold: each step has its own, because nobody is notified of an edit."""
    return f"{row.session_id}/{row.id}/{step}"


async def notify_owner(ctx: Context, tx: Tx, row: Instance, step: str, now: datetime) -> None:
    """Notify the owner, or the fallback contacts or the request's channel when the owner is not in Slack."""
    session = await tx.get_one(Session, row.session_id)
    for to in await direct_messages.places(tx, ctx.policy, session):
        await announce(tx, now, KIND, subject_of(row, step), destination=to)


async def reach_somebody(ctx: Context, tx: Tx, row: Instance, now: datetime) -> None:
    """Notify the fallback contacts when the delivery to the owner failed."""
    session = await tx.get_one(Session, row.session_id)
    held = row.checkpoint_step in (CheckpointStep.HELD, CheckpointStep.STOPPING)
    step = CheckpointStep.HELD if held else CheckpointStep.SAVING
    await end_of_session.reach(ctx, tx, session, KIND, subject_of(row, step), now)


async def notify_fallback_contacts(ctx: Context, tx: Tx, row: Instance, now: datetime) -> None:
    """Ask those who may reply for the owner: the fallback contacts and the budget administrators."""
    for to in dict.fromkeys((*ctx.policy.fallback_contacts, *slack_accounts(ctx.policy, ctx.policy.budget_admins))):
        await announce(tx, now, KIND, subject_of(row, ASKED), destination=to)


async def refresh(tx: Tx, row: Instance, now: datetime) -> None:
    """Update the messages about a hold that has changed, and remove their buttons."""
    for step in (CheckpointStep.SAVING, CheckpointStep.HELD, ASKED, DISK):
        for notification in await notifications_of(tx, KIND, subject_of(row, step)):
            await announce(tx, now, KIND, notification.subject, destination=notification.destination)


# ── replies ──────────────────────────────────────────────────────────────────────────────────────


def waiting(rows: list[Instance]) -> list[Instance]:
    """Return the instances whose ordered end waits for a checkpoint."""
    return [row for row in rows if row.state is InstanceState.TERMINATING and row.checkpoint_step in WAITS]


async def release(
    ctx: Context, tx: Tx, rows: list[Instance], actor: Actor, now: datetime, *, saved: bool = False
) -> bool:
    """Release a checkpoint hold for a person, and end the instance with its disk. False when there is no hold."""
    found = waiting(rows)
    said = "Its data is saved elsewhere" if saved else "Ended on request without a verified checkpoint"
    for row in found:
        await amend(
            tx,
            Instance,
            row.id,
            checkpoint_step=CheckpointStep.RELEASED,
            checkpoint_until=now,
            gate_note=f"{said}, reported by {actor.ref}.",
        )
        await wake(tx, Instance, row.id, now)
        record(tx, now, actor, row.session_id, _event(CheckpointStep.RELEASED), reason=f"{said}.")
        await _close_extensions(tx, row, f"{said}.", now, actor)
        await refresh(tx, row, now)
        session = await tx.get_one(Session, row.session_id)
        await interruption.notify_ended_by(tx, ctx.policy, session, actor, f"{said}.", now)
    return bool(found)


_REFUSED = (
    "That request has no session.",
    "Only its owner, a fallback contact or an approver can do this.",
)


async def answer(ctx: Context, command: AnswerCheckpointHold) -> Reply:
    """Act on a click on *I saved it* or *End anyway*. Code of success: `released`; a hold that ended is not changed."""

    async def release_hold(tx: Tx, session: Session, now: datetime) -> Reply:
        data = {"session_id": session.id}
        rows = waiting(await open_instances_of_session(tx, session.id))
        if not any(
            row.checkpoint_until and int(row.checkpoint_until.timestamp()) == command.seen_end_s for row in rows
        ):
            return refuse(
                ReplyCode.STALE,
                "The session no longer waits for this, so nothing was changed. Use the newest message.",
                data,
            )
        await release(ctx, tx, rows, command.decider.actor, now, saved=command.saved)
        how = "Its data is saved." if command.saved else "Its checkpoint is not verified."
        said = f"Ending session {session.short_id} and deleting its disk. {how}"
        return Reply(True, ReplyCode.RELEASED, said, data)

    reply = await authorization.acted(ctx, command.session, command.decider, _REFUSED, release_hold)
    if reply.ok:
        ctx.hints.instances.set()
        ctx.hints.outbox.set()
    return reply


async def extended(ctx: Context, tx: Tx, row: Instance, hours: Decimal, now: datetime) -> datetime:
    """Extend a hold for which more time was approved; return its new end."""
    more = timedelta(seconds=int(hours * 3600))
    until = max(row.checkpoint_until or now, now) + more
    provider = ctx.providers.get(row.cloud)
    before_s = reserved(row).longest_s(ctx.policy, keeps_disk=provider is not None and provider.capabilities.keeps_disk)
    hold_s = before_s + int(more.total_seconds())
    said = f"More time was approved. It now waits until {until:%Y-%m-%d %H:%M} UTC."
    await amend(
        tx, Instance, row.id, checkpoint_until=until, hold_s=hold_s, gate_note=f"{row.gate_note or ''} {said}".strip()
    )
    await refresh(tx, row, now)
    await notify_owner(ctx, tx, row, CheckpointStep.HELD, now)
    return until
