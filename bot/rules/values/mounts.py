"""Read the files that a job gets at a path of its machine: where they come from, and whether as a copy or as a mount.

A job keeps each as one line, `COPY /data s3://bucket/data`. Nothing here asks a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Final


class MountMode(StrEnum):
    """How files come to a machine: as a copy of their own, or as a file system over the bucket, with a cache or not."""

    COPY = "COPY"
    MOUNT = "MOUNT"
    MOUNT_CACHED = "MOUNT_CACHED"


#: What a program copies by the tools of its own image, where a cloud runs no agent.
PROGRAM_SCHEMES: Final = frozenset({"https", "s3", "gs"})
#: Stores whose folders rclone mounts.
MOUNTED_SCHEMES: Final = frozenset({"s3", "gs"})
_SOURCE: Final = re.compile(r"(https|s3|gs|hf)://[!-~]{1,900}", re.ASCII)
_BUCKET: Final = re.compile(r"(?:s3|gs)://[a-z0-9][a-z0-9._-]{1,220}(?:/[!-~]*)?", re.ASCII)
_REPOSITORY: Final = re.compile(r"hf://(?:datasets/)?[\w.-]+/[\w.-]+(?:/[!-~]*)?", re.ASCII)
_PATH: Final = re.compile(r"/[\w./@+-]{0,250}", re.ASCII)
#: Folders of the system, in which nothing is put, and folders that are only used below.
_SYSTEM: Final = frozenset(
    ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr", "var"]
)
_WHOLE: Final = frozenset(
    ["/", "/root", "/home", "/mnt", "/media", "/opt", "/srv", "/tmp", "/opt/gpu-shopper"]  # noqa: S108 # Refused.
)
_AGENT: Final = "/opt/gpu-shopper/"


class BadMount(ValueError):
    """Refuse a path, a source or a mode that cannot be used; the message says what a right one looks like."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Describe files of one path: `source` is a bucket's folder, a repository of the Hub, or one file's URL."""

    mode: MountMode
    path: str
    source: str

    @classmethod
    def read(cls, line: str) -> Mount:
        """Read the line that a job keeps."""
        mode, path, source = line.split(" ", 2)
        return cls(MountMode(mode), path, source)

    @property
    def line(self) -> str:
        """Return the line that a job keeps."""
        return f"{self.mode} {self.path} {self.source}"

    @property
    def scheme(self) -> str:
        """Return the scheme of its source."""
        return self.source.partition("://")[0]

    @property
    def needs_fuse(self) -> bool:
        """Whether the machine mounts a file system for it."""
        return self.mode is not MountMode.COPY

    @property
    def shown(self) -> str:
        """Say for people what comes from where. The query part of a URL may be its signature."""
        how = "" if self.mode is MountMode.COPY else f" ({self.mode})"
        return f"{self.path} from {self.source.partition('?')[0]}{how}"


def mounts_of(lines: Iterable[str]) -> tuple[Mount, ...]:
    """Read the lines that a job keeps."""
    return tuple(map(Mount.read, lines))


def run_without_agent(mounts: Iterable[Mount]) -> bool:
    """Whether a program can fetch these files by itself."""
    return all(one.mode is MountMode.COPY and one.scheme in PROGRAM_SCHEMES for one in mounts)


def read_mounts(said: Mapping[str, tuple[str, MountMode | None]]) -> tuple[Mount, ...]:
    """Read what a job file says: path → source and mode. Raises `BadMount` for what no machine could do."""
    found = tuple(_read(path, *one) for path, one in said.items())
    for one, other in combinations(found, 2):
        if f"{one.path}/".startswith(f"{other.path}/") or f"{other.path}/".startswith(f"{one.path}/"):
            raise BadMount(f"{one.path} and {other.path} overlap. Give each source a folder of its own.")
    return found


def _read(path: str, source: str, mode: MountMode | None) -> Mount:
    at = _path(path)
    if "@" in source.partition("://")[2].partition("/")[0]:
        # The address is shown on cards, so what is refused is not repeated here either.
        raise BadMount(f"The source of {at} has a user name or password in its address; use the job's secrets instead.")
    found = _SOURCE.fullmatch(source)
    if found is None or any(part in (".", "..") for part in source.split("/")):
        raise BadMount(
            f"{source[:80]!r} is not a source; write it like s3://bucket/data, gs://bucket/data, hf://org/model or "
            "https://example.com/a.tar."
        )
    if found[1] in MOUNTED_SCHEMES and not _BUCKET.fullmatch(source):
        raise BadMount(f"{source[:80]!r} names no bucket; write it like {found[1]}://bucket/data.")
    if found[1] == "hf" and not _REPOSITORY.fullmatch(source):
        raise BadMount(f"{source[:80]!r} names no repository; write it like hf://org/model or hf://datasets/org/name.")
    if mode is None:
        raise BadMount(f"{path[:80]!r} needs a mode; write mode: COPY to copy its files before the job runs.")
    if mode is not MountMode.COPY and found[1] not in MOUNTED_SCHEMES:
        raise BadMount(f"{found[1]}:// can't be mounted; only s3:// and gs:// can. For {at}, write mode: COPY.")
    return Mount(mode, at, source)


def _path(path: str) -> str:
    at = path.rstrip("/") or "/"
    parts = at.split("/")[1:]
    if not _PATH.fullmatch(path) or any(part in ("", ".", "..") for part in parts if at != "/"):
        raise BadMount(f"{path[:80]!r} is not a path on the machine; write it like /workspace/data.")
    if at in _WHOLE or parts[0] in _SYSTEM or at.startswith(_AGENT):
        raise BadMount(f"{at} is reserved for the system. Choose a folder such as /data or /workspace/data.")
    return at
