"""Carry out what follows when an instance becomes live or ends: deadlines, last accruals, the session's next state."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.billing.billed_time import bills_gpu
from bot.rules.billing.end_times import latest_end
from bot.rules.billing.metering import paid_s
from bot.rules.checkpoints.verification import Reserved
from bot.rules.pricing.spend_limits import billed_rate
from bot.rules.sessions.extension import later
from bot.rules.sessions.host_price import HostPrice, PriceStep, next_step, set_aside_usd
from bot.rules.sessions.running_time import seconds_run
from bot.services.billing.last_use import accrue_rest, unsettled_usd
from bot.services.billing.metering import before_now, billed_from, rule_of
from bot.services.billing.within_hours import change_rate
from bot.services.checkpoints.hold import disk_rate
from bot.services.grants import reopen, reservations
from bot.services.grants.set_aside import return_to_grace
from bot.services.instances import volume_ends
from bot.services.instances.failover import replace
from bot.services.nodes.job_results import is_job_over, record_ended_session
from bot.services.notifications import end_of_session, interruption
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, lock_family, move
from ledger.kernel import money
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.checkpoint_step import WAITS
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.grant import GrantKind
from ledger.kernel.proof import ProofKind, ProofOfEnd
from ledger.kernel.states import GrantState, InstanceState, RequestState, SessionState
from ledger.kernel.volume_name import volume_of
from ledger.models import GrantRow, Instance, Request, Session
from ledger.queries.journal import latest_events
from ledger.queries.lookups import grants_of_session, instances_of_session, open_instances_of_session
from ledger.queries.overspend import approved_rate
from ledger.queries.retained_disks import open_disks
from ledger.queries.runs.graces import change_grace, graces_of_sessions, replaced_of_session
from ledger.queries.runs.relocations import is_taken_over
from ledger.queries.session_costs import accrued_of_session, booked, extension_cap
from providers.contract import InstanceStatus, ObservedInstance

HOUR_S = 3600
#: A year: beyond every approved end, and within what a time can be added to.
LONGEST_S = 8760 * HOUR_S
ADOPTABLE = frozenset({InstanceState.SENDING, InstanceState.UNKNOWN})
LOST = "The cloud no longer has the instance, and GPU Shopper didn't terminate it."
ENDED_ITSELF = "Its approved time had ended, and the instance ended without GPU Shopper's order."
NOT_KEPT = "The cloud no longer has its disk, and GPU Shopper didn't delete it."


async def adopt(ctx: Context, tx: Tx, instance_id: str, seen: ObservedInstance, now: datetime) -> Instance:
    """Record that the cloud confirmed our instance: it is LIVE, its grant is used, and the approved hours start.

    Hours count from the first moment that the cloud may bill, which is when the create was sent.
    """
    row = await tx.get_one(Instance, instance_id, populate_existing=True)
    sent_at = row.sent_at or row.created_at
    capabilities = ctx.providers[row.cloud].capabilities
    row = await move(
        tx,
        Instance,
        instance_id,
        InstanceState.LIVE,
        now,
        SYSTEM,
        only_from=ADOPTABLE,
        values={
            "ref": seen.ref,
            "live_at": now,
            "machine_id": seen.machine_id or row.machine_id,
            "set_host": seen.set_host,
            "status": str(seen.status),
            "status_text": seen.status_text,
            "billing_from": billed_from(seen, sent_at, capabilities, now),
            "unbilled_at": None if bills_gpu(seen.status, capabilities.billing) else now,
            "outcome": "",
            "due_at": None,
        },
    )
    grant = await move(tx, GrantRow, row.grant_id, GrantState.USED, now, SYSTEM)
    session = await tx.get_one(Session, row.session_id, populate_existing=True)
    if session.state is SessionState.TERMINATING:
        await _take_rate(ctx, tx, row, seen, now)
        await end_instance(tx, row, session.end_code, session.end_reason, now, SYSTEM)
    else:
        end = await approved_end(ctx, tx, session, row, grant, sent_at, row.price_usd_h)
        if volume_of(session.gpu):
            await volume_ends.set_end(ctx, tx, session, row.price_usd_h, end, end, now)
        else:
            await ends_at(tx, session, end, now)
        await check_rate(ctx, tx, row, grant, seen, now)
    return row


async def approved_end(
    ctx: Context, tx: Tx, session: Session, row: Instance, grant: GrantRow, sent_at: datetime, price_usd_h: Decimal
) -> datetime:
    """Return the approved end of an instance whose create is sent at `sent_at`, at this price."""
    # A replacement runs until the end that was approved for its predecessor, and a set until that of its first machine.
    kept = session.deadline if grant.kind == GrantKind.REPLACE or session.nodes > 1 else None
    end = kept or later(sent_at, Decimal(session.hours))
    return await paid_until(ctx, tx, row, grant, price_usd_h, end, sent_at)


async def check_rate(
    ctx: Context, tx: Tx, row: Instance, grant: GrantRow, seen: ObservedInstance, now: datetime
) -> bool:
    """Check what the cloud bills against the approved rate. False when the instance is ended for it.

    Before it was ready once, it is ended and the request is reopened. Later it runs on inside the approved total, which
    ends it earlier at a higher rate, and `overspend` asks approvers for the new rate.
    """
    session = await tx.get_one(Session, row.session_id, populate_existing=True)
    if volume_of(session.gpu):
        await _take_rate(ctx, tx, row, seen, now)
        await volume_paid(ctx, tx, session, row, grant, now)
        return True
    approved = await approved_rate(tx, row)
    before = None if session.dealt_commands else session.ready_at  # Machines that share a queue become ready alone.
    was_ready = row.reachable_at is not None or before is not None
    step = next_step(HostPrice(seen.price_usd_h, approved.usd_h, was_ready))
    if step is PriceStep.END:
        verdict = billed_rate(seen.price_usd_h, approved.usd_h)
        await end_announced(ctx, tx, row, EndReason.BILLED_ABOVE_CAP, verdict.sentence, now)
    price_usd_h = await _take_rate(ctx, tx, row, seen, now)
    if price_usd_h is not None and step is not PriceStep.END and session.deadline is not None:
        end = await paid_until(ctx, tx, row, grant, price_usd_h, session.deadline)
        # What paid for an end that only a record knows is in the part of the ledger that is lost.
        if end >= session.deadline or not await latest_events(tx, session.id, EventKind.SESSION_END_RECORDED, 1):
            await ends_at(tx, session, end, now)
    return step is not PriceStep.END


async def volume_paid(ctx: Context, tx: Tx, session: Session, row: Instance, grant: GrantRow, now: datetime) -> None:
    """Set the end of a network volume anew, after its rate, its written end or its amounts changed."""
    session = await tx.get_one(Session, session.id, populate_existing=True)
    row = await tx.get_one(Instance, row.id, populate_existing=True)
    if (written := volume_ends.written_end(session)) is not None:
        paid = await paid_until(ctx, tx, row, grant, row.price_usd_h, written)
        await volume_ends.set_end(ctx, tx, session, row.price_usd_h, written, paid, now)


async def _take_rate(ctx: Context, tx: Tx, row: Instance, seen: ObservedInstance, now: datetime) -> Decimal | None:
    """Book by the rate at which the cloud lists an instance, in dollars per hour, and return it; None: it lists none.

    A stopped instance may be listed at the rate of its disk; the time before was billed at the rate of its GPU.
    """
    if seen.price_usd_h is None:
        return None
    price_usd_h, runs = money.rate(seen.price_usd_h), seen.status is InstanceStatus.RUNNING
    if seen.price_usd_h <= row.price_usd_h and not (runs and price_usd_h > 0):
        return None
    if price_usd_h != row.price_usd_h:
        await change_rate(ctx, tx, row.id, price_usd_h, now)
    return price_usd_h


async def paid_until(
    ctx: Context,
    tx: Tx,
    row: Instance,
    grant: GrantRow,
    price_usd_h: Decimal,
    end: datetime,
    sent_at: datetime | None = None,
) -> datetime:
    """Return `end`, or an earlier time if the approved amounts pay for less at this rate.

    What is reserved for a checkpoint hold is not spent on the time before it; time at another rate cost that rate.
    Each machine of a set has its share of what extensions added.
    """
    if price_usd_h <= 0:
        return end
    kept_usd = set_aside_usd(Reserved.of(row.hold_usd, row.hold_s).usd, price_usd_h, grant.price_cap_usd_h)
    nodes = (await tx.get_one(Session, row.session_id)).nodes
    cap_usd = grant.total_cap_usd + money.share(await extension_cap(tx, row.session_id), nodes) - kept_usd
    cap_usd -= before_now(row, await booked(tx, row), price_usd_h)
    since = sent_at or row.sent_at or row.created_at
    # What the cloud says is booked. By its clock, or by whole seconds, billing may begin before the create was sent.
    since = min(since, row.billing_from or since)
    return min(end, since + timedelta(seconds=paid_s(cap_usd, price_usd_h, rule_of(ctx, row), LONGEST_S)))


async def ends_at(tx: Tx, session: Session, end: datetime, now: datetime) -> None:
    """Set the session's end. A new end is announced, even when another one was announced before."""
    if end != session.deadline:
        if session.deadline is not None and end > session.deadline:
            await _lengthen_grace(tx, session, Decimal(int((end - session.deadline).total_seconds())) / 3600)
        await end_of_session.refresh(tx, session, now)
        await amend(tx, Session, session.id, deadline=end, due_at=now, warned_at=None)


