"""The demo's agent without `make agent`: it has its libraries, and is the built one where there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bot.cli.demo.demo_agent import copy_library, demo_agent
from bot.services.runtime import agent_archive

#: Nothing of this environment is there: `-I -S` leaves out its packages and the current folder.
LOADS = "import sys; sys.path.insert(0, sys.argv[1]); import uvicorn, starlette, anyio, h11, bot.agent.api"


def test_the_built_agent_is_taken_and_without_it_one_with_all_libraries(tmp_path: Path) -> None:
    built = agent_archive.AgentArchive.read(None)
    found = demo_agent(tmp_path)
    assert found is not None
    if built is not None:
        assert found == built
    file = tmp_path / "one.pyz"
    file.write_bytes(found.content)
    subprocess.run([sys.executable, "-I", "-S", "-c", LOADS, str(file)], check=True, timeout=60)


def test_a_library_that_is_not_installed_is_left_out(tmp_path: Path) -> None:
    copy_library("no-such-library-anywhere", tmp_path)
    assert not list(tmp_path.iterdir())
    copy_library("h11", tmp_path)
    assert (tmp_path / "h11/__init__.py").is_file()
    assert list(tmp_path.glob("h11-*.dist-info/licenses/*"))
    assert not list(tmp_path.rglob("*.pyc"))
