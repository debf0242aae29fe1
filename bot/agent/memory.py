"""Keep what a restarted agent must know: its nonce, and the newest signed message with the time when it came.

The file stays with the machine's disk, so a reboot that no cloud reports locks its agent out of nothing. It is readable
by the agent's user only. Without it an agent works as well, and knows less after a restart.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from bot.agent.deadline import Signed

#: What the service takes.
_NONCE = re.compile(r"[A-Za-z0-9_-]{32,64}", re.ASCII)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class AgentRunsAlreadyError(Exception):
    """Another agent of this machine holds the lock."""


@dataclass
class Memory:
    """The file of one machine's agent, in `folder`. `problem` says why nothing is kept; "" when it is."""

    folder: Path
    boot_id: str
    problem: str = ""
    _lock: int | None = None

    def lock(self) -> None:
        """Make the folder, and hold it until this process ends. Raises AgentRunsAlreadyError."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            self.problem = f"Nothing is kept for a restart: {error}."
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise AgentRunsAlreadyError("An agent of this machine runs already.") from error
        # The first process of a container tells this process that the container is being stopped.
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let another agent of this machine hold the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> tuple[str, Signed | None]:
        """Return the nonce, new where none was kept, and the newest signed message.

        After a restart of the machine the time of that message means nothing any more; it then counts from now on,
        which errs on the late side.
        """
        nonce = secrets.token_urlsafe(32)
        try:
            kept = json.loads((self.folder / "state.json").read_text())
            nonce = kept["nonce"] if _NONCE.fullmatch(kept["nonce"]) else nonce
            if "message" not in kept:
                return nonce, None
            at_s = float(kept["at_boot_s"]) if kept["boot_id"] == self.boot_id else float("inf")
            return nonce, Signed(str(kept["message"]), str(kept["signature"]), at_s)
        except (OSError, ValueError, KeyError, TypeError):
            return nonce, None

    def keep(self, nonce: str, newest: Signed | None) -> None:
        """Store both, in one step."""
        kept: dict[str, object] = {"nonce": nonce}
        if newest is not None:
            kept |= {"message": newest.message, "signature": newest.signature}
            kept |= {"at_boot_s": newest.at_boot_s, "boot_id": self.boot_id}
        if self._lock is None:
            return
        path = self.folder / "state.new"
        try:
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                json.dump(kept, file)
            path.replace(self.folder / "state.json")
        except OSError as error:
            self.problem = f"Nothing is kept for a restart: {error}."


def of_machine(folder: Path) -> Memory:
    """Return the memory of this machine's agent."""
    try:
        boot_id = BOOT_ID.read_text().strip()
    except OSError:
        boot_id = secrets.token_hex(16)  # Then no start is known to be the same as another.
    return Memory(folder, boot_id)
