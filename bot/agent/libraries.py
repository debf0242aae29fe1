"""Import from the archive, and keep what Python compiled of it in one file, so that later starts compile nothing.

Python's own importer of archives compiles a module twice: once to know the name of its file. It is one file that is
kept, because to write one for each of 190 modules takes longer than to compile them.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import subprocess
import sys
import threading
import time
import zipfile
import zipimport
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import ClassVar

#: The argument of the process that compiles and ends: it frees the memory that compiling takes.
COMPILES = "compile-libraries"
#: The most seconds for which the API waits for it, and how often it looks.
MOST_S, LOOK_S = 60.0, 0.01


class ArchiveImporter(zipimport.zipimporter):
    """Imports from an archive; compiles once, and only what no earlier start compiled."""

    #: The compiled modules of an earlier start by their places.
    known: ClassVar[dict[str, bytes]] = {}
    #: What this process compiles, where it is to be kept.
    new: ClassVar[dict[str, CodeType] | None] = None

    def get_filename(self, fullname: str) -> str:
        """Return the file of a module."""
        inside = "/__init__.py" if self.is_package(fullname) else ".py"
        return f"{self.archive}/{self.prefix}{fullname.rpartition('.')[2]}{inside}"

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of a module."""
        place = f"{self.prefix}{fullname}"
        if place in self.known:
            code = marshal.loads(self.known[place])  # noqa: S302 # The agent wrote the file, and only its user can.
            if isinstance(code, CodeType):
                return code
        if self.new is None:
            return super().get_code(fullname)
        if place not in self.new:
            self.new[place] = super().get_code(fullname)
        return self.new[place]


def begin(archive: str, folder: Path) -> None:
    """Import from this archive and from what an earlier start kept in the folder, from now on."""
    sys.path_hooks.insert(0, ArchiveImporter)
    sys.path_importer_cache.clear()
    know(archive, folder)


def know(archive: str, folder: Path) -> bool:
    """Read what is kept in the folder; whether there was anything."""
    try:
        ArchiveImporter.known.update(marshal.loads(kept_in(archive, folder).read_bytes()))  # noqa: S302 # The same.
    except (OSError, ValueError, EOFError, TypeError):
        return False  # This is the first start, or a broken disk.
    return True


def forget() -> None:
    """Free the memory of what was kept, once everything is imported."""
    ArchiveImporter.known.clear()


def have_compiled(archive: str, folder: Path, command: Sequence[str], most_s: float = MOST_S) -> None:
    """Have a process compile what the API imports, and know it. Where it can't, this process compiles it itself.

    The process continues with what can wait.
    """
    if not archive.endswith(".pyz") or ArchiveImporter.known:
        return
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return
    until_s = time.monotonic() + most_s
    while not know(archive, folder) and process.poll() is None and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    threading.Thread(target=process.wait, daemon=True).start()  # So that it leaves the table of processes.


def record() -> None:
    """Remember what is compiled from now on."""
    ArchiveImporter.new = {}


def kept_in(archive: str, folder: Path) -> Path:
    """Return the file of this archive and this Python; another one of either has another. Raises OSError."""
    found = Path(archive).stat()
    return folder / f"libraries-{found.st_size:x}-{found.st_mtime_ns:x}-{sys.hexversion:x}"


def keep(archive: str, folder: Path) -> None:
    """Write what was compiled, in one step. A full disk is no reason to end."""
    made = {place: marshal.dumps(code) for place, code in (ArchiveImporter.new or {}).items()}
    if made:
        with contextlib.suppress(OSError):
            _write(kept_in(archive, folder), marshal.dumps(ArchiveImporter.known | made))


def compile_agent(archive: str) -> None:
    """Compile the agent's modules that other processes of it import."""
    with zipfile.ZipFile(archive) as file:
        names = [Path(one) for one in file.namelist() if one.startswith("bot/agent/") and one.endswith(".py")]
    for name in names:
        inside = name.parent if name.stem == "__init__" else name.with_suffix("")
        ArchiveImporter(f"{archive}/{inside.parent}").get_code(".".join(inside.parts))


def _write(file: Path, content: bytes) -> None:
    new = file.with_name(f"{file.name}.{os.getpid()}")
    for old in file.parent.glob("libraries-*"):
        if old != file:
            old.unlink()  # Of another build, or of an attempt that did not end.
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "wb") as written:
        written.write(content)
    new.replace(file)
