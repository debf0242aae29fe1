"""List the least NVIDIA driver for each CUDA release, and compare driver versions.

NVIDIA's table (CUDA Toolkit release notes, "CUDA Toolkit and Corresponding Driver Versions", Linux x86_64). Within one
major version an older driver runs newer releases (CUDA Compatibility, "Minor Version Compatibility"): from 525.60.13 on
for CUDA 12, from 580.65.06 on for CUDA 13. Code that the driver compiles itself, from PTX, is not covered by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

#: CUDA release → the least driver of its toolkit.
LEAST_DRIVER: Mapping[Decimal, str] = MappingProxyType(
    {
        Decimal("12.0"): "525.60.13",
        Decimal("12.1"): "530.30.02",
        Decimal("12.2"): "535.54.03",
        Decimal("12.3"): "545.23.06",
        Decimal("12.4"): "550.54.14",
        Decimal("12.5"): "555.42.02",
        Decimal("12.6"): "560.28.03",
        Decimal("12.8"): "570.26",
        Decimal("12.9"): "575.51.03",
        Decimal("13.0"): "580.65.06",
    }
)


def least_release(cuda: Decimal, *, minor: bool) -> Decimal:
    """Return the CUDA release that a driver must support to run code of release `cuda`.

    With `minor` it is the first release of the same major version.
    """
    return Decimal(f"{int(cuda)}.0") if minor else cuda
