"""Fixtures of the walks over real machines."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import yaml

from bot.cli.demo.demo_agent import REQUIREMENTS, copy_library
from ledger.models import Node
from providers.sandbox.nodes.folders import authorize
from providers.sandbox.nodes.process_nodes import ProcessNode, ProcessNodes
from tests.providers.sandbox.nodes.machines import marked
from tests.scenarios.processes.processes import Nursery, nursery
from tests.support.stack import LOOK_S, Town, town

#: How `make agent` installs the libraries that machines get.
LOCKED = (
    *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", "3.10"),
    *("-r", str(REQUIREMENTS)),
)
INSTALL_S = 120
#: How long anything on a machine may take that takes a second on an idle computer.
NODE_S = 40.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real machines boot in processes of their own, which takes minutes on a busy computer."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent's archive, built once, with the locked libraries that machines get."""
    folder = tmp_path_factory.mktemp("agent")
    libraries, out = folder / "libraries", folder / "agent.pyz"
    if not _locked(libraries):
        print("The locked libraries can't be downloaded, so the agent has those of this environment.")
        shutil.rmtree(libraries, ignore_errors=True)
        for name in re.findall(r"^([a-z0-9-]+)==", REQUIREMENTS.read_text("utf-8"), re.MULTILINE):
            copy_library(name, libraries)
    subprocess.run([sys.executable, "-m", "bot.agent.build", libraries, out], check=True, capture_output=True)
    return out


