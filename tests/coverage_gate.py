"""Runs the tests with branch coverage and holds each part of the program to its share.

`python tests/coverage_gate.py [--workers N] [pytest arguments]`. The table comes first and pytest's own closing line
last, so that the last line says how the tests ended. With a selection of tests the gates are not applied.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: There while a gate was not passed, for whoever wants to tell that from a failed test.
SHORT = ROOT / ".coverage-short"
PACKAGES = ("bot", "ledger", "providers", "migrations")


@dataclass(frozen=True, slots=True)
class Gate:
    """A part of the program and the least percentage of its lines and branches that tests must run."""

    name: str
    paths: tuple[str, ...]
    least: float

    def owns(self, path: str) -> bool:
        """Whether a file belongs to this part."""
        return path.startswith(self.paths)


#: The first gate that owns a file counts it.
GATES = (
    Gate("rules", ("bot/rules/",), 100),
    Gate("states and moves", ("ledger/states.py", "ledger/moves.py"), 100),
    Gate("services", ("bot/services/",), 95),
    Gate("everything else", ("",), 90),
)


@dataclass(slots=True)
class Sum:
    """Lines and branches of one part: how many there are, and how many were run."""

    files: int = 0
    all: int = 0
    run: int = 0

    def add(self, summary: dict[str, Any]) -> None:
        """Add one file of the coverage report."""
        self.files += 1
        self.all += summary["num_statements"] + summary.get("num_branches", 0)
        self.run += summary["covered_lines"] + summary.get("covered_branches", 0)

    @property
    def percent(self) -> float:
        """100 for an empty part."""
        return 100.0 * self.run / self.all if self.all else 100.0


def judge(report: dict[str, Any]) -> tuple[list[str], bool]:
    """The table for people, and whether every gate is passed. The three worst files of a failing part are named."""
    sums = {gate.name: Sum() for gate in GATES}
    worst: dict[str, list[tuple[float, str]]] = {gate.name: [] for gate in GATES}
    for path, data in report["files"].items():
        gate = next(g for g in GATES if g.owns(Path(path).as_posix()))
        sums[gate.name].add(data["summary"])
        worst[gate.name].append((float(data["summary"]["percent_covered"]), path))
    lines = [f"{'coverage (lines and branches)':<32}{'files':>6}{'least':>9}{'is':>9}"]
    passed = True
    for gate in GATES:
        found = sums[gate.name]
        good = found.percent >= gate.least
        passed &= good
        word = "" if good else "   too low"
        lines.append(f"  {gate.name:<30}{found.files:>6}{gate.least:>8.0f}%{found.percent:>8.1f}%{word}")
        if not good:
            lines += [f"      {path}: {percent:.0f}%" for percent, path in sorted(worst[gate.name])[:5]]
    return lines, passed


def _pytest(arguments: Iterable[str], workers: str, data_file: Path) -> tuple[int, str]:
    """Run pytest, show what it prints as it comes, and keep back its closing line."""
    command = [sys.executable, "-m", "pytest", "-n", workers, "--dist", "worksteal", "--cov-report=", "--cov-branch"]
    command += ["--durations=25", *(f"--cov={name}" for name in PACKAGES)]
    command += list(arguments)
    environment = {**os.environ, "COVERAGE_FILE": str(data_file), "COVERAGE_CORE": "sysmon"}
    if sys.version_info < (3, 14):
        # Before 3.14 the fast core cannot measure branches.
        del environment["COVERAGE_CORE"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    held = ""
    assert process.stdout is not None
    for line in process.stdout:
        if held:
            sys.stdout.write(held)
            sys.stdout.flush()
        held = line
    return process.wait(), held


def main() -> int:
    """0 when the tests and the gates passed; pytest's own code, or 1 for a gate, otherwise."""
    parser = argparse.ArgumentParser(description="Run the tests with their coverage gates.")
    parser.add_argument("--workers", default="auto")
    options, rest = parser.parse_known_args()
    SHORT.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data_file = Path(folder) / "coverage"
        code, closing = _pytest(rest, options.workers, data_file)
        whole = rest in ([], ["tests"])
        if data_file.exists() and whole:
            out = Path(folder) / "coverage.json"
            export = [sys.executable, "-m", "coverage", "json", "-q", f"--data-file={data_file}", "-o", str(out)]
            subprocess.run(export, cwd=ROOT, check=True)
            lines, passed = judge(json.loads(out.read_text()))
            sys.stdout.write("\n" + "\n".join(lines) + "\n\n")
            if not passed:
                code = code or 1
                SHORT.touch()
    sys.stdout.write(closing)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
