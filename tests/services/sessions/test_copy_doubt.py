"""Ends wait for the second page where anything shows that the ledger changed after the copy of what must end."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from bot.services.runtime.epoch import Epoch
from bot.services.sessions.end_watchdog import EndWatchdog
from ledger.core import amend, lock_family, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.models import Session
from ledger.queries.ends import forget_replica, note_replica
from tests.services.sessions.test_end_watchdog import db, watched
from tests.services.sessions.watchdog import OPERATORS, Watched

__all__ = ["db", "watched"]


async def extend(watched: Watched, epoch: Epoch) -> None:
    """The end is two hours later, and the epoch is on disk before people read of it."""
    w, session = watched.w, await watched.session()
    assert session.deadline is not None
    async with w.ctx.db.write() as tx:
        await lock_family(tx, Session, session.id)
        await amend(tx, Session, session.id, deadline=session.deadline + timedelta(hours=2))
        record(tx, w.clock.now(), SYSTEM, session.id, EventKind.SESSION_KEPT, reason="extended")
    assert await epoch.cover(tx)


async def sign_off(watched: Watched, *names: str) -> None:
    for name in names:
        async with watched.w.ctx.db.write() as tx:
            await forget_replica(tx, name)


async def look_until_over(watched: Watched) -> list[str]:
    """A process that can't use the ledger's schema looks until the end that the copy has; returns what it paged."""
    dog, w = watched.dog, watched.w
    old = dog.copy.rows[0].deadline
    watched.dog = EndWatchdog(dog.ctx, dog.path, "next", watched.say, watched.others, OPERATORS)
    watched.dog.refused = "the ledger has another schema"
    w.clock.advance(10)
    assert old is not None
    while w.clock.now() < old + timedelta(seconds=40):
        w.clock.advance(29)
        await watched.look()
    return watched.pages


@pytest.mark.parametrize("is_signed_off", [True, False])
async def test_an_extension_right_after_the_last_copy(watched: Watched, tmp_path: Path, *, is_signed_off: bool) -> None:
    w, dog = watched.w, watched.dog
    folder = tmp_path / "epoch"
    folder.mkdir()
    dog.ctx.epoch = Epoch((folder,), dog.me)
    await w.running(hours=Decimal(1))
    await dog.look()
    assert await dog.probe()
    w.clock.advance(3)
    await extend(watched, dog.ctx.epoch)
    if is_signed_off:
        await sign_off(watched, dog.me)
    dog.ctx.epoch = Epoch((folder,), "next")
    pages = await look_until_over(watched)
    assert "before the second page" in pages[0]
    assert len(w.alive()) == 1 or len(pages) > 1


async def test_two_replicas_that_stop_together(watched: Watched) -> None:
    """The one that changed something signs off first, and the other's older note does not replace its own."""
    w, dog = watched.w, watched.dog
    await w.running(hours=Decimal(1))
    assert await dog.probe()
    w.clock.advance(2)
    await dog.look()
    w.clock.advance(2)
    session = await watched.session()
    assert session.deadline is not None
    async with w.ctx.db.write() as tx:
        await note_replica(tx, "another", w.clock.now(), w.clock.now() - timedelta(days=1))
        await amend(tx, Session, session.id, deadline=session.deadline + timedelta(hours=2))
    w.clock.advance(1)
    await sign_off(watched, "another", dog.me)
    assert "before the second page" in (await look_until_over(watched))[0]
