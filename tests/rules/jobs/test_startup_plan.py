"""The plan of a machine's start-up: its steps, and their scripts in a real shell."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bot.agent.startup.plan import read_plan
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.startup_plan import PACKAGES, plan_startup
from bot.wire.codec import to_json
from bot.wire.startup_plan import LEFT_OUT, StartupPlan
from providers.gpus.constraint import GpuConstraint

JOB = JobRequest(GpuConstraint(("RTX 4090",)), Decimal(2))
REPO = "https://github.com/org/project@main"
GIT = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")


def planned(places: dict[str, str] | None = None, **changes: Any) -> StartupPlan:
    plan = plan_startup("ins_1", replace(JOB, **changes), {"DATA_DIR": "/data"} if places is None else places)
    assert plan is not None
    return plan


def script(plan: StartupPlan, name: str) -> str:
    return next(one.script for one in plan.steps if one.name == name)


def shell(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", text], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_a_job_without_a_repository_and_a_command_has_no_plan() -> None:
    assert plan_startup("ins_1", JOB, {}) is None


def test_the_command_runs_in_the_repository_and_only_with_it() -> None:
    plan = planned(repo=REPO, run="python train.py")
    assert [one.name for one in plan.steps] == ["environment", "packages", "repo", "run"]
    assert plan.environment == {"DATA_DIR": "/data", "PROJECT_REPO_DIR": "/data/project"}
    last = plan.steps[-1]
    assert (last.script, last.job, last.needs) == ("cd /data/project || exit\npython train.py\n", True, ("repo",))
    alone = planned({}, run="nvidia-smi")
    assert [one.name for one in alone.steps] == ["environment", "packages", "run"]
    assert (alone.steps[-1].script, alone.steps[-1].needs) == ("nvidia-smi\n", ())


def test_files_come_before_the_command_and_before_the_save_of_a_run_that_moves_here() -> None:
    mounts = ("COPY /data s3://bucket/set", "MOUNT /in gs://bucket/in")
    plan = planned(run="python train.py", mounts=mounts, secrets=("AWS_ACCESS_KEY_ID",))
    assert [one.name for one in plan.steps] == ["environment", "packages", "files", "run"]
    files, run = plan.steps[-2:]
    assert (files.secrets, run.needs) == (("AWS_ACCESS_KEY_ID",), ("files",))
    assert files.script.startswith('. "$CRED_FILE" || exit\n')
    assert len(files.script) < 128 << 10
    alone = planned(mounts=mounts)
    assert [one.name for one in alone.steps] == ["environment", "files"]
    assert "CRED_FILE" not in alone.steps[-1].script
    moved = plan_startup("ins_1", replace(JOB, run="python train.py", mounts=mounts), {}, waits=True)
    assert moved is not None
    assert [one.name for one in moved.steps] == ["environment", "packages", "files", "checkpoint", "start", "run"]


def test_software_is_installed_before_the_command_and_only_with_the_right_driver() -> None:
    plan = planned(repo=REPO, run="python train.py", install="train")
    assert [one.name for one in plan.steps] == ["environment", "packages", "driver", "python packages", "repo", "run"]
    needs = {one.name: one.needs for one in plan.steps if one.needs}
    assert needs == {"python packages": ("driver",), "run": ("python packages", "repo")}
    alone = planned(install="serve")
    assert [one.name for one in alone.steps] == ["environment", "packages", "driver", "python packages"]
    # Linux takes at most 128 KiB as one argument of a program.
    assert max(len(one.script) for one in (*plan.steps, *alone.steps)) < 128 << 10


def test_software_that_a_later_release_does_not_know_is_a_failed_step() -> None:
    plan = planned(run="python train.py", install="gone")
    assert [one.name for one in plan.steps] == ["environment", "packages", "python packages", "run"]
    done = shell(script(plan, "python packages"))
    assert (done.returncode, done.stdout) == (1, "install=gone is not known any more.\n")
    assert plan.steps[-1].needs == ("python packages",)


def test_logins_and_the_command_find_the_software_first(tmp_path: Path) -> None:
    plan = planned(run="echo $VIRTUAL_ENV; echo $PATH", install="train")
    folder = {"STARTUP_FOLDER": f"{tmp_path}/a b"}
    (tmp_path / "a b").mkdir()
    assert shell(script(plan, "environment"), **folder, LOGINS=str(tmp_path)).returncode == 0
    login = shell(f". '{tmp_path}/a b/environment.sh'; . '{tmp_path}/a b/environment.sh'; echo $DATA_DIR; echo $PATH")
    paths = login.stdout.splitlines()[1].split(":")
    assert (login.stdout.splitlines()[0], paths[0], paths.count(paths[0])) == ("/data", f"{tmp_path}/a b/venv/bin", 1)
    ran = shell(script(plan, "run"), **folder).stdout.splitlines()
    assert (ran[0], ran[1].split(":")[0]) == (f"{tmp_path}/a b/venv", f"{tmp_path}/a b/venv/bin")


def test_the_agent_reads_the_plan_as_it_is_sent() -> None:
    read = read_plan(to_json(planned(repo=REPO, run="x")))
    assert read is not None
    assert [(one.name, one.job, one.needs) for one in read.steps][-2:] == [
        ("repo", False, ()),
        ("run", True, ("repo",)),
    ]


def test_logins_read_the_variables(tmp_path: Path) -> None:
    plan = planned({"DATA_DIR": "/it's data"}, repo=REPO)
    done = shell(script(plan, "environment"), STARTUP_FOLDER=str(tmp_path), LOGINS=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    login = shell(f". {tmp_path}/gpu-shopper-job.sh; echo $PROJECT_REPO_DIR")
    assert login.stdout == "/it's data/project\n"
    assert (
        "can't be written"
        in shell(script(plan, "environment"), STARTUP_FOLDER=str(tmp_path), LOGINS=str(tmp_path / "none")).stdout
    )


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A PATH of its own, in which every package but htop and vim is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (*(one for one in PACKAGES if one not in ("vim", "htop")), "sleep"):
        put(folder, name, "")
    put(folder, "id", "echo 0")
    return folder


def put(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def install(folder: Path) -> subprocess.CompletedProcess[str]:
    return shell(script(planned(run="x"), "packages"), PATH=str(folder), SEEN=str(folder / "seen"))


def test_only_missing_packages_are_installed(bin_folder: Path) -> None:
    put(bin_folder, "apt-get", 'echo "$@" >>"$SEEN"')
    assert install(bin_folder).returncode == 0
    assert (bin_folder / "seen").read_text() == "update\ninstall -y --no-install-recommends vim htop\n"
    for name in ("vim", "htop"):
        put(bin_folder, name, "")
    (bin_folder / "seen").unlink()
    again = install(bin_folder)
    assert (again.returncode, again.stdout) == (0, "Nothing is missing.\n")
    assert not (bin_folder / "seen").exists()


def test_without_apt_or_root_the_step_is_left_out(bin_folder: Path) -> None:
    none = install(bin_folder)
    assert (none.returncode, "no apt-get" in none.stdout) == (LEFT_OUT, True)
    put(bin_folder, "apt-get", "")
    put(bin_folder, "id", "echo 1000")
    user = install(bin_folder)
    assert (user.returncode, "Only root" in user.stdout) == (LEFT_OUT, True)


def test_a_lock_is_waited_for_with_a_limit(bin_folder: Path) -> None:
    locked = 'echo "E: Could not get lock /var/lib/dpkg/lock-frontend" >&2; exit 100'
    put(
        bin_folder,
        "apt-get",
        f'echo >>"$SEEN"; read -r _ <"$SEEN.free" 2>/dev/null && exit 0; echo >"$SEEN.free"; {locked}',
    )
    once = install(bin_folder)
    assert (once.returncode, once.stdout.count("this waits")) == (0, 1)
    put(bin_folder, "apt-get", locked)
    held = install(bin_folder)
    assert (held.returncode, "held the lock for 300 s" in held.stdout) == (100, True)
    put(bin_folder, "apt-get", 'echo "E: Unable to locate package" >&2; exit 100')
    wrong = install(bin_folder)
    assert (wrong.returncode, "this waits" in wrong.stdout) == (100, False)


def test_a_repository_is_fetched_and_fetched_again(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    subprocess.run(["git", *GIT, "init", "-q", str(origin)], check=True)

    def commit(text: str) -> None:
        (origin / "train.py").write_text(text)
        subprocess.run(["git", "add", "-A"], check=True, cwd=origin)
        subprocess.run(["git", *GIT, "commit", "-qm", text], check=True, cwd=origin)

    plan = planned({"DATA_DIR": str(tmp_path / "data")}, repo=REPO)
    text = script(plan, "repo").replace("https://github.com/org/project", f"file://{origin}")
    for said in ("first", "second"):
        commit(said)
        done = shell(text, GIT_ALLOW_PROTOCOL="file")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "data/project/train.py").read_text() == said
    assert shell(text).returncode != 0  # Without that, https is the only protocol.


def test_the_command_reads_its_secrets_and_logins_know_where_they_are(tmp_path: Path) -> None:
    launch = {"CRED_FILE": "/opt/gpu-shopper/env"}
    assert planned(launch, run="x").environment == launch
    plan = planned(launch, run='printf %s "$HF_TOKEN"', secrets=("HF_TOKEN",))
    assert plan.environment == {}
    assert [(one.name, one.secrets) for one in plan.steps] == [
        ("environment", ()),
        ("packages", ()),
        ("run", ("HF_TOKEN",)),
    ]
    (tmp_path / "credentials.sh").write_text("export HF_TOKEN='of alice'\n")
    found = {"CRED_FILE": str(tmp_path / "credentials.sh"), "STARTUP_FOLDER": str(tmp_path)}
    assert shell(script(plan, "environment"), **found, LOGINS="/nowhere").returncode == 0
    (tmp_path / "logins").mkdir()
    assert shell(script(plan, "environment"), **found, LOGINS=str(tmp_path / "logins")).returncode == 0
    for file in ("environment.sh", "logins/z-gpu-shopper-secrets.sh"):
        login = f"CRED_FILE=/opt/gpu-shopper/env; . {tmp_path}/{file}; echo $CRED_FILE"
        assert shell(login).stdout == f"{tmp_path}/credentials.sh\n"
    assert shell(script(plan, "run"), **found).stdout == "of alice"
    missing = shell(script(plan, "run"), CRED_FILE=str(tmp_path / "none"))
    assert (missing.returncode != 0, missing.stdout) == (True, "")


def test_a_job_with_secrets_alone_tells_logins_where_they_are_and_installs_nothing() -> None:
    assert [one.name for one in planned(secrets=("HF_TOKEN",)).steps] == ["environment"]
