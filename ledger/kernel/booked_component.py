"""Name the parts of an instance's cost that are booked apart."""

from __future__ import annotations

from enum import StrEnum


class BookedComponent(StrEnum):
    """A part of an instance's cost, as its ledger entries store it.

    A cloud's bill and another tool's ledger may name further parts, so the column takes other words as well.
    """

    GPU = "gpu"
    STORAGE = "storage"
    #: The whole rate of an orphan. The stored word is older than that name.
    ORPHAN = "stray"
