"""A launch whose intent comes from an older copy of the ledger: what was sent since is adopted, never sent again."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import cast

import pytest

from bot.services.instances import launch
from bot.services.instances.unknown_outcome import SENT_BEFORE
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, NotificationKind, OrphanState, RequestState, SessionState
from ledger.models import Instance
from providers.contract import Listing, Provider
from providers.errors import Unavailable
from providers.sandbox.clock import SandboxTiming
from tests.support.clock import SteppedClock
from tests.support.databases import sqlite_url
from tests.support.matrix import clouds_with
from tests.support.proxy_provider import InFront, alive
from tests.support.world import World, world


class Unlisted(InFront):
    """A cloud that sells, and whose account can't be listed."""

    async def list(self) -> Listing:
        raise Unavailable(self.inner.name, "The listing timed out.")


class Counting(InFront):
    """A cloud that counts how often it was listed."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.listed = 0

    async def list(self) -> Listing:
        self.listed += 1
        return await self.inner.list()


@pytest.fixture
async def w(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    async with world(sqlite_db, clock, sandbox=SandboxTiming.quick()) as built:
        yield built


def backup(w: World, copy: Path) -> str:
    """Copy the ledger as docs/operator/backup.md says; returns the URL of the copy."""
    with closing(sqlite3.connect(str(w.ctx.db.url.database))) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    copy.chmod(0o600)
    return sqlite_url(copy)


@asynccontextmanager
async def restored(w: World, url: str) -> AsyncIterator[World]:
    """Another process that starts with the copy."""
    other = w.replica(url)
    try:
        yield other
    finally:
        await other.ctx.db.close()


async def row(w: World) -> Instance:
    return (await w.books()).instances[-1]


@pytest.mark.parametrize("cloud", clouds_with(labels=True))
async def test_a_launch_that_was_sent_after_the_copy_is_adopted_and_not_sent_again(
    w: World, tmp_path: Path, cloud: str
) -> None:
    request_id = await w.approved(candidates=(cloud,))
    url = backup(w, tmp_path / "copy.db")
    await w.settle()
    (name,) = w.alive()
    w.clock.advance(30)
    async with restored(w, url) as later:
        assert (await row(later)).state is InstanceState.READY
        await later.settle()
        assert len(w.engine.creates) == 1
        view = await later.view(request_id)
        assert [(one.state, one.name) for one in view.instances] == [(InstanceState.LIVE, name)]
        pages = [one for one in (await later.books()).notifications if one.kind == NotificationKind.OPERATOR_PAGE]
        assert [str(one.body["text"]) for one in pages] == [f"{name}: {SENT_BEFORE}"]
        await later.run(90, 30)
        assert (w.alive(), len(w.engine.creates)) == ([name], 1)
        view = await later.view(request_id)
        assert view.session is not None
        assert view.session.state is SessionState.RUNNING
        assert await later.violations() == []


async def test_an_hour_later_its_approval_has_expired_and_what_it_bought_lives_on(w: World, tmp_path: Path) -> None:
    w.tune(request_ttl_s=1800.0)
    await w.approved()
    url = backup(w, tmp_path / "copy.db")
    await w.settle()
    w.clock.advance(3600)
    async with restored(w, url) as later:
        await later.run(600, 60)
        assert ((await row(later)).state, len(w.alive()), len(w.engine.creates)) == (InstanceState.LIVE, 1, 1)


async def test_nothing_is_sent_while_the_account_can_not_be_listed(w: World, tmp_path: Path) -> None:
    await w.approved(candidates=("vast",))
    url = backup(w, tmp_path / "copy.db")
    await w.settle()
    w.clock.advance(30)
    async with restored(w, url) as later:
        later.wrap("vast", lambda inner: cast("Provider", Unlisted(inner)))
        await later.run(300, 30)
        assert ((await row(later)).state, len(w.engine.creates)) == (InstanceState.READY, 1)
        later.wrap("vast", alive)
        await later.run(60, 15)
        assert ((await row(later)).state, len(w.engine.creates)) == (InstanceState.LIVE, 1)


async def test_an_account_that_can_not_be_listed_until_the_approval_expires_is_asked_about_again(
    w: World, tmp_path: Path
) -> None:
    w.tune(request_ttl_s=600.0)
    request_id = await w.approved(candidates=("vast",))
    url = backup(w, tmp_path / "copy.db")
    w.clock.advance(30)
    async with restored(w, url) as later:
        later.wrap("vast", lambda inner: cast("Provider", Unlisted(inner)))
        await later.run(660, 30)
        later.wrap("vast", alive)
        assert ((await row(later)).state, w.engine.creates) == (InstanceState.REJECTED, [])
        assert (await later.view(request_id)).request.state is not RequestState.APPROVED


async def test_another_instance_of_its_request_that_the_copy_does_not_know_comes_first(
    w: World, tmp_path: Path
) -> None:
    """The first offer was gone after the copy, and the next one was rented: the copy knows the first alone."""
    request_id = await w.approved(candidates=("vast",))
    url = backup(w, tmp_path / "copy.db")
    first = await row(w)
    w.withdraw(next(one for one in (await w.view(request_id)).options if one.id == first.option_id))
    await w.settle()
    second = (await w.view(request_id)).instances[-1]
    assert (second.n, len(w.alive())) == (2, 1)
    sent = len(w.engine.creates)
    w.clock.advance(30)
    async with restored(w, url) as later:
        await later.run(300, 30)
        orphans = [(one.label, one.state) for one in (await later.books()).orphans]
        assert (len(w.engine.creates), orphans) == (sent, [(second.label, OrphanState.QUARANTINED)])


async def test_what_was_never_sent_is_sent_after_one_listing_for_all(w: World) -> None:
    ids = [str((await w.ask(candidates=("vast",))).data["request_id"]) for _ in range(3)]
    await w.settle()
    assert {(await w.decide(one)).code for one in ids} == {"approved"}
    w.clock.advance(1)
    later = w.replica()
    try:
        later.wrap("vast", lambda inner: cast("Provider", Counting(inner)))
        counting = cast("Counting", later.ctx.providers["vast"])
        assert await launch.send_due(later.ctx) == 3
        # All three chose the same offer, so one of them has it, and the others were refused.
        assert (counting.listed, len(w.engine.creates), len(w.alive())) == (1, 3, 1)
        later.wrap("vast", alive)
    finally:
        await later.ctx.db.close()
