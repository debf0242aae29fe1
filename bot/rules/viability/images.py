"""Judge whether an image runs on a GPU and its host: the maker, the compute capability and the driver.

Which GPUs a CUDA release compiles for is NVIDIA's (release notes and nvcc's list of GPU architectures, per release):
code for one capability also runs on later ones of the same major number. A name that says no maker is taken for CUDA,
as nearly all images are, so it is refused on AMD until somebody states otherwise.
"""

from __future__ import annotations

from decimal import Decimal

from bot.rules.policy.images import ImageNeeds, Supported
from bot.rules.viability.obstacles import Obstacle
from providers.images import Vendor

#: CUDA release, its least capability, and the last one of the greatest major number that it has code for.
_TOOLKITS = tuple(
    (Decimal(release), Decimal(least), Decimal(most))
    for release, least, most in (
        ("13.0", "7.5", "12.9"),
        ("12.8", "5.0", "12.9"),
        ("12.0", "5.0", "9.9"),
        ("11.8", "3.5", "9.9"),
        ("11.0", "3.5", "8.9"),
        ("10.0", "3.0", "7.9"),
        ("9.0", "3.0", "7.4"),
    )
)


def compiled_for(cuda: Decimal) -> Supported:
    """Return the least and greatest compute capability that a CUDA release has code for; None for older releases."""
    return next(((least, most) for release, least, most in _TOOLKITS if cuda >= release), None)


def wrong_gpu(image: ImageNeeds, vendor: Vendor | None, capability: Decimal | None) -> Obstacle | None:
    """Return why an image cannot run on a GPU; None when it can.

    An unknown GPU is not trusted with an image that says what it needs.
    """
    if vendor is Vendor.AMD and image.vendor is None:
        return Obstacle.IMAGE_UNKNOWN
    if image.vendor is not None and vendor is None:
        return Obstacle.GPU_UNKNOWN
    if image.vendor is not None and vendor is not image.vendor:
        return Obstacle.VENDOR
    if capability is None or vendor is Vendor.AMD:
        return None
    supported = image.capabilities or (None if image.cuda is None else compiled_for(image.cuda))
    least, most = supported or (capability, capability)
    return None if least <= capability <= most else Obstacle.NO_CODE


def old_driver(image: ImageNeeds, cuda_max: Decimal | None) -> Obstacle | None:
    """Return the obstacle when the host's driver is known to be too old: the container would never start."""
    if image.cuda is None or cuda_max is None:
        return None
    return None if cuda_max.is_finite() and cuda_max >= image.cuda else Obstacle.DRIVER
