"""Runs tests on changed functions: pytest collects once, then each order is carried out in a fork of that process.

Started by its path in the folder of a commit, so it imports nothing of the program or of its tests by itself. An order
is a line of JSON; so is the reply. `reach` runs tests and says which of the given functions each calls; `change` puts
one changed function in the place of the original and runs tests until one fails. A changed function keeps its
identity: only its code and its defaults are exchanged, so a module that imported it by name calls the change too.
Processes that a test starts run the program as it is.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib
import itertools
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

WARM = "test_mutants_warm.py"
WARM_SOURCE = """
TEMPLATES = []
def test_warm(pg_template, sqlite_template):
    TEMPLATES.append(pg_template)
"""
Order = dict[str, Any]


def replace(order: Order) -> None:
    """Give a function of the program the code of another source."""
    module = importlib.import_module(order["module"])
    space = dict(vars(module))
    flags = __future__.annotations.compiler_flag
    exec(compile(order["source"], str(module.__file__), "exec", flags=flags, dont_inherit=True), space)  # noqa: S102
    made, real = _function(space, order["name"]), _function(vars(module), order["name"])
    real.__code__, real.__defaults__, real.__kwdefaults__ = made.__code__, made.__defaults__, made.__kwdefaults__


def _function(space: Any, name: str) -> Any:
    for part in name.split("."):
        found = space[part]
        space = vars(found)
    return getattr(found, "__func__", found)


def noted(order: Order, number: int) -> Order:
    """The same function, which calls `__reached__` with its number first."""
    tree = ast.parse(order["source"])
    function: Any = tree.body[0].body[0] if isinstance(tree.body[0], ast.ClassDef) else tree.body[0]
    function.body.insert(0, ast.parse(f"__reached__({number})").body[0])
    return {**order, "source": ast.unparse(ast.fix_missing_locations(tree))}


class Worker:
    """A plugin of pytest in the place of its loop over the tests."""

    def __init__(self, orders: Iterable[str], write: Callable[[Any], None]) -> None:
        self._orders, self._write = orders, write
        self._failed = False
        self._why = ""
        self._serial = itertools.count(1)

    def pytest_sessionstart(self) -> None:
        """Examples of Hypothesis are the same in every run; none is made smaller, and none is kept for later."""
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        plain = hypothesis.settings()
        hypothesis.settings.register_profile("mutants", plain, database=None, derandomize=True, phases=phases)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure."""
        if report.failed:
            self._failed = True
            self._why = str(report.longrepr)[-300:]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Start what tests share, then carry out orders until there are no more."""
        self._items = {item.nodeid: item for item in session.items}
        self._warm = next(item for item in session.items if item.path.name == WARM)
        if session.testsfailed or not self._run(self._warm):
            raise pytest.UsageError("the tests cannot be collected, or the databases do not start")
        self._write({"tests": [name for name, item in self._items.items() if item is not self._warm]})
        for line in self._orders:
            order = json.loads(line)
            self._write(self._carry_out(order))
        return True

    def _run(self, item: pytest.Item) -> bool:
        self._failed, self._why = False, ""
        # With the session as what comes next, everything but the session's own fixtures is torn down.
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=item.session)
        return not self._failed

    def _carry_out(self, order: Order) -> Order:
        serial = next(self._serial)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                with os.fdopen(writer, "w", buffering=1) as out:
                    self._child(order, serial, lambda said: print(json.dumps(said), file=out))
            finally:
                os._exit(0)
        os.close(writer)
        try:
            said = self._listen(reader, order)
        finally:
            os.kill(child, signal.SIGKILL)
            _, _, used = os.wait4(child, 0)
            os.close(reader)
        return {"said": said, "cpu_s": round(used.ru_utime + used.ru_stime, 3)}

    def _listen(self, reader: int, order: Order) -> list[Order]:
        """What the child said, a line for each thing; the last one says how a test ended that did not end itself."""
        said: list[Order] = []
        rest = b""
        while True:
            test = said[-1].get("begun") if said else None
            limit = _limit(order, test) + order["patience"][2] if test else 60.0
            if not select.select([reader], [], [], limit)[0]:
                return [*said, {"test": test, "failed": True, "how": "killed after its time"}]
            if not (got := os.read(reader, 1 << 16)):
                return said if not test else [*said, {"test": test, "failed": True, "how": "ended the process"}]
            *lines, rest = (rest + got).split(b"\n")
            said += map(json.loads, lines)

    def _child(self, order: Order, serial: int, say: Callable[[Order], None]) -> None:
        # A database that a killed child left is not in the way of the next child's names.
        assert isinstance(self._warm, pytest.Function)
        self._warm.module.TEMPLATES[0]._number = itertools.count(serial * 10_000)
        reached: set[int] = set()
        vars(builtins)["__reached__"] = reached.add
        try:
            for change in order["changes"]:
                replace(change)
        except Exception as error:  # noqa: BLE001 # Whatever a changed source does wrong, no test can find it.
            say({"broken": f"{type(error).__name__}: {error}"})
            return
        for test in order["tests"]:
            item = self._items[test]
            item.add_marker(pytest.mark.timeout(_limit(order, test)), append=False)
            say({"begun": test})
            reached.clear()
            begun = time.perf_counter()
            passed = self._run(item)
            took = round(time.perf_counter() - begun, 4)
            say({"test": test, "failed": not passed, "seconds": took, "reached": sorted(reached), "how": self._why})
            if order["stop"] and not passed:
                return


def _limit(order: Order, test: str) -> float:
    least, factor, _ = order["patience"]
    return float(least + factor * order["seconds"].get(test, 2.0))


def main() -> int:
    """`worker.py ORDERS REPLIES TESTS...`: the numbers of two pipes, and the tests to collect."""
    orders, replies, *tests = sys.argv[1:]
    sys.path[0] = str(Path.cwd())
    out = os.fdopen(int(replies), "w", buffering=1)
    worker = Worker(os.fdopen(int(orders)), lambda said: print(json.dumps(said), file=out))
    options = ["-q", "-m", "not slow", "--tb=line", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=none"]
    # The common folder for temporary files is emptied by whatever other run of pytest starts.
    options += [f"--basetemp=temporary-{os.getpid()}", "-W", "ignore:Module already imported so cannot be rewritten"]
    return int(pytest.main([*options, *tests, f"tests/{WARM}"], plugins=[worker]))


if __name__ == "__main__":
    raise SystemExit(main())
