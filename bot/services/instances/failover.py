"""Fail over to the next offer that the approval covers, replace a lost instance, or reopen the request."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.instances.failover import PAUSE_S, Failure, LimitWait, next_option, wait_for_limit
from bot.rules.jobs.stored import job_of
from bot.rules.market.ranking import RankedOption
from bot.services.checkpoints.hold import left_usd
from bot.services.grants import hours_used, issue, reopen, reservations
from bot.services.market.codec import estimate_from_json, hold_hours, offer_from_json
from bot.services.runtime.context import Context
from ledger.core import Tx
from ledger.kernel import money
from ledger.kernel.end_reason import EndReason
from ledger.kernel.grant import GrantKind
from ledger.kernel.states import InstanceState
from ledger.models import Approval, GrantRow, Instance, Option, Request, Session
from ledger.queries.lookups import instances_of_session, options_of, override_of
from ledger.queries.runs.machines import machines_of_session
from ledger.queries.session_costs import booked, extension_cap

#: End codes after which no replacement is launched: the machine may be fine, but its price is not.
NEVER_REPLACED = frozenset({EndReason.BILLED_ABOVE_CAP})


async def try_next(ctx: Context, tx: Tx, grant_id: str, sentence: str, now: datetime) -> None:
    """Fail over after a refusal: launch the next covered option under the same grant, or reopen the request.

    A machine of a set has no other option alone; `node_sets` ends its set.
    """
    grant = await tx.get_one(GrantRow, grant_id)
    if grant.session_id is not None and (await tx.get_one(Session, grant.session_id)).nodes > 1:
        return
    request = await tx.get_one(Request, grant.request_id, populate_existing=True)
    option, why = await _choose(ctx, tx, grant, request)
    if option is None:
        await reopen.reopen_request(tx, request.id, f"{sentence} {why}".strip(), now)
        return
    if grant.session_id is None:
        raise ValueError(f"grant {grant.id} belongs to no session")
    await issue.intend(ctx, tx, request, grant.session_id, grant, option, now)


async def send_again(
    ctx: Context, tx: Tx, refused: Instance, retry_after_s: float | None, now: datetime
) -> Instance | None:
    """Intend the create of the same offer once more after the cloud's rate limit; None where that is too late.

    Its row is a new one, because each row is sent once.
    """
    grant = await tx.get_one(GrantRow, refused.grant_id)
    pause_s = PAUSE_S if retry_after_s is None else retry_after_s
    wait = wait_for_limit(wait_of(refused), now, pause_s, grant.until)
    return None if wait is None else await issue.intend_again(ctx, tx, refused, wait, now)


def wait_of(row: Instance) -> LimitWait | None:
    """Return how long an instance's launch has waited for a rate limit; None where it never did."""
    if row.limited_at is None or row.limited_until is None:
        return None
    return LimitWait(row.limited_at, row.limited_until)


async def replace(ctx: Context, tx: Tx, session_id: str, longer_usd: Decimal, now: datetime) -> bool:
    """Launch a replacement for an ended instance with what is left of its amounts. False: nothing is left.

    The new grant covers the dollars that the ended instance's grant, and its extensions (`longer_usd`), left over. It
    covers the hours that are left, too: the approved end stays where it was. Its create is one row like every other.
    """
    last = (await instances_of_session(tx, session_id))[-1]
    used = await tx.get_one(GrantRow, last.grant_id)
    # What it may have cost beyond its likely end is not spent twice either.
    remaining = used.total_cap_usd + longer_usd - (await booked(tx, last)).usd - (last.unsettled_usd or Decimal(0))
    session = await tx.get_one(Session, session_id, populate_existing=True)
    if last.outcome_code in NEVER_REPLACED:
        return False
    return await _replace(ctx, tx, session, used, remaining, now)


