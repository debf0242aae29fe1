"""Define the policy's defaults that are tables, and how a setting carries its documentation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def frozen(**items: Any) -> Mapping[str, Any]:
    """Return a table that nobody can change."""
    return MappingProxyType(dict(items))


def doc(text: str) -> Mapping[str, object]:
    """Return the metadata of a setting."""
    return frozen(doc=text)


def disks() -> Mapping[str, int]:
    """Return the GB of disk per workload."""
    return MappingProxyType({"default": 50, "moe": 64})


def idle_limits() -> Mapping[str, int]:
    """Return the seconds of idling per workload."""
    return MappingProxyType({"default": 1800, "training": 1800, "serving": 3600, "batch": 900})
