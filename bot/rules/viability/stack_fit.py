"""Judge whether a software stack runs on an offer: the maker of the GPU, its host's processor, its code, the driver.

What a cloud does not report stays possible, because the machine's start-up checks it before anything is installed.
"""

from __future__ import annotations

from decimal import Decimal

from bot.rules.stacks.stack import OTHER_MACHINE, Stack
from bot.rules.viability.obstacles import Obstacle
from providers.images import Vendor


def unfit_for_stack(
    stack: Stack, gpu: str, vendor: Vendor | None, capability: Decimal | None, cuda_max: Decimal | None
) -> Obstacle | None:
    """Return why a stack cannot run on a GPU and its host; None when it can, or when that is not known."""
    if vendor is Vendor.AMD:
        return Obstacle.STACK_VENDOR
    if gpu in OTHER_MACHINE:
        return Obstacle.STACK_MACHINE
    least, most = stack.capabilities
    if capability is not None and not least <= capability <= most:
        return Obstacle.STACK_CODE
    if cuda_max is not None and not (cuda_max.is_finite() and cuda_max >= stack.least_cuda):
        return Obstacle.STACK_DRIVER
    return None
