"""What every adapter does in the same way: an offer asked for alone, and bill lines with their cloud's rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ledger.kernel.job import GpuConstraint
from providers.capabilities import BillingRule
from providers.contract import Charge, Offer


def only(offer: Offer) -> GpuConstraint:
    """The constraint that this offer meets and that as few others as possible meet."""
    return GpuConstraint((offer.gpu,), offer.gpu_count, offer.gpu_count)


def same(found: Iterable[Offer], offer: Offer) -> Offer | None:
    """The offer of that key among these."""
    return next((fresh for fresh in found if fresh.key == offer.key), None)


def ruled(lines: Iterable[Charge], billing: BillingRule) -> tuple[Charge, ...]:
    """Bill lines with the step and the least time by which their cloud counts."""
    return tuple(replace(line, quantum_s=billing.quantum_s, minimum_s=billing.minimum_s) for line in lines)
