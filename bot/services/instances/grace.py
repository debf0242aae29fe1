"""Keep machines that stopped working while waiting is cheap and something on them would be lost.

`bot.rules.instances.unplanned_end` decides. Here its facts are gathered, and its decisions are stored and carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.instances import unplanned_end as rules
from bot.rules.instances.health import Trouble, ended_sentence, given_up_at, trouble
from bot.rules.instances.power import PowerAction
from bot.rules.instances.unplanned_end import Contents, Plight, UnplannedEnd
from bot.rules.jobs.stored import checkpoint_of, job_of
from bot.rules.nodes.checkins import is_advancing
from bot.rules.values.phrases import hours as say_hours
from bot.rules.values.phrases import usd
from bot.services.billing.metering import rule_of
from bot.services.checkpoints import hold, verification
from bot.services.grants.starts import start_again
from bot.services.instances.failover import replace_beside
from bot.services.instances.transitions import end_announced
from bot.services.market.preflight import account_code
from bot.services.nodes.checkins import node_status
from bot.services.nodes.job_results import is_job_over
from bot.services.notifications.interruption import notify_interruption
from bot.services.notifications.paging import alone
from bot.services.notifications.request_message import show_again
from bot.services.people import direct_messages
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import Tx, amend, lock_family, move, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id, short_id
from ledger.kernel.states import GrantState, InstanceState, SessionState
from ledger.kernel.steps.grace import AtRisk, Cause, GraceChoice, GraceOutcome
from ledger.kernel.volume_name import volume_of
from ledger.models import GraceRow, GrantRow, Instance, Request, Session
from ledger.queries.lookups import instances_of_session, open_starts
from ledger.queries.nodes import node_of
from ledger.queries.runs.graces import add_grace, change_grace, open_grace, open_graces
from ledger.queries.runs.relocations import is_moving, taken_over_by
from ledger.queries.session_costs import extension_cap
from providers.contract import InstanceStatus

#: Seconds between two passes.
LOOK_S: Final = 15.0
#: After a shorter grace only the message about the machine changes; its owner gets no new one.
NOTIFY_AFTER: Final = timedelta(minutes=10)
#: The oldest check of an account that may say why its machines stopped.
CHECKED_WITHIN_S: Final = 10.0
IN_USE: Final = frozenset({InstanceState.LIVE, InstanceState.STOPPED})
SILENT: Final = Trouble(EndReason.NO_HEARTBEAT, "Its agent stopped reporting, and its SSH port doesn't answer.")


@dataclass(frozen=True, slots=True)
class LossFacts:
    """Facts that were read outside of a transaction: what is wrong with the account, and whether the work is saved."""

    account_code: str = ""
    is_saved: bool | None = None


async def facts_of(ctx: Context, row: Instance, now: datetime) -> LossFacts:
    """Ask whether the account can be used, and whether the newest checkpoint is verified."""
    checked = await ctx.catalog.checks.check(row.cloud, within_s=CHECKED_WITHIN_S)
    return LossFacts(account_code(checked), await verification.is_saved(ctx, row, now) or None)


def waiting_usd_h(ctx: Context, row: Instance) -> Decimal:
    """Return dollars per hour that a machine costs now, as its last listing shows it."""
    pays_gpu = row.billing_from is not None and row.billing_until is None
    rate = (rule_of(ctx, row), row.price_usd_h, row.storage_usd_h, hold.disk_rate(row))
    return rules.waiting_rate(row.status or InstanceStatus.RUNNING, *rate, pays_gpu=pays_gpu)


async def enter(ctx: Context, tx: Tx, row: Instance, found: Trouble, facts: LossFacts, now: datetime) -> Plight | None:
    """Keep a machine in grace, if the rule says so; return why it is not kept. `row` was read in this transaction."""
    session = await tx.get_one(Session, row.session_id, populate_existing=True)
    request = await tx.get_one(Request, row.request_id)
    risk = rules.at_risk(
        Contents(
            was_used=row.reachable_at is not None or session.ready_at is not None,
            disk_survives=_disk_survives(ctx, row),
            is_volume=bool(volume_of(session.gpu)),
            has_checkpoints=checkpoint_of(request.job) is not None,
            is_saved=facts.is_saved,
            shares_queue=session.dealt_commands > 0,
        )
    )
    cause = rules.cause_of(found.code, facts.account_code)
    limit_usd, usd_h = await _limit(ctx, tx, row, session, now), _together(waiting_usd_h(ctx, row), row, session)
    grace = GraceRow(
        id=new_id("grc", now),
        instance_id=row.id,
        session_id=session.id,
        code=str(found.code),
        cause=cause,
        account_code=facts.account_code if cause is Cause.ACCOUNT else "",
        at_risk=risk,
        since=now,
        until=session.deadline or now,
        usd_h=usd_h,
        rated_at=now,
        spent_usd=Decimal(0),
        limit_usd=limit_usd,
        replaced=False,
    )
    plight = await plight_of(ctx, tx, grace, row, session, now)
    if session.deadline is None or rules.decide(plight) is UnplannedEnd.END:
        return plight
    if await add_grace(tx, grace):
        until = f"{session.deadline:%Y-%m-%d %H:%M} UTC"
        said = f"{found.sentence} The machine stays until {until}, for at most {usd(limit_usd)}."
        record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_GRACE, reason=said)
    return None


def note_not_kept(tx: Tx, row: Instance, plight: Plight, now: datetime) -> None:
    """Record the facts by which the rule ended a machine, for the audit."""
    risk = "Nothing on it would be lost." if plight.at_risk is AtRisk.NOTHING else f"At risk: {plight.at_risk.label}."
    said = f"Waiting would cost {usd(plight.waiting_usd)}. The limit is {usd(plight.limit_usd)}. {risk}"
    data = {
        "at_risk": str(plight.at_risk),
        "cause": str(plight.cause),
        "waiting_usd": str(plight.waiting_usd),
        "limit_usd": str(plight.limit_usd),
        "choice": str(plight.choice or ""),
    }
    record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_NOT_KEPT, reason=said, data=data)


async def _limit(ctx: Context, tx: Tx, row: Instance, session: Session, now: datetime) -> Decimal:
    grant = await tx.get_one(GrantRow, row.grant_id)
    approved_usd = grant.total_cap_usd + await extension_cap(tx, session.id) / session.nodes
    return rules.limit_usd(ctx.policy.grace_usd, approved_usd, await hold.left_usd(ctx, tx, row, now))


def _together(usd_h: Decimal, row: Instance, session: Session) -> Decimal:
    """Add the cost of the other machines of its set, which wait with it. Machines that share a queue keep working."""
    waits = session.nodes - 1 if not session.dealt_commands else 0
    return usd_h + row.price_usd_h * waits


def _disk_survives(ctx: Context, row: Instance) -> bool:
    stopped = row.status == InstanceStatus.STOPPED
    return not stopped or ctx.providers[row.cloud].capabilities.stop_keeps_disk


async def plight_of(ctx: Context, tx: Tx, grace: GraceRow, row: Instance, session: Session, now: datetime) -> Plight:
    """Gather what the rule decides by, from the ledger alone."""
    job = job_of((await tx.get_one(Request, row.request_id)).job)
    able, end = ctx.providers[row.cloud].capabilities, session.deadline or now
    moves = await is_moving(tx, session.id)
    alone_in_session = session.nodes == 1 and not grace.replaced and not moves
    can_replace = alone_in_session and session.state is SessionState.RUNNING and now < end and able.keeps_disk
    return Plight(
        cause=grace.cause,
        at_risk=grace.at_risk,
        waiting_usd_h=grace.usd_h,
        hours_left=Decimal(int(max((end - now).total_seconds(), 0))) / 3600,
        limit_usd=grace.limit_usd,
        spent_usd=rules.cost_until(grace.spent_usd, grace.usd_h, grace.rated_at, now),
        restarts=job.has_command and not volume_of(session.gpu) and not await is_job_over(tx, session),
        can_replace=can_replace and session.replacements_left > 0,
        choice=grace.choice,
    )


async def graces_due(ctx: Context) -> int:
    """Look at each machine in grace: it works again, costs something else, is replaced, or ends. Return how many."""
    if clock_problem(ctx.clock):
        return 0
    async with ctx.db.read() as tx:
        rows = await open_graces(tx)
        if not rows or await recovery_mode.is_on(tx):
            return 0
    changed = 0
    for grace, row, _ in rows:
        changed += await alone(ctx, row.id, "the grace", _step(ctx, grace, row), False)
    if changed:
        for hint in (ctx.hints.outbox, ctx.hints.instances, ctx.hints.requests):
            hint.set()
    return changed


async def _step(ctx: Context, before: GraceRow, seen: Instance) -> bool:
    provider = ctx.providers.get(seen.cloud)
    usable = provider is not None and provider.account == seen.account
    code = account_code(await ctx.catalog.checks.check(seen.cloud)) if usable else ""
    answers = before.code == EndReason.NO_HEARTBEAT and await ssh_answers(ctx, seen)
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, seen.id)
        row = await tx.get_one(Instance, seen.id, populate_existing=True)
        grace = await open_grace(tx, row.id)
        if grace is None:
            return False
        session = await tx.get_one(Session, row.session_id, populate_existing=True)
        if row.state not in IN_USE or session.state is SessionState.TERMINATING:
            return await close(ctx, tx, grace, row, GraceOutcome.ENDED, now)
        if not usable or session.deadline is None:
            return False
        found = await _trouble(tx, grace, row, ssh_works=answers)
        if found is None:
            return await _recovered(ctx, tx, grace, row, session, now)
        fresh = await _rated(ctx, tx, grace, row, session, found, code, now)
        if row.state is InstanceState.STOPPED and not fresh.replaced and session.state is SessionState.RUNNING:
            why = "Its replacement has ended, so the machine that was stopped beside it starts again."
            if await start_again(tx, fresh, row, session, why, now):
                return True
        return await _carry_out(ctx, tx, fresh, row, session, found, now)


async def ssh_answers(ctx: Context, row: Instance) -> bool:
    """Whether the SSH port of a machine answers, where it has one."""
    return bool(row.ssh_host and row.ssh_port and (await ctx.reach.probe(row.ssh_host, row.ssh_port)).ok)


async def _trouble(tx: Tx, grace: GraceRow, row: Instance, *, ssh_works: bool) -> Trouble | None:
    """Say what is wrong with a machine in grace now; None where it works again."""
    spot, other = bool(row.offer.get("spot")), row.other_gpus if row.trouble_at is not None else ""
    found = trouble(row.status or InstanceStatus.RUNNING, spot=spot, other=other)
    if found is not None or grace.code != EndReason.NO_HEARTBEAT:
        return found
    node = await node_of(tx, row.id)
    reported = node is not None and node.at is not None and node.at > grace.since
    return None if reported or ssh_works else SILENT


async def _rated(
    ctx: Context, tx: Tx, grace: GraceRow, row: Instance, session: Session, found: Trouble, code: str, now: datetime
) -> GraceRow:
    """Store another reason, cause or rate, and return the grace as it is now."""
    usd_h = _together(waiting_usd_h(ctx, row), row, session)
    values: dict[str, object] = {}
    if usd_h != grace.usd_h:
        spent_usd = rules.cost_until(grace.spent_usd, grace.usd_h, grace.rated_at, now)
        values |= {"usd_h": usd_h, "rated_at": now, "spent_usd": spent_usd}
    # An account that was paid is still the cause until its machines have started again.
    cause = Cause.ACCOUNT if grace.cause is Cause.ACCOUNT else rules.cause_of(found.code, code)
    if grace.account_code and cause is not Cause.ACCOUNT:
        cause = grace.cause  # The account can be used again, but its machine's GPU was taken.
    if cause is not grace.cause:
        values |= {"cause": cause, "account_code": code if cause is Cause.ACCOUNT else ""}
    if found.code != grace.code and row.state is InstanceState.LIVE:
        values |= {"code": str(found.code)}
    if not _disk_survives(ctx, row) and grace.at_risk is not AtRisk.NOTHING and not volume_of(session.gpu):
        values |= {"at_risk": AtRisk.NOTHING}
    if not values:
        return grace
    await change_grace(tx, grace.id, **values)
    fresh = await open_grace(tx, row.id)
    if fresh is None:
        raise LookupError(f"the grace of {row.id} has ended")
    if {"cause", "code"} & values.keys():
        await notify_interruption(tx, ctx.policy, row, now)
    return fresh


async def _carry_out(
    ctx: Context, tx: Tx, grace: GraceRow, row: Instance, session: Session, found: Trouble, now: datetime
) -> bool:
    """Do what the rule says now."""
    plight, end = await plight_of(ctx, tx, grace, row, session, now), session.deadline or now
    patience_over = now >= given_up_at(row.trouble_at or grace.since, ctx.timing.broken_grace_s)
    ending = rules.decide(plight)
    if ending is UnplannedEnd.END:
        if not patience_over and grace.choice is not GraceChoice.GIVE_UP:
            # `health` ends it like every machine in trouble, unless it works again by then.
            return await close(ctx, tx, grace, row, _outcome(plight), now)
        return await _end(ctx, tx, grace, row, plight, found, now)
    replaces = ending is UnplannedEnd.REPLACE and patience_over and not await _still_trains(tx, grace, row, now)
    replaces = replaces or (ending is UnplannedEnd.REPLACE and grace.choice is GraceChoice.REPLACE)
    if replaces and await replace(ctx, tx, grace, row, session, now):
        return True
    if grace.until != end:
        return await change_grace(tx, grace.id, until=end)
    return False


async def _still_trains(tx: Tx, grace: GraceRow, row: Instance, now: datetime) -> bool:
    """Whether its agent still reports steps that rise, so that a replacement would be a second trainer."""
    node = await node_of(tx, row.id)
    return node is not None and is_advancing(node_status(node), grace.since, now)


async def _end(
    ctx: Context, tx: Tx, grace: GraceRow, row: Instance, plight: Plight, found: Trouble, now: datetime
) -> bool:
    """End a machine whose waiting costs too much now, or on which nothing is left to lose.

    People get notice for as long as the rest of the grace pays, and at most for `broken_grace_s`.
    """
    affordable_s = ctx.timing.broken_grace_s
    if plight.at_risk is AtRisk.NOTHING or grace.choice is GraceChoice.GIVE_UP:
        affordable_s = 0.0
    elif plight.waiting_usd_h > 0:
        rest_usd = max(plight.limit_usd - plight.spent_usd, Decimal(0))
        affordable_s = min(affordable_s, float(rest_usd / plight.waiting_usd_h * 3600) - LOOK_S)
    notice_at = min(grace.until, now + timedelta(seconds=max(affordable_s, 0.0)))
    if now < notice_at:
        if notice_at == grace.until:
            return False
        await change_grace(tx, grace.id, until=notice_at)
        await notify_interruption(tx, ctx.policy, row, now)
        return True
    waited = say_hours(Decimal(int((now - grace.since).total_seconds())) / 3600)
    note_not_kept(tx, row, plight, now)
    await end_announced(ctx, tx, row, EndReason(grace.code), ended_sentence(found, waited), now)
    return await close(ctx, tx, grace, row, _outcome(plight), now)


def _outcome(plight: Plight) -> GraceOutcome:
    if plight.choice is GraceChoice.GIVE_UP:
        return GraceOutcome.GIVEN_UP
    return GraceOutcome.NOTHING_LEFT if plight.at_risk is AtRisk.NOTHING else GraceOutcome.TOO_DEAR


async def replace(ctx: Context, tx: Tx, grace: GraceRow, row: Instance, session: Session, now: datetime) -> bool:
    """Launch a replacement beside a machine, whose disk stays. False: the approval covers none."""
    spent_usd = rules.cost_until(grace.spent_usd, grace.usd_h, grace.rated_at, now)
    if not await replace_beside(ctx, tx, session, row, grace.limit_usd - spent_usd, now):
        return False
    await change_grace(tx, grace.id, replaced=True)
    await amend(tx, Session, session.id, replacements_left=session.replacements_left - 1)
    await tx.refresh(session)
    await notify_interruption(tx, ctx.policy, row, now)
    return True


async def _recovered(ctx: Context, tx: Tx, grace: GraceRow, row: Instance, session: Session, now: datetime) -> bool:
    """End a grace whose machine works again, or stop the machine, so that its disk stays, where it was replaced."""
    if row.wanted == PowerAction.STOP:
        return await _stop_that_takes_too_long(ctx, tx, grace, row, session, now)
    if grace.replaced and (await instances_of_session(tx, session.id))[-1].id != row.id:
        return await _set_aside(ctx, tx, grace, row, session, now)
    if row.wanted == PowerAction.START:
        await amend(tx, Instance, row.id, wanted=None, wanted_at=None, due_at=None)
        for grant in await open_starts(tx, session.id):
            await move(tx, GrantRow, grant.id, GrantState.USED, now, SYSTEM)
    await close(ctx, tx, grace, row, GraceOutcome.RECOVERED, now)
    target = await taken_over_by(tx, session.id)
    if now - grace.since >= NOTIFY_AFTER or target is not None:
        spent_usd = rules.cost_until(grace.spent_usd, grace.usd_h, grace.rated_at, now)
        text = f"Your session {session.short_id} at {row.cloud} works again. Waiting cost {usd(spent_usd)}."
        if target is not None:
            there = short_id(target)
            text += (
                f" Its run continues as {there}, so its job is paused. The session ends when {there} is past its save."
            )
        await direct_messages.notify_owner(tx, ctx.policy, now, session, subject=f"{grace.id}/works-again", text=text)
    return True


async def _stop_that_takes_too_long(
    ctx: Context, tx: Tx, grace: GraceRow, row: Instance, session: Session, now: datetime
) -> bool:
    """End a machine beside its replacement that its cloud doesn't stop: the approval doesn't cover two that work."""
    plight = await plight_of(ctx, tx, grace, row, session, now)
    if not grace.replaced or plight.spent_usd <= plight.limit_usd:
        return False
    note_not_kept(tx, row, plight, now)
    said = f"{row.cloud} didn't stop the machine, and its replacement runs."
    await end_announced(ctx, tx, row, EndReason.STOPPED_THERE, said, now)
    return await close(ctx, tx, grace, row, GraceOutcome.TOO_DEAR, now)


async def _set_aside(ctx: Context, tx: Tx, grace: GraceRow, row: Instance, session: Session, now: datetime) -> bool:
    """Stop a machine that works again beside its replacement: only its disk is kept, and both must not work at once."""
    rate = _together(waiting_usd_h(ctx, row), row, session)
    if rate != grace.usd_h:
        spent_usd = rules.cost_until(grace.spent_usd, grace.usd_h, grace.rated_at, now)
        await change_grace(tx, grace.id, usd_h=rate, rated_at=now, spent_usd=spent_usd)
    said = "works again while its replacement runs. GPU Shopper stops it, and its disk stays."
    await amend(tx, Instance, row.id, wanted=str(PowerAction.STOP), wanted_at=now, due_at=now)
    record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_STOP, reason=f"The machine {said}")
    text = f"The first machine of your session {session.short_id} {said}"
    await direct_messages.notify_owner(tx, ctx.policy, now, session, subject=f"{grace.id}/set-aside", text=text)
    return True


async def close(ctx: Context, tx: Tx, grace: GraceRow, row: Instance, outcome: GraceOutcome, now: datetime) -> bool:
    """Close a grace, with what it has cost, and show its messages anew. False when it was closed before."""
    ended_at = max(min(row.terminate_asked_at or now, now), grace.rated_at)
    spent_usd = rules.cost_until(grace.spent_usd, grace.usd_h, grace.rated_at, ended_at)
    if not await change_grace(tx, grace.id, ended_at=ended_at, outcome=outcome, spent_usd=spent_usd):
        return False
    said = f"{outcome.label} Waiting cost {usd(spent_usd)}."
    record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_GRACE_OVER, reason=said)
    await notify_interruption(tx, ctx.policy, row, now)
    await show_again(tx, await tx.get_one(Request, row.request_id), now)
    return True
