"""Published facts about what runs where, one row each, with its source.

Columns: reason (`-`: it ran) | number and GPU, then what the host reports | image | the run in the words of `/gpu` |
source. A source is a page, or the issue in which somebody reported it. Where a source leaves out what the reason does
not depend on (the GPU of an old driver or a full disk, the size of a model), the row has a fitting one. `pt` stands for
an image of PyTorch with CUDA 12.4, which has code for 5.0 to 9.0, `new` for one with CUDA 12.8, `rocm` for ROCm, and
`own` for a name that says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
IMAGES = {
    "pt": "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel",
    "new": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel",
    "rocm": "rocm/pytorch:latest",
    "own": "own/image:1",
}
_FACTS = {"ram": "ram_gb", "disk": "disk_gb_max", "cuda": "cuda_max"}


@dataclass(frozen=True, slots=True)
class Row:
    """One fact: the reason to refuse, or None, and everything that an offer and a job are made of."""

    reason: str | None
    count: int
    gpu: str
    facts: dict[str, Any]
    image: str
    work: tuple[str, ...]
    source: str


def _row(line: str) -> Row:
    reason, offer, image, words, source = (cell.strip() for cell in line.split("|"))
    count, gpu, *said = offer.split()
    facts: dict[str, Any] = {}
    for word in said:
        name, _, number = word.partition("=")
        facts[_FACTS[name]] = int(number) if name == "disk" else Decimal(number)
    return Row(
        reason=None if reason == "-" else reason,
        count=int(count.removesuffix("x")),
        gpu=gpu,
        facts=facts,
        image=IMAGES.get(image, image),
        work=tuple(words.split()),
        source=source,
    )


def rows(name: str) -> list[Row]:
    """Return every row of a table; a line that begins with # is a remark."""
    lines = (_HERE / name).read_text(encoding="utf-8").splitlines()
    return [_row(line) for line in lines if line.strip() and not line.startswith("#")]


REFUSED = rows("impossible.txt")
ACCEPTED = rows("possible.txt")
