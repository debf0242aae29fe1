"""The GitHub Action: held to GitHub's own schema, and walked as a runner does, with a job on a real machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.kernel.job_state import JobState
from tests.scenarios.nodes.conftest import Build, NodeTown
from tests.scenarios.nodes.test_jobs import SPEED

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
ACTION, EXAMPLE = ROOT / ".github/actions/run/action.yml", ROOT / "docs/programs/github-actions.yml"
PROGRAMS = Path(sys.executable).parent


@pytest.mark.parametrize(("schema", "file"), [("github-actions", ACTION), ("github-workflows", EXAMPLE)])
def test_it_is_right_by_githubs_own_schema(schema: str, file: Path) -> None:
    command = [str(PROGRAMS / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_example_gives_the_action_what_it_needs() -> None:
    inputs = yaml.safe_load(ACTION.read_text())["inputs"]
    (step,) = [one for one in yaml.safe_load(EXAMPLE.read_text())["jobs"]["train"]["steps"] if one.get("id") == "gpu"]
    assert step["uses"].partition("@")[0].endswith("/.github/actions/run")
    assert set(step["with"]) <= set(inputs)
    assert {name for name, one in inputs.items() if one.get("required")} <= set(step["with"])


@dataclass
class Runner:
    """A runner that carries out the steps of the action with these inputs."""

    folder: Path
    inputs: dict[str, str]
    attempt: int = 1
    outputs: dict[str, str] = field(default_factory=dict)

    async def step(self, name: str) -> tuple[int, str, str]:
        """Carry out a step: its exit code, and what it printed."""
        (step,) = [one for one in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if one["name"] == name]
        written, path = self.folder / "output", self.folder / "path"
        written.write_text("")
        environment = {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_OUTPUT": str(written),
            "GITHUB_PATH": str(path),
            "GITHUB_REPOSITORY": "org/project",
            "GITHUB_RUN_ID": "7",
            "GITHUB_RUN_ATTEMPT": str(self.attempt),
            "GITHUB_JOB": "train",
            **{key: self._value(value) for key, value in step["env"].items()},
        }
        # As GitHub's runner starts bash.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, said = await process.communicate()
        for line in written.read_text().splitlines():
            key, _, value = line.partition("=")
            self.outputs[f"steps.{step['id']}.outputs.{key}"] = value
        return process.returncode or 0, out.decode(), said.decode()

    def _value(self, text: str) -> str:
        known = {f"inputs.{name}": value for name, value in self.inputs.items()} | self.outputs
        known["github.action_path"] = str(ACTION.parent)
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: known[found[1]], text)


async def typed(folder: Path, environment: Mapping[str, str], *words: str) -> str:
    """Return what a command of the program prints, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        PROGRAMS / "gpu-shopper", *words, cwd=folder, env=dict(environment), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


async def runner(here: NodeTown, folder: Path, run: str) -> Runner:
    """A runner with a job file and a key of its own, at the service of this town."""
    await asyncio.to_thread(folder.mkdir)
    environment = here.town.environment
    made = await typed(folder, environment, "keys", "create", "atlas", "--owner", "operator:ada", "--json")
    gpu = here.town.clouds[here.town.cloud].STAPLE
    job: dict[str, Any] = {"resources": {"gpu": gpu}, "hours": "2h", "candidates": [here.town.cloud], "run": run}
    await asyncio.to_thread((folder / "job.yaml").write_text, yaml.safe_dump(job))
    inputs = {name: str(one.get("default", "")) for name, one in yaml.safe_load(ACTION.read_text())["inputs"].items()}
    inputs |= {
        "job": "job.yaml",
        "url": environment["GPU_SHOPPER_NODE_URL"],
        "api-key": json.loads(made)["token"],
    }
    return Runner(folder, inputs)


async def test_its_steps_hand_over_follow_and_end_with_the_jobs_exit_code(build: Build, tmp_path: Path) -> None:
    async with build("vast", {"done_grace_s": 20}, clock_speed=SPEED) as here:
        ci = await runner(here, tmp_path / "ci", "echo it trained; exit 3")
        assert await ci.step("Install gpu-shopper") == (0, "", "")  # It is there, so nothing is installed.
        code, _, said = await ci.step("Hand over the job")
        assert (code, "To follow it: " in said) == (0, True)
        first = ci.outputs["steps.hand-over.outputs.id"]
        assert (await ci.step("Hand over the job"))[0] == 0  # A step that a CI repeats.
        assert ci.outputs["steps.hand-over.outputs.id"] == first
        following = asyncio.create_task(ci.step("Follow the job"))
        await here.town.approve()
        code, out, said = await following
        assert (code, ci.outputs["steps.follow.outputs.exit-code"]) == (3, "3"), said
        assert "it trained" in out
        assert "job failed (exit code 3)" in said
        assert re.search(r"Job \w+ failed \(exit code 3\)\. It cost <?\$\d", said)
        await here.town.until(lambda books: books.sessions[-1].ended_at is not None)
        (session,) = (await here.town.books()).sessions
        assert (session.job_state, session.job_exit_code) == (JobState.FAILED, 3)
        await here.nothing_left()


async def test_a_rejected_job_and_a_new_attempt(build: Build, tmp_path: Path) -> None:
    async with build("vast", clock_speed=SPEED) as here:
        ci = await runner(here, tmp_path / "ci", "true")
        assert (await ci.step("Hand over the job"))[0] == 0
        first = ci.outputs["steps.hand-over.outputs.id"]
        again = Runner(ci.folder, ci.inputs, attempt=2)
        assert (await again.step("Hand over the job"))[0] == 0
        assert again.outputs["steps.hand-over.outputs.id"] != first
        for one in (ci, again):
            short = one.outputs["steps.hand-over.outputs.id"]
            environment = {"GPU_SHOPPER_URL": ci.inputs["url"], "GPU_SHOPPER_API_KEY": ci.inputs["api-key"]}
            environment |= {"PATH": os.environ["PATH"], "HOME": str(ci.folder)}
            await typed(ci.folder, environment, "cancel", short)
            code, out, said = await one.step("Follow the job")
            assert (code, out, one.outputs["steps.follow.outputs.exit-code"]) == (77, "", "77"), said
            assert "is cancelled." in said
        assert (await here.town.books()).sessions == ()
