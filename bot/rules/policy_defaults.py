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


def images() -> Mapping[str, str]:
    """Image per cloud."""
    return MappingProxyType(
        {
            "default": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel",
            "vast": "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel",
            "runpod": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
        }
    )


def idle_limits() -> Mapping[str, int]:
    """Seconds per workload."""
    return MappingProxyType({"default": 1800, "training": 1800, "serving": 3600, "batch": 900})


def image_capabilities() -> Mapping[str, str]:
    """Least and greatest compute capability per image."""
    # CUDA 12.8 is the first with kernels for Blackwell (10.0 and 12.0); the builds against it leave old GPUs out.
    return MappingProxyType(
        {
            "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel": "5.0-9.0",
            "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel": "7.5-12.0",
            "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404": "7.0-12.0",
        }
    )
