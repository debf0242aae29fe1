"""The gate counts lines and branches per part, and names what is too low."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.coverage_gate import GATES, Sum, gate, judge, missing
from tests.support.counting import add_up, counting, nothing_run

TWO_WAYS = """
from __future__ import annotations


def way(right: bool) -> str:
    if right:
        return "right"
    return "left"


async def ways(most: int) -> list[str]:
    found = []
    for number in range(most):
        found.append(way(number % 2 == 0))
    return found
"""


def report(**files: tuple[int, int, int, int]) -> dict[str, Any]:
    """A coverage report; a file is (statements, covered, branches, covered branches)."""
    return {
        "files": {
            path.replace("__", "/") + ".py": {
                "summary": {
                    "covered_lines": c,
                    "missing_lines": s - c,
                    "covered_branches": cb,
                    "missing_branches": b - cb,
                    "percent_covered": 100 * (c + cb) / (s + b),
                }
            }
            for path, (s, c, b, cb) in files.items()
        }
    }


def test_every_part_at_its_share_passes() -> None:
    lines, passed = judge(
        report(
            bot__rules__spend=(10, 10, 4, 4),
            ledger__core__moves=(5, 5, 0, 0),
            bot__services__outbox=(95, 92, 5, 3),
            providers__http=(90, 80, 10, 10),
        )
    )
    assert passed, lines
    assert len(lines) == 1 + len(GATES)


def test_one_missing_branch_of_a_rule_fails_and_is_named() -> None:
    lines, passed = judge(report(bot__rules__spend=(10, 10, 4, 3), bot__rules__duration=(10, 10, 4, 4)))
    assert not passed
    text = "\n".join(lines)
    assert "too low" in text
    assert "bot/rules/spend.py: 93%" in text


def test_a_well_tested_part_does_not_pay_for_another() -> None:
    _, passed = judge(report(bot__services__x=(100, 90, 0, 0), providers__y=(10_000, 10_000, 0, 0)))
    assert not passed


def test_a_gate_for_a_selection_counts_its_folder_only() -> None:
    found = report(ledger__queries__spend=(90, 85, 10, 9), bot__rules__spend=(10, 0, 4, 0))
    lines, passed = judge(found, [gate("ledger/=94")])
    assert passed, lines
    lines, passed = judge(found, [gate("ledger/=95")])
    assert not passed
    assert "bot/rules" not in "\n".join(lines)


def test_an_empty_part_is_complete() -> None:
    assert Sum().percent == 100.0


async def test_what_is_run_is_counted_line_by_line_and_branch_by_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two_ways.py").write_text(TWO_WAYS)
    (tmp_path / "never_imported.py").write_text(TWO_WAYS)
    monkeypatch.syspath_prepend(tmp_path)
    reports = []
    for most in (0, 1, 2):
        with counting([tmp_path]) as counted:
            monkeypatch.delitem(sys.modules, "two_ways", raising=False)
            found = await importlib.import_module("two_ways").ways(most)
        assert found == ["right", "left"][:most]
        reports.append(counted.get_coverage())
    path = str(tmp_path / "two_ways.py")
    assert missing(reports[0], path) == [f"  {path}: lines [6, 7, 8, 14], branches [(6, 7), (6, 8), (13, 14)]"]
    assert missing(reports[1], path) == [f"  {path}: lines [8], branches [(6, 8)]"]
    assert missing(reports[2], path) == []
    assert missing(add_up(reports), path) == []
    assert not nothing_run([tmp_path])["files"][str(tmp_path / "never_imported.py")]["executed_lines"]
