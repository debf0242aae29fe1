"""The whole ledger in one read."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from ledger.core.moves import move
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.states import GrantState, InstanceState
from ledger.models import Instance
from ledger.queries.audit import database_time, ping, read_books, values_of
from ledger.queries.event_order import number_events
from tests.ledger.queries.test_views import accrue
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import sqlite_url


async def test_a_ledger_that_answers_and_one_that_does_not(db: Database, tmp_path: Path) -> None:
    await ping(db)
    folder = Database(sqlite_url(tmp_path))
    with pytest.raises(DBAPIError, match="unable to open"):
        await ping(folder)
    await folder.close()


async def test_the_whole_ledger_in_one_read(db: Database) -> None:
    async with db.write() as tx:
        instance = await rows.instance(tx, InstanceState.LIVE)
        await rows.stray(tx, of=instance)
        await accrue(tx, instance.session_id, "0.5", 1)
        await move(tx, Instance, instance.id, InstanceState.STOPPED, at=START, actor=SYSTEM)
    books = await read_books(db)
    assert [i.id for i in books.instances] == [instance.id]
    assert (len(books.grants), len(books.approvals), len(books.events), len(books.entries)) == (1, 1, 1, 1)
    assert len(list(books.rows())) == 8
    async with db.write() as tx:
        await number_events(tx, START)
    (numbered,) = (await read_books(db)).order
    assert (numbered.position, numbered.event_id) == (1, books.events[0].id)
    values = values_of(books.grants[0])
    assert (values["state"], values["price_cap_usd_h"]) == (GrantState.USED, Decimal("0.44"))


async def test_only_a_server_has_a_clock_of_its_own(db: Database) -> None:
    shown = await database_time(db)
    assert (shown is None) is (db.dialect == "sqlite")
    assert shown is None or shown.utcoffset() is not None
