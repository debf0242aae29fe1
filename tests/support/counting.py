"""Counts which lines and branches of the program the tests of this process run. A plugin: `-p tests.support.counting`.

The program is instrumented while it is imported, and each probe removes itself when it was reached, so counting costs
nothing afterwards. So this module is loaded before everything of ours and imports nothing of it. `COUNT_INTO` names the
folder for what each process counted; `tests/coverage_gate.py` sets it and adds the parts up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import slipcover

#: Where a process writes what it counted, as the name of a variable of its environment.
COUNT_INTO = "COUNT_INTO"
PACKAGES = ("bot", "ledger", "providers", "migrations")
#: Lines, with the block that they open, that no test has to run.
LEFT_OUT = ("if TYPE_CHECKING:", r"\.\.\.$")


@contextmanager
def counting(sources: Iterable[str | Path]) -> Iterator[slipcover.Slipcover]:
    """Count what is imported from these folders in the meantime, for as long as the process lives."""
    counted = slipcover.Slipcover(branch=True, immediate=True, exclude_lines=list(LEFT_OUT))
    with slipcover.ImportManager(counted, slipcover.FileMatcher(sources=[Path(source) for source in sources])):
        yield counted


def nothing_run(sources: Iterable[str | Path]) -> dict[str, Any]:
    """The report of a run that imported none of these folders' files: what files of no test add to the sum."""
    all_files = slipcover.Slipcover(branch=True, source=[str(one) for one in sources], exclude_lines=list(LEFT_OUT))
    report: dict[str, Any] = all_files.get_coverage()
    return report


def add_up(reports: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """One report of all: a line or branch was run when one of them ran it."""
    first, *others = reports
    for other in others:
        slipcover.merge_coverage(first, other)
    return first


class _Counted:
    """Counts from now on, and writes the report at the end of the process's tests."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.json"
        self._open = counting(PACKAGES)  # Kept, because the import hook goes with it.
        self._counted = self._open.__enter__()
        # Migrations are loaded by their path.
        slipcover.wrap_spec_from_file_location(self._counted, slipcover.FileMatcher(sources=list(PACKAGES)))

    def pytest_sessionfinish(self) -> None:
        """Every test of this process is over."""
        self._path.write_text(json.dumps(self._counted.get_coverage()))


_folder, _worker = os.environ.get(COUNT_INTO), os.environ.get("PYTEST_XDIST_WORKER")
_here = _Counted(Path(_folder), _worker) if _folder and _worker else None


def pytest_configure(config: Any) -> None:
    """The process that hands out the tests runs none, so only those beside it are counted."""
    if _here is not None:
        config.pluginmanager.register(_here, "counted")
