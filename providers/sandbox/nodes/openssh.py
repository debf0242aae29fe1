"""Serve SSH to a machine with OpenSSH's own server, where this machine has one and runs as its administrator."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from providers.sandbox.nodes.ssh_server import HOST_KEY, host_key

SERVER = "/usr/sbin/sshd"


def missing() -> str:
    """Return why OpenSSH's server can't be used here; "" when it can."""
    if shutil.which(SERVER) is None:
        return f"{SERVER} is not installed"
    return "" if os.geteuid() == 0 else f"{SERVER} lets in other users only when it runs as root"


async def serve(said: Mapping[str, Any], listening: socket.socket) -> asyncio.Task[None]:
    """Answer on a bound socket: each connection gets a server of its own, as inetd starts it."""
    root = Path(said["root"])
    host_key(root)
    shell = root / "bin/login-shell"
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in said["login"].items())
    interactive = f"exec /bin/bash --noprofile --rcfile {root}/etc/bashrc -i"
    shell.write_text(
        f'#!/bin/bash\n{exports}cd\n[ -n "$SSH_ORIGINAL_COMMAND" ] || {interactive}\n'
        'exec /bin/bash -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    shell.chmod(0o755)
    settings = root / "etc/ssh/sshd_config"
    settings.write_text(
        f"HostKey {root}/{HOST_KEY}\nPidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
        f"AuthorizedKeysFile {root}/root/.ssh/authorized_keys\nPasswordAuthentication no\n"
        f"KbdInteractiveAuthentication no\nForceCommand {shell}\nPrintMotd no\nLogLevel ERROR\n"
    )
    await asyncio.to_thread(Path("/run/sshd").mkdir, exist_ok=True)
    listening.setblocking(False)
    listening.listen()
    return asyncio.create_task(_answer(listening, settings))


async def _answer(listening: socket.socket, settings: Path) -> None:
    loop, environment = asyncio.get_running_loop(), {"PATH": os.environ.get("PATH", os.defpath)}
    while True:
        connection, _ = await loop.sock_accept(listening)
        connection.setblocking(True)
        with connection:
            both = connection.fileno()
            command = (SERVER, "-i", "-f", settings)
            await asyncio.create_subprocess_exec(*command, stdin=both, stdout=both, stderr=DEVNULL, env=environment)
