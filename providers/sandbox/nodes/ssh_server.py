"""Serve SSH to a machine: logins by the keys in its files, commands in a real shell, and files in its folder."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import socket
import struct
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncssh

from providers.sandbox.nodes.boot import home_of
from providers.sandbox.nodes.folders import moved

VERSION = "OpenSSH_9.6 sandbox"
_USER = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"


async def serve(said: Mapping[str, Any], listening: socket.socket) -> asyncssh.SSHAcceptor:
    """Answer on a bound socket until it is closed."""
    machine = _Machine(said)
    own_key = host_key(machine.root)
    acceptor = await asyncssh.listen(
        sock=listening,
        server_factory=lambda: _Login(machine),
        process_factory=machine.run,
        sftp_factory=machine.files,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519") if said["other_host_key"] else own_key],
        server_version=VERSION,
        allow_scp=True,
        encoding=None,
        line_editor=False,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        agent_forwarding=False,
        config=None,
    )
    machine.acceptor = acceptor
    return acceptor


def host_key(root: Path) -> asyncssh.SSHKey:
    """Return the machine's host key, made at its first boot and kept on its disk."""
    path = root / HOST_KEY
    if not path.exists():
        made = asyncssh.generate_private_key("ssh-ed25519")
        made.write_private_key(path)
        made.write_public_key(path.with_name(f"{path.name}.pub"))
        path.chmod(0o600)
    return asyncssh.read_private_key(path)


class _Machine:
    """The machine behind the server."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said, self.root = said, Path(said["root"])
        self.acceptor: asyncssh.SSHAcceptor | None = None

    def home(self, user: str) -> Path:
        return self.root / str(home_of(user)).lstrip("/")

    def keys(self, user: str) -> frozenset[str]:
        """The keys in a user's own file, as they are now."""
        if self.said["no_login"] or not _USER.fullmatch(user):
            return frozenset()
        try:
            lines = (self.home(user) / ".ssh/authorized_keys").read_text().splitlines()
        except OSError:
            return frozenset()
        return frozenset(" ".join(line.split()[:2]) for line in lines)

    def files(self, channel: Any) -> asyncssh.SFTPServer:
        """The machine's files: `/` is its folder, and a relative path begins at home."""
        return _Files(channel, self.root, self.home(channel.get_extra_info("username")))

    async def run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run a command, or a login shell, and pass its streams on until it ends."""
        user = str(process.get_extra_info("username"))
        home = self.home(user)
        env = {**self.said["login"], "HOME": str(home), "USER": user, "LOGNAME": user}
        if process.command is None:
            words = ["/bin/bash", "--noprofile", "--rcfile", f"{self.root}/etc/bashrc", "-i"]
        else:
            words = ["/bin/bash", "-c", moved(process.command, self.root)]
        if process.term_type:
            await _in_terminal(process, words, env | {"TERM": process.term_type}, home)
            return
        pipe = asyncio.subprocess.PIPE
        shell = await asyncio.create_subprocess_exec(
            *words, env=env, cwd=home, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        # The end of one stream must not end the other, so neither is passed on.
        await process.redirect(stdin=shell.stdin, stdout=shell.stdout, stderr=shell.stderr, send_eof=False)
        code = await shell.wait()
        await process.stdout.drain()
        await process.stderr.drain()
        _leave(process, code)


class _Login(asyncssh.SSHServer):
    """Lets in who has a key in the user's own file."""

    def __init__(self, machine: _Machine) -> None:
        self._machine = machine

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Show the next visitor another host key, where the machine does so."""
        if self._machine.said["new_host_key"] and self._machine.acceptor is not None:
            self._machine.acceptor.update(server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")])

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """Let a tunnel lead to the machine itself, which is this computer's own loopback, and nowhere else."""
        return dest_host in ("localhost", "127.0.0.1")

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        shown = " ".join(key.export_public_key("openssh").decode().split()[:2])
        return shown in self._machine.keys(username)


class _Files(asyncssh.SFTPServer):
    """Moves every path into the machine's folder."""

    def __init__(self, channel: Any, root: Path, home: Path) -> None:
        super().__init__(channel)
        self._root, self._home = os.fsencode(root), os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        if path == self._root or path.startswith(self._root + b"/"):
            return os.path.normpath(path)
        begin = b"" if path.startswith(b"/") else self.reverse_map_path(self._home)
        return self._root + os.path.normpath(b"/" + begin.lstrip(b"/") + b"/" + path)

    def exit(self) -> None:
        """End as OpenSSH's own does: its client takes no exit status for a failure."""
        self.channel.exit(0)

    def reverse_map_path(self, path: bytes) -> bytes:
        return path.removeprefix(self._root) or b"/"


async def _in_terminal(
    process: asyncssh.SSHServerProcess[bytes], words: list[str], env: Mapping[str, str], home: Path
) -> None:
    """Run a command in a terminal of its own, as an interactive login has one."""
    ours, theirs = os.openpty()
    columns, rows, *_ = process.term_size
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows or 24, columns or 80, 0, 0))
    shell = await asyncio.create_subprocess_exec(
        "/usr/bin/setsid", "--ctty", "--wait", *words, env=env, cwd=home, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    with contextlib.suppress(OSError):
        await process.redirect(stdin=os.dup(ours), stdout=ours, send_eof=False)
    _leave(process, await shell.wait())


def _leave(process: asyncssh.SSHServerProcess[bytes], code: int) -> None:
    if code >= 0:
        process.exit(code)
    else:
        process.exit_with_signal(str(-code))
