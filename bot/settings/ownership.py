"""Read files that decide who spends: only root and the user of this process may be able to change them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: What lets others write.
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class ChangeableByOthers(ValueError):
    """Others can change a file that decides who spends; the message says how to mend that."""


def read_guarded(path: Path) -> str:
    """Return the text of a file that nobody but root and this user can change.

    Raises `ChangeableByOthers`, and what reading a text raises. The file is checked as it was opened, so another one
    can't take its place in between.
    """
    with path.open(encoding="utf-8") as file:
        _refuse_changeable(path, os.fstat(file.fileno()))
        for folder in dict.fromkeys((path.absolute().parent, path.resolve().parent)):
            _refuse_replaceable(folder)
        return file.read()


def _refuse_changeable(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise ChangeableByOthers(
            f"{path} belongs to user {status.st_uid}, who could change it; run: sudo chown root {path}"
        )
    if status.st_mode & OTHERS_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise ChangeableByOthers(f"{path} has mode {mode:04o}, so others can change it; run: chmod go-w {path}")


def _refuse_replaceable(folder: Path) -> None:
    """Refuse a folder in which others could put another file in the place of this one."""
    status = folder.stat()
    # Nobody writes where it is mounted read-only. In a sticky folder only its owner replaces a file.
    sealed = os.statvfs(folder).f_flag & os.ST_RDONLY or status.st_mode & stat.S_ISVTX
    if not sealed:
        _refuse_changeable(folder, status)
