"""A cloud's key and Slack's token are replaced while a session runs: it keeps running until its owner ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import text

from bot.practice.reader import all_text, buttons
from tests.scenarios.chaos.machine import Machine
from tests.scenarios.chaos.place import Place, place
from tests.scenarios.chaos.trouble import Trouble
from tests.scenarios.chaos.way_back import WayBack

pytestmark = pytest.mark.timeout(300)
LOOK_S, LIMIT_S = 0.3, 60.0
INSTANCES = "SELECT state, account, outcome_code FROM instances"


async def until(look: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(LIMIT_S):
        while not await look():  # noqa: ASYNC110 # Another process's ledger tells nobody.
            await asyncio.sleep(LOOK_S)


async def row(built: Place) -> tuple[str, str, str]:
    """The state, the account and the outcome of the only instance; empty texts before there is one."""
    async with built.db.read() as tx:
        found = (await tx.execute(text(INSTANCES))).first()
    return (str(found[0]), str(found[1]), str(found[2] or "")) if found else ("", "", "")


async def test_a_session_outlives_new_keys_and_is_ended_with_them(sqlite_db_url: str, tmp_path: Path) -> None:
    random = Random(3)
    async with place(
        sqlite_db_url, tmp_path, 1, random, Machine(tmp_path, has_disk=False, has_names=False), by_sockets=False
    ) as built:
        built.proxy.rate = 0.0
        back = WayBack(built, sqlite_db_url, tmp_path, random)
        driver, trouble = built.practice.driver, Trouble(built, sqlite_db_url, random, back)
        await driver.as_("alice").command(f"/gpu provision 1x{built.clouds['vast'].STAPLE} 1h clouds=vast")

        async def is_shown() -> bool:
            return any(map(buttons, driver.channel_messages("#gpu")))

        async def is_live() -> bool:
            return (await row(built))[0] == "live" and "ssh -p" in "".join(map(all_text, driver.dm_messages("alice")))

        async def is_moved() -> bool:
            return (await row(built))[1] != before[1]

        async def is_gone() -> bool:
            return (await row(built))[0] == "gone" and not built.alive()

        async def is_said() -> bool:
            return "ended." in "".join(map(all_text, driver.dm_messages("alice")))

        await until(is_shown)
        await driver.as_("bob").click(driver.channel_messages("#gpu")[0], "approve:1")
        await until(is_live)
        before = await row(built)
        await trouble.replace_key("vast")
        await until(is_moved)
        assert (await row(built))[0] == "live"
        assert len(built.alive()) == 1
        await trouble.replace_token()
        await driver.as_("alice").command(f"/gpu terminate {await built.newest_session()} now")
        await until(is_gone)
        await until(is_said)
        assert (await row(built))[2] == "asked"
