"""Play many seeds, in several processes if asked for, report them in order, and go on where an earlier run stopped."""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.scenarios.simulation.play import Outcome

#: Seeds that are given to each process ahead of the one that is reported next.
AHEAD = 3


@dataclass(frozen=True, slots=True)
class Played:
    """What a record keeps of one seed."""

    seed: int
    digest: str
    instances: int
    crashes: int
    cpu_s: float
    violations: tuple[str, ...]

    @classmethod
    def of(cls, outcome: Outcome) -> Played:
        """Take what is kept of an outcome."""
        kept = (outcome.sessions, outcome.kills, round(outcome.cpu_s, 3), tuple(outcome.violations))
        return cls(outcome.seed, outcome.digest, *kept)

    def line(self) -> str:
        """Return it as a line of a record."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(named) + "\n"


def recorded(path: Path) -> list[Played]:
    """Return what a record holds. The last line of a run that was killed may be half a line, which is cut off."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    found: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
    return [Played(**{**one, "violations": tuple(one["violations"])}) for one in found]


def played(
    seeds: Iterator[int], play: Callable[[int], Outcome], *, workers: int, until_s: float | None
) -> Iterator[Outcome]:
    """Play these seeds, until the monotonic time `until_s` if there is one. Outcomes come in the order of the seeds.

    With several workers, a seed that was begun before that time is still played to its end.
    """
    if workers == 1:
        for seed in seeds:
            if until_s is not None and time.monotonic() >= until_s:
                return
            yield _outcome(play, seed)
        return
    with ExitStack() as stack:
        context = multiprocessing.get_context("fork")
        pool = stack.enter_context(ProcessPoolExecutor(workers, mp_context=context))
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        waiting: deque[Future[Outcome]] = deque()
        while True:
            is_over = until_s is not None and time.monotonic() >= until_s
            while not is_over and len(waiting) < workers * AHEAD and (coming := next(seeds, None)) is not None:
                waiting.append(pool.submit(_outcome, play, coming))
            if is_over:
                # Only what was not begun can be taken back; it is always the last of them.
                while waiting and waiting[-1].cancel():
                    waiting.pop()
            if not waiting:
                return
            yield waiting.popleft().result()


def _outcome(play: Callable[[int], Outcome], seed: int) -> Outcome:
    """Play one seed. An error in it breaks this seed only, and is shown with `--history`."""
    try:
        return play(seed)
    except Exception as error:  # noqa: BLE001 # The other seeds are played all the same.
        said = f"nothing raises an error: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return Outcome(seed, [said], "", [], journal=traceback.format_exc().splitlines())


def those_left(first: int, number: int | None, known: list[Played]) -> Iterator[int]:
    """Return the seeds from `first` on that come after those which are known; `number` bounds all of them together."""
    begin = max([first, *(one.seed + 1 for one in known)])
    return iter(range(begin, first + number)) if number is not None else count(begin)
