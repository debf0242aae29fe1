"""Lambda's list prices: a dated file, and the offers that people without a key are shown."""

from __future__ import annotations

import tomllib
from datetime import date

from providers.capabilities import PriceSource
from providers.clouds.lambda_cloud import list_prices
from providers.clouds.lambda_cloud.adapter import LambdaConfig, LambdaProvider
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from tests.support.clock import SteppedClock


def test_the_file_has_a_day_a_source_and_prices_of_known_gpus() -> None:
    document = tomllib.loads(list_prices.FILE.read_text(encoding="utf-8"))
    assert isinstance(document["as_of"], date)
    assert document["source"]
    found = list_prices.offers(GpuConstraint(count_max=8), at=SteppedClock().now())
    assert len({offer.key for offer in found}) == len(found) == len(document["price"])
    assert {offer.gpu for offer in found} <= set(GPUS)
    assert all(offer.price_usd_h is not None and 0 < offer.price_usd_h < 50 for offer in found)
    assert all(offer.listed_on == document["as_of"] and document["source"] in offer.warning for offer in found)


async def test_an_adapter_without_a_key_shows_those_that_fit_and_calls_nobody() -> None:
    provider = LambdaProvider(LambdaConfig(base_url="http://127.0.0.1:9"), SteppedClock())
    (offer,) = await provider.offers(GpuConstraint(("H100-SXM",)), disk_gb=100, spot=None)
    assert (offer.source, offer.gpu_count, offer.region) == (PriceSource.LIST_PRICE, 1, "any")
    assert (await provider.offers(GpuConstraint(), disk_gb=100, spot=True)).items == ()
    await provider.close()
