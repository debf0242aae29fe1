"""RunPod's catalogue over GraphQL, which it answers without a key: the price and the stock of every GPU type.

A tier and a GPU count have one answer each, as in the catalogue of REST v2, whose words its rows are put into.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from providers.adapter_helpers import listed, part
from providers.clouds.runpod import instances, offers
from providers.clouds.runpod.errors import CLOUD
from providers.clouds.runpod.offers import CatalogPage
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint


class PriceField(StrEnum):
    """Which price of a GPU type is asked for: that of an ordinary pod, or the lowest bid of an interruptible one."""

    ON_DEMAND = "uninterruptablePrice"
    BID = "minimumBidPrice"


def query(pages: Iterable[CatalogPage], cuda_min: Decimal | None, price: PriceField) -> dict[str, Any]:
    """The GraphQL body that asks for this price of every GPU on these pages, in one call."""
    cuda = f', minCudaVersion: "{instances.cuda_version(cuda_min)}"' if cuda_min else ""
    asked = " ".join(
        f"{_alias(page)}: lowestPrice(input: {{gpuCount: {page.count}, "
        f"secureCloud: {str(page.tier == 'SECURE').lower()}{cuda}}}) {{ {price} stockStatus }}"
        for page in pages
    )
    most = "maxGpuCountSecureCloud maxGpuCountCommunityCloud"
    usual = "securePrice communityPrice" if price is PriceField.ON_DEMAND else ""
    return {"query": f"query {{ gpuTypes {{ id memoryInGb secureCloud communityCloud {most} {usual} {asked} }} }}"}


def found(body: Any, pages: Iterable[CatalogPage], constraint: GpuConstraint, price: PriceField) -> tuple[Offer, ...]:
    """The offers of an answer to `query`."""
    rows = listed(CLOUD, part(body, "data"), "gpuTypes", "runpod's answer has no list of GPU types")
    # The host's CUDA is asked for and not told: what was found has at least the one that was asked for.
    any_cuda = replace(constraint, cuda_min=None)
    return tuple(
        replace(one, cuda_max=constraint.cuda_min)
        for page in pages
        for one in offers.offers({"gpus": [_row(row, page, price) for row in rows]}, page, any_cuda)
    )


def _row(row: Any, page: CatalogPage, price: PriceField) -> dict[str, Any]:
    """One GPU type of GraphQL, in the words of the catalogue."""
    lowest, tier = part(row, _alias(page)), page.tier.lower()
    stock, each = lowest.get("stockStatus"), lowest.get(price)
    if each is None and price is PriceField.ON_DEMAND:
        # The price of the tier, which public clients read.
        each = part(row).get(f"{tier}Price")
    return {
        "id": part(row).get("id"),
        "memory": part(row).get("memoryInGb"),
        tier: part(row).get(f"{tier}Cloud"),
        "price": {tier: each},
        "maxCount": {tier: part(row).get(f"maxGpuCount{tier.title()}Cloud")},
        "availability": stock.upper() if isinstance(stock, str) else "NONE",
    }


def _alias(page: CatalogPage) -> str:
    return f"{page.tier.lower()}{page.count}"
