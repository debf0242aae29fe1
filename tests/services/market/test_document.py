"""The market document: written piece by piece it is the same, takes no more memory, and says what prices include."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pytest

from bot.rules.market.listing import OfferRow, listed
from bot.rules.market.ranking import OrderedMarket
from bot.rules.market.scoring import Cases
from bot.rules.market.sort_key import SortKey
from bot.rules.policy.policy import Policy
from bot.services.market.answers import CloudAnswer, absent, most_answered, nothing_found, silence
from bot.services.market.catalog import MarketListing
from bot.services.market.document import MarketPage, cursor_after, market_page, pieces, read_cursor
from bot.services.market.market_table import COLUMNS, below, in_words, market_table
from providers.completeness import COMPLETE, Completeness
from providers.contract import Offer, Stock
from tests.rules.builders import CLOUDS, NOW, job, offer

PLENTY = 5_000
LOOKING = Completeness.partial("Looking at the rest of a.")


def listing(*rows: OfferRow, advice: tuple[str, ...] = ()) -> MarketListing:
    wanted = job(disk_gb=50)
    offers = tuple(chain(*rows))
    market = OrderedMarket(offers, np.zeros(len(offers)), (), Cases(wanted, Policy(), CLOUDS, whole=False))
    count = len(market.offers)
    answers = (
        CloudAnswer("vast", True, count, NOW, completeness=COMPLETE),
        CloudAnswer("lambda", False, 0, NOW, "lambda is not set up.", set_up=False),
    )
    return MarketListing("0" * 15 + "a", wanted, SortKey.PRICE, rows, market, answers, advice)


def row(*offers: Offer) -> OfferRow:
    return offers


def test_pages_and_pieces_are_the_same_document() -> None:
    found = listing(*(row(offer(str(number))) for number in range(250)))
    for start, limit in ((0, None), (0, 3), (249, 1), (100, 101), (250, 5), (900, None), (0, 0)):
        page = market_page(found, start, limit)
        assert MarketPage.model_validate_json("".join(pieces(found, start, limit))) == page, (start, limit)
    assert MarketPage.model_validate_json("".join(pieces(listing()))) == market_page(listing())
    cursor = market_page(found, 0, 200).next_cursor
    assert cursor is not None
    assert cursor == cursor_after(found, 200)
    assert read_cursor(cursor) == (found.id, 200)
    assert market_page(found, 200, 200).next_cursor is None


def test_a_large_document_is_written_in_little_memory() -> None:
    found = listing(*(row(offer(str(number), region=f"Region {number}")) for number in range(PLENTY)))
    tracemalloc.start()
    try:
        written = sum(map(len, pieces(found)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written > 500 * PLENTY
    assert peak < written / 3


def test_a_row_says_everything_that_its_cloud_says_and_null_for_the_rest() -> None:
    plain = market_page(listing(row(offer()))).items[0]
    assert (plain.verified, plain.cuda, plain.available_for_s, plain.disk_gb_max, plain.download_mbps) == (None,) * 5
    told = offer(
        gpu_count=3,
        price_usd_h=Decimal("1.00"),
        storage_usd_h=Decimal("0.02"),
        verified=True,
        cuda_max=Decimal("12.8"),
        available_for_s=90_000,
        disk_gb_max=900,
        download_mbps=Decimal(850),
        stock=Stock.LOW,
    )
    full = market_page(listing(row(told, offer("2", region="EU-1", country=None)))).items[0]
    assert (full.price_usd_gpu_h, full.disk_usd_h) == (Decimal("0.333333"), Decimal("0.02"))
    assert (full.verified, full.cuda, full.available_for_s) == (True, Decimal("12.8"), 90_000)
    assert [(one.offer_id, one.region, one.country, one.stock) for one in full.regions] == [
        ("vast:1", "Sweden, SE", "SE", "low"),
        ("vast:2", "EU-1", None, None),
    ]


def test_numbers_that_are_none_become_null() -> None:
    odd = offer(reliability=Decimal("NaN"), ram_gb=Decimal("Infinity"), cuda_max=Decimal("NaN"))
    shown = market_page(listing(row(odd))).items[0]
    assert (shown.reliability, shown.ram_gb, shown.cuda) == (None, None, None)


def test_people_read_what_prices_include_and_how_much_is_shown() -> None:
    one = row(offer(), offer("2", region="Texas, US", country="US"))
    found = listing(one, row(offer("3", price_usd_h=Decimal("0.5"))))
    assert below(market_page(found)) == (
        "2 offers. Prices per hour include a disk of 50 GB. An offer in several regions is counted once."
    )
    assert below(market_page(found, 0, 1)).startswith("Shown: 1 of 2 offers. Prices per hour ")
    said = in_words(market_page(found, 0, 1))
    assert said[1] == "1: vast:1, 1x RTX4090 with 24 GB at vast in SE, US, $0.400/h, 99.0% reliable."
    assert said[2:] == (f"For the next rows send cursor={found.id}.1.", "lambda is not set up.")
    none = market_page(listing(advice=("With region=SE, 1 offer would answer.",)))
    assert market_table(none).sentences[:2] == ("No offer fits now.", "With region=SE, 1 offer would answer.")


def answer(cloud: str, *, ok: bool = False, **more: Any) -> CloudAnswer:
    known = COMPLETE if ok else Completeness.unknown(f"{cloud} said no.")
    return CloudAnswer(cloud, ok, 0, NOW, "" if ok else f"{cloud} said no.", **{"completeness": known, **more})


@pytest.mark.parametrize(
    ("answers", "first", "enough"),
    [
        ((answer("a", ok=True), answer("b", ok=True)), "None.", True),
        ((answer("a", silent=True), answer("b", ok=True)), "1 of 2 clouds did not answer: a. Try again. Part.", True),
        (
            (answer("a", silent=True), answer("b", silent=True), answer("c", ok=True), answer("d", set_up=False)),
            "2 of 3 clouds did not answer: a and b. Try again. Part.",
            False,
        ),
        ((answer("a", silent=True),), "a did not answer. Try again.", False),
        ((answer("a", silent=True), answer("b")), "1 of 2 clouds did not answer: a. Try again.", False),
        ((answer("a"), answer("b", ok=True)), "Part.", True),
        ((answer("a", ok=True, completeness=LOOKING), answer("b", ok=True)), f"{LOOKING.why} Try again. Part.", True),
    ],
)
def test_clouds_that_did_not_answer_come_first(answers: tuple[CloudAnswer, ...], first: str, enough: bool) -> None:
    assert nothing_found(answers, "None.", "Part.") == first
    assert most_answered(answers) is enough
    refused = tuple(f"{one.cloud} said no." for one in answers if not one.ok and not one.silent)
    partly = tuple(one.completeness.why for one in answers if one.completeness == LOOKING)
    assert absent(answers) == (*filter(None, (silence(answers),)), *partly, *refused)


def test_a_page_says_first_which_clouds_did_not_answer() -> None:
    found = replace(listing(row(offer())), answers=(answer("vast", ok=True), answer("runpod", silent=True)))
    silent = "1 of 2 clouds did not answer: runpod."
    assert in_words(market_page(found))[0].startswith(f"{silent} 1 offer. ")
    assert market_table(market_page(found)).sentences[0].startswith(f"{silent} 1 offer. ")
    none = market_page(replace(listing(), answers=found.answers))
    assert market_table(none).sentences == in_words(none) == (f"{silent} Try again. No offer that was read fits.",)
    assert MarketPage.model_validate_json(none.model_dump_json()).summary == none.summary


def test_every_column_has_a_cell_for_offers_that_say_little_or_much() -> None:
    little = Offer(
        cloud="vast", key="1", gpu="RTX4090", gpu_count=1, memory_gb=Decimal(24), region="", spot=True,
        price_usd_h=None, fetched_at=NOW,
    )  # fmt: skip
    much = offer("2", available_for_s=3 * 86_400, verified=False, vcpus=16, ram_gb=Decimal("62.5"), stock=Stock.HIGH)
    rows, _ = listed([much], job(), Policy(), CLOUDS)
    shown = market_page(listing(row(little), *rows))
    (table,) = market_table(shown, tuple(COLUMNS)).tables
    first, second = (dict(zip(COLUMNS, cells, strict=True)) for cells in table.rows)
    assert [first[name] for name in ("gpu", "region", "verified", "cuda")] == ["1x RTX4090 spot", "unknown", "-", "-"]
    assert [second[name] for name in ("available", "verified", "ram", "stock")] == ["3 d", "no", "62.5 GB", "high"]
    assert table.head[list(COLUMNS).index("total")] == "for 6h"
