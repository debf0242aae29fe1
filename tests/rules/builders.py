"""Offers, jobs and capabilities for the tests of the rules."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from bot.rules.jobs.job import JobRequest
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.contract import Offer, Stock
from providers.gpus.constraint import GpuConstraint

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def capabilities(**changes: Any) -> Capabilities:
    """A cloud that bills from running, by the second."""
    flags = dict.fromkeys(("stop", "spot", "labels", "balance", "charges", "logs"), True)
    return Capabilities(**{**flags, **changes})


CLOUDS = {
    "vast": capabilities(),
    "runpod": capabilities(billing=BillingRule(starts=BillingStart.CREATE)),
    "lambda": capabilities(billing=BillingRule(quantum_s=60, minimum_s=3600, starts=BillingStart.CREATE)),
    "kaggle": capabilities(free=True, images=False),
}


def offer(key: str = "1", **changes: Any) -> Offer:
    """One RTX4090 at Vast for $0.40 an hour, unless changed."""
    plain: dict[str, Any] = {
        "cloud": "vast",
        "key": key,
        "gpu": "RTX4090",
        "gpu_count": 1,
        "memory_gb": Decimal(24),
        "region": "Sweden, SE",
        "country": "SE",
        "spot": False,
        "price_usd_h": Decimal("0.40"),
        "fetched_at": NOW,
        "reliability": Decimal("0.99"),
    }
    return Offer(**{**plain, **changes})


def job(hours: str = "6", gpu: GpuConstraint | None = None, **changes: Any) -> JobRequest:
    """One RTX4090 for six hours, unless changed."""
    return JobRequest(gpu=gpu or GpuConstraint(("RTX4090",)), hours=Decimal(hours), **changes)


def usd(most: int = 40) -> st.SearchStrategy[Decimal]:
    """Positive prices with four places."""
    return st.decimals(min_value=Decimal("0.0001"), max_value=most, places=4)


SHARES = st.decimals(min_value=0, max_value=1, places=3)

OFFERS = st.builds(
    offer,
    key=st.integers(0, 10**6).map(str),
    cloud=st.sampled_from(["vast", "runpod", "lambda"]),
    gpu_count=st.integers(1, 8),
    spot=st.booleans(),
    price_usd_h=usd(),
    storage_usd_h=st.decimals(min_value=0, max_value=1, places=4),
    egress_usd_gb=st.decimals(min_value=0, max_value=1, places=4),
    ingress_usd_gb=st.decimals(min_value=0, max_value=1, places=4),
    reliability=st.none() | SHARES,
    datacenter=st.none() | st.booleans(),
    verified=st.none() | st.booleans(),
    stock=st.none() | st.sampled_from([Stock.LOW, Stock.MEDIUM, Stock.HIGH]),
)
HOURS = st.decimals(min_value=Decimal("0.02"), max_value=720, places=2)
