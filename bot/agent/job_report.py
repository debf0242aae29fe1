"""Read how far the job on this machine is: what it wrote, and how the command that was started as the job goes.

What is wrong in the job's own report is left out, because a check-in that is refused counts as none.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.agent.job_process import CommandFolder, content
from bot.agent.retry_policy import shell_code
from bot.wire.checkin import Checkin, QueueCounts
from bot.wire.codec import right_fields, to_json

REPORT_BYTES = 4096
#: The fields of a check-in that a job may write.
FIELDS = ("job", "step", "target_step", "tokens_per_s", "queue", "checkpoint")


def job_report(folder: Path) -> dict[str, Any]:
    """Return the fields of a check-in that say how far the job is. `folder` is the agent's, beside the job's.

    Of a command that was started as the job, its end and a pause are known here, and count before its own word.
    """
    place = folder / "job"
    fields = _written(place / "report.json")
    state = CommandFolder(place, "job.log").read()
    if state is None or state.word == "lost":
        return fields
    if _written_s(place / "report.json") < datetime.fromisoformat(state.started_at).timestamp():
        fields = {}  # It is the report of an earlier job.
    if state.word in ("done", "failed"):
        # A job that says that it failed may exit with 0; one that says that it is done may fail afterwards.
        fields["job"] = "failed" if fields.get("job") == "failed" else state.word
        fields["job_exit_code"] = shell_code(state.exit_code or 0)
    elif state.word == "paused" or "job" not in fields:
        fields["job"] = state.word
    if state.attempt > 1:
        fields["job_attempt"] = state.attempt
    return fields


def _written(path: Path) -> dict[str, Any]:
    """Return what the job wrote, as far as it is right."""
    try:
        report = json.loads(content(path, REPORT_BYTES))
        read = right_fields(Checkin, {name: report[name] for name in FIELDS if name in report})
    except (OSError, ValueError, RecursionError, TypeError):
        return {}
    if read.get("tokens_per_s") is not None:
        read["tokens_per_s"] = float(round(read["tokens_per_s"], 3))
    if read.get("queue") is not None:
        read["queue"] = right_fields(QueueCounts, report["queue"])  # Only what it wrote, also where that is 0.
    saved = read.pop("checkpoint", None)
    if saved is not None and None not in (saved.step, saved.at):  # Only both say what is saved.
        read["checkpoint"] = saved
    return {name: value for name, value in to_json(read).items() if value not in ({}, None)}


def _written_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
