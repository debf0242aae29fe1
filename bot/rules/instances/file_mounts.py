"""Put the copy of a job's files in front of its command, for a cloud that runs one program and has no agent."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from bot.rules.values.mounts import Mount

#: The exit status of a job whose files cannot be fetched for want of a tool, as sysexits.h has it.
UNAVAILABLE: Final = 69
#: Scheme → the command that fetches a source to a path; the tool must be in the image.
_FETCH: Final = {
    "https": "curl -fsSL --retry 3 -o {path} {source}",
    "s3": "aws s3 cp --recursive --only-show-errors {source} {path}",
    "gs": "gsutil -m -q rsync -r {source} {path}",
}


def before(mounts: Sequence[Mount], run: str) -> str:
    """Put the fetching of files in front of a job's command, which does not start when a fetch fails.

    The files are those that `run_without_agent` allows.
    """
    return " && ".join([*map(_step, mounts), f"{{ {run}\n}}"]) if mounts else run


def _step(mount: Mount) -> str:
    folder = mount.path.rpartition("/")[0] or "/" if mount.scheme == "https" else mount.path
    fetch = _FETCH[mount.scheme].format(path=shlex.quote(mount.path), source=shlex.quote(mount.source))
    return f"{_needs(fetch.split()[0], mount.scheme)} && mkdir -p {shlex.quote(folder)} && {fetch}"


def _needs(tool: str, scheme: str) -> str:
    """End the job with a sentence where the image lacks a tool, as some clouds' own images do."""
    lacks = f"echo 'file_mounts: this image has no {tool}, which {scheme}:// needs' >&2; exit {UNAVAILABLE}"
    return f"{{ command -v {tool} >/dev/null || {{ {lacks}; }}; }}"
