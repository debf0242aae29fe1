"""Unpack the archive, so that Python keeps what it compiles for the API: from the archive it compiles each time."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import bot.agent
from bot.agent.job_process import own_program
from bot.agent.memory import folder_of
from bot.agent.settings import environment_of_machine

#: Loads what the API loads, and ends. What compiling takes in memory goes with it.
COMPILES = "compile-libraries"
MOST_S = 60.0


def prepare() -> None:
    """Unpack the libraries into the agent's folder, and have them compiled, before the first of them is imported."""
    if unpack(folder_of(environment_of_machine())):
        have_compiled([sys.executable, *own_program(), COMPILES])


def have_compiled(command: Sequence[str], most_s: float = MOST_S) -> None:
    """Run the process that compiles until it ends. Where it can't, this process compiles while it imports."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=most_s)


def compile_all(_arguments: list[str], /) -> int:
    """Import what the API imports, so that Python keeps it compiled beside the unpacked libraries."""
    unpack(folder_of(environment_of_machine()))
    import bot.agent.api.process  # noqa: F401, PLC0415 # It is found in that folder.

    with contextlib.suppress(ImportError):  # The API loads it for the first call of its status.
        import pynvml  # noqa: F401, PLC0415
    return 0


def unpack(folder: Path, archive: str = "") -> bool:
    """Put libraries and agent into a folder below this one and look there first. True where the folder is new.

    The folder's name is the archive's hash, so another build gets another. It is complete or it is not there. Where it
    can't be written, they stay in the archive.
    """
    archive = archive or sys.argv[0]
    if not archive.endswith(".pyz"):
        return False
    try:
        place = folder / f"libraries-{hashlib.sha256(Path(archive).read_bytes()).hexdigest()[:16]}"
        is_new = not place.is_dir()
        if is_new:
            _write(archive, folder, place)
    except (OSError, zipfile.BadZipFile):
        return False
    sys.path.insert(0, str(place))
    bot.agent.__path__.insert(0, str(place / "bot/agent"))
    return is_new


def _write(archive: str, folder: Path, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as made:
        with zipfile.ZipFile(archive) as file:
            file.extractall(made, [one for one in file.namelist() if one != "__main__.py"])
        try:
            Path(made).rename(place)
        except OSError:
            if not place.is_dir():  # Another process was faster.
                raise
