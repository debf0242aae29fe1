"""Read files that decide who spends: only root and the user of this process may be able to change them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

#: What lets others write.
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
#: So many links the system follows in one path.
LINKS_MAX: Final = 40


class ChangeableByOthers(ValueError):
    """Others can change a file that decides who spends; the message says how to mend that."""


def read_guarded(path: Path) -> str:
    """Return the text of a file that nobody but root and this user can change.

    Raises `ChangeableByOthers`, and what reading a text raises. The file is checked as it was opened, so another one
    can't take its place in between.
    """
    with path.open(encoding="utf-8") as file:
        _refuse_changeable(path, os.fstat(file.fileno()))
        _refuse_replaceable(path)
        return file.read()


def _refuse_replaceable(path: Path) -> None:
    """Refuse a path where others could put another file: by a folder on its way from the root, or a link in it."""
    here, names, links = _enter(Path("/")), [*path.absolute().parts[1:]], 0
    while names:
        name = names.pop(0)
        there = here / name
        status = there.lstat()
        if name == "..":
            here = here.parent
        elif stat.S_ISDIR(status.st_mode):
            here = _enter(there)
        elif stat.S_ISLNK(status.st_mode):
            if (links := links + 1) > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if not _is_read_only(here):
                _refuse_owner(there, status, "chown -h")
            target = there.readlink()
            names = [*target.parts, *names]
            if target.is_absolute():
                here, names = Path("/"), names[1:]


def _enter(folder: Path) -> Path:
    """Return a folder in which others can't put anything in the place of what is there.

    Nobody can where it is mounted read-only. In a sticky folder only its owner can, and the owner of what is there,
    which is checked next.
    """
    status = folder.lstat()
    if not _is_read_only(folder):
        (_refuse_owner if status.st_mode & stat.S_ISVTX else _refuse_changeable)(folder, status)
    return folder


def _is_read_only(folder: Path) -> bool:
    """Whether a folder is on a file system that is mounted read-only."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _refuse_changeable(path: Path, status: os.stat_result) -> None:
    _refuse_owner(path, status)
    if status.st_mode & OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise ChangeableByOthers(f"{path} has mode {mode:04o}, so others can change it; run: chmod go-w {path}")


def _refuse_owner(path: Path, status: os.stat_result, command: str = "chown") -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise ChangeableByOthers(
            f"{path} belongs to user {status.st_uid}, who could change it; run: sudo {command} root {path}"
        )
