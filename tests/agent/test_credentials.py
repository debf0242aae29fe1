"""The file with the job's secrets: only its user reads it, `sh` reads exactly the values, and a wait for it ends."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bot.agent.credentials import CRED_FILE, Credentials, of_this_machine
from bot.agent.own_folder import DEFAULT_FOLDER, FOLDER
from bot.agent.startup.plan import DONE, FAILED, LOG, STEPS, StartupProgress, read_plan
from bot.agent.startup.runner import NO_SECRET, Runner
from tests.agent.startup.test_runner import plan_of, step

HOSTILE = "it's \"quoted\" $HOME `id` $(id) \\ \\' ; export A=b\n\nexport PATH=/nowhere\n# 'ä€\t"


def here(folder: Path, boot: str = "boot") -> Credentials:
    return Credentials(folder / "agent" / "credentials.sh", boot)


def test_a_shell_reads_exactly_the_values(tmp_path: Path) -> None:
    found = here(tmp_path)
    given = {"HF_TOKEN": HOSTILE, "B": "'", "C": "''", "D": "x" * 8192, "E": "ends in a line break\n"}
    assert found.take(given)
    for shell in ("/bin/sh", "/bin/bash"):
        script = f'. "{found.path}" && exec {sys.executable} -c "import os,json;print(json.dumps(dict(os.environ)))"'
        said = subprocess.run([shell, "-c", script], capture_output=True, check=True, env=dict(os.environ)).stdout
        read = json.loads(said)
        assert {name: read[name] for name in given} == given
        assert read["PATH"] == os.environ["PATH"]


def test_only_its_user_reads_it_and_it_is_replaced_in_one_step(tmp_path: Path) -> None:
    found = here(tmp_path)
    assert found.names() is None
    found.path.parent.mkdir(mode=0o700)
    (tmp_path / "elsewhere").write_text("theirs")
    found.path.symlink_to(tmp_path / "elsewhere")
    found.path.with_name("credentials.sh.new").symlink_to(tmp_path / "elsewhere")
    assert found.names() is None
    assert found.take({"A": "1"})
    assert (tmp_path / "elsewhere").read_text() == "theirs"
    mode = found.path.lstat().st_mode
    assert (stat.S_IMODE(mode), stat.S_ISREG(mode), found.names()) == (0o600, True, frozenset({"A"}))
    assert found.take({"B": "2"})
    assert found.names() == frozenset({"B"})
    assert "A" not in found.path.read_text()
    assert found.take({})
    assert found.names() == frozenset()
    assert [one.name for one in found.path.parent.iterdir()] == ["credentials.sh"]


def test_what_is_no_answer_or_no_variable_is_not_written(tmp_path: Path) -> None:
    found = here(tmp_path)
    wrong: tuple[object, ...] = (None, [], "A", 1)
    for said in wrong:
        assert not found.take(said)
    assert found.take({"A": "1", "a": "2", "B C": "3", "X;id": "4", "N": 5, "Z": "nul\x00", "A\n": "6"})
    assert found.names() == frozenset({"A"})
    assert found.path.read_text().count("export") == 1


def test_a_file_of_another_boot_does_not_count(tmp_path: Path) -> None:
    assert here(tmp_path).take({"A": "1"})
    assert here(tmp_path, "another").names() is None


def test_a_folder_that_takes_no_file_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("a file")
    assert not here(tmp_path).take({"A": "1"})


@pytest.mark.parametrize(
    ("mounts", "environment", "in_memory"),
    [
        ("tmpfs /run tmpfs rw 0 0\n", {}, True),
        ("overlay / overlay rw 0 0\n", {}, False),
        ("tmpfs /run tmpfs rw 0 0\n/dev/sda /run ext4 rw 0 0\n", {}, False),
        ("tmpfs /run tmpfs rw 0 0\n", {FOLDER: "/elsewhere"}, False),
        ("broken\n", {}, False),
    ],
)
def test_it_lies_in_memory_where_run_does(
    tmp_path: Path, mounts: str, environment: dict[str, str], in_memory: bool
) -> None:
    (tmp_path / "mounts").write_text(mounts)
    found = of_this_machine(environment, "boot", tmp_path / "mounts").path
    folder = environment.get(FOLDER, DEFAULT_FOLDER)
    writable = os.access("/run", os.W_OK)
    assert str(found) == ("/run/gpu-shopper" if in_memory and writable else folder) + "/credentials.sh"
    assert str(of_this_machine({}, "boot", tmp_path / "none").path) == f"{DEFAULT_FOLDER}/credentials.sh"


class Waiting:
    """A clock that only a wait moves on; after some waits, something happens."""

    def __init__(self, then: object = None) -> None:
        self.now_s, self.waits, self.then = 0.0, 0, then

    def clock_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.waits += 1
        if self.waits == 3 and callable(self.then):
            self.then()


def run(folder: Path, credentials: Credentials, waiting: Waiting) -> dict[str, tuple[str, int | None]]:
    script = f'. "${CRED_FILE}"\nprintf %s "$HF_TOKEN" >got'
    plan = read_plan(plan_of(step("first", "echo here"), step("needs", script, secrets=["HF_TOKEN"])))
    assert plan is not None
    progress = StartupProgress.read(folder / STEPS)
    progress.begin(plan, "boot")
    Runner(plan, progress, folder, waiting.clock_s, waiting.sleep, credentials).run()
    return {name: (one.state, one.exit_code) for name, one in StartupProgress.read(folder / STEPS).steps.items()}


def test_a_step_waits_for_its_secrets_and_the_others_do_not(tmp_path: Path) -> None:
    found = here(tmp_path)

    def come() -> None:
        assert "--- first\nhere" in (tmp_path / LOG).read_text()
        assert StartupProgress.read(tmp_path / STEPS).steps["needs"].state == "waiting"
        found.take({"HF_TOKEN": HOSTILE})

    waiting = Waiting(come)
    assert run(tmp_path, found, waiting) == {"first": (DONE, 0), "needs": (DONE, 0)}
    assert ((tmp_path / "got").read_text(), waiting.waits) == (HOSTILE, 3)
    assert "quoted" not in (tmp_path / LOG).read_text()


def test_a_secret_that_is_not_stored_any_more_fails_its_step_at_once(tmp_path: Path) -> None:
    found, waiting = here(tmp_path), Waiting()
    found.take({"OTHER": "x"})
    assert run(tmp_path, found, waiting) == {"first": (DONE, 0), "needs": (FAILED, NO_SECRET)}
    assert waiting.waits == 0
    assert "The secret HF_TOKEN did not come: its owner deleted it" in (tmp_path / LOG).read_text()


def test_a_wait_for_secrets_ends(tmp_path: Path) -> None:
    waiting = Waiting()
    assert run(tmp_path, here(tmp_path), waiting)["needs"] == (FAILED, NO_SECRET)
    assert waiting.now_s == 900
    assert "GPU Shopper did not answer" in (tmp_path / LOG).read_text()
