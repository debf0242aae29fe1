"""The stage (sandbox clouds, practice workspace, demo) is loaded by the commands of the demo and by tests alone."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest

from bot.cli.command_table import COMMANDS
from tests.architecture.stage import STAGE, on_stage
from tests.test_main import start, surroundings

ROOT = Path(__file__).parents[2]
#: Of one process; on a busy machine each takes many times as long.
LIMIT_S = 200
WITHOUT_STAGE = (sys.executable, "-m", "tests.architecture.stage")
#: Imports each module of the product that is on no stage, with the stage blocked.
EVERY_MODULE = """
import importlib, pkgutil, sys
from tests.architecture.stage import NoStage, on_stage
sys.meta_path.insert(0, NoStage())
names = []
def below(package):
    for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if on_stage(one.name) or one.name.endswith("__main__"):
            continue
        names.append(one.name)
        module = importlib.import_module(one.name)
        if one.ispkg:
            below(module)
for top in ("bot", "ledger", "providers"):
    below(importlib.import_module(top))
print(len(names), sorted(name for name in sys.modules if on_stage(name)))
"""


def without_stage(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end where the stage can't be imported."""
    return subprocess.run(
        (*WITHOUT_STAGE, *arguments), cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def _package(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0].replace("-", "_")


def test_a_contract_names_the_stage() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [one for one in settings["tool"]["importlinter"]["contracts"] if one["id"] == "stage-apart"]
    assert (contract["type"], contract["protected_modules"]) == ("protected", list(STAGE))
    assert contract["allowed_importers"] == [*STAGE, "tests"]


def test_the_demo_needs_no_extra() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = (*settings["project"]["optional-dependencies"].values(), *settings["dependency-groups"].values())
    names = {_package(one) for group in extras for one in group}
    always = {_package(one) for one in settings["project"]["dependencies"]}
    imported: set[str] = set()
    for path in (path for package in STAGE for path in (ROOT / package.replace(".", "/")).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    assert {"typer", "starlette", "rich"} <= imported
    assert imported & (names - always) == set()


def test_a_module_of_the_stage_is_known_by_its_package() -> None:
    assert [on_stage(name) for name in ("bot.practice", "bot.cli.demo.sandbox", "bot.practices", "providers")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_only_the_commands_of_the_demo_are_on_the_stage() -> None:
    there = {name for name, entry in COMMANDS.items() if on_stage(f"bot.cli.{entry.at.partition(':')[0]}")}
    assert there == {"demo", "practice", "sandbox"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_other_module_loads_without_the_stage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERY_MODULE], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    count, _, loaded = done.stdout.partition(" ")
    assert int(count) > 500
    assert loaded.strip() == "[]"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_service_and_its_commands_run_without_the_stage(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as around:
        environ = {**around.environ, "PYTHONPATH": str(ROOT)}
        served, url = await asyncio.to_thread(start, environ, tmp_path, (*WITHOUT_STAGE, "serve"))
        try:
            around.practice.workspace.request_url = f"{url}/slack/events"
            async with httpx.AsyncClient(trust_env=False, base_url=url) as client:
                assert (await client.get("/healthz")).status_code == 200
            alice = around.practice.driver.as_("alice")
            assert (await alice.command('/gpu provision 1x4090 2h clouds=vast for="a first try"')).ok
            for command in ("--help", "sessions", "inventory 4090", "doctor"):
                done = await asyncio.to_thread(without_stage, *command.split(), folder=tmp_path, **around.environ)
                assert "stage" not in done.stderr, (command, done.stderr)
                assert done.returncode == 0 or command == "doctor", (command, done.stdout, done.stderr)
            refused = await asyncio.to_thread(without_stage, "demo", "--help", folder=tmp_path)
            assert "bot.cli.demo belongs to the stage" in refused.stderr
        finally:
            served.terminate()
            await asyncio.to_thread(served.communicate)
