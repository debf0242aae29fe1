"""The clouds' own official clients, unchanged, against the sandboxes: what they see is what the clouds would tell them.

The clients need older versions of libraries than this program, so they live in an environment of their own, which
`make clients` makes. Without it these tests are skipped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.clock import SystemClock
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.support.serving import serving

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv/clients/bin/python"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the official clients are not installed; make clients does it"),
]

Served = tuple[Mapping[str, SandboxCloud], str]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """All sandboxes, where everything happens at once."""
    timing = SandboxTiming.quick(boot_s=0.0, reachable_s=0.0, stop_s=0.0, start_s=0.0, destroy_s=0.0)
    clouds = sandboxes(SystemClock(), timing, bad_rows=True)
    async with serving(build_app(clouds, tick_s=None)) as url:
        yield clouds, url


async def walked(served: Served, cloud: str, home: Path) -> dict[str, Any]:
    """What the client of one cloud said on its walk."""
    clouds, url = served
    environment = {**clouds[cloud].environment(f"{url}/{cloud}"), "HOME": str(home), "PATH": "/usr/bin:/bin"}
    environment["VASTAI_NO_UPDATE_CHECK"] = "1"
    if cloud == "kaggle":  # The client would take the token before the user's name and key.
        del environment["KAGGLE_API_TOKEN"]
    process = await asyncio.create_subprocess_exec(
        str(PYTHON),
        str(HERE / f"with_{cloud}.py"),
        cwd=home,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-3000:]
    said: dict[str, Any] = json.loads(out.decode().splitlines()[-1])
    return said


async def test_vastai(served: Served, tmp_path: Path) -> None:
    said = await walked(served, "vast", tmp_path)
    assert said["credit"] > 0
    assert said["offers"] == [["RTX 4090", 1]] * 5
    assert (said["shown"], said["stopped"], said["started"]) == ("running", "exited", "running")
    assert (said["listed"], said["renamed"], said["left"]) == (["by-sdk"], "renamed", [])
    assert said["command offers"] == 3
    assert (said["command listed"], said["command label"], said["command left"]) == (["by-command"], "again", [])
    made = served[0]["vast"].instances()
    assert [(one.name, one.alive) for one in made] == [("renamed", False), ("again", False)]


async def test_runpod(served: Served, tmp_path: Path) -> None:
    said = await walked(served, "runpod", tmp_path)
    assert said["kinds"] > 20
    assert said["gpu"] == 24
    assert said["shown"] == ["by-sdk", "RUNNING", 1]
    assert (said["listed"], said["stopped"], said["started"]) == (["by-sdk"], "EXITED", "RUNNING")
    assert said["left"] == []
    assert "No GPU found" in said["refused"]
    assert [(one.name, one.alive) for one in served[0]["runpod"].instances()] == [("by-sdk", False)]


async def test_kaggle(served: Served, tmp_path: Path) -> None:
    said = await walked(served, "kaggle", tmp_path)
    assert said["gpu hours"] == 30
    assert said["pushed"] == ["/code/simuser/by-the-client", 1, ""]
    assert said["status"] == "KernelWorkerStatus.RUNNING"
    assert said["listed"] == ["simuser/by-the-client"]
    assert [one.name for one in served[0]["kaggle"].instances()] == ["by-the-client"]
