"""Look at the market for the requests that wait, wake those that an offer fits, and expire the others in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of, job_with_people
from bot.rules.market import waiting as rules
from bot.rules.market.affordability import cannot_pay
from bot.rules.market.ranking import rank
from bot.services.grants import reopen
from bot.services.market.catalog import MarketAnswer
from bot.services.notifications import repeated_request
from bot.services.notifications.request_message import show_again
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import Claim, StaleMove, Tx, claim, move, release
from ledger.kernel.actor import SYSTEM
from ledger.kernel.ids import url_token
from ledger.kernel.states import RequestState
from ledger.kernel.stored_job import StoredJob
from ledger.models import Request, Token, WaitLimits
from ledger.queries.lookups import jobs_of, limits_of, waiting_jobs

BATCH = 64
#: The waiting jobs that one listing serves.
JOBS_MAX = 1_000
UNTIL = "No offer fit its limits in time."


@dataclass(frozen=True, slots=True)
class _Waiter:
    """One claimed request with its limits."""

    claim: Claim
    job: JobRequest
    limits: WaitLimits


def _waiter(held: Claim, stored: StoredJob, secrets: tuple[str, ...], limits: WaitLimits) -> _Waiter:
    return _Waiter(held, job_with_people(stored, secrets=secrets), limits)


async def store(tx: Tx, request_id: str, limits: rules.WaitTerms, now: datetime) -> None:
    """Store the limits of a new request that waits, with its buttons, and show its card."""
    gpu: dict[str, Any] = JobRequest(gpu=limits.gpu, hours=limits.hours).to_json()["gpu"]
    row = WaitLimits(
        request_id=request_id,
        from_at=limits.from_at,
        until=limits.until,
        gpu=gpu,
        hours=str(limits.hours),
        price_cap_usd_h=limits.price_usd_h,
        total_cap_usd=limits.total_usd,
    )
    actions = ["approve", "reject"] if limits.price_usd_h is not None else ["reject"]
    values = {"request_id": request_id, "quote_version": 0, "option_id": None}
    tx.add_all([row, *(Token(token=url_token(), action=action, **values) for action in actions)])
    await tx.flush()
    request = await tx.get_one(Request, request_id)
    await show_again(tx, request, now)
    await repeated_request.notify(tx, request, now)


async def look_due(ctx: Context) -> int:
    """Look at the market once for every request whose time has come; return how many were processed."""
    if clock_problem(ctx.clock):
        return 0
    now, lease = ctx.clock.now(), timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim(ctx.db, Request, now=now, states={RequestState.WAITING}, limit=BATCH, lease=lease)
    if not held:
        return 0
    async with ctx.db.read() as tx:
        ids = [one.row_id for one in held]
        limits, mine = await limits_of(tx, ids), await jobs_of(tx, ids)
        jobs = [job_of(stored) for stored in await waiting_jobs(tx, JOBS_MAX)]
    waiters = [_waiter(one, *mine[one.row_id], limits[one.row_id]) for one in held]
    over = [one for one in waiters if now >= one.limits.until]
    starts = [one for one in waiters if now < one.limits.until and not one.job.wait]
    looking = [one for one in waiters if now < one.limits.until and one.job.wait]
    fits: set[str] = await _fitting(ctx, looking, jobs) if looking else set()
    for one in over:
        await _expire(ctx, one, now)
    for one in (*starts, *(one for one in looking if one.claim.row_id in fits)):
        await _wake(ctx, one)
    for one in looking:
        if one.claim.row_id not in fits:
            await _rest(ctx, one)
    for hint in (ctx.hints.requests, ctx.hints.outbox):
        hint.set()
    return len(held)


async def _fitting(ctx: Context, looking: Sequence[_Waiter], jobs: Sequence[JobRequest]) -> set[str]:
    """Return the ids of the requests that an offer fits now: one listing per account for all that wait."""
    every = [job for job in jobs if job.wait] or [one.job for one in looking]
    wide = rules.together(every)
    await ctx.pressure.ease()
    market = await ctx.catalog.market(wide, wide.disk_gb, policy=ctx.policy, whole=False)
    own = await ctx.catalog.own_history()
    how: Mapping[str, Any] = {"to_run": True, "own": own, "top": 1}
    return await asyncio.to_thread(_matches, ctx, market, [(one.claim.row_id, one.job) for one in looking], how)


def _matches(
    ctx: Context, market: MarketAnswer, jobs: Sequence[tuple[str, JobRequest]], how: Mapping[str, Any]
) -> set[str]:
    offers = tuple(o for o in market.offers if not cannot_pay(o, market.balances.get(o.cloud)))
    able = ctx.catalog.capabilities

    def fits(job: JobRequest) -> bool:
        wanted = (offer for offer in offers if job.offer_id in (None, offer.id))
        return bool(rank(wanted, job, ctx.policy, able, proof=None, whole=bool(job.work), **how).options)

    return {request_id for request_id, job in jobs if fits(job)}


async def _wake(ctx: Context, one: _Waiter) -> None:
    """Quote a request: its time has come, or an offer fits it."""
    now = ctx.clock.now()
    said = "An offer fits its limits." if one.job.wait else "Its start has come."
    with suppress(StaleMove):
        async with ctx.db.write() as tx:
            to, token = RequestState.QUOTING, one.claim.token
            await move(tx, Request, one.claim.row_id, to, now, SYSTEM, said, claim=token, values={"due_at": now})


async def _rest(ctx: Context, one: _Waiter) -> None:
    now = ctx.clock.now()
    due_at = rules.next_look(one.claim.row_id, now, one.limits.until)
    async with ctx.db.write() as tx:
        await release(tx, Request, one.claim, due_at=due_at)


async def _expire(ctx: Context, one: _Waiter, now: datetime) -> None:
    """Expire a request that found nothing until its last moment, and release what was reserved in advance."""
    with suppress(StaleMove):
        async with ctx.db.write() as tx:
            values = {"outcome": UNTIL}
            to, token = RequestState.EXPIRED, one.claim.token
            request = await move(
                tx,
                Request,
                one.claim.row_id,
                to,
                now,
                SYSTEM,
                UNTIL,
                claim=token,
                only_from=frozenset({RequestState.WAITING}),
                values=values,
            )
            await reopen.close_family(tx, request, to, UNTIL, now, SYSTEM)


async def wait_again(tx: Tx, request: Request, held: Claim, now: datetime) -> bool:
    """Let a request wait again that found nothing at its quote; False where it does not wait, or no longer."""
    job = job_of(request.job)
    if not job.may_wait or request.quote_version > 0:
        return False
    limits = (await limits_of(tx, [request.id])).get(request.id)
    if limits is None or not job.wait or now >= limits.until:
        return False
    limits.misses += 1
    due_at = rules.next_look(request.id, now, limits.until)
    said = "The offer was gone, so it waits again."
    to, values = RequestState.WAITING, {"due_at": due_at, "looking": None}
    await move(tx, Request, request.id, to, now, SYSTEM, said, claim=held.token, values=values)
    return True
