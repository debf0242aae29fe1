"""One read for all who ask while it is under way."""

from __future__ import annotations

import asyncio

import pytest

from bot.shared_read import SharedRead


async def test_those_who_ask_meanwhile_share_one_read_and_later_ones_read_anew() -> None:
    reads, go = 0, asyncio.Event()

    async def read() -> int:
        nonlocal reads
        reads += 1
        await go.wait()
        return reads

    shared = SharedRead(read)
    asking = [asyncio.create_task(shared()) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()  # It takes the answer from nobody else.
    go.set()
    assert await asyncio.gather(*asking[1:]) == [1] * 4
    assert await shared() == 2


async def test_a_failure_reaches_all_who_ask_and_is_not_kept() -> None:
    wrong = [ValueError("no"), None]

    async def read() -> str:
        await asyncio.sleep(0)
        if (error := wrong.pop(0)) is not None:
            raise error
        return "read"

    shared = SharedRead(read)
    found = await asyncio.gather(shared(), shared(), return_exceptions=True)
    assert [str(one) for one in found] == ["no", "no"]
    assert await shared() == "read"
    with pytest.raises(IndexError):
        await shared()
