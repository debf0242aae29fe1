"""Log in to machines that were never ready, compare their GPUs with what was bought, and make them ready or end them.

It is a pass of its own: a host that answers slowly must not delay the reconcile pass of its cloud. A machine that is
not what was bought is ended like every failed boot, and replaced or asked about once it is proved gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from bot.outbound.ssh_login import Ran
from bot.rules.instances.gpu_check import (
    COMMANDS,
    SETTLES_WITHIN,
    Bought,
    GpuVerdict,
    SeenMachine,
    judge,
    login_failed,
    other_host_key,
    read,
)
from bot.rules.instances.gpu_speed import SPEED_COMMAND, SPEED_PROGRAM, SPEED_S, Speed, judge_speed, read_speed
from bot.rules.jobs.stored import job_of
from bot.rules.market.filters import least_cuda
from bot.rules.nodes.host_keys import KeyMatch, compare
from bot.services.instances.readiness import make_ready, overdue
from bot.services.instances.transitions import end_announced
from bot.services.market.codec import offer_from_json
from bot.services.nodes.host_keys import reported_key, shown_key
from bot.services.nodes.login_keys import ssh_login
from bot.services.notifications.paging import alone
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import amend, lock_family
from ledger.kernel.end_reason import EndReason
from ledger.kernel.login_problem import LoginProblem
from ledger.kernel.states import InstanceState
from ledger.models import Instance, Request
from ledger.queries.nodes import due_for_login, node_of, take_login

#: Machines of one pass. They are logged in to concurrently, so that one which hangs costs one time-out.
AT_ONCE = 64
#: Seconds for the login and the command together: the first call of nvidia-smi on eight GPUs takes over ten.
LOGIN_S = 30.0
#: A machine that is still busy with its boot may be slow once.
SPEED_TRIES = 2
#: Longer than one check takes, so that only one replica checks a machine.
LEASE = timedelta(seconds=LOGIN_S + SPEED_TRIES * SPEED_S + 15)


@dataclass(frozen=True, slots=True)
class _Found:
    """Hold what one login found: the machine, or why there was none to see, and why it is not what was bought."""

    seen: SeenMachine | None = None
    speed: Speed | None = None
    problem: LoginProblem | None = None
    verdict: GpuVerdict | None = None


async def checks_due(ctx: Context) -> int:
    """Check the machines whose SSH server answers and that were never ready. Return how many became ready or ended."""
    if clock_problem(ctx.clock) or not ctx.policy.validate_login:
        return 0
    async with ctx.db.read() as tx:
        rows = await due_for_login(tx, ctx.clock.now(), AT_ONCE)
    steps = [alone(ctx, row.id, "the check of its GPUs", _check(ctx, row), False) for row in rows]
    done = sum(await asyncio.gather(*steps))
    if done:
        ctx.hints.outbox.set()
        ctx.hints.instances.set()
    return done


async def _check(ctx: Context, row: Instance) -> bool:
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, row.id)
        if not await take_login(tx, row.id, now, now + LEASE):
            return False
        job = job_of((await tx.get_one(Request, row.request_id)).job)
        reported = reported_key(await node_of(tx, row.id))
    # The program of an image that starts with its own command may be using the GPUs already.
    is_idle = job.image is None or not ctx.providers[row.cloud].capabilities.onstart_is_command
    bought = _bought(row, least_cuda(job, ctx.policy, row.cloud))
    shown = row.host_key
    if reported is not None and compare(shown, reported) is not KeyMatch.SAME:
        shown = await shown_key(ctx, row, reported) or shown
    found = _mismatch(shown, reported) or await _look(ctx, row, bought, shown, measured=is_idle)
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        if fresh.state is not InstanceState.LIVE or fresh.reachable_at is not None or fresh.ssh_host != row.ssh_host:
            return False
        # Its agent may have reported while the GPUs were measured.
        reported = reported_key(await node_of(tx, row.id))
        found = _mismatch(shown, reported) or found
        key = shown if compare(shown, reported) is KeyMatch.SAME else fresh.host_key
        since = _since(fresh, found, now)
        await amend(tx, Instance, row.id, gpu_check=_record(found, since, now), login_until=None, host_key=key)
        if found.seen is not None and found.verdict is None:
            await make_ready(ctx, tx, fresh, now)
            return True
        failure = _failure(ctx, fresh, found, since, now)
        if failure is None:
            return False
        await end_announced(ctx, tx, fresh, *failure, now)
        return True


def _failure(
    ctx: Context, row: Instance, found: _Found, since: datetime | None, now: datetime
) -> tuple[EndReason, str] | None:
    """Return code and sentence when the machine has to end: not what was bought, or no login within the boot's time."""
    verdict = found.verdict
    if verdict is not None:
        waits = verdict.may_settle and since is not None and now - since < SETTLES_WITHIN
        return None if waits else (verdict.code, verdict.sentence)
    spent = overdue(ctx, row, now)
    return login_failed(found.problem, spent) if found.problem is not None and spent is not None else None


