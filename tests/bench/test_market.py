"""The market's benchmark measures what it says: every offer is looked at, and the same offers are made each time."""

from __future__ import annotations

import pytest

from bot.services.market.catalog import MarketListing
from tests.bench.market import CLOUDS, QUESTIONS, measure, measure_page, offers
from tests.support.clock import SteppedClock

SMALL = 500


def looked_at(found: MarketListing) -> int:
    return found.offers + sum(one.count for one in found.excluded)


@pytest.mark.slow
async def test_every_offer_of_every_cloud_is_looked_at() -> None:
    for job in QUESTIONS.values():
        took_ms, found = await measure(SMALL, job)
        assert took_ms > 0
        assert {answer.cloud for answer in found.answers if answer.ok} == set(CLOUDS)
        assert looked_at(found) == SMALL
        assert 0 < found.offers < SMALL
        assert "image" in {one.reason_code for one in found.excluded} or job.gpu.names


@pytest.mark.slow
async def test_a_page_of_a_pinned_listing_costs_less_than_the_whole() -> None:
    page_ms, all_ms = await measure_page(SMALL)
    assert 0 < page_ms < all_ms


def test_the_same_offers_are_made_each_time() -> None:
    clock = SteppedClock()
    assert list(offers("vast", 20, clock)) == list(offers("vast", 20, clock))