async def replace_beside(
    ctx: Context, tx: Tx, session: Session, row: Instance, waiting_usd: Decimal, now: datetime
) -> bool:
    """Launch a replacement beside a machine that is kept, of which waiting may still cost `waiting_usd`.

    What the machine has cost until now, and what it may cost from now on, is no part of the new grant. Extensions have
    grants of their own, which stay in force.
    """
    used = await tx.get_one(GrantRow, row.grant_id)
    remaining = await left_usd(ctx, tx, row, now) - await extension_cap(tx, session.id) - waiting_usd
    return await _replace(ctx, tx, session, used, money.cap(remaining), now)


async def _replace(ctx: Context, tx: Tx, session: Session, used: GrantRow, remaining: Decimal, now: datetime) -> bool:
    """Grant a replacement with `remaining` dollars of the approval of `used`. False: nothing is left."""
    if remaining <= 0 or session.deadline is None or session.deadline <= now:
        return False
    request = await tx.get_one(Request, used.request_id, populate_existing=True)
    option, _ = await _choose(ctx, tx, used, request)
    if option is None:
        return False
    # Only the rest of the run has to be paid.
    rest_usd = option.price_usd_h * Decimal(str((session.deadline - now) / timedelta(hours=1)))
    if min(option.expected_usd, rest_usd) > remaining:
        return False
    approval = await tx.get_one(Approval, used.approval_id)
    grant = await reservations.new_grant(
        tx,
        GrantKind.REPLACE,
        request_id=request.id,
        approval_id=approval.id,
        session_id=session.id,
        price_cap_usd_h=used.price_cap_usd_h,
        total_cap_usd=remaining,
        hours=str(_hours_left(session.deadline - now, approval)),
        until=max(used.until, now + (used.until - used.created_at)),
        now=now,
    )
    await reservations.reserve(tx, grant, now)
    await issue.intend(ctx, tx, request, session.id, grant, option, now, rest_usd)
    return True


def _hours_left(left: timedelta, approval: Approval) -> Decimal:
    """Return the hours left of the session, at most those of this approval: an extension has its own approval."""
    hours = money.down(Decimal(str(left / timedelta(hours=1))), 4)
    return min(hours, Decimal(approval.hours)) if approval.hours else hours


async def _choose(ctx: Context, tx: Tx, grant: GrantRow, request: Request) -> tuple[Option | None, str]:
    approval = await tx.get_one(Approval, grant.approval_id)
    if approval.option_id is None or grant.session_id is None:
        raise ValueError(f"approval {approval.id} chose no option")
    rows = {option.id: option for option in await options_of(tx, approval.option_id)}
    hold_h = await _longest_hold(ctx, tx, grant.session_id, approval, rows[approval.option_id])
    shown = [_ranked(row) for row in rows.values() if row.cloud in ctx.providers and hold_hours(row) <= hold_h]
    # A rate limit that was waited out says nothing about the cloud's other offers.
    tried = [row for row in await machines_of_session(tx, grant.session_id) if row.option_id in rows]
    failures = [
        Failure(offer_from_json(row.offer), row.outcome_code, row.state is not InstanceState.TOMBSTONE) for row in tried
    ]
    chosen = rows[approval.option_id].offer_id
    clouds = job_of(request.job).candidates
    placed = next_option(shown, chosen, failures, grant.price_cap_usd_h, grant.total_cap_usd, ctx.policy, clouds)
    if placed.option is None:
        return None, placed.sentence
    wanted = placed.option.offer.id
    return next(row for row in rows.values() if row.offer_id == wanted), placed.sentence


async def _longest_hold(ctx: Context, tx: Tx, session_id: str, approval: Approval, chosen: Option) -> Decimal:
    """Return the longest checkpoint hold without a new approval; more would be time above the cap."""
    session = await tx.get_one(Session, session_id, populate_existing=True)
    override = await override_of(tx, session.request_id)
    run_h = Decimal(session.hours) + await hours_used.hours_before(tx, session_id, approval.id, ctx.clock.now())
    return hours_used.longest_checkpoint_hold(ctx.policy, override, run_h, hold_hours(chosen))


def _ranked(row: Option) -> RankedOption:
    return RankedOption(
        offer_from_json(row.offer), estimate_from_json(row.estimate), row.rank, tuple(row.marks), row.why
    )
