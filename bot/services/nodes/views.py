"""Show what the agent of an instance reports: its age, the progress of its job, and the cost until it is done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from bot.rules.jobs.stored import job_of
from bot.rules.nodes.checkins import NodeStatus, node_line, progress
from bot.rules.nodes.machine_report import machine_line, startup_line
from bot.rules.values.phrases import usd
from bot.services.nodes.checkins import node_status
from ledger.queries.views import SessionView


@dataclass(frozen=True, slots=True)
class AgentView:
    """Describe an agent for people. `line` is in every status; `heard` is None for an instance without an agent.

    `ends_first`: at its speed so far the job is done only after the session's approved end.
    """

    line: str
    heard: NodeStatus | None = None
    age_s: int | None = None
    eta: datetime | None = None
    cost_to_finish_usd: Decimal | None = None
    ends_first: bool = False
    #: How far the start-up of its job is, in one line; "" where there is none.
    startup: str = ""


def agent_view(view: SessionView, now: datetime) -> AgentView:
    """Return what the newest instance's agent reports, as of now."""
    found = node_status(view.node) if view.node is not None else None
    line = f"{node_line(found, now)} {machine_line(found.machine if found else None)}".strip()
    if found is None or found.at is None:
        return AgentView(line)
    started = startup_line(found.machine.steps, job_of(view.request.job).install) if found.machine is not None else ""
    age_s = max(int((now - found.at).total_seconds()), 0)
    ahead = progress(found, view.price_usd_h, now)
    if ahead is None:
        return AgentView(line, found, age_s, startup=started)
    line = f"{line} At this speed it is done {ahead.eta:%Y-%m-%d %H:%M} UTC, for {usd(ahead.cost_to_finish_usd)} more."
    end = view.session.deadline
    ends_first = end is not None and ahead.eta > end
    line += " The session ends before that." if ends_first else ""
    return AgentView(line, found, age_s, ahead.eta, ahead.cost_to_finish_usd, ends_first, started)
