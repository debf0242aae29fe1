"""What is deployed is what was locked, and nothing private gets into an image."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
ACTION = yaml.safe_load((ROOT / ".github/actions/run/action.yml").read_text(encoding="utf-8"))
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


def test_the_action_installs_everything_by_the_hashes_of_the_lock() -> None:
    (install,) = [one["run"] for one in ACTION["runs"]["steps"] if one["name"] == "Install gpu-shopper"]
    lines = [line.strip() for line in install.splitlines() if not line.strip().startswith("#")]
    by_pip, by_uv = ([line for line in lines if word in line] for word in ("pip install", '/uv" '))
    assert [line.partition(" install ")[2].split(" ", 2)[2:] for line in by_pip] == [
        ['--require-hashes -r "$SOURCE/docs/deploy/uv.txt"']
    ]
    (locked,) = [line for line in lines if line.startswith("locked=(sync ")]
    assert {"--locked", "--no-dev", "--group", "build"} <= set(locked.rstrip(")").split())
    # The packages first; then the command itself is built by them, without the network.
    assert [line.partition("[@]}")[2] for line in by_uv] == [
        '" --no-install-project',
        '" --no-editable --no-build-isolation --offline',
    ]


def test_what_builds_the_project_is_in_the_lock_with_its_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["dependency-groups"]["build"] == project["build-system"]["requires"]
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    by_name = {one["name"]: one for one in packages}
    assert by_name["hatchling"]["wheels"][0]["hash"].startswith("sha256:")
    files = [file for one in packages for file in [*one.get("wheels", ()), *([one["sdist"]] if "sdist" in one else ())]]
    assert [file for file in files if not file.get("hash", "").startswith("sha256:")] == []


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