def _mismatch(shown: str | None, reported: str | None) -> _Found | None:
    """Return the verdict where the server shows another host key than the machine's agent reports; else None."""
    if shown is None or reported is None or compare(shown, reported) is not KeyMatch.DIFFERENT:
        return None
    return _Found(verdict=other_host_key(shown, reported))


async def _look(ctx: Context, row: Instance, bought: Bought, host_key: str | None, *, measured: bool) -> _Found:
    """Log in, run the tool of the GPUs' vendor, judge what it shows, and measure the speed of what was bought."""
    login = replace(ssh_login(ctx.labels, row), host_key=host_key)
    ran: Ran = await ctx.reach.run(login, COMMANDS[bought.vendor], timeout_s=LOGIN_S)
    if ran.problem is not None:
        return _Found(problem=ran.problem)
    seen = read(bought.vendor, ran.output)
    verdict = judge(bought, seen, ran.output)
    speed = None
    for _ in range(SPEED_TRIES if measured and verdict is None else 0):
        ran = await ctx.reach.run(login, SPEED_COMMAND, stdin=SPEED_PROGRAM, timeout_s=SPEED_S)
        speed = read_speed(ran.output) if ran.problem is None else None
        # A machine without torch, or one that took too long for it, is not measured, and that is no failure.
        verdict = judge_speed(bought, speed) if speed is not None else None
        if verdict is None:
            break
    return _Found(seen, speed, verdict=verdict)


def _bought(row: Instance, min_cuda: Decimal | None) -> Bought:
    offer = offer_from_json(row.offer)
    return Bought(offer.gpu, offer.gpu_count, offer.memory_gb, min_cuda)


def _since(row: Instance, found: _Found, now: datetime) -> datetime | None:
    """Return when the first login worked, or the first host key was judged; None before that."""
    before = (row.gpu_check or {}).get("since")
    is_first = found.seen is not None or found.verdict is not None
    return datetime.fromisoformat(before) if before else (now if is_first else None)


def _record(found: _Found, since: datetime | None, now: datetime) -> dict[str, Any]:
    """Build what is stored of a check: times, the problem or verdict, and the GPUs with their driver."""
    seen = found.seen or SeenMachine(())
    return {
        "at": now.isoformat(),
        "since": since.isoformat() if since is not None else None,
        "problem": str(found.problem) if found.problem is not None else "",
        "verdict": str(found.verdict.code) if found.verdict is not None else "",
        "gpus": [{"gpu": gpu.gpu, "memory_gb": str(gpu.memory_gb)} for gpu in seen.gpus],
        "driver": seen.driver,
        "cuda": str(seen.cuda) if seen.cuda is not None else None,
        "tflops": [str(rate) for rate in found.speed.tflops] if found.speed is not None else [],
        "format": found.speed.format if found.speed is not None else "",
    }
