"""The start script of a new machine starts the agent: a real shell, the built archive, and a small server."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.agent.build import archive, contents
from bot.agent.build import main as build
from bot.agent.own_folder import FOLDER
from bot.rules.instances import fetch_agent
from bot.rules.instances.startup_script import PROFILE_FILE, bootstrap
from providers.clouds.vast.instances import ONSTART_MAX
from providers.profiles import model
from tests.agent.service import Call, Service, checkin_answer, service


def test_the_archive_is_the_same_each_time_and_holds_no_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tmp_path / "libraries/some-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "libraries/some.py").write_text("")
    (tmp_path / "libraries/example.py").write_text("")
    for name in ("METADATA", "RECORD", "INSTALLER"):
        (info / name).write_text("")
    assert build([str(tmp_path / "libraries"), str(tmp_path / "out/agent.pyz")]) == 0
    built = (tmp_path / "out/agent.pyz").read_bytes()
    assert hashlib.sha256(built).hexdigest() in capsys.readouterr().out
    os.utime(tmp_path / "libraries/some.py", (0, 0))
    assert archive(tmp_path / "libraries") == built
    names = {name for name, _ in contents(tmp_path / "libraries")}
    assert {"__main__.py", "bot/agent/watchdog.py", "some.py", "some-1.0.dist-info/METADATA"} <= names
    assert names.isdisjoint({"bot/agent/build.py", "example.py", "some-1.0.dist-info/RECORD"})


def test_the_script_leaves_room_for_keys_where_a_cloud_limits_it() -> None:
    places = model.load("vast").overrides
    assert (
        len(bootstrap(places.environment, places.directories, agent=True)) < ONSTART_MAX - 1700
    )  # Two RSA keys of 4,096 bits, and a short one.


def test_a_machine_without_an_agent_starts_none() -> None:
    assert "python3" not in bootstrap({}, [])


@pytest.fixture
def here() -> Iterator[Service]:
    with service() as one:
        yield one


class Machine:
    """A machine's start script, run with these variables in a folder of the test."""

    def __init__(self, folder: Path, here: Service) -> None:
        (folder / "libraries").mkdir()
        (folder / "bin").mkdir()
        self.folder, self.here, self.built = folder, here, archive(folder / "libraries")
        self.log = folder / "opt/agent.log"
        for name in ("mkdir", "mktemp", "sleep", "cat", "chmod", "cut", "sh"):
            (folder / "bin" / name).symlink_to(str(shutil.which(name)))
        (folder / "bin/python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (folder / "bin/python3").chmod(0o755)
        here.answer = self.answer

    def answer(self, call: Call) -> tuple[int, Any]:
        """The archive, or an answer to a check-in."""
        return (200, self.built) if call.path == "/agent.pyz" else (200, checkin_answer(call.body.get("seq", 0)))

    def environment(self) -> dict[str, str]:
        """The variables that the create gave it."""
        return {
            "GPU_SHOPPER_AGENT_URL": f"{self.here.url}/agent.pyz",
            "GPU_SHOPPER_AGENT_SHA256": hashlib.sha256(self.built).hexdigest(),
            FOLDER: str(self.folder / "run"),
            **self.here.environment(),
        }

    def start(self, **more: str) -> str:
        """Run the script to its end; returns what it wrote."""
        script = bootstrap({"DATA_DIR": str(self.folder / "data")}, [str(self.folder / "data")], agent=True)
        script = script.replace(PROFILE_FILE, str(self.folder / "profile.sh"))
        environment = {"PATH": str(self.folder / "bin"), **self.environment(), **more}
        script = script.replace(fetch_agent.FOLDER, str(self.folder / "opt"))
        script = script.replace(fetch_agent.PER_BOOT, str(self.folder / "per-boot/gpu-shopper-agent"))
        command = ["/bin/sh", "-c", script]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (self.folder / "data").is_dir()
        return run.stdout + run.stderr

    def end(self) -> None:
        """End what runs in the test's folder."""
        mine = str(self.folder).encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine in (process / "cmdline").read_bytes() + str((process / "cwd").readlink()).encode():
                    os.kill(int(process.name), signal.SIGKILL)


@pytest.fixture
def machine(tmp_path: Path, here: Service) -> Iterator[Machine]:
    built = Machine(tmp_path, here)
    yield built
    built.end()


@pytest.mark.slow
def test_the_agent_is_fetched_verified_and_reports_while_the_script_goes_on(machine: Machine) -> None:
    assert machine.start() == ""
    calls = machine.here.wait(lambda calls: any(one.path == "/agent/v1/checkin" for one in calls))
    assert [call.path for call in calls] == ["/agent.pyz", "/agent/v1/checkin"]
    assert calls[0].token == ""
    assert "The agent was fetched" in machine.log.read_text()
    assert (machine.folder / "run/state.json").exists()


@pytest.mark.slow
def test_what_has_another_hash_is_never_run_and_is_fetched_again(machine: Machine) -> None:
    good, answers = machine.answer, [(200, b"import os; os._exit(7)"), (503, b"")]
    machine.here.answer = lambda call: answers.pop(0) if answers else good(call)
    machine.start()
    machine.here.wait(lambda calls: any(one.path == "/agent/v1/checkin" for one in calls))
    log = machine.log.read_text()
    assert "What was fetched has another SHA-256" in log
    assert "The agent was not fetched: HTTP Error 503" in log
    assert [call.path for call in machine.here.calls][:3] == ["/agent.pyz"] * 3


@pytest.mark.slow
def test_an_agent_that_is_there_already_is_not_fetched_again(machine: Machine) -> None:
    (machine.folder / "opt").mkdir()
    (machine.folder / "opt/agent.pyz").write_bytes(machine.built)
    machine.start()
    calls = machine.here.wait(bool)
    assert calls[0].path == "/agent/v1/checkin"


@pytest.mark.slow
def test_a_virtual_machine_starts_it_again_at_each_boot(machine: Machine) -> None:
    (machine.folder / "opt").mkdir()
    (machine.folder / "per-boot").mkdir()
    exports = "".join(f"export {name}='{value}'\n" for name, value in machine.environment().items())
    (machine.folder / "opt/env").write_text(exports)
    assert machine.start() == ""
    machine.here.wait(lambda calls: any(one.path == "/agent/v1/checkin" for one in calls))
    machine.end()
    machine.here.calls.clear()
    at_boot = machine.folder / "per-boot/gpu-shopper-agent"
    assert at_boot.stat().st_mode & 0o777 == 0o700
    subprocess.run([str(at_boot)], env={"PATH": str(machine.folder / "bin")}, check=True, timeout=60)
    calls = machine.here.wait(bool)
    assert calls[0].path == "/agent/v1/checkin"


def _log_of(machine: Machine) -> str:
    """What the agent's log says once something is in it; the writer is a process of its own."""
    command = f"while [ ! -s {machine.log} ]; do sleep 0.05; done; cat {machine.log}"
    environment = {"PATH": str(machine.folder / "bin")}
    return subprocess.run(
        ["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout


@pytest.mark.slow
def test_an_old_python_is_named(machine: Machine) -> None:
    (machine.folder / "sitecustomize.py").write_text("import sys; sys.version_info = (3, 9, 18)")
    assert machine.start(PYTHONPATH=str(machine.folder)) == ""
    assert "No agent runs: python3 is 3.9, and the agent needs 3.10 or later." in _log_of(machine)


@pytest.mark.slow
def test_a_machine_without_python_goes_on_without_an_agent(machine: Machine) -> None:
    (machine.folder / "bin/python3").unlink()
    assert machine.start() == ""
    assert _log_of(machine) == "No agent runs: there is no python3.\n"
