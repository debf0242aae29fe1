"""Import from the archive, and keep what Python compiled of it in one file, so that later starts compile nothing.

Python's own importer of archives compiles a module twice: once to know the name of its file. It is one file that is
kept, because to write one for each of 190 modules takes longer than to compile them.
"""

from __future__ import annotations

import marshal
import os
import sys
import zipfile
import zipimport
from pathlib import Path
from types import CodeType
from typing import ClassVar


class ArchiveImporter(zipimport.zipimporter):
    """Imports from an archive; compiles only what no earlier start compiled, once, and remembers that."""

    #: The compiled modules of an earlier start by their places, and those of this one.
    known: ClassVar[dict[str, bytes]] = {}
    new: ClassVar[dict[str, CodeType]] = {}

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
        if place not in self.new:
            self.new[place] = super().get_code(fullname)
        return self.new[place]


def begin(archive: str, folder: Path) -> None:
    """Import from this archive and from what an earlier start kept in the folder, from now on."""
    sys.path_hooks.insert(0, ArchiveImporter)
    sys.path_importer_cache.clear()
    try:
        ArchiveImporter.known.update(marshal.loads(kept_in(archive, folder).read_bytes()))  # noqa: S302 # The same.
    except (OSError, ValueError, EOFError, TypeError):
        return  # This is the first start, or a broken disk.


def kept_in(archive: str, folder: Path) -> Path:
    """Return the file of this archive and this Python; another one of either has another. Raises OSError."""
    found = Path(archive).stat()
    return folder / f"libraries-{found.st_size:x}-{found.st_mtime_ns:x}-{sys.hexversion:x}"


def forget() -> None:
    """Free the memory of what was kept, once everything is imported."""
    ArchiveImporter.known.clear()
    ArchiveImporter.new.clear()


def keep(archive: str, folder: Path) -> None:
    """Write what was compiled, and the agent's other modules, in one step. A full disk is no reason to end."""
    if not archive.endswith(".pyz"):
        return
    try:
        with zipfile.ZipFile(archive) as file:
            names = [Path(one) for one in file.namelist() if one.startswith("bot/agent/") and one.endswith(".py")]
        for name in names:
            inside = name.parent if name.stem == "__init__" else name.with_suffix("")
            ArchiveImporter(f"{archive}/{inside.parent}").get_code(".".join(inside.parts))
        made = {place: marshal.dumps(code) for place, code in dict(ArchiveImporter.new).items()}
        if made:
            _write(kept_in(archive, folder), marshal.dumps(ArchiveImporter.known | made))
    except (OSError, zipfile.BadZipFile, zipimport.ZipImportError):
        return
    finally:
        forget()


def _write(file: Path, content: bytes) -> None:
    new = file.with_name(f"{file.name}.{os.getpid()}")
    for old in file.parent.glob("libraries-*"):
        if old != file:
            old.unlink()  # Of another build, or of an attempt that did not end.
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "wb") as written:
        written.write(content)
    new.replace(file)
