"""Check that work grows as its text does, by processor time: a machine that is busy does not count."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any, Final

SHORT, LONG = 8_000, 64_000
#: Processor time below which nothing is compared.
LEAST_S: Final = 0.005


def assert_linear(work: Callable[[str], Any], unit: str, begin: str = "", *, short: int = SHORT) -> None:
    """Eight times the text may take 8 times as long, 24 with all noise; where each pair is looked at, it takes 64."""
    texts = [(begin + unit * (length // len(unit) + 1))[:length] for length in (short, 8 * short)]
    took = _spent(work, texts[1])
    if took > 24 * LEAST_S:
        before = max(_spent(work, texts[0]), LEAST_S)
        assert took < 24 * before, f"{unit!r}: {took:.2f} s, and {before:.3f} s for an eighth"


def _spent(work: Callable[[str], Any], text: str) -> float:
    """Return the least time of two runs; one is enough where it is short."""
    first = _once(work, text)
    return first if first < LEAST_S else min(first, _once(work, text))


def _once(work: Callable[[str], Any], text: str) -> float:
    before = process_time()
    work(text)
    return process_time() - before
