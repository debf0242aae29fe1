"""The tests of one commit, run on changed functions by one worker for each core, in a copy of that commit's files."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.mutants import worker
from tests.mutants.draw import Change, Mutant

#: So many tests in a fork while it is found out what they call.
CHUNK = 25
Row = dict[str, Any]


class OutOfTimeError(Exception):
    """The run's time is over; what is recorded is kept."""


class Store:
    """Rows in a file that is only appended to, so that a killed run loses at most its last row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            with path.open("a") as file:
                file.write("\n")

    def rows(self) -> Iterator[Row]:
        """What was recorded, but for a row that was cut off."""
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def add(self, row: Row) -> None:
        """Record one row."""
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


class _Process:
    """A worker, in a session of its own, so that Ctrl-C does not reach it before its reply is recorded."""

    def __init__(self, folder: Path, tests: Sequence[str], log: Path) -> None:
        (orders, self._orders), (self._replies, replies) = os.pipe(), os.pipe()
        command = [sys.executable, str(Path(worker.__file__).resolve()), str(orders), str(replies), *tests]
        with log.open("w") as out:
            self._process = subprocess.Popen(
                command, cwd=folder, pass_fds=(orders, replies), start_new_session=True, stdout=out, stderr=out
            )
        os.close(orders)
        os.close(replies)
        self._log = log
        self._out, self._in = os.fdopen(self._orders, "w", buffering=1), os.fdopen(self._replies)
        self.tests: list[str] = []

    def wait(self) -> None:
        """Wait until it has collected the tests."""
        self.tests = self._reply()["tests"]

    def ask(self, order: Row) -> list[Row]:
        """What the worker's fork said; `used_s` is the processor's time that it took."""
        self._out.write(json.dumps(order) + "\n")
        reply = self._reply()
        self.used_s: float = reply["cpu_s"]
        said: list[Row] = reply["said"]
        return said

    def end(self) -> None:
        """Let it stop its database; what does not end is killed with its forks."""
        self._out.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._in.close()

    def kill(self) -> None:
        """End it now; its database ends by itself."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def _reply(self) -> Row:
        if not (line := self._in.readline()):
            raise RuntimeError("A worker ended:\n" + "\n".join(self._log.read_text().splitlines()[-15:]))
        reply: Row = json.loads(line)
        return reply


