"""Unpack the archive's libraries, so that Python keeps their compiled form: from the archive it compiles each time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bot.agent.job_process import own_program
from bot.agent.memory import folder_of
from bot.agent.settings import environment_of_machine

#: The argument of the process that imports what the API imports, and ends. It frees the memory that compiling takes.
COMPILES = "compile-libraries"


def prepare() -> None:
    """Unpack the libraries into the agent's folder, and have them compiled, before the first of them is imported."""
    if unpack(folder()):
        # Where it fails, the API's own process compiles them.
        subprocess.run([sys.executable, *own_program(), COMPILES], stdin=subprocess.DEVNULL, check=False)


def folder() -> Path:
    """Return the agent's folder on this machine."""
    return folder_of(environment_of_machine())


def unpack(folder: Path, archive: str = "") -> bool:
    """Put the libraries into a folder below this one and look there first. True where the folder is new.

    The folder's name is the archive's hash, so another build gets another. It is complete or it is not there. Where it
    can't be written, the libraries stay in the archive.
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
    return is_new


def _write(archive: str, folder: Path, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as made:
        with zipfile.ZipFile(archive) as file:
            file.extractall(made, [one for one in file.namelist() if one.split("/")[0] not in ("__main__.py", "bot")])
        try:
            Path(made).rename(place)
        except OSError:
            if not place.is_dir():  # Another process was faster.
                raise
