"""The defaults of the policy that are tables, and how a setting carries its documentation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def frozen(**items: Any) -> Mapping[str, Any]:
    """A table that nobody changes."""
    return MappingProxyType(dict(items))


def doc(text: str) -> Mapping[str, object]:
    """The metadata of a setting."""
    return frozen(doc=text)


def disks() -> Mapping[str, int]:
    """GB per workload."""
    return MappingProxyType({"default": 50, "moe": 64})


def idle_limits() -> Mapping[str, int]:
    """Seconds per workload."""
    return MappingProxyType({"default": 1800, "training": 1800, "serving": 3600, "batch": 900})
