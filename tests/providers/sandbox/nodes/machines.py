"""Machines of a sandbox that a test boots by hand, and logins to them as a user's own client makes them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from providers.sandbox.machines import SandboxMachine
from providers.sandbox.nodes.boot import NodeBoot, container
from providers.sandbox.nodes.first_process import processes
from providers.sandbox.nodes.folders import MARK
from providers.sandbox.nodes.process_nodes import ProcessNodes
from providers.sandbox.ssh import SshPorts

KEY = "cloud/one"
LOOK_S, WAIT_S = 0.05, 30.0


@dataclass
class Machines:
    """One machine that can be switched on and off, and a key that logs in to it."""

    nodes: ProcessNodes
    folder: Path
    ports: SshPorts = field(default_factory=SshPorts)
    key: asyncssh.SSHKey = field(default_factory=lambda: asyncssh.generate_private_key("ssh-ed25519"))

    def __post_init__(self) -> None:
        self.key.write_private_key(self.folder / "key")
        (self.folder / "key").chmod(0o600)

    @property
    def public(self) -> str:
        """The public key, as a create call brings it."""
        return self.key.export_public_key().decode().strip()

    @property
    def root(self) -> Path:
        """The machine's folder."""
        return self.nodes.root(KEY)

    def boot(self, machine: SandboxMachine | None = None, script: str = "", **env: str) -> NodeBoot:
        """A container with this script and these variables."""
        return container(machine or SandboxMachine("RTX4090", 2), script, env, (self.public,))

    async def on(self, boot: NodeBoot | None = None) -> int:
        """Switch it on. Returns the port of its SSH server once that answers."""
        found = boot or self.boot()
        await self.nodes.match("cloud/", lambda: ({KEY: lambda: found}, {KEY}), self.ports)
        port = self.ports.reserve(KEY)
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(LOOK_S)
                else:
                    writer.close()
                    return port

    async def off(self, *, exists: bool = True) -> None:
        """Switch it off; with `exists` false it is terminated."""
        await self.nodes.match("cloud/", lambda: ({}, {KEY} if exists else set()), self.ports)

    async def run(self, command: str, stdin: bytes = b"", user: str = "root") -> subprocess.CompletedProcess[bytes]:
        """Log in with OpenSSH's client and run a command."""
        return await self._client("ssh", "-p", str(self.ports.reserve(KEY)), f"{user}@127.0.0.1", command, stdin=stdin)

    async def copy(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Copy with OpenSSH's client; `node:` stands for the machine."""
        places = [word.replace("node:", "root@127.0.0.1:") for word in words]
        return await self._client("scp", "-P", str(self.ports.reserve(KEY)), *places)

    async def _client(self, program: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        options = ["-F", "none", "-i", str(self.folder / "key"), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]
        options += ["-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.folder}/known", "-q"]
        return await asyncio.to_thread(
            subprocess.run, [program, *options, *words], input=stdin, capture_output=True, timeout=WAIT_S, check=False
        )

    async def until_written(self, path: str) -> str:
        """Wait until a file of the machine has something in it."""
        file = self.root / path
        async with asyncio.timeout(WAIT_S):
            while not file.exists() or not file.read_text():  # noqa: ASYNC110 # The machine tells nobody.
                await asyncio.sleep(LOOK_S)
        return file.read_text()

    def left(self) -> list[str]:
        """The processes of every machine that still run."""
        return marked(self.nodes.folder)


def marked(folder: Path) -> list[str]:
    """The command lines of every process of the machines below a folder."""
    mark, found = f"{MARK}={folder}".encode(), []
    for pid, (_, state) in processes().items():
        try:
            if state != "Z" and mark in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@asynccontextmanager
async def machines(folder: Path, **options: object) -> AsyncIterator[Machines]:
    """A machine that is off; nothing of it is left afterwards."""
    built = Machines(ProcessNodes(folder / "nodes", **options), folder)  # type: ignore[arg-type] # As the caller says.
    try:
        yield built
    finally:
        await built.nodes.close()
        await built.ports.close_all()
    assert built.left() == []
    assert list(built.nodes.folder.iterdir()) == []
