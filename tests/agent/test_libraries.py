"""The libraries of the built agent: unpacked once, and compiled by a process that ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import starlette

from bot.agent.build import archive
from bot.agent.libraries import COMPILES, have_compiled
from bot.agent.memory import FOLDER


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """An archive with the libraries that the API imports, and one that it does not."""
    libraries, installed = tmp_path / "libraries", Path(starlette.__file__).parent.parent
    for name in ("anyio", "click", "h11", "idna", "starlette", "uvicorn"):
        shutil.copytree(installed / name, libraries / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(installed / "typing_extensions.py", libraries)
    for name in ("unused", "pynvml"):
        (libraries / f"{name}.py").write_text("")
    made = tmp_path / "agent.pyz"
    made.write_bytes(archive(libraries))
    return made


def compiled(built: Path, folder: Path) -> tuple[int, set[str]]:
    """Run the process that compiles; return its exit code, and what lies compiled below the agent's folder.

    It sees no library but those of the archive.
    """
    environment = {"PATH": os.environ["PATH"], FOLDER: str(folder)}
    code = subprocess.run([sys.executable, "-S", built, COMPILES], env=environment, capture_output=True, check=False)
    return code.returncode, {path.name.partition(".")[0] for path in folder.rglob("*.pyc")}


def test_only_what_the_api_imports_is_compiled(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    code, names = compiled(built, folder)
    assert code == 0
    # Libraries and the agent's own modules, and nothing of the command line of uvicorn.
    assert {"_connection", "routing", "server", "chat", "local_calls", "pynvml"} <= names
    assert names.isdisjoint({"unused", "testclient", "main", "core", "watchdog"})
    (place,) = folder.iterdir()
    assert (place / "unused.py").exists()
    assert not (place / "click").exists()
    assert not (place / "uvicorn/main.py").exists()
    # Another build has a folder of its own, and the same one uses it again.
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*.pyc")}
    assert compiled(built, folder) == (0, names)
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*.pyc")} == before
    assert list(folder.iterdir()) == [place]


def test_where_nothing_can_be_written_the_libraries_stay_in_the_archive(built: Path, tmp_path: Path) -> None:
    assert compiled(built, tmp_path / "missing") == (0, set())


def test_without_the_process_that_compiles_the_start_continues(tmp_path: Path) -> None:
    have_compiled([str(tmp_path / "missing")])
    have_compiled([sys.executable, "-c", "raise SystemExit(9)"])
    have_compiled([sys.executable, "-c", "input()"], most_s=0.0)
