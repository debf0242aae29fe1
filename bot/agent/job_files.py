"""Talk to the job on this machine through two files: what it is asked, and how far it is.

`asks` has what is asked now, one word a line. The job may write `job/report.json`, in a folder that every user of the
machine can write to; what is wrong in it is left out, because a check-in that is refused counts as none.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.agent.job_process import CommandFolder, content
from bot.agent.retry_policy import shell_code

REPORT_BYTES = 4096
#: What the job is asked when the machine is about to go away.
LAST_ASKS = ("save", "upload", "stop")
#: What a job may say about itself.
JOB_WORDS = ("queued", "running", "saving", "paused", "done", "failed")
#: The largest integer that every JSON reader keeps, and the most tokens per second that a check-in takes.
MOST, MOST_TOKENS = 2**53 - 1, 10**12
#: What a job may count of its own queue of runs, and the most that a check-in takes of each.
QUEUE_WORDS, MOST_QUEUED = ("waiting", "running", "done", "failed"), 10**9


@dataclass(frozen=True)
class JobFiles:
    """The files in `folder`. Whatever goes wrong with them is no reason to stop reporting."""

    folder: Path

    def prepare(self) -> None:
        """Make the folder that the job writes to, for every user, as /tmp is."""
        place = self.folder / "job"
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o1777)

    def write_asks(self, asks: Iterable[str]) -> None:
        """Write what the job is asked to do now, in one step."""
        new = self.folder / "asks.new"
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
            new.write_text("".join(f"{one}\n" for one in asks))
            new.replace(self.folder / "asks")

    def asks(self, word: str) -> bool:
        """Whether the job is asked to do this now."""
        return word in self._asks()

    def add_ask(self, word: str) -> None:
        """Add one word to what the job is asked, until the next check-in says what is asked then."""
        now = self._asks()
        self.write_asks([*now, *([] if word in now else [word])])

    def _asks(self) -> list[str]:
        try:
            return content(self.folder / "asks", REPORT_BYTES).decode(errors="replace").split()
        except OSError:
            return []

    def report(self) -> dict[str, Any]:
        """Return the fields of a check-in that the job wrote, as far as they are right.

        Of a command that was started as the job, its end and a pause are known here, and count before its own word.
        """
        place = self.folder / "job"
        try:
            said = json.loads(content(place / "report.json", REPORT_BYTES))
        except (OSError, ValueError, RecursionError):
            said = None
        found = _checked(said) if isinstance(said, dict) else {}
        state = CommandFolder(place, "job.log").read()
        if state is None or state.word == "lost":
            return found
        if _written_s(place / "report.json") < datetime.fromisoformat(state.started_at).timestamp():
            found = {}  # It is the report of an earlier job.
        if state.word in ("done", "failed"):
            # A job that says that it failed may exit with 0; one that says that it is done may fail afterwards.
            found["job"] = "failed" if found.get("job") == "failed" else state.word
            found["job_exit_code"] = shell_code(state.exit_code or 0)
        elif state.word == "paused" or "job" not in found:
            found["job"] = state.word
        if state.attempt > 1:
            found["job_attempt"] = state.attempt
        return found


def _written_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _checked(said: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: said[name] for name in ("step", "target_step") if _is_count(said.get(name))}
    if said.get("job") in JOB_WORDS:
        found["job"] = said["job"]
    tokens = said.get("tokens_per_s")
    if isinstance(tokens, (int, float)) and not isinstance(tokens, bool) and 0 <= tokens <= MOST_TOKENS:
        found["tokens_per_s"] = round(tokens, 3)
    if queue := _queue(said.get("queue")):
        found["queue"] = queue
    checkpoint = said.get("checkpoint")
    if isinstance(checkpoint, dict) and _is_count(checkpoint.get("step")) and _is_time(checkpoint.get("at")):
        found["checkpoint"] = {"step": checkpoint["step"], "at": checkpoint["at"]}
    return found


def _queue(said: object) -> dict[str, int]:
    """Return the counts that are right; without any, the job has no queue."""
    counts = said if isinstance(said, dict) else {}
    return {name: counts[name] for name in QUEUE_WORDS if _is_count(counts.get(name)) and counts[name] <= MOST_QUEUED}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _is_time(value: object) -> bool:
    if not isinstance(value, str) or len(value) > 40 or value[10:11] != "T":
        return False
    try:
        at = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return False
    return at.tzinfo is not None
