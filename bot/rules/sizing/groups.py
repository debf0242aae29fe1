"""Name the groups of runs whose estimates are equally sure."""

from __future__ import annotations

from enum import StrEnum


class Group(StrEnum):
    """Name a group of runs whose spread is measured apart."""

    DENSE = "dense"
    NEW = "other GPU"
    EXPERTS = "experts"
    ADAPTERS = "adapters"
    DECODING = "decoding"
