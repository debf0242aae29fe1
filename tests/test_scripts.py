"""The standalone scripts of `docs/scripts`: a queue without GPU Shopper, which continues where it was cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "docs/scripts"


def run_queue(folder: Path, *commands: str, gpus: int = 2) -> subprocess.Popen[str]:
    file = folder / "commands.txt"
    file.write_text("\n".join(("# a comment", "", *commands, "")))
    words = ["sh", str(SCRIPTS / "run_queue.sh"), str(file), str(folder / "out"), str(gpus)]
    return subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def codes(folder: Path) -> dict[int, int]:
    return {int(one.parent.name): int(one.read_text()) for one in (folder / "out").glob("*/exit_code")}


def test_each_command_runs_once_on_one_gpu_and_its_result_is_kept(tmp_path: Path) -> None:
    says = "echo $CUDA_VISIBLE_DEVICES >>seen; echo out of {}"
    said, _ = (one := run_queue(tmp_path, *map(says.format, (1, 2)), "exit 4", 'echo "a b" | grep b')).communicate()
    assert one.returncode == 1
    assert codes(tmp_path) == {1: 0, 2: 0, 3: 4, 4: 0}
    assert (tmp_path / "out/2/log").read_text() == "out of 2\n"
    assert set((tmp_path / "seen").read_text().split()) <= {"0", "1"}
    assert said.splitlines()[-1] == "3/4 done, 1 failed"
    assert "command 3 of 4 on GPU" in said


def test_it_goes_on_with_what_has_no_result(tmp_path: Path) -> None:
    commands = ["echo 1 >>seen", "echo 2 >>seen; until [ -e go ]; do sleep 0.05; done"]
    one = run_queue(tmp_path, *commands, gpus=1)
    end_s = time.monotonic() + 20
    while not (tmp_path / "seen").exists() or "2" not in (tmp_path / "seen").read_text():
        assert time.monotonic() < end_s
        time.sleep(0.02)
    os.killpg(one.pid, signal.SIGKILL)
    one.communicate()
    assert codes(tmp_path) == {1: 0}
    (tmp_path / "go").touch()
    said, _ = run_queue(tmp_path, *commands, gpus=1).communicate()
    assert said.splitlines()[-1] == "2/2 done, 0 failed"
    assert (tmp_path / "seen").read_text().split() == ["1", "2", "2"]


def test_a_wrong_use_says_what_is_right(tmp_path: Path) -> None:
    for script in ("run_one.sh", "run_queue.sh"):
        ended = subprocess.run(
            ["sh", str(SCRIPTS / script), str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stderr.startswith(f"usage: {script}")) == (64, True)