@dataclass
class Suite:
    """The tests of one commit. `deadline` is in the seconds of `time.monotonic`."""

    root: Path
    commit: str
    scratch: Path
    tests: Sequence[str]
    workers: int
    deadline: float
    #: A test fails that takes this many seconds and so many times as long as before; later its process is killed.
    patience: tuple[float, float, float] = (10.0, 8.0, 10.0)
    seconds: dict[str, float] = field(default_factory=dict)
    #: Tests by the function that they call, the fastest first.
    calling: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: Tests that fail without any change.
    failing: list[str] = field(default_factory=list)
    #: Tests that failed for another change of a function come first.
    _killers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _processes: list[_Process] = field(default_factory=list)

    def __enter__(self) -> Self:
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        packed = subprocess.run(["git", "archive", self.commit], cwd=self.root, check=True, stdout=subprocess.PIPE)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(self.scratch, filter="data")
        (self.scratch / "tests" / worker.WARM).write_text(worker.WARM_SOURCE)
        for number in range(self.workers):
            self._processes.append(_Process(self.scratch, self.tests, self.scratch / f"worker-{number}.log"))
        try:
            for process in self._processes:
                process.wait()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for process in self._processes:
            if kind is not None:
                process.kill()
            process.end()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def reach(self, functions: Sequence[Change], store: Store) -> None:
        """Find out which tests call which functions, and how long each takes; one that fails is tried again alone."""
        done = {row["test"]: row for row in store.rows()}
        changes = [worker.noted(change.order(), number) for number, change in enumerate(functions)]

        def look(tests: list[str], process: _Process) -> None:
            for row in self._order(changes, tests, process, stop=False):
                if "broken" in row:
                    raise RuntimeError(f"A function cannot be watched: {row['broken']}")
                if "test" in row:
                    done[row["test"]] = row
                    store.add(row)

        rest = [test for test in self._processes[0].tests if test not in done]
        self._share([rest[at : at + CHUNK] for at in range(0, len(rest), CHUNK)], look)
        rest = [test for test in self._processes[0].tests if test not in done or done[test]["failed"]]
        self._share([[test] for test in rest], look)
        for test, row in sorted(done.items(), key=lambda pair: float(pair[1].get("seconds", 0))):
            if row["failed"]:
                self.failing.append(test)
                continue
            self.seconds[test] = row["seconds"]
            for number in row["reached"]:
                self.calling[functions[number].place].append(test)

    def first(self, tests: Collection[str]) -> None:
        """Run these tests before the others."""
        for calling in self.calling.values():
            calling.sort(key=lambda test: test not in tests)

    def judge(self, mutants: Iterable[tuple[Mutant, Change]], store: Store, budget_s: float) -> dict[str, Row]:
        """How each mutant ended: `killed` by a test, `survived`, `open` when the budget was spent, or `broken`."""
        known = {(row["name"], row["source"]): row for row in store.rows()}
        ended: dict[str, Row] = {}

        def try_one(job: tuple[Mutant, Change], process: _Process) -> None:
            mutant, change = job
            row = known.get((mutant.name, change.source))
            if row is None or (row["outcome"] == "open" and row["budget_s"] < budget_s):
                row = {"name": mutant.name, "source": change.source, **self._kill(change, process, budget_s)}
                store.add(row)
            ended[mutant.name] = row

        jobs = list(mutants)
        self._share(jobs, try_one)
        while unsound := self._failing({row["by"] for row in ended.values() if row["outcome"] == "killed"}):
            self.failing += unsound
            for tests in [*self.calling.values(), *self._killers.values()]:
                tests[:] = [test for test in tests if test not in unsound]
            jobs = [job for job in jobs if ended[job[0].name].get("by") in unsound]
            known = {}
            self._share(jobs, try_one)
        return ended

    def repeat(self, change: Change, test: str) -> bool:
        """Whether a test fails again for a change."""
        return self._order([change.order()], [test], self._processes[0])[-1]["failed"] is True

    def _failing(self, tests: Collection[str]) -> list[str]:
        """Which of these tests fail without a change: what they killed was not killed by its change."""
        found: list[str] = []

        def look(chunk: list[str], process: _Process) -> None:
            found.extend(row["test"] for row in self._order([], chunk, process, stop=False) if row.get("failed"))

        every = sorted(tests)
        self._share([every[at : at + CHUNK] for at in range(0, len(every), CHUNK)], look)
        return found

    def _kill(self, change: Change, process: _Process, budget_s: float) -> Row:
        first = self._killers[change.place]
        tests = [*first, *(test for test in self.calling[change.place] if test not in first)]
        chosen: list[str] = []
        spent = 0.0
        for test in tests:
            spent += self.seconds[test]
            if chosen and spent > budget_s:
                break
            chosen.append(test)
        begun = time.monotonic()
        said = self._order([change.order()], chosen, process)
        row: Row = {"tests": len(chosen), "of": len(tests), "budget_s": budget_s}
        row |= {"took_s": round(time.monotonic() - begun, 3), "used_s": process.used_s}
        last = said[-1] if said else {}
        if "broken" in last:
            return {**row, "outcome": "broken", "by": last["broken"]}
        if last.get("failed"):
            first[:] = [last["test"], *(test for test in first if test != last["test"])]
            return {**row, "outcome": "killed", "by": last["test"], "how": last.get("how", "failed")}
        return {**row, "outcome": "survived" if len(chosen) == len(tests) else "open"}

    def _order(
        self, changes: Sequence[Row], tests: Sequence[str], process: _Process, *, stop: bool = True
    ) -> list[Row]:
        seconds = {test: self.seconds[test] for test in tests if test in self.seconds}
        order = {"changes": changes, "tests": tests, "stop": stop, "seconds": seconds}
        return process.ask({**order, "patience": self.patience})

    def _share(self, jobs: Sequence[Any], work: Callable[[Any, _Process], None]) -> None:
        """Share jobs among the workers; the first error ends all of them."""
        rest = iter(jobs)
        errors: list[BaseException] = []
        lock = threading.Lock()

        def pull(process: _Process) -> None:
            try:
                while not errors:
                    with lock:
                        job = next(rest, None)
                    if job is None:
                        return
                    if time.monotonic() > self.deadline:
                        raise OutOfTimeError
                    work(job, process)
            except Exception as error:  # noqa: BLE001 # It is raised again in the main thread.
                errors.append(error)

        threads = [threading.Thread(target=pull, args=(process,), daemon=True) for process in self._processes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
