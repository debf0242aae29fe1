"""Fetch the files that a job wants: its machine fetches them in front of the job's own command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from bot.rules.grammar.job_document import FileMount, MountMode

#: The exit status of a job whose files cannot be fetched for want of a tool, as sysexits.h has it.
UNAVAILABLE = 69
#: Scheme → the command that fetches a source to a path; the tool must be in the image.
_FETCH = {
    "https": "curl -fsSL --retry 3 -o {path} {source}",
    "s3": "aws s3 cp --recursive --only-show-errors {source} {path}",
    "gs": "gsutil -m -q rsync -r {source} {path}",
}
_SOURCE = re.compile(r"(https|s3|gs)://[!-~]{1,900}", re.ASCII)
_PATH = re.compile(r"/[\w./@+-]{0,250}", re.ASCII)


class BadMount(ValueError):
    """Refuse a path or a source that cannot be used; the message says what a right one looks like."""


def before(mounts: Mapping[str, str | FileMount], run: str | None) -> str | None:
    """Put the fetching of files in front of a job's command, which does not start when a fetch fails.

    Raises `BadMount`, also for a mode that no machine here has: what should be mounted is never copied instead.
    """
    steps = [_step(path, one if isinstance(one, str) else _copied(path, one)) for path, one in mounts.items()]
    return " && ".join([*steps, f"{{ {run}\n}}"] if run and steps else steps) or run


def _copied(path: str, mount: FileMount) -> str:
    """Return the source of files that may be copied. Raises `BadMount` for every other mode."""
    if mount.mode is None:
        raise BadMount(f"{path[:80]!r} needs a mode; write mode: COPY to copy its files before the job runs.")
    if mount.mode is not MountMode.COPY:
        raise BadMount(
            f"{mount.mode} needs FUSE, which rented containers do not have; for {path[:80]!r} write mode: COPY, "
            "and keep what the job writes with checkpoint=."
        )
    return mount.source


def _step(path: str, source: str) -> str:
    if not _PATH.fullmatch(path) or ".." in path.split("/"):
        raise BadMount(f"{path[:80]!r} is not a path on the machine; write it like /workspace/data.")
    found = _SOURCE.fullmatch(source)
    if found is None:
        raise BadMount(f"{source[:80]!r} is not a source; write it like s3://bucket/data or https://example.com/a.tar.")
    folder = path.rpartition("/")[0] or "/" if found[1] == "https" else path
    fetch = _FETCH[found[1]].format(path=shlex.quote(path), source=shlex.quote(source))
    return f"{_needs(fetch.split()[0], found[1])} && mkdir -p {shlex.quote(folder)} && {fetch}"


def _needs(tool: str, scheme: str) -> str:
    """End the job with a sentence where the image lacks a tool, as some clouds' own images do."""
    lacks = f"echo 'file_mounts: this image has no {tool}, which {scheme}:// needs' >&2; exit {UNAVAILABLE}"
    return f"{{ command -v {tool} >/dev/null || {{ {lacks}; }}; }}"