async def _lengthen_grace(tx: Tx, session: Session, hours: Decimal) -> None:
    """Raise the limit of a grace by what waiting costs in the hours that an approval adds: it pays for them, too.

    Otherwise an extension that is to keep a disk would end it, because more hours cost more than the limit.
    """
    grace = (await graces_of_sessions(tx, [session.id])).get(session.id)
    if grace is None:
        return
    row = await tx.get_one(Instance, grace.instance_id)
    more_usd = money.worst(hours * max(grace.usd_h, disk_rate(row)))
    await change_grace(tx, grace.id, limit_usd=grace.limit_usd + more_usd)


async def end_instance(tx: Tx, row: Instance, code: str, sentence: str, now: datetime, actor: Actor) -> None:
    """Order the termination of one instance. It is *gone* only when that is proved."""
    values = {"outcome_code": code, "outcome": sentence, "terminate_asked_at": now, "due_at": now}
    await move(tx, Instance, row.id, InstanceState.TERMINATING, now, actor, sentence, values=values)


async def end_announced(ctx: Context, tx: Tx, row: Instance, code: EndReason, sentence: str, now: datetime) -> None:
    """Order a termination that no person ordered. Its people are notified before the cloud is called."""
    await end_instance(tx, row, code, sentence, now, SYSTEM)
    await interruption.notify_interruption(tx, ctx.policy, row, now)


