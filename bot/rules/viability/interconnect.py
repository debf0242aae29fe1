"""Compare the links between the GPUs of one offer, as its host measured them, with those that an estimate counts on."""

from __future__ import annotations

from decimal import Decimal

from bot.rules.sizing.throughput_data import NVLINK_GB_S
from bot.rules.sizing.training import link_gb_s
from providers.contract import Offer
from providers.gpus.table import GPUS

#: Measured links reach about this share of what the maker states; less is worth a sentence.
_USUAL = Decimal("0.5")


def measured_gb_s(offer: Offer) -> Decimal | None:
    """Return the measured GB/s between two GPUs of an offer; None for one GPU, or where nothing usable was measured."""
    if offer.gpu_count < 2:
        return None
    if _usable(offer.nvlink_gb_s):
        return offer.nvlink_gb_s
    # A host that reports no NVLink for GPUs that have it has not measured it.
    return offer.pcie_gb_s if offer.gpu not in NVLINK_GB_S and _usable(offer.pcie_gb_s) else None


def _usable(said: Decimal | None) -> bool:
    return said is not None and said.is_finite() and said > 0


def slow_link(offer: Offer) -> str:
    """Say that an offer's GPUs exchange data more slowly than its estimate counts on; empty where they do not."""
    has, known = measured_gb_s(offer), GPUS.get(offer.gpu)
    if has is None or known is None:
        return ""
    counted = Decimal(link_gb_s(known))
    if has >= counted * _USUAL:
        return ""
    return (
        f"This host's GPUs exchange data at {has:,.0f} GB/s instead of {counted:,.0f} GB/s, "
        "so a run that shares its weights takes longer."
    )
