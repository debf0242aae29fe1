"""Runs the tests with branch coverage and holds each part of the program to its share.

`python tests/coverage_gate.py [--workers N] [--missing FOLDER] [--least FOLDER=PERCENT] [pytest arguments]`. The table
comes first and pytest's own closing line last, so that the last line says how the tests ended. With a selection of
tests the gates are not applied. `--missing bot/rules` names the lines and branches there that were not run, and
`--least ledger/=95` is a gate for a selection.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # Started by its path, the program finds its own folder only.
    sys.path.insert(0, str(ROOT))

from tests.support.counting import COUNT_INTO, PACKAGES, add_up, nothing_run  # noqa: E402

#: There while a gate was not passed, so that a script can tell that from a failed test.
SHORT = ROOT / ".coverage-short"


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
    Gate("states and moves", ("ledger/kernel/states.py", "ledger/core/moves.py"), 100),
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
        run = summary["covered_lines"] + summary["covered_branches"]
        self.run += run
        self.all += run + summary["missing_lines"] + summary["missing_branches"]

    @property
    def percent(self) -> float:
        """100 for an empty part."""
        return 100.0 * self.run / self.all if self.all else 100.0


def gate(text: str) -> Gate:
    """What `--least` says: a folder and its percentage."""
    folder, _, percent = text.partition("=")
    return Gate(f"{folder} by these tests", (folder,), float(percent))


def judge(report: dict[str, Any], gates: Sequence[Gate] = GATES) -> tuple[list[str], bool]:
    """The table for people, and whether every gate is passed. The three worst files of a failing part are named."""
    sums = {gate.name: Sum() for gate in gates}
    worst: dict[str, list[tuple[float, str]]] = {gate.name: [] for gate in gates}
    for path, data in report["files"].items():
        gate = next((g for g in gates if g.owns(Path(path).as_posix())), None)
        if gate is None:
            continue
        sums[gate.name].add(data["summary"])
        worst[gate.name].append((float(data["summary"]["percent_covered"]), path))
    lines = [f"{'coverage (lines and branches)':<32}{'files':>6}{'least':>9}{'is':>9}"]
    passed = True
    for gate in gates:
        found = sums[gate.name]
        good = found.percent >= gate.least
        passed &= good
        word = "" if good else "   too low"
        lines.append(f"  {gate.name:<30}{found.files:>6}{gate.least:>8.0f}%{found.percent:>8.1f}%{word}")
        if not good:
            lines += [f"      {path}: {percent:.0f}%" for percent, path in sorted(worst[gate.name])[:5]]
    return lines, passed


def missing(report: dict[str, Any], folder: str) -> list[str]:
    """The lines, and the branches as (from, to) with 0 for the end, that were not run, one file of a folder a line."""
    return [
        f"  {path}: lines {data['missing_lines']}, branches {data['missing_branches']}"
        for path, data in sorted(report["files"].items())
        if path.startswith(folder) and (data["missing_lines"] or data["missing_branches"])
    ]


def _pytest(arguments: Iterable[str], workers: str, folder: Path) -> tuple[int, str]:
    """Run pytest, show what it prints as it comes, and keep back its closing line."""
    command = [sys.executable, "-m", "pytest", "-n", workers, "--dist", "worksteal", "--durations=25"]
    # Nothing asserts in the counting library, so it need not be rewritten.
    command += ["-p", "tests.support.counting", "-W", "ignore:Module already imported so cannot be rewritten"]
    command += list(arguments)
    environment = {**os.environ, COUNT_INTO: str(folder)}
    # What pytest makes of the tests' assertions is kept for the next run: that takes a third of the collection's time.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
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
    parser.add_argument("--missing", metavar="FOLDER")
    parser.add_argument("--least", metavar="FOLDER=PERCENT", type=gate)
    options, rest = parser.parse_known_args()
    SHORT.unlink(missing_ok=True)
    gates = [options.least] if options.least else GATES if rest in ([], ["tests"]) else []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as beside:
        # Reading every file takes seconds, and tests leave the cores idle now and then.
        all_files = beside.submit(nothing_run, PACKAGES) if gates or options.missing else None
        code, closing = _pytest(rest, options.workers, Path(folder))
        parts = [json.loads(part.read_text()) for part in Path(folder).glob("*.json")]
        if parts and all_files is not None:
            report = add_up(parts)
            report["files"] = all_files.result()["files"] | report["files"]
            lines, passed = judge(report, gates) if gates else ([], True)
            if options.missing:
                lines += missing(report, options.missing) or [f"  {options.missing}: every line and branch was run"]
            sys.stdout.write("\n" + "\n".join(lines) + "\n\n")
            if not passed:
                code = code or 1
                SHORT.touch()
    sys.stdout.write(closing)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
