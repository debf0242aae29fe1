"""The surface's benchmark measures what it says: a card with buttons, a full list, a market of many pages."""

from __future__ import annotations

import pytest

from tests.bench.surface import report


@pytest.mark.slow
async def test_each_line_has_a_time() -> None:
    lines = [line async for line in report(sessions=20, size=500, rounds=1)]
    assert [name for name, *_ in lines] == [
        "request card, from its row to its blocks",
        "/gpu list, 20 running",
        "/gpu list team, 20 running",
        "first page of 500 offers, new prices, over REST",
        "next page of 500 offers, over REST",
    ]
    assert all(float(took.removesuffix(" ms")) > 0 for _, took, _ in lines)
