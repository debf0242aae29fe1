"""Say whether the run of a session can be moved, and what its target is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.nodes.checkins import NodeStatus
from bot.rules.values.command_text import cli_command
from bot.services.nodes.checkins import node_status
from ledger.kernel import money
from ledger.queries.views import SessionView
from providers.contract import Provider

#: A session that ends sooner is not moved.
LEAST_H = Decimal("0.25")
#: With this word the new machine must be at least one percent cheaper per hour.
CHEAPER, OF_PRICE = "cheaper", Decimal("0.99")
#: An agent that has not reported for so long can't be asked to pause.
SILENT = timedelta(minutes=5)


def agent_of(view: SessionView) -> NodeStatus | None:
    """Return what the agent of a session's machine reported; None before its first report."""
    return node_status(view.node) if view.node is not None and view.node.at is not None else None


def why_not(view: SessionView, providers: Mapping[str, Provider], now: datetime) -> str | None:
    """Say why a running session can't be moved; None when it can."""
    session, row, job, agent = view.session, view.instance, job_of(view.request.job), agent_of(view)
    provider = providers.get(row.cloud) if row is not None else None
    if session.nodes > 1:
        return "it has several machines, which stay together until their end"
    if not job.has_command:
        return "it has no `run=`, so nothing could be started on the new machine"
    if provider is None or provider.capabilities.batch:
        return f"{row.cloud if row is not None else 'it'} runs one program to its end, and it can't be paused there"
    if not job.checkpoint:
        return "it has no `checkpoint=`, so nothing protects its data"
    if agent is None or agent.at is None or now - agent.at > SILENT:
        return "no agent reports from it, so it can't be paused"
    if agent.step is None:
        return "its job reports no step, so nobody could see that it continues"
    if agent.work.is_over or session.job_state is not None:
        return "its job has ended"
    if session.early_end_at is not None:
        return "it is about to end early. Answer the message about that first"
    if session.deadline is not None and left_h(session.deadline, now) < LEAST_H:
        return f"it ends in less than 15 minutes. Extend it first: {cli_command(f'extend {session.short_id} 2h')}"
    return None


def left_h(deadline: datetime, now: datetime) -> Decimal:
    """Return the hours until the approved end, rounded down."""
    return money.down(Decimal(str((deadline - now) / timedelta(hours=1))), 2)


def target_job(view: SessionView, to: str, at_step: int | None, now: datetime) -> JobRequest:
    """Return the job for the target: the same work for the hours that are left, at the place that was named.

    The limits of the first request do not bind it: approvers see its own price. A cheaper place has the same GPUs, so
    that the run is as fast there.
    """
    session, row, job = view.session, view.instance, job_of(view.request.job)
    reason = f"Move of session {session.short_id}{f' from step {at_step:,}' if at_step is not None else ''}"
    cloud, is_offer, _ = to.partition(":")
    named, is_cheaper = bool(to) and to != CHEAPER, to == CHEAPER
    same = replace(job.gpu, names=(session.gpu,), count_min=session.gpu_count, count_max=session.gpu_count)
    return replace(
        job,
        gpu=same if is_cheaper and session.gpu else job.gpu,
        hours=left_h(session.deadline, now) if session.deadline else job.hours,
        candidates=(cloud,) if named else job.candidates if job.volume else (),
        regions=() if named and not job.volume else job.regions,
        offer_id=to if is_offer else None,
        max_price_usd_h=money.rate(row.price_usd_h * OF_PRICE) if row is not None and is_cheaper else None,
        budget_cap_usd=None,
        clouds_in_order=False,
        already_hours=Decimal(0),
        work=(),
        wait=False,
        start_at=None,
        wait_until=None,
        reason=reason,
    )
