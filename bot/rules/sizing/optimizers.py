"""Count the bytes that an optimizer keeps per trained weight: a 32-bit copy of the weight, and its own state.

- AdamW: two 32-bit moments (arXiv:1711.05101). With 8 bits each takes one byte (arXiv:2110.02861).
- Adafactor keeps sums of rows and columns instead of the second moment, and no first one (arXiv:1804.04235).
- Muon keeps one 32-bit momentum for the matrices of the layers (arXiv:2502.16982), Lion and SGD one for every weight
  (arXiv:2302.06675).
- GaLore keeps the moments of a projection of rank r: m r + 2 n r numbers for a matrix of m x n (arXiv:2403.03507,
  table 1). Here r is a quarter of m, as in the paper's runs of 1B and larger, and the matrices count as square.

Muon and GaLore leave embeddings and the output head to AdamW.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

_COPY: Final = 4.0


class Optimizer(StrEnum):
    ADAMW = "adamw"
    ADAMW_8BIT = "adamw-8bit"
    ADAFACTOR = "adafactor"
    MUON = "muon"
    GALORE = "galore"
    LION = "lion"
    SGD = "sgd"


_STATE_BYTES: Final[Mapping[Optimizer, float]] = {
    Optimizer.ADAMW: 8.0,
    Optimizer.ADAMW_8BIT: 2.0,
    Optimizer.ADAFACTOR: 0.0,
    Optimizer.MUON: 4.0,
    Optimizer.GALORE: 4 * (1 / 4 + 2 / 4),
    Optimizer.LION: 4.0,
    Optimizer.SGD: 4.0,
}
_MATRICES_ONLY: Final = frozenset([Optimizer.MUON, Optimizer.GALORE])


def state_bytes(optimizer: Optimizer, weights: float, outer: float = 0.0) -> float:
    """Return the bytes for so many trained weights, of which `outer` are embeddings and the output head."""
    apart = outer if optimizer in _MATRICES_ONLY else 0.0
    own = (_COPY + _STATE_BYTES[optimizer]) * (weights - apart)
    return own + (_COPY + _STATE_BYTES[Optimizer.ADAMW]) * apart
