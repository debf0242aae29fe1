"""What a container image's name says: the CUDA that it was built against, and the maker of the GPUs that it runs on."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import StrEnum

#: `cuda12.4`, `cuda-12.8`, `nvidia/cuda:12.4.1-devel`, and the packed `cu128` or `cu1281` of wheels and RunPod's tags.
_DOTTED = re.compile(r"cuda[-_:]?(\d{2})\.(\d)")
_PACKED = re.compile(r"(?<![a-z])cu(\d{2})(\d)\d?(?!\d)")
_ROCM = re.compile(r"(?<![a-z])(rocm|hip)(?![a-z])")


class Vendor(StrEnum):
    """Makers of GPUs whose programs do not run on one another's."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"


def cuda_of(image: str) -> Decimal | None:
    """The CUDA version in an image's name, major and minor; None where the name does not say.

    A container needs a host whose driver supports at least this version. On an older one it never starts.
    """
    name = image.lower()
    found = _DOTTED.search(name) or _PACKED.search(name)
    return Decimal(f"{found[1]}.{found[2]}") if found else None


def vendor_of(image: str) -> Vendor | None:
    """Whose GPUs an image is built for, by its name; None where the name does not say."""
    if _ROCM.search(image.lower()):
        return Vendor.AMD
    return Vendor.NVIDIA if cuda_of(image) is not None else None
