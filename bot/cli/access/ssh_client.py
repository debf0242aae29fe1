"""Hand a session's machine over to the system's own `ssh`, `scp` and `rsync`.

Each machine gets a name of its own, such as `gpu-shopper-4k7m2p`. A person can write a `Host gpu-shopper-*` block in
their own configuration, which stays as it is. The host key comes from the service, in a known_hosts file of ours.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from bot.api.schemas.sessions import LoginOut
from bot.cli.access.api_client import KEY
from bot.cli.terminal.screen import fail
from bot.clock import SystemClock
from ledger.kernel.ids import short_id

#: The exit code of a shell for a program that is not installed.
NOT_INSTALLED = 127
#: known_hosts files that were not written for so long are removed: their sessions have ended.
KEPT_S = 30 * 24 * 3600
#: The options of each program that take the next word as their value, as letters; from the manuals of OpenSSH 9.
WITH_VALUE = {"ssh": "BbcDEeFIiJLlmOoPpQRSWw", "scp": "cDFiJloPSX"}
_REMOTE = re.compile(r"([A-Za-z0-9_]{4,64}):(.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Destination:
    """A machine as OpenSSH takes it: its name on this computer, and the options that lead there and nowhere else."""

    name: str
    options: tuple[str, ...]


def state_folder() -> Path:
    """Return the private folder in which the command line keeps known_hosts files."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "gpu-shopper/known_hosts"


def destination(found: LoginOut) -> Destination:
    """Write the host key of a machine into a known_hosts file of its own, and return how to connect to it."""
    name = f"gpu-shopper-{short_id(found.request_id)}"
    known = _write(state_folder(), name, f"{name} {found.host_key}\n")
    said = {
        "HostName": found.host,
        "Port": found.port,
        "User": found.user,
        "UserKnownHostsFile": f'"{known}"',
        "StrictHostKeyChecking": "yes",
        # Keys are looked up by this name, so no other file's entry for a reused address counts.
        "HostKeyAlias": name,
    }
    return Destination(name, tuple(word for key, value in said.items() for word in ("-o", f"{key}={value}")))


def _write(folder: Path, name: str, text: str) -> Path:
    """Write a file that only its owner reads, in one step, because another `ssh` may read it now."""
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    now_s = SystemClock().now().timestamp()
    for old in folder.iterdir():
        if old.stat().st_mtime < now_s - KEPT_S:
            old.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as draft:
        draft.write(text)
    return Path(draft.name).replace(folder / name)


def write_entry(at: Destination) -> Path:
    """Write the machine as an entry of ssh's configuration, and return the folder of all such entries."""
    folder = state_folder().with_name("ssh_config")
    lines = (f"  {option.replace('=', ' ', 1)}\n" for option in at.options if option != "-o")
    _write(folder, at.name, f"Host {at.name}\n{''.join(lines)}")
    return folder


def includes(entries: Path) -> bool:
    """Whether the person's own configuration includes these entries. Their file stays as it is."""
    try:
        return f"{entries.parent.name}/{entries.name}/" in (Path.home() / ".ssh/config").read_text(errors="replace")
    except OSError:
        return False


def operands(program: str, arguments: Sequence[str]) -> list[int]:
    """Return the positions of the words that are neither options nor the values of options."""
    takes = re.compile(rf"-[A-Za-z0-9]*[{WITH_VALUE[program]}]") if program in WITH_VALUE else None
    return [
        place
        for place, word in enumerate(arguments)
        if not word.startswith("-") and (place == 0 or takes is None or takes.fullmatch(arguments[place - 1]) is None)
    ]


def remote_paths(program: str, arguments: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Return the position of each path on a session's machine, with `(session, path)`: `4k7m2p:/data` is one."""
    found = {place: _REMOTE.fullmatch(arguments[place]) for place in operands(program, arguments)}
    return {place: (path[1], path[2]) for place, path in found.items() if path is not None}


def shell_words(at: Destination) -> str:
    """Return the remote shell as `rsync -e` takes it."""
    return shlex.join(("ssh", *at.options))


def run_program(program: str, arguments: Sequence[str], stdin: str) -> tuple[int, str]:
    """Run a program to its end and return its exit code and output; it asks a person for a password itself."""
    command = (_found(program), *arguments)
    ran = subprocess.run(command, input=stdin, env=_without_key(), stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 # As below.
    return ran.returncode, ran.stdout


def become(program: str, arguments: Sequence[str]) -> Never:
    """Replace this process by a program, so that its exit code, Ctrl-C and the terminal are its own.

    It gets no API key: a person's configuration may send variables to the machine.
    """
    path = _found(program)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(path, (program, *arguments), _without_key())  # noqa: S606 # The program that the person named, without a shell.


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        fail(f"`{program}` isn't installed on this computer. Install it, then run this command again.", NOT_INSTALLED)
    return path


def _without_key() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != KEY}
