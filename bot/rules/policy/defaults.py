"""Define the policy's defaults that are tables, and how a setting carries its documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, TypeVar

Value = TypeVar("Value")


def frozen(**items: Any) -> Mapping[str, Any]:
    """Return a table that nobody can change."""
    return MappingProxyType(dict(items))


def setting(default: Value, text: str, **bounds: float) -> Value:
    """Return the field of a setting: its default, what it means, and its `floor` where it has one."""
    about = frozen(doc=text, **bounds)
    if isinstance(default, Mapping):  # Dataclasses take any table for one that may change.
        return field(default_factory=lambda: default, metadata=about)
    return field(default=default, metadata=about)


def disks() -> Mapping[str, int]:
    """Return the GB of disk per workload."""
    return MappingProxyType({"default": 50, "moe": 64})


def idle_limits() -> Mapping[str, int]:
    """Return the seconds of idling per workload."""
    return MappingProxyType({"default": 1800, "training": 1800, "serving": 3600, "batch": 900})


def idle_signals() -> Mapping[str, tuple[str, ...]]:
    """Return what must rest beside the GPUs before a machine counts as idle, per workload."""
    return MappingProxyType(
        {"default": (), "notebook": ("login", "cpu"), "serving": ("network",), "data": ("cpu", "network")}
    )
