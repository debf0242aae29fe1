"""How the clouds answered, in the sentences that people read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.rules.values.price_age import FRESH
from bot.services.market.answers import CloudAnswer, cloud_cell, without_key
from providers.capabilities import PriceSource

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
WITH_KEY = CloudAnswer("kaggle", True, 1, NOW)
VAST = CloudAnswer("vast", True, 3, NOW, source=PriceSource.PUBLIC)
RUNPOD = replace(VAST, cloud="runpod")
LAMBDA = CloudAnswer("lambda", True, 3, NOW, source=PriceSource.LIST_PRICE, listed_on=NOW.date() - FRESH)
END = "To rent, set a key: `gpu-shopper doctor` names them."


def test_nothing_is_said_where_a_key_was_used_or_a_cloud_did_not_answer() -> None:
    assert without_key([]) == without_key([WITH_KEY, replace(VAST, ok=False)]) == ()


def test_one_sentence_names_public_offers_and_list_prices() -> None:
    assert without_key([VAST]) == (f"Read without a key: today's offers of vast. {END}",)
    assert without_key([VAST, WITH_KEY, LAMBDA, RUNPOD]) == (
        f"Read without a key: today's offers of vast and runpod; list prices of lambda (2025-11-21). {END}",
    )
    assert without_key([replace(LAMBDA, listed_on=None)]) == (f"Read without a key: list prices of lambda. {END}",)


def test_a_list_price_is_marked_in_tables() -> None:
    marked = [cloud_cell("lambda", source) for source in PriceSource]
    assert marked == ["lambda", "lambda", "lambda (list)"]


def test_old_list_prices_are_warned_about() -> None:
    old = replace(LAMBDA, listed_on=NOW.date() - FRESH - timedelta(days=1))
    assert "list prices of lambda (2025-11-20, older than 180 days)" in without_key([old])[0]
