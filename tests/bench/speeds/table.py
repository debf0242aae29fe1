"""One table of the aims for speed: before, now, and the ratio. `OLD=COMMIT` measures that commit in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.databases import Line

ROOT = Path(__file__).resolve().parents[3]
FIGURES = Path(__file__).with_name("figures.py")
#: Runs the figures of this tree with the code of the folder that it is run in.
RUN = "import runpy, sys; sys.path.insert(0, ''); runpy.run_path(sys.argv[1], run_name='__main__')"


@dataclass(frozen=True, slots=True)
class Aim:
    """Describe one figure: its name in `figures`, its words, its unit, and its aim."""

    name: str
    words: str
    unit: str
    aim: float
    more_is_better: bool = False

    def met(self, value: float) -> bool:
        """Whether the figure meets the aim."""
        return value >= self.aim if self.more_is_better else value <= self.aim

    def shown(self, value: float) -> str:
        """Write a figure with its unit."""
        return f"{value * 1000:.0f} ms" if self.unit == "ms" else f"{value:.2f} {self.unit}".strip()


AIMS = (
    Aim("budget 10k", "one approval against its budgets, 10,000 live sessions", "ms", 0.1),
    Aim("budget 100k", "the same, 100,000 live sessions", "ms", 0.1),
    Aim("sweep", "a pass over a listing of 10,000", "s", 0.5),
    Aim("metering", "metering one hour of 10,000", "s", 1),
    Aim("overspend", "the check of costs of 10,000", "s", 1),
    Aim("help", "gpu-shopper --help", "ms", 0.12),
    Aim("inventory", "gpu-shopper inventory, in this process", "s", 1),
    Aim("serve", "gpu-shopper serve, until it is ready", "s", 1.5),
    Aim("drained a second", "requests quoted and shown a second", "", 60, more_is_better=True),
    Aim("drained a cpu second", "the same, a second of the bot's processor time", "", 60, more_is_better=True),
    Aim("rest", "REST reads beside FastAPI without a database", "", 0.2, more_is_better=True),
)


def _figures(folder: Path) -> dict[str, float]:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", RUN, str(FIGURES)]
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"the figures of {folder} failed: {ran.stderr.decode()[-2000:]}")
    found: dict[str, float] = json.loads(ran.stdout.decode().splitlines()[-1])
    return found


def report() -> Iterator[Line]:
    """A line for each aim. Without `OLD` there is nothing to compare with."""
    before: dict[str, float] = {}
    if old := os.environ.get("OLD"):
        with tempfile.TemporaryDirectory() as name:
            tree = Path(name) / "old"
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), old], cwd=ROOT, check=True)
            try:
                before = _figures(tree)
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    now = _figures(ROOT)
    for one in AIMS:
        value, was = now[one.name], before.get(one.name)
        sign = "≥" if one.more_is_better else "≤"
        aim = f"aim {sign} {one.shown(one.aim)}: {'met' if one.met(value) else 'missed'}"
        said = f"{one.shown(was)} before, ratio {value / was:.2f}; " if was else ""
        yield one.words, one.shown(value), said + aim
