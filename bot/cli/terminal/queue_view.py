"""Lay out the commands of a job's queue for a terminal."""

from __future__ import annotations

from bot.api.schemas.queue import QueueCommandOut, QueueResultsOut
from bot.cli.terminal.listing import ListColumns, ListView, listing
from bot.rules.values.phrases import seconds_in_words, usd


def queue_list(found: QueueResultsOut) -> ListView:
    """List the commands of a queue, with their results and costs."""
    columns: ListColumns[QueueCommandOut] = (
        ("number", lambda one: str(one.number)),
        ("result", _result),
        ("GPU", lambda one: "-" if one.gpu is None else str(one.gpu)),
        ("took", _took),
        ("cost", lambda one: "-" if one.cost_usd is None else usd(one.cost_usd)),
        ("command", lambda one: one.command),
    )
    said = f"The session has cost {usd(found.total_usd)}, of which no finished command used {usd(found.idle_usd)}."
    return listing("This job has no queue.", columns, found.items, [said] if found.items else [])


def _result(one: QueueCommandOut) -> str:
    if one.ended_at is None:
        return "-"
    code = "unknown" if one.exit_code is None else f"exit code {one.exit_code}"
    return f"{code}, {one.attempts} attempts" if (one.attempts or 1) > 1 else code


def _took(one: QueueCommandOut) -> str:
    if one.started_at is None or one.ended_at is None:
        return "-"
    return seconds_in_words(int((one.ended_at - one.started_at).total_seconds()))
