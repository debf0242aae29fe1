"""Paging through a large market over REST: every offer exactly once, at the prices of one moment."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pytest

from bot.services.market.snapshots import PINNED_S
from ledger.kernel.clock import Clock
from providers.completeness import AnswerPart
from providers.contract import Offer, Provider
from tests.api.door import Door, code_of, opened
from tests.bench.market import CLOUDS, Shelf, offers

SIZE = 20_000
PAGE = 1_000
WIDE = {"min_vram": "1", "count": "1-8", "spot": "any", "capability": "1.0"}


class Moving(Shelf):
    """A cloud whose prices change, and which sells other machines, whenever it is asked."""

    def __init__(self, name: str, sold: Iterable[Offer], clock: Clock) -> None:
        super().__init__(name, tuple(sold))
        self._clock = clock
        self._draw = random.Random(name)
        self.asked = 0

    async def offers(self, *_: object, **__: object) -> AnswerPart[Offer]:
        """Return the same number of offers, at other prices, a tenth of them under new ids."""
        self.asked += 1
        self._offers = tuple(self._moved(one) for one in self._offers)
        return AnswerPart(self._offers)

    def _moved(self, one: Offer) -> Offer:
        price = (one.price_usd_h or Decimal(1)) * Decimal(self._draw.randrange(80, 125)) / 100
        key = f"{one.key}-{self.asked}" if self._draw.random() < 0.1 else one.key
        return replace(one, key=key, price_usd_h=price, fetched_at=self._clock.now())


@asynccontextmanager
async def large(door: Door, size: int) -> AsyncIterator[Door]:
    """The API over a market of `size` offers that moves."""
    w, paid = door.w, [name for name in CLOUDS if name != "kaggle"]
    real = w.ctx.providers
    shelves = {name: Moving(name, offers(name, size // len(paid), w.clock), w.clock) for name in paid}
    w.use(cast("Mapping[str, Provider]", shelves))
    async with opened(w) as made:
        yield made
    await w.ctx.catalog.close()
    w.use(real)


async def read(door: Door, key: str, **params: Any) -> dict[str, Any]:
    answer = await door.call("GET", "/inventory", key, params=params)
    assert answer.status_code == 200, answer.text[:500]
    found: dict[str, Any] = answer.json()
    return found


def ids(page: dict[str, Any]) -> list[str]:
    return [place["offer_id"] for row in page["items"] for place in row["regions"]]


@pytest.mark.slow
async def test_20_000_offers_are_paged_in_order_each_exactly_once_while_the_market_moves(sqlite_door: Door) -> None:
    key = await sqlite_door.key()
    async with large(sqlite_door, SIZE) as door:
        pages, others = await paged(door, key)
    seen = [one for page in pages for one in ids(page)]
    assert len(seen) == len(set(seen)) == pages[0]["offers"] > SIZE * 0.9
    rows = [row for page in pages for row in page["items"]]
    assert [row["rank"] for row in rows] == [*range(1, pages[0]["rows"] + 1)]
    prices = [Decimal(row["price_usd_h"]) for row in rows]
    assert prices == sorted(prices)
    assert {row["read_at"] for row in rows} == {rows[0]["read_at"]}
    assert len(others) > 1
    assert all(other["items"][0]["read_at"] > rows[0]["read_at"] for other in others)


async def paged(door: Door, key: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read all pages of one moment, and first pages in between, for which the clouds are asked anew."""
    page = await read(door, key, limit=PAGE, sort="price", **WIDE)
    pages, others = [page], []
    while page["next_cursor"]:
        door.w.clock.advance((PINNED_S - 60) / (page["rows"] / PAGE))
        if len(pages) % 7 == 0:
            others.append(await read(door, key, limit=1, sort="price", **WIDE))
        page = await read(door, key, limit=PAGE, cursor=page["next_cursor"])
        pages.append(page)
    return pages, others


async def test_everything_in_one_answer_is_the_same_document_a_row_on_each_line(sqlite_door: Door) -> None:
    key = await sqlite_door.key()
    async with large(sqlite_door, 3 * PAGE) as door:
        first = await read(door, key, limit=PAGE, **WIDE)
        answer = await door.call("GET", "/inventory", key, params={"limit": "all", **WIDE})
        part = await read(door, key, limit=PAGE + 500, **WIDE)
        rest = await read(door, key, limit="all", cursor=part["next_cursor"])
    assert "content-length" not in answer.headers
    everything = answer.json()
    assert everything["items"][:PAGE] == first["items"]
    assert len(everything["items"]) == everything["rows"] == first["rows"]
    assert everything["next_cursor"] is None
    assert answer.text.count("\n") == everything["rows"] + 2
    assert part["items"] == everything["items"][: PAGE + 500]
    assert rest["items"] == everything["items"][PAGE + 500 :]


async def test_an_expired_cursor_says_how_to_start_anew(sqlite_door: Door) -> None:
    door, key = sqlite_door, await sqlite_door.key()
    page = await read(door, key, gpu="4090", limit=2)
    door.w.clock.advance(PINNED_S - 1)
    assert (await read(door, key, cursor=page["next_cursor"], limit=2))["items"][0]["rank"] == 3
    door.w.clock.advance(1)
    gone = await door.call("GET", "/inventory", key, params={"cursor": page["next_cursor"]})
    assert (gone.status_code, code_of(gone)) == (410, "cursor_expired")
    assert "Start again without cursor" in gone.json()["detail"]
    assert [one["field"] for one in gone.json()["fields"]] == ["cursor"]


async def test_another_replica_does_not_know_the_cursor_and_says_so(sqlite_door: Door) -> None:
    key = await sqlite_door.key()
    page = await read(sqlite_door, key, gpu="4090", limit=2)
    other = sqlite_door.w.replica()
    async with opened(other) as door:
        gone = await door.call("GET", "/inventory", key, params={"cursor": page["next_cursor"]})
        assert (gone.status_code, code_of(gone)) == (410, "cursor_expired")
        assert "limit=all" in gone.json()["detail"]
        everything = await read(door, key, gpu="4090", limit="all")
        assert everything["rows"] == page["rows"]


async def test_a_cursor_goes_with_its_own_search_only(sqlite_door: Door) -> None:
    door, key = sqlite_door, await sqlite_door.key()
    page = await read(door, key, gpu="4090", sort="price", limit=2)
    same = {"gpu": "4090", "sort": "price", "cursor": page["next_cursor"], "limit": 2}
    assert (await read(door, key, **same))["items"][0]["rank"] == 3
    for changed in ({"gpu": "A100"}, {"sort": "memory"}):
        refused = await door.call("GET", "/inventory", key, params={**same, **changed})
        assert refused.status_code == 422
        assert "another search" in refused.json()["detail"]
    for cursor in ("nonsense", "0" * 16, f"{'g' * 16}.1"):
        assert (await door.call("GET", "/inventory", key, params={"cursor": cursor})).status_code == 422
    for limit in ("0", "-1", "some"):
        assert (await door.call("GET", "/inventory", key, params={"limit": limit})).status_code == 422
