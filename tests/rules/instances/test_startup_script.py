"""The script of a new machine, run by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bot.rules.instances import fetch_agent
from bot.rules.instances.startup_script import PROFILE_FILE, bootstrap


def test_a_shell_makes_the_directories_tells_logins_and_runs_the_hook(tmp_path: Path) -> None:
    data, told, hook = tmp_path / "it's data", tmp_path / "profile.sh", tmp_path / "hook.sh"
    hook.write_text("export https_proxy=http://proxy:1\n")
    variables = {"DATA_DIR": str(data), "HF_HOME": f"{data}/hf", "PROXY_HOOK": str(hook)}
    script = bootstrap(variables, [str(data), f"{data}/hf"]).replace(PROFILE_FILE, str(told))
    shown = subprocess.run(
        ["sh", "-c", f"{script}echo $https_proxy"], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert (shown.stdout, shown.stderr) == ("http://proxy:1\n", "")
    assert (data / "hf").is_dir()
    login = subprocess.run(["sh", "-c", f". {told}; echo $HF_HOME"], capture_output=True, text=True, check=True)
    assert login.stdout == f"{data}/hf\n"


def test_one_step_that_fails_does_not_end_the_script(tmp_path: Path) -> None:
    script = bootstrap({"SCRATCH": "/proc/none"}, ["/proc/none", str(tmp_path / "made")])
    script = script.replace(PROFILE_FILE, str(tmp_path / "p.sh"))
    subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert (tmp_path / "made").is_dir()


def test_the_steps_of_a_machine_with_an_agent_are_noted(tmp_path: Path) -> None:
    script = bootstrap({"SCRATCH": "/proc/none"}, ["/proc/none", str(tmp_path / "made")], agent=True)
    script = script.replace(PROFILE_FILE, str(tmp_path / "p.sh")).replace(fetch_agent.FOLDER, str(tmp_path / "opt"))
    script = script.replace("exec python3", "exit; exec python3")
    for _ in range(2):
        subprocess.run(["sh", "-c", script], capture_output=True, check=False)
        steps = [line.split() for line in (tmp_path / "opt/startup").read_text().splitlines()]
        assert [(name, code) for name, code, _ in steps] == [("variables", "0"), ("directories", "1"), ("proxy", "0")]
        assert all(float(uptime_s) > 0 for _, _, uptime_s in steps)


def test_a_home_belongs_to_its_user() -> None:
    assert 'runuser -u "${u%%/*}" -- mkdir -p "$1"' in bootstrap({}, ["/home/ubuntu/data"])
