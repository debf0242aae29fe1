"""The first test: with the driver's defaults this loses 139 of 160 updates without any error."""

from __future__ import annotations

import asyncio

from sqlalchemy import select

from ledger.engine.db import Database
from ledger.models import Mark
from tests.support.clock import START

TASKS = 8
ROUNDS = 20


async def test_no_read_modify_write_is_lost(db: Database) -> None:
    async with db.write() as tx:
        tx.add(Mark(name="counter", value="0", at=START))

    async def add_one_often() -> None:
        for _ in range(ROUNDS):
            async with db.write() as tx:
                mark = await tx.scalar(select(Mark).where(Mark.name == "counter").with_for_update())
                assert mark is not None
                await asyncio.sleep(0)
                mark.value = str(int(mark.value) + 1)

    await asyncio.gather(*(add_one_often() for _ in range(TASKS)))
    async with db.read() as tx:
        counter = await tx.get_one(Mark, "counter")
    assert int(counter.value) == TASKS * ROUNDS
