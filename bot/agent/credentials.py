"""Keep the secrets of the job in one file that `sh` can read, and say which of them came since the last boot."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.agent.job_process import content
from bot.agent.own_folder import DEFAULT_FOLDER, FOLDER, folder_of

#: The variable with the file's path.
CRED_FILE = "CRED_FILE"
#: Sixteen values of 8 KiB, each character quoted.
BYTES = 1 << 20
RUN, MOUNTS = Path("/run"), Path("/proc/mounts")
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
#: The first line, which is a comment for `sh`.
_HEAD = "# secrets since boot"


@dataclass(frozen=True)
class Credentials:
    """The file of one machine. Only the agent's user reads it; it counts for the boot in which it was written."""

    path: Path
    boot_id: str

    def take(self, said: object) -> bool:
        """Write the secrets of an answer in one step, in place of those before; return whether that was done."""
        if not isinstance(said, dict):
            return False
        given = {name: value for name, value in said.items() if _is_variable(name, value)}
        lines = [f"{_HEAD} {self.boot_id}: {' '.join(given)}".rstrip(), *(_line(*one) for one in given.items())]
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "wb") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
            new.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            return False  # A full disk; the next answer has them again.
        return True

    def names(self) -> frozenset[str] | None:
        """Return which secrets came since the boot; None while no answer had any."""
        try:
            head, _, said = content(self.path, BYTES, os.geteuid()).decode().partition("\n")[0].partition(":")
        except (OSError, ValueError):
            return None
        return frozenset(said.split()) if head == f"{_HEAD} {self.boot_id}" else None


def of_this_machine(environment: Mapping[str, str], boot_id: str, mounts: Path = MOUNTS) -> Credentials:
    """Return where the secrets of this machine's job belong: in memory where `/run` is, else in the agent's folder."""
    folder = folder_of(environment)
    in_memory = environment.get(FOLDER, DEFAULT_FOLDER) == DEFAULT_FOLDER and _is_memory(mounts)
    return Credentials((RUN / "gpu-shopper" if in_memory else folder) / "credentials.sh", boot_id)


def _is_memory(mounts: Path) -> bool:
    try:
        lines = mounts.read_text().splitlines()
    except (OSError, ValueError):
        return False
    kinds = [words[2] for words in map(str.split, lines) if len(words) > 2 and words[1] == str(RUN)]
    return bool(kinds) and kinds[-1] == "tmpfs" and os.access(RUN, os.W_OK)


def _is_variable(name: object, value: object) -> bool:
    return isinstance(name, str) and isinstance(value, str) and bool(_NAME.fullmatch(name)) and "\x00" not in value


def _line(name: str, value: str) -> str:
    """Write one variable so that `sh` reads exactly its value, whatever is in it."""
    return f"export {name}='" + value.replace("'", "'\\''") + "'"
