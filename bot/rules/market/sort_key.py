"""Read the words that only browsing the market takes: how its offers are sorted."""

from __future__ import annotations

from enum import StrEnum

from bot.rules.values.bad_word import BadWord, near, show


class SortKey(StrEnum):
    """What the offers of the market are sorted by; each key has its own direction, the better end first."""

    TOTAL = "total"
    PRICE = "price"
    GPU_PRICE = "gpu-price"
    RELIABILITY = "reliability"
    MEMORY = "memory"
    ALL_MEMORY = "all-memory"
    CUDA = "cuda"
    AVAILABLE = "available"
    NETWORK = "network"

    @property
    def doc(self) -> str:
        """Say in a few words what comes first."""
        return _DOCS[self]


_DOCS = {
    SortKey.TOTAL: "lowest expected total with its risk",
    SortKey.PRICE: "lowest price per hour",
    SortKey.GPU_PRICE: "lowest price per GPU and hour",
    SortKey.RELIABILITY: "highest reliability",
    SortKey.MEMORY: "most memory per GPU",
    SortKey.ALL_MEMORY: "most memory of all GPUs together",
    SortKey.CUDA: "newest CUDA",
    SortKey.AVAILABLE: "available for longest",
    SortKey.NETWORK: "fastest download",
}
SORT_HELP = f"What comes first: {', '.join(SortKey)}."


def read_sort(text: str) -> SortKey:
    """Read a sort key. Raises `BadWord`, which names the keys that there are."""
    key = text.lower().strip().replace("_", "-")
    if key not in list(SortKey):
        known = ", ".join(SortKey)
        raise BadWord(f"{show(text)} is no sort key; there are {known}.{near(key, tuple(SortKey))}")
    return SortKey(key)
