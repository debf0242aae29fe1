"""Verify the newest checkpoint in its store before an instance is terminated automatically.

A missing checkpoint is waited for, for a limited time, while the agent is asked to save and upload; then the policy
decides. The instance is held within what its approval reserved for that: stopped with its disk, or running where a stop
does not retain the disk. A termination that its owner ordered is not held.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from bot.rules.checkpoints import verification as rules
from bot.rules.checkpoints.stores import not_listed
from bot.rules.checkpoints.verification import Reported, StoreLocation, Unverified
from bot.rules.jobs.stored import checkpoint_of, job_of
from bot.rules.values.phrases import Verdict, deny
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.checkpoints import hold
from bot.services.checkpoints.remote import look_at
from bot.services.nodes.checkins import node_status
from bot.services.notifications.paging import OPERATORS, page, page_in
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, lock_family, notification_of
from ledger.kernel.checkpoint_step import BEHIND, CheckpointStep
from ledger.kernel.end_reason import EndGroup, EndReason, reasons
from ledger.kernel.states import InstanceState, NotificationKind
from ledger.models import Instance, Node, Request, Session
from ledger.queries.nodes import node_of
from ledger.queries.terminations import behind, ordered_by
from providers.capabilities import Capabilities
from providers.contract import InstanceStatus, Provider
from providers.errors import ProviderError

#: Between two checks of the store while an end waits: with the instance running, and with only its disk retained.
LOOK, REST = timedelta(seconds=30), timedelta(minutes=10)
#: A hold that ends earlier than announced, by more than this, is announced again.
EARLIER = timedelta(minutes=1)
#: An approved extension may retain a disk for longer than a hold without a reply does.
YEAR = timedelta(days=365)
#: Ends that people order at once. Only an owner who orders one knows whether the data on the disk may be deleted.
ANSWERED = frozenset({EndReason.ASKED, EndReason.GIVEN_UP})

#: Ends that belong to a migration, which has verified the run's last save itself.
MOVED = reasons(EndGroup.MOVED)

#: Why a disk is retained without a check of any checkpoint.
PRESERVED = deny(ReplyCode.PRESERVED, "Its owner asked to keep its disk.")

log = logging.getLogger(__name__)


async def waits_until(ctx: Context, row: Instance, now: datetime) -> datetime | None:
    """Return when to check again before a termination that waits for a checkpoint; None when nothing delays it."""
    provider = ctx.providers.get(row.cloud)
    if row.checkpoint_step in BEHIND or row.outcome_code in MOVED:
        return None
    if provider is None or provider.account != row.account:
        return None  # It cannot be listed or stopped here; the termination itself waits for the account, and pages.
    able = provider.capabilities
    async with ctx.db.read() as tx:
        request, session, node = await behind(tx, row.id)
        if row.outcome_code in ANSWERED and await _by_its_owner(ctx, tx, session):
            return None
    where = rules.place(job_of(request.job).checkpoint)
    used = row.reachable_at is not None or session.ready_at is not None
    preserved = bool(session.preserve) and able.keeps_disk
    where = None if ctx.checkpoints is None else where
    if (where is None and not preserved) or not able.terminate or not used:
        return None  # An instance that nobody ever reached has nothing to save.
    if preserved or where is None:
        verdict = PRESERVED
    elif (why := not_listed(job_of(request.job).checkpoint, ctx.policy.checkpoint_places)) is not None:
        verdict = deny(ReplyCode.UNREACHABLE, why)
    else:
        verdict = await _verify(ctx, where, row, node, now)
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, row.id)
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        if fresh.state is not InstanceState.TERMINATING or fresh.checkpoint_step in BEHIND:
            return None
        waits = await _decide(ctx, tx, fresh, verdict, now, able)
        after = await tx.get_one(Instance, row.id, populate_existing=True)
    ctx.hints.outbox.set()
    if after.checkpoint_step == CheckpointStep.STOPPING and row.ref is not None:
        await _stop(ctx, provider, after, row.ref, now)
    if not waits:
        return None
    pause = REST if after.checkpoint_step == CheckpointStep.HELD and row.status == "stopped" else LOOK
    over = after.checkpoint_until
    return min(now + pause, over) if over is not None and over > now else now + LOOK


async def is_saved(ctx: Context, row: Instance, now: datetime) -> bool:
    """Whether the newest checkpoint of a running instance is verified; False where none can be checked."""
    async with ctx.db.read() as tx:
        location = checkpoint_of((await tx.get_one(Request, row.request_id)).job)
        node = await node_of(tx, row.id)
    where = rules.place(location)
    if where is None or ctx.checkpoints is None or not_listed(location, ctx.policy.checkpoint_places) is not None:
        return False
    return (await _verify(ctx, where, row, node, now)).allowed


async def _by_its_owner(ctx: Context, tx: Tx, session: Session) -> bool:
    by = await ordered_by(tx, session.id)
    return by is not None and session.owner in await authorization.mine(tx, ctx.policy, by)


async def _stop(ctx: Context, provider: Provider, row: Instance, ref: str, now: datetime) -> None:
    """Call stop at each check until it is seen, and page the operators when that does not happen."""
    problem = "the cloud accepted the stop, but the instance still runs"
    try:
        await provider.stop(ref)
    except ProviderError as error:
        log.warning("%s cannot be stopped during its checkpoint hold: %s", row.id, error.code)
        problem = error.message
    if now - (row.wanted_at or now) > timedelta(seconds=ctx.timing.terminate_page_s):
        said = f"{row.cloud} does not stop {row.name} ({ref}), whose disk should stay: {problem}. Its GPU still costs."
        await page(ctx, f"{row.id}/stop", said)


async def _verify(ctx: Context, where: StoreLocation, row: Instance, node: Node | None, now: datetime) -> Verdict:
    reported = Reported()
    if node is not None and node.at is not None:
        status = node_status(node)
        over = status.work_over_at if status.work.is_over else status.idle_since
        reported = Reported(over or _may_have_worked_until(row, node), status.checkpoint_step, status.checkpoint_at)
    assert ctx.checkpoints is not None  # noqa: S101 # Its caller has checked.
    return (await look_at(ctx, ctx.checkpoints, where, reported, now)).verdict


def _may_have_worked_until(row: Instance, node: Node) -> datetime | None:
    """Return until when a job may have run that was never reported as done; None: until now.

    An unresponsive agent says nothing about its job, unless the instance is ended for that.
    """
    if row.outcome_code == EndReason.NO_HEARTBEAT:
        return node.at
    paused_at = row.billing_until or row.trouble_at
    return paused_at if paused_at is not None or row.status == InstanceStatus.RUNNING else node.at


async def _decide(ctx: Context, tx: Tx, row: Instance, verdict: Verdict, now: datetime, able: Capabilities) -> bool:
    """Record the checkpoint step that applies now. True when the termination waits."""
    if verdict.allowed:
        await hold.note(tx, row, CheckpointStep.PASSED, verdict.sentence, now, now)
        return False
    if row.checkpoint_step is None:
        # A stopped instance saves nothing more.
        most = now if row.status == "stopped" else await hold.latest_hold_end(ctx, tx, row, now, able)
        await hold.authorize(tx, row, most, now)
        until = min(now + timedelta(seconds=ctx.policy.checkpoint_save_s), most)
        if until > now:
            said = f"{verdict.sentence} Its agent has until {until:%H:%M} UTC to save and upload one."
            await hold.note(tx, row, CheckpointStep.SAVING, said, now, until)
            await hold.notify_owner(ctx, tx, row, CheckpointStep.SAVING, now)
            return True
    await hold.reach_somebody(ctx, tx, row, now)
    if row.checkpoint_step == CheckpointStep.SAVING and now < (row.checkpoint_until or now):
        return True
    if ctx.policy.checkpoint_unverified == Unverified.DESTROY and verdict is not PRESERVED:
        said = f"{verdict.sentence} It ends without a verified checkpoint, as the policy allows."
        return await _give_up(ctx, tx, row, said, now)
    if able.keeps_disk and row.status != "stopped":
        return await _stopping(ctx, tx, row, verdict, now)
    if able.keeps_disk:
        longest = YEAR if row.checkpoint_step == CheckpointStep.HELD else hold.LONGEST
        most = await hold.disk_paid_until(ctx, tx, row, now, longest)
    else:
        most = await hold.latest_hold_end(ctx, tx, row, now, able)
    earlier = (
        row.checkpoint_step == CheckpointStep.HELD
        and row.checkpoint_until is not None
        and now < most < row.checkpoint_until - EARLIER
    )
    if row.checkpoint_step != CheckpointStep.HELD or earlier:
        how = (
            "It is stopped, and its disk stays"
            if able.keeps_disk
            else "It keeps running, because a stop would delete its disk,"
        )
        said = f"{verdict.sentence} {how} until {most:%Y-%m-%d %H:%M} UTC. The approval covers that."
        await hold.note(tx, row, CheckpointStep.HELD, said, now, most)
        await hold.notify_owner(ctx, tx, row, CheckpointStep.HELD, now)
        return True
    return await _held(ctx, tx, row, verdict, now, min(row.checkpoint_until or now, most))


async def _stopping(ctx: Context, tx: Tx, row: Instance, verdict: Verdict, now: datetime) -> bool:
    """Wait for the stop; it costs the instance's full rate until it is seen, so only as long as that is paid for."""
    if row.checkpoint_step != CheckpointStep.STOPPING:
        until = await hold.runs_until(ctx, tx, row, now, timedelta(seconds=ctx.policy.checkpoint_hold_s))
        said = (
            f"{verdict.sentence} It is stopping, so that its disk stays. Until it has stopped, it costs its full rate. "
            f"It waits until {until:%Y-%m-%d %H:%M} UTC."
        )
        await amend(tx, Instance, row.id, wanted_at=now)
        await hold.note(tx, row, CheckpointStep.STOPPING, said, now, until)
        await hold.notify_owner(ctx, tx, row, CheckpointStep.HELD, now)
        return True
    paid = await hold.runs_until(ctx, tx, row, now, YEAR)
    return await _held(ctx, tx, row, verdict, now, min(row.checkpoint_until or now, paid))


