"""The gate counts lines and branches per part, and names what is too low."""

from __future__ import annotations

from typing import Any

from tests.coverage_gate import GATES, Sum, judge


def report(**files: tuple[int, int, int, int]) -> dict[str, Any]:
    """A coverage report; a file is (statements, covered, branches, covered branches)."""
    return {
        "files": {
            path.replace("__", "/") + ".py": {
                "summary": {
                    "num_statements": s,
                    "covered_lines": c,
                    "num_branches": b,
                    "covered_branches": cb,
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
            ledger__moves=(5, 5, 0, 0),
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


def test_an_empty_part_is_complete() -> None:
    assert Sum().percent == 100.0
