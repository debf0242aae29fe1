"""Tables that tests make for people: what a test records under this name is printed when all tests are over."""

from __future__ import annotations

from typing import Any

import pytest

TABLE = "table"


def print_tables(reporter: Any) -> None:
    """Print what tests recorded, whichever process they ran in."""
    reports = [one for reports in reporter.stats.values() for one in reports if isinstance(one, pytest.TestReport)]
    for report in reports:
        for name, text in report.user_properties:
            if name == TABLE and report.when == "call":
                reporter.section(report.nodeid.rpartition("::")[2])
                reporter.write_line(str(text))
