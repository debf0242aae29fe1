"""Reach files in the workspace and nowhere else.

Each folder of a path is opened from the one before it, without following links, so nothing that somebody changes
meanwhile leads outside. What is not a regular file, or has a second name that may lie outside, is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bot.agent.api.problems import ApiRefusal

LONGEST, NAME_BYTES, DEEPEST = 1024, 255, 32
#: Where parts of uploads wait for the rest.
PARTS = ".gpu-shopper-uploads"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def names_of(path: str) -> list[str]:
    """Split a path into its names. Raises ApiRefusal (400) for one that may not be in the workspace."""
    names = path.split("/")
    wrong = (
        not path
        or len(path) > LONGEST
        or len(names) > DEEPEST
        or any(one in ("", ".", "..") or len(one.encode(errors="replace")) > NAME_BYTES for one in names)
        or any(ord(one) < 32 or ord(one) == 127 or 0xD800 <= ord(one) < 0xE000 for one in path)
        or names[0] == PARTS
    )
    if wrong:
        raise ApiRefusal(400, "The path must name a file inside the workspace, such as data/train.jsonl.")
    return names


@dataclass(frozen=True)
class AgentWorkspace:
    """The folder whose files callers may read and replace."""

    root: Path

    def prepare(self) -> None:
        """Make the folder where it is missing."""
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)

    @contextmanager
    def folder(self, names: list[str], *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of the folder with these names, which is made where asked."""
        if make:
            self.prepare()
        opened = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for one in names:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(one, 0o755, dir_fd=opened)
                inner = os.open(one, _FOLDER, dir_fd=opened)
                os.close(opened)
                opened = inner
            yield opened
        finally:
            os.close(opened)

    def open(self, path: str) -> tuple[int, os.stat_result]:
        """Open a file for reading. Raises ApiRefusal; the caller closes the descriptor."""
        *folders, name = names_of(path)
        try:
            with self.folder(folders) as folder:
                file = os.open(name, _FILE, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            raise ApiRefusal(404, f"The workspace has no file {path}.") from None
        except OSError as error:
            raise ApiRefusal(403, f"{path} can't be opened: {error.strerror}. Links are not followed.") from None
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(file)
            kind = "has a second name (a hard link)" if stat.S_ISREG(found.st_mode) else "is not a regular file"
            raise ApiRefusal(403, f"{path} {kind}, so it is not sent.")
        return file, found

    def move_into_place(self, parts: int, part: str, path: str) -> None:
        """Give a whole upload its name, in one step; what had the name before is replaced and not written to.

        `part` is its name in the folder with the descriptor `parts`.
        """
        *folders, name = names_of(path)
        try:
            with self.folder(folders, make=True) as folder:
                os.rename(part, name, src_dir_fd=parts, dst_dir_fd=folder)
        except OSError as error:
            raise ApiRefusal(409, f"{path} can't be written: {error.strerror}. Links are not followed.") from None
