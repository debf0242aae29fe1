"""What is deployed is what was locked, and nothing private gets into an image."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
MAKE = shutil.which("make")


def sent(path: str) -> bool:
    """Whether `.dockerignore` lets a path reach the builder: the last line that matches it decides."""
    found = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        name = line.removeprefix("!")
        if name and not line.startswith("#") and (name == "*" or path == name or path.startswith(f"{name}/")):
            found = line.startswith("!")
    return found


def test_the_builder_gets_what_it_copies_and_nothing_private() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert {"uv.lock", "bot", "docs/deploy/uv.txt"} <= set(names)
    assert [name for name in names if not (sent(name) and (ROOT / name).exists())] == []
    private = (".env", ".git/config", "data/gpu-shopper.db", "gpu-shopper.db", "label.key", "policy.yml", "tests/a.py")
    assert [name for name in private if sent(name)] == []


@pytest.mark.parametrize("name", ["Dockerfile", "docs/deploy/systemd.md", "Makefile"])
def test_packages_come_from_the_lock_and_by_their_hashes(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert installs
    # The last one is written from the lock in the same line.
    locks = ("-r docs/deploy/uv.txt", "-r bot/agent/requirements.txt", "-r $(PEERS).txt")
    assert [line for line in installs if "--require-hashes" not in line or not any(map(line.count, locks))] == []
    synced = [line for line in lines if "uv sync" in line]
    assert synced
    assert [line for line in synced if "--locked" not in line] == []


def test_uv_is_named_with_one_version_and_its_hashes() -> None:
    text = (ROOT / "docs/deploy/uv.txt").read_text(encoding="utf-8")
    assert re.search(r"^uv==\d+\.\d+\.\d+ \\$", text, re.MULTILINE)
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", text)) > 5


@pytest.mark.skipif(MAKE is None, reason="there is no make here")
@pytest.mark.parametrize(("ended", "makes", "says"), [(0, 0, ""), (1, 2, ""), (2, 0, "were not checked")])
def test_a_vulnerable_package_fails_and_a_database_out_of_reach_is_said(
    tmp_path: Path, ended: int, makes: int, says: str
) -> None:
    tool = tmp_path / "uv"
    tool.write_text(f"#!/bin/sh\nexit {ended}\n")
    tool.chmod(0o755)
    (tmp_path / "ready").touch()
    command = [str(MAKE), "audit", f"BIN={tmp_path}", f"READY={tmp_path}/ready", "--old-file", f"{tmp_path}/ready"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, says in done.stdout) == (makes, True), done.stdout + done.stderr
    assert ("were not checked" in done.stdout) == bool(says)
