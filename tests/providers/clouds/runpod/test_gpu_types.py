"""RunPod's catalogue over GraphQL, as it is read without a key."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from providers.capabilities import PriceSource
from providers.clouds.runpod.adapter import RunPodConfig, RunPodProvider
from providers.contract import Offer
from providers.errors import AuthFailed, UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from tests.contract.served import unpaced
from tests.providers.scripted import answer, playing
from tests.support.clock import SteppedClock


def gpu_type(**lowest: Any) -> dict[str, Any]:
    return {
        "id": "NVIDIA GeForce RTX 4090", "memoryInGb": 24, "secureCloud": True, "communityCloud": True,
        "maxGpuCountSecureCloud": 8, "maxGpuCountCommunityCloud": 8, "securePrice": 0.74, "communityPrice": 0.34,
        "secure1": lowest,
    }  # fmt: skip


async def asked(script: bytes, *, spot: bool | None = False, **config: Any) -> tuple[tuple[Offer, ...], list[bytes]]:
    """What an adapter without a key reads of this answer, and the heads of its requests."""
    async with playing(script) as server:
        clock = SteppedClock()
        settings = RunPodConfig(base_url=f"http://127.0.0.1:{server.port}/v2", **config)
        provider = RunPodProvider(settings, clock, unpaced(clock))
        try:
            return (await provider.offers(GpuConstraint(), disk_gb=40, spot=spot)).items, server.requests
        finally:
            await provider.close()


@pytest.mark.parametrize(("price", "each"), [(0.70, "0.70"), (None, "0.74")])
async def test_it_is_priced_by_the_lowest_price_or_else_by_that_of_the_tier(price: float | None, each: str) -> None:
    body = {"data": {"gpuTypes": [gpu_type(uninterruptablePrice=price, stockStatus="High")]}}
    (offer,), requests = await asked(answer(body))
    assert (offer.gpu, offer.gpu_usd_h, offer.source) == ("RTX4090", Decimal(each), PriceSource.PUBLIC)
    assert not any(b"authorization" in head.lower() for head in requests)


async def test_what_is_out_of_stock_is_not_for_sale() -> None:
    body = {"data": {"gpuTypes": [gpu_type(uninterruptablePrice=None, stockStatus=None)]}}
    assert (await asked(answer(body)))[0] == ()


async def test_no_spot_offers_without_a_key() -> None:
    assert await asked(answer({}), spot=True) == ((), [])


@pytest.mark.parametrize(
    "closed",
    [
        answer({"title": "Unauthorized"}, 401),
        answer({"errors": [{"message": "no", "extensions": {"code": "UNAUTHENTICATED"}}], "data": None}),
    ],
)
async def test_a_closed_catalogue_says_which_key_to_set(closed: bytes) -> None:
    with pytest.raises(AuthFailed, match="only with a key; set RUNPOD_API_KEY"):
        await asked(closed)


async def test_an_answer_without_types_is_no_empty_market() -> None:
    with pytest.raises(UnexpectedResponse, match="no list of GPU types"):
        await asked(answer({"data": None}))
