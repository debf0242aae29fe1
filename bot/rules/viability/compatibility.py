"""Judge one offer against what its image and the run need, before anything is priced.

This is the definition; `market.ranking` asks it once for all offers that it cannot tell apart. The memory of the GPUs
and of the host depends on the layout of the run, so `market.scoring` asks about those when it has computed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.policy.images import ImageNeeds
from bot.rules.sizing.workload import Precision, Workload
from bot.rules.stacks.stack import Stack
from bot.rules.viability.images import old_driver, wrong_gpu
from bot.rules.viability.obstacles import IN_SHORT, Obstacle
from bot.rules.viability.precision import unable
from bot.rules.viability.stack_fit import unfit_for_stack
from providers.contract import Offer
from providers.gpus.table import GPUS
from providers.images import Vendor


@dataclass(frozen=True, slots=True)
class Needs:
    """Hold what an offer of one cloud must be able to do: run the image and the software, and compute the run.

    `stated` are the compute capabilities that the policy states for GPUs that are not known here.
    """

    image: ImageNeeds
    work: Workload | None
    stated: Mapping[str, Decimal]
    stack: Stack | None = None


def capability(offer: Offer) -> Decimal | None:
    """Return the offer's CUDA compute capability: its cloud's, else that of the GPU; None when unknown."""
    if offer.compute_capability is not None and offer.compute_capability.is_finite():
        return offer.compute_capability
    known = GPUS.get(offer.gpu)
    return None if known is None else known.compute_capability


def obstacle(offer: Offer, needs: Needs) -> Obstacle | None:
    """Return why an offer cannot run the image or the run, in the order in which people can act on it; else None."""
    known = GPUS.get(offer.gpu)
    able = capability(offer)
    able = needs.stated.get(offer.gpu) if able is None else able
    vendor = known.vendor if known is not None else None if able is None else Vendor.NVIDIA
    found = wrong_gpu(needs.image, vendor, able)
    if found is None and needs.work is not None:
        found = _computing(offer, needs.work, vendor, able)
    found = found or old_driver(needs.image, offer.cuda_max)
    if found is None and needs.stack is not None:
        found = unfit_for_stack(needs.stack, offer.gpu, vendor, able, offer.cuda_max)
    return found


def _computing(offer: Offer, work: Workload, vendor: Vendor | None, able: Decimal | None) -> Obstacle | None:
    if vendor is None and work.number_format is not Precision.FP32:
        return Obstacle.GPU_UNKNOWN
    amd = GPUS[offer.gpu].architecture if vendor is Vendor.AMD else None
    found = unable(work, able, amd)
    if found is None and work.trains and work.batch < offer.gpu_count * (work.micro_batch or 1):
        return Obstacle.BATCH
    return found


def in_short(offer: Offer, found: Obstacle, needs: Needs) -> str:
    """Say in a few words why an offer was refused: `MI300X: the image needs CUDA`."""
    if found is Obstacle.VENDOR:
        needed = "CUDA" if needs.image.vendor is Vendor.NVIDIA else "ROCm"
        return f"{offer.gpu}: the image needs {needed}"
    return f"{offer.gpu}: {IN_SHORT[found]}"