async def _grace_ends(ctx: Context, tx: Tx, row: Instance, now: datetime) -> datetime:
    """Return until when the operators may still answer, from when they were first paged, or from now."""
    asked = await notification_of(tx, NotificationKind.OPERATOR_PAGE, f"{row.id}/unverified", OPERATORS)
    ends = (asked.created_at if asked else now) + rules.ANSWER
    # A disk alone costs almost nothing in that time; a running instance is never held beyond what was approved.
    return ends if row.status == "stopped" else min(ends, await hold.runs_until(ctx, tx, row, now, rules.ANSWER))


async def _held(ctx: Context, tx: Tx, row: Instance, verdict: Verdict, now: datetime, until: datetime) -> bool:
    """Continue a hold until its end, and ask the fallback contacts before that."""
    last = until if now < until else await _grace_ends(ctx, tx, row, now)
    if now >= last:
        said = (
            f"{verdict.sentence} Nobody answered, and the amount approved to keep it is used up. "
            "So it ends without a verified checkpoint."
        )
        return await _give_up(ctx, tx, row, said, now)
    if now >= until - timedelta(seconds=ctx.policy.checkpoint_operator_s):
        said = (
            f"{row.name} waits with an unverified checkpoint, and its owner doesn't answer. It ends and its disk is "
            f"deleted at {last:%Y-%m-%d %H:%M} UTC, when the approved amount is used up. Extend it, or end it."
        )
        if await page_in(ctx, tx, f"{row.id}/unverified", said, now):
            await hold.notify_fallback_contacts(ctx, tx, row, now)
    return True


async def _give_up(ctx: Context, tx: Tx, row: Instance, said: str, now: datetime) -> bool:
    await hold.note(tx, row, CheckpointStep.DESTROYED, said, now, now)
    await hold.notify_owner(ctx, tx, row, CheckpointStep.DESTROYED, now)
    await page_in(ctx, tx, f"{row.id}/unverified", f"{row.name}: {said}", now)
    return False
