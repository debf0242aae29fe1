"""Make the rows of what agents report of their queues' commands."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bot.rules.nodes.reported_commands import times_by
from bot.wire.checkin import Checkin
from ledger.models import Node


def rows(node: Node, report: Checkin, now: datetime) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the rows of the results in one check-in, by session and command."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for one in report.results:
        started_at, ended_at = times_by(one, now)
        found[node.session_id, one.number] = {
            "session_id": node.session_id,
            "number": one.number,
            "instance_id": node.instance_id,
            "gpu": one.gpu,
            "exit_code": one.exit_code,
            "attempts": one.attempts,
            "started_at": started_at,
            "ended_at": ended_at,
            "log_tail": one.log_tail,
            "recorded_at": now,
        }
    return found
