"""Fixtures of the walks over real machines."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from providers.sandbox.nodes.first_process import processes as all_processes
from providers.sandbox.nodes.folders import MARK
from providers.sandbox.nodes.process_nodes import ProcessNode, ProcessNodes
from tests.scenarios.processes.processes import Nursery, nursery
from tests.support.stack import LOOK_S, Town, town

#: How long anything on a machine may take that takes a second on an idle computer.
NODE_S = 40.0


@pytest.fixture(scope="session")
def agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent's archive, built once."""
    folder = tmp_path_factory.mktemp("agent")
    (folder / "libraries").mkdir()
    out = folder / "agent.pyz"
    subprocess.run(
        [sys.executable, "-m", "bot.agent.build", folder / "libraries", out], check=True, capture_output=True
    )
    return out


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

    def node(self) -> ProcessNode:
        """The newest machine with power."""
        return list(self.nodes.running.values())[-1]

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

    async def nothing_left(self) -> None:
        """No process and no file of any machine is left."""
        await self.until(lambda: not self.nodes.running and not list(self.nodes.folder.iterdir()))
        assert marked(self.nodes.folder) == []


def marked(folder: Path) -> list[str]:
    """The command lines of every process of machines below a folder."""
    mark, found = f"{MARK}={folder}".encode(), []
    for pid, (_, state) in all_processes().items():
        try:
            if state != "Z" and mark in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


Build = Callable[..., AbstractAsyncContextManager[NodeTown]]


@pytest.fixture
def build(sqlite_db_url: str, tmp_path: Path, nurse: Nursery, agent_file: Path) -> Build:
    """Build a town with real machines at one cloud, and start a process of the bot."""

    @asynccontextmanager
    async def make(cloud: str, *, starts: bool = True, **options: Any) -> AsyncIterator[NodeTown]:
        (tmp_path / "nodes").mkdir()
        nodes = ProcessNodes(tmp_path / "nodes", **options)
        async with town(sqlite_db_url, tmp_path, nurse, cloud, nodes) as built:
            port = free_port()
            built.environment = {
                **built.environment,
                "GPU_SHOPPER_PORT": str(port),
                "GPU_SHOPPER_NODE_URL": f"http://127.0.0.1:{port}",
                "GPU_SHOPPER_AGENT_FILE": str(agent_file),
            }
            if starts:
                await built.start()
            yield NodeTown(built, nodes)
        assert marked(nodes.folder) == []
        assert list(nodes.folder.iterdir()) == []

    return make


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
