"""Compare one offer's host with what its GPUs are sold as: the measured links between them, and their power limit."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from bot.rules.sizing.host_speed import WATTS, HostSpeed, link_step, power_step
from bot.rules.sizing.throughput_data import NVLINK_GB_S
from bot.rules.sizing.training import link_gb_s
from providers.contract import Offer
from providers.gpus.table import GPUS


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


def counted_gb_s(gpu: str) -> float | None:
    """Return the GB/s between two of a GPU that estimates count on; None where the GPU is not known."""
    known = GPUS.get(gpu)
    return None if known is None else link_gb_s(known)


def host_speed(offer: Offer) -> HostSpeed:
    """Return how much slower an offer's host is than its GPUs are sold; what it does not report is as sold.

    `market.host_speeds` computes the same for a whole market.
    """
    has, counted = measured_gb_s(offer), counted_gb_s(offer.gpu)
    limit, sheet = offer.power_limit_w, WATTS.get(offer.gpu)
    link = 0 if has is None or counted is None else link_step(float(has) / counted)
    return HostSpeed(link, power_step(float(limit or 0) / sheet) if _usable(limit) and sheet is not None else 0)


def slow_host(offer: Offer) -> Iterator[str]:
    """Say what makes an offer's estimate longer than that of other hosts with the same GPUs."""
    speed, has, counted = host_speed(offer), measured_gb_s(offer), counted_gb_s(offer.gpu)
    if speed.link and has is not None and counted is not None:
        yield (
            f"This host's GPUs exchange data at {has:,.0f} GB/s instead of {counted:,.0f} GB/s, so a run that shares "
            "its weights takes longer."
        )
    if speed.power:
        yield (
            f"This host limits each GPU to {offer.power_limit_w:,.0f} W of {WATTS[offer.gpu]:,.0f} W, which makes "
            "multiplications slower. The time counts that."
        )
