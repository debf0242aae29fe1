"""The libraries of the built agent: unpacked once, and compiled by a process that ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import h11
import pytest

from bot.agent.build import archive
from bot.agent.libraries import COMPILES
from bot.agent.memory import FOLDER


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """An archive with one library that the API imports, and one that it does not."""
    libraries = tmp_path / "libraries"
    shutil.copytree(Path(h11.__file__).parent, libraries / "h11", ignore=shutil.ignore_patterns("__pycache__"))
    (libraries / "unused.py").write_text("")
    made = tmp_path / "agent.pyz"
    made.write_bytes(archive(libraries))
    return made


def compiled(built: Path, folder: Path) -> tuple[int, set[str]]:
    """Run the process that compiles; return its exit code, and what lies compiled below the agent's folder."""
    environment = {"PATH": os.environ["PATH"], FOLDER: str(folder)}
    code = subprocess.run([sys.executable, built, COMPILES], env=environment, capture_output=True, check=False)
    return code.returncode, {path.name.partition(".")[0] for path in folder.rglob("*.pyc")}


def test_only_what_the_api_imports_is_compiled(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    code, names = compiled(built, folder)
    assert code == 0
    assert {"_connection", "_readers"} <= names
    assert "unused" not in names
    (place,) = folder.iterdir()
    assert (place / "unused.py").exists()
    # Another build has a folder of its own, and the same one uses it again.
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*.pyc")}
    assert compiled(built, folder) == (0, names)
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*.pyc")} == before
    assert list(folder.iterdir()) == [place]


def test_where_nothing_can_be_written_the_libraries_stay_in_the_archive(built: Path, tmp_path: Path) -> None:
    assert compiled(built, tmp_path / "missing") == (0, set())
