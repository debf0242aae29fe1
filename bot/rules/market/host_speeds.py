"""Number the offers of a market by the speed of their hosts, in as few kinds as there are steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bot.rules.market.columns import Floats, Indices, column, examples
from bot.rules.sizing.host_speed import LINK_EDGES, POWER_EDGES, USUAL_LINK, WATTS
from bot.rules.sizing.throughput_data import NVLINK_GB_S
from bot.rules.viability.interconnect import counted_gb_s
from providers.contract import Offer

_POWERS = len(POWER_EDGES) + 1
_SPEEDS = (len(LINK_EDGES) + 1) * _POWERS


def by_host(offers: Sequence[Offer], kinds: Indices) -> Indices:
    """Return finer kinds: the same number only where `viability.interconnect.host_speed` says the same as well.

    Offers of one of `kinds` have the same GPUs, and as many.
    """
    nvlink, pcie, power = (_usable(offers, name) for name in ("nvlink_gb_s", "pcie_gb_s", "power_limit_w"))
    if np.isnan(nvlink).all() and np.isnan(pcie).all() and np.isnan(power).all():
        return kinds
    first, kind = examples(kinds, np.arange(len(offers)))
    each = [offers[place] for place in first]
    counted = np.array([counted_gb_s(one.gpu) if one.gpu_count > 1 else None for one in each], np.float64)[kind]
    watts = np.array([WATTS.get(one.gpu) for one in each], np.float64)[kind]
    linked = np.array([one.gpu in NVLINK_GB_S for one in each], np.bool_)[kind]
    measured = np.where(np.isnan(nvlink) & ~linked, pcie, nvlink)
    steps = _steps(measured / counted / USUAL_LINK, LINK_EDGES) * _POWERS + _steps(power / watts, POWER_EDGES)
    return kind * _SPEEDS + steps


def _steps(shares: Floats, edges: Sequence[float]) -> Indices:
    """Count the edges that each share is below; none where it is not known."""
    below = np.zeros(len(shares), dtype=np.intp)
    for edge in edges:
        below += shares < edge
    return below


def _usable(offers: Sequence[Offer], name: str) -> Floats:
    said = column(offers, name).floats
    return np.where(np.isfinite(said) & (said > 0), said, np.nan)
