"""Write what the job on this machine is asked to do: `asks` has it, one word a line.

The job may write `job/report.json`, in a folder that every user of the machine can write to; `job_report` reads it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bot.agent.job_process import content

ASKS_BYTES = 4096
#: What the job is asked when the machine is about to go away.
LAST_ASKS = ("save", "upload", "stop")


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
            return content(self.folder / "asks", ASKS_BYTES).decode(errors="replace").split()
        except OSError:
            return []
