"""Define images: which one is rented where nobody names one, and which hosts and GPUs it runs on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from providers.images import Vendor

#: The least and greatest compute capability of an image; None where nobody said.
Supported = tuple[Decimal, Decimal] | None


@dataclass(frozen=True, slots=True)
class ImageNeeds:
    """What an image needs: compute capabilities, the maker of the GPU, the least CUDA of the host; None: unknown."""

    capabilities: Supported = None
    vendor: Vendor | None = None
    cuda: Decimal | None = None


def read_range(text: str) -> Supported:
    """Read the least and greatest compute capability of `5.0-9.0`; None when it is not such a range."""
    found = re.fullmatch(r"(\d{1,2}\.\d)-(\d{1,2}\.\d)", text)
    return (Decimal(found[1]), Decimal(found[2])) if found and Decimal(found[1]) <= Decimal(found[2]) else None


def read_cuda(text: str) -> Decimal | None:
    """Read a CUDA version such as `12.8`; None when it is not one."""
    return Decimal(text) if re.fullmatch(r"\d{1,2}\.\d", text) else None


def read_vendor(text: str) -> Vendor | None:
    """Read the maker of a GPU, `NVIDIA` or `AMD`; None when it is neither."""
    return next((one for one in Vendor if one.value == text.strip().upper()), None)


def images() -> Mapping[str, str]:
    """Return the image per cloud."""
    return MappingProxyType(
        {
            "default": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel",
            "vast": "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel",
            "runpod": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
        }
    )


def image_capabilities() -> Mapping[str, str]:
    """Return the least and greatest compute capability per image."""
    # CUDA 12.8 is the first with kernels for Blackwell (10.0 and 12.0); the builds against it leave old GPUs out.
    return MappingProxyType(
        {
            "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel": "5.0-9.0",
            "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel": "7.5-12.0",
            "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404": "7.0-12.0",
        }
    )