async def gone(
    ctx: Context,
    tx: Tx,
    row: Instance,
    proof: ProofOfEnd,
    ended_at: datetime,
    now: datetime,
    *,
    outcome: tuple[str, str] | None = None,
    actor: Actor = SYSTEM,
) -> None:
    """Close an instance whose end is proved: book the rest of its cost, and settle its session.

    `outcome` is the code and sentence of a specific end; without one, an end that nobody ordered is a loss. `actor` is
    who states that it is gone.
    """
    await lock_family(tx, Instance, row.id)  # Hours that are being booked at this moment are booked before the rest.
    await accrue_rest(ctx, tx, row, ended_at, now)
    # A cloud that says when its run ended leaves nothing open.
    latest_at = ended_at if proof.kind is ProofKind.FINAL_STATUS else latest_end(row, ended_at, proof.at)
    disk_usd_h = await _disk_rate(tx, row) if latest_at > ended_at else Decimal(0)
    code, sentence = outcome or await _unstated(tx, row, ended_at)
    if row.checkpoint_step in WAITS:  # Its people were notified of how long it would be kept.
        sentence = f"{sentence} {NOT_KEPT}".strip()
        await amend(tx, Session, row.session_id, end_reason=sentence)
    # A lost instance ended some time before the first listing without it, so that much of its cost is not known.
    since = {"trouble_at": row.trouble_at or ended_at} if code == EndReason.LOST else {}
    values = {"billing_until": ended_at, "ended_at": ended_at, **since, "outcome_code": code, "outcome": sentence}
    values |= {
        "latest_end_at": latest_at,
        "unsettled_usd": unsettled_usd(ctx, row, ended_at, latest_at, disk_usd_h),
    }
    await move(
        tx, Instance, row.id, InstanceState.GONE, now, actor, sentence, version=row.version, proof=proof, values=values
    )
    if code == EndReason.LOST:
        await interruption.notify_interruption(tx, ctx.policy, row, now)
    await settle(ctx, tx, row.session_id, now)


async def _disk_rate(tx: Tx, row: Instance) -> Decimal:
    """Return the dollars per hour of an instance's retained disk; 0 where it has none."""
    disks = await open_disks(tx, [row.session_id]) if row.status == InstanceStatus.STOPPED else []
    return next((disk.price_usd_h for disk in disks if disk.instance_id == row.id), Decimal(0))


async def _unstated(tx: Tx, row: Instance, ended_at: datetime) -> tuple[str, str]:
    """Return the code and sentence of an end that was ordered before, or that nobody ordered.

    Behind its approved end an instance may end itself (docs/node.md), which is no loss.
    """
    if row.state is InstanceState.TERMINATING:
        return row.outcome_code, row.outcome
    session = await tx.get_one(Session, row.session_id, populate_existing=True)
    if session.deadline is not None and ended_at >= session.deadline:
        return EndReason.RESERVATION_OVER, ENDED_ITSELF
    return EndReason.LOST, LOST


