"""Say which kinds of work are serving a model."""

from __future__ import annotations

#: The name in the policy's settings per workload, such as `idle_s`, and what people write for it.
SERVING = "serving"
_WORDS = frozenset({SERVING, "serve", "inference"})


def is_serving(workload: str) -> bool:
    """Whether a kind of work is serving a model."""
    return workload.lower() in _WORDS
