"""Published peaks and failures of memory, and how many of them the rules of `sizing.vram` judge alike.

Columns of `memory_facts.txt`: whether it ran, with the published peak in GB per GPU where there is one | number and
GPU | the run in the words of `/gpu` | what the GPUs share, and whether activations are kept or recomputed | source.
Every run is judged with the layout and the micro batch that were published, never with one that would fit better. Peaks
of LitGPT are in units of 10^9 bytes. Its FSDP runs first held the whole model on each GPU, which no layout here does:
two of its failures are for that reason judged as fits.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.rules.jobs.work_words import parse
from bot.rules.sizing.vram import GIB, MemoryLayout, parts, usable_gb
from bot.rules.sizing.workload import Precision, Sharding, WorkKind, Workload, architecture
from providers.gpus.table import GPUS

AT_LEAST, AGREE = 60, 0.97


@dataclass(frozen=True, slots=True)
class Fact:
    """One published run: whether it ran, its peak where published, and what the rules compute for it, in GB."""

    line: str
    ran: bool
    peak_gb: float | None
    needs_gb: float
    has_gb: float

    @property
    def agrees(self) -> bool:
        """Whether the rules say the same."""
        return self.ran == (self.needs_gb <= self.has_gb)


def _layout(work: Workload, text: str) -> MemoryLayout:
    if text == "-":
        return MemoryLayout(work.kind, weights=work.number_format)
    sharding, activations = text.split()
    weights = Precision.INT4 if work.kind is WorkKind.QLORA else Precision.BF16
    return MemoryLayout(
        work.kind, Sharding(sharding), activations == "recompute", work.micro_batch or 1, weights=weights
    )


def _fact(line: str) -> Fact:
    verdict, offer, words, layout, _ = (cell.strip() for cell in line.split("|"))
    ran, _, peak = verdict.partition(" ")
    count, name = offer.split()
    work, gpu = parse(words), GPUS[name]
    shape = architecture(work)
    assert shape is not None
    found = parts(work, shape, int(count.removesuffix("x")), _layout(work, layout))
    needs = sum(part.gb for part in found)
    unit = 1e9 / GIB if "litgpt" in line else 1.0
    return Fact(line, ran == "fits", float(peak) * unit if peak.strip() else None, needs, usable_gb(gpu))


LINES = (Path(__file__).parent / "memory_facts.txt").read_text(encoding="utf-8").splitlines()
FACTS = [_fact(line) for line in LINES if line.strip() and not line.startswith("#")]


def test_published_fits_and_failures_are_judged_alike() -> None:
    wrong = [one for one in FACTS if not one.agrees]
    right = 1 - len(wrong) / len(FACTS)
    peaks = [one.needs_gb / one.peak_gb for one in FACTS if one.peak_gb]
    off = statistics.median(abs(ratio - 1) for ratio in peaks)
    print(
        f"{len(FACTS) - len(wrong)} of {len(FACTS)} facts agree ({right:.1%}); {len(peaks)} peaks, median {off:.0%} off"
    )
    for one in wrong:
        print(f"{one.needs_gb:.1f} of {one.has_gb:.1f} GB: {one.line}")
    assert len(FACTS) >= AT_LEAST
    assert sum(not one.ran for one in FACTS) >= 12
    assert off < 0.15
    assert right >= AGREE, [one.line for one in wrong]


@pytest.mark.parametrize("one", [one for one in FACTS if one.ran and one.peak_gb], ids=lambda one: one.line[:120])
def test_a_published_peak_is_not_missed_by_far(one: Fact) -> None:
    """The worst cases are layouts that the source describes only in part."""
    assert one.peak_gb is not None
    assert 0.25 < one.needs_gb / one.peak_gb < 1.7