async def settle(ctx: Context, tx: Tx, session_id: str, now: datetime) -> None:
    """Settle a session without open instances: end it, replace what failed, or reopen the request.

    A set that lacks a machine is ended before (`node_sets`).
    """
    session = await tx.get_one(Session, session_id, populate_existing=True)
    if left := await open_instances_of_session(tx, session_id):
        set_aside = await replaced_of_session(tx, session_id)
        if set_aside is not None and [row.id for row in left] == [set_aside[1].id]:
            await _replacement_failed(ctx, tx, session, now)
        return
    spent, longer_usd = await accrued_of_session(tx, session_id), await extension_cap(tx, session_id)
    for grant in await grants_of_session(tx, session_id):
        if grant.state is GrantState.OPEN:
            await move(tx, GrantRow, grant.id, GrantState.VOID, now, SYSTEM)
        await reservations.release(tx, grant, now, spent_usd=spent)
    if session.state is SessionState.TERMINATING:
        await _terminated(tx, session, now, session.end_code, session.end_reason)
    elif await _needs_machine(tx, session, now):
        await _replace_or_ask(ctx, tx, session, longer_usd, now)
    elif session.state in (SessionState.RUNNING, SessionState.STOPPED):
        last = (await instances_of_session(tx, session_id))[-1]
        ended = {"end_code": last.outcome_code, "end_reason": last.outcome}
        await move(tx, Session, session_id, SessionState.TERMINATING, now, SYSTEM, last.outcome, values=ended)
        await end_of_session.refresh(tx, session, now)
        await reopen.close_extensions(tx, session.request_id, last.outcome, now, SYSTEM)
        await _terminated(tx, session, now, last.outcome_code, last.outcome)
    elif session.state is SessionState.PROVISIONING and session.nodes == 1:
        await _replace_or_ask(ctx, tx, session, longer_usd, now)


async def _replacement_failed(ctx: Context, tx: Tx, session: Session, now: datetime) -> None:
    """Launch another replacement for a session of which only the machine in grace is left, or return to that one."""
    if session.state not in (SessionState.RUNNING, SessionState.STOPPED):
        return
    over = await is_job_over(tx, session)
    if session.replacements_left > 0 and not over and await replace(ctx, tx, session.id, Decimal(0), now):
        await amend(tx, Session, session.id, replacements_left=session.replacements_left - 1)
        ctx.hints.instances.set()
        return
    last = (await instances_of_session(tx, session.id))[-1]
    await return_to_grace(tx, session, last.outcome, now)


async def _needs_machine(tx: Tx, session: Session, now: datetime) -> bool:
    """Whether a running session needs another machine: its approved time is left, and its job continues there."""
    is_alone = session.nodes == 1
    if volume_of(session.gpu):
        return False  # What was on it is gone, and an empty one is of no use to anybody.
    if not is_alone or session.state is not SessionState.RUNNING or session.deadline is None or now >= session.deadline:
        return False
    if await is_taken_over(tx, session.id):
        return False
    return not await is_job_over(tx, session)


async def _terminated(tx: Tx, session: Session, now: datetime, code: str, sentence: str) -> None:
    await record_ended_session(tx, session, code, now)
    values = {"ended_at": now, "end_code": code, "end_reason": sentence}
    await move(tx, Session, session.id, SessionState.TERMINATED, now, SYSTEM, sentence, values=values)


async def _replace_or_ask(ctx: Context, tx: Tx, session: Session, longer_usd: Decimal, now: datetime) -> None:
    """Launch a replacement for an instance that failed within the approved time, or reopen the request.

    `longer_usd` is what extensions had added to its grant.
    """
    last = (await instances_of_session(tx, session.id))[-1]
    again = {"ready_at": None, "ran_s": seconds_run(session, last.ended_at or now), "stopped_at": None}
    await move(tx, Session, session.id, SessionState.QUEUED, now, SYSTEM, last.outcome, values=again)
    if session.replacements_left > 0 and await replace(ctx, tx, session.id, longer_usd, now):
        await amend(tx, Session, session.id, replacements_left=session.replacements_left - 1)
        ctx.hints.instances.set()
        return
    request = await tx.get_one(Request, session.request_id, populate_existing=True)
    if request.state is RequestState.APPROVED:
        await reopen.reopen_request(tx, request.id, last.outcome, now)
        ctx.hints.requests.set()