def _locked(libraries: Path) -> bool:
    """Whether they could be installed there."""
    uv = str(Path(sys.executable).parent / "uv")
    command = [uv, "pip", "install", "--quiet", *LOCKED, "--target", str(libraries)]
    quick = {**os.environ, "UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "20"}
    try:
        return subprocess.run(command, env=quick, timeout=INSTALL_S, capture_output=True, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.fixture(scope="session")
def nurse() -> Iterator[Nursery]:
    """Where processes of the bot come from."""
    with nursery() as opened:
        yield opened


@dataclass
class NodeTown:
    """A town whose machines are real."""

    town: Town
    nodes: ProcessNodes
    #: The file of a private key that logs in to every machine.
    key: Path
    public_key: str

    def node(self) -> ProcessNode:
        """The newest machine with power."""
        return list(self.nodes.running.values())[-1]

    @property
    def user(self) -> str:
        """Who logs in at this cloud."""
        return {"lambda": "ubuntu", "tensordock": "user"}.get(self.town.cloud, "root")

    def read(self, path: str) -> str:
        """A file of that machine; "" where there is none."""
        file = self.node().root / path
        return file.read_text() if file.exists() else ""

    async def until(self, look: Callable[[], Any], timeout_s: float = NODE_S) -> Any:
        """Wait until it is so on a machine. TimeoutError with what its agent wrote."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (found := look()):  # noqa: ASYNC110 # There is no event to wait for.
                    await asyncio.sleep(LOOK_S)  # A process of a machine tells nobody what it does.
                return found
        except TimeoutError:
            logs = [*self.nodes.folder.glob("*/opt/gpu-shopper/agent.log"), *self.nodes.folder.glob("*/var/log/*")]
            raise TimeoutError("\n".join(f"{log}:\n{log.read_text()}" for log in logs)) from None

    async def node_row(self) -> Node | None:
        """What the ledger has of the newest machine's agent."""
        rows = (await self.town.books()).instances
        async with self.town.db.read() as tx:
            return await tx.get(Node, rows[-1].id) if rows else None

    async def reported(self, look: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """Return what the newest machine's agent says of its machine, once that is as wanted."""
        row = await self.row_where(lambda row: look(row.report.get("machine") or {}))
        return dict(row.report["machine"])

    async def row_where(self, look: Callable[[Node], object]) -> Node:
        """Return what the ledger has of the newest machine's agent, once that is as wanted."""
        async with asyncio.timeout(NODE_S):
            while True:
                row = await self.node_row()
                if row is not None and look(row):
                    return row
                await asyncio.sleep(LOOK_S)  # The ledger of another process tells nobody when it changes.

    async def on_node(self, command: str) -> None:
        """Start a command on the newest machine as a person does who logged in, and leave it running there."""
        host, port = await self._login()
        await self._client("ssh", "-p", port, host, f"nohup {command} >~/out 2>&1 </dev/null & true")

    async def upload(self, file: Path, to: str) -> None:
        """Copy a file to the newest machine, as a person does."""
        host, port = await self._login()
        await self._client("scp", "-P", port, str(file), f"{host}:{to}")

    async def download(self, path: str, to: Path) -> None:
        """Copy a file from the newest machine, as a person does."""
        host, port = await self._login()
        await self._client("scp", "-P", port, f"{host}:{path}", str(to))

    async def _login(self) -> tuple[str, str]:
        authorize(self.node().root, self.user, (self.public_key,))
        (row,) = [row for row in (await self.town.books()).instances if row.reachable_at is not None]
        return f"{self.user}@{row.ssh_host}", str(row.ssh_port)

    async def follow(self, command: str) -> asyncio.subprocess.Process:
        """Run a command on the newest machine as a person does who logged in, and return their program meanwhile."""
        host, port = await self._login()
        words = ("-F", "none", "-q", "-i", str(self.key), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no")
        known = ("-o", "UserKnownHostsFile=/dev/null", "-p", port, host, command)
        process = await asyncio.create_subprocess_exec("ssh", *words, *known, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline()
        return process

    async def _client(self, program: str, *words: str) -> None:
        options = ["-F", "none", "-q", "-i", str(self.key), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
        command = [program, *options, "-o", "UserKnownHostsFile=/dev/null", *words]
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=NODE_S, capture_output=True)

    async def nothing_left(self) -> None:
        """No process and no file of any machine is left."""
        await self.until(lambda: not self.nodes.running and not list(self.nodes.folder.iterdir()))
        assert marked(self.nodes.folder) == []


Build = Callable[..., AbstractAsyncContextManager[NodeTown]]


@dataclass(frozen=True)
class NodeTowns:
    """Builds towns with real machines on one ledger, in one folder."""

    db_url: str
    folder: Path
    nurse: Nursery
    agent_file: Path

    @asynccontextmanager
    async def build(
        self,
        cloud: str,
        policy: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> AsyncIterator[NodeTown]:
        """Build one at one cloud, and start a process of the bot; `policy` and `environment` change what it reads."""
        nodes = ProcessNodes(self.folder / "nodes", **options)
        async with town(self.db_url, self.folder, self.nurse, cloud, nodes) as built:
            port = free_port()
            built.environment = {
                **built.environment,
                "GPU_SHOPPER_PORT": str(port),
                "GPU_SHOPPER_NODE_URL": f"http://127.0.0.1:{port}",
                "GPU_SHOPPER_AGENT_FILE": str(self.agent_file),
                **(environment or {}),
            }
            file = self.folder / "policy.yml"
            said = yaml.safe_load(file.read_text())
            file.write_text(yaml.safe_dump({**said, "policy": {**said["policy"], **(policy or {})}}))
            await built.start()
            key = asyncssh.generate_private_key("ssh-ed25519")
            key.write_private_key(self.folder / "key")
            (self.folder / "key").chmod(0o600)
            yield NodeTown(built, nodes, self.folder / "key", key.export_public_key().decode().strip())
        assert marked(nodes.folder) == []
        assert list(nodes.folder.iterdir()) == []


@pytest.fixture
def build(sqlite_db_url: str, tmp_path: Path, nurse: Nursery, agent_file: Path) -> Build:
    """Build a town with real machines at one cloud."""
    return NodeTowns(sqlite_db_url, tmp_path, nurse, agent_file).build


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
