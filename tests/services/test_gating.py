"""The checkpoint gate: verified, waited for, kept, released, or given up as the policy and the money say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.services import ending, gating
from bot.services.catalog import Catalog
from ledger.db import Database
from ledger.models import Instance
from ledger.states import InstanceState, SessionState
from providers.stores import Stores
from tests.support.clock import SteppedClock
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, World, checked_world


def looks_at(w: World, stores: Stores) -> None:
    """From now on the service has these stores, and their credentials are set."""
    ctx = w.ctx
    catalog = Catalog(ctx.providers, ctx.clock, ctx.timing.offers_timeout_s, stores=tuple(stores.secrets))
    w.ctx = replace(ctx, catalog=catalog, checkpoints=stores)


@asynccontextmanager
async def near_its_end(w: World, cloud: str = "vast") -> AsyncIterator[tuple[Shelf, str]]:
    """A session whose end was just ordered by the scheduler, and the store that it names."""
    shelf = Shelf()
    async with served(shelf) as stores:
        looks_at(w, stores)
        request_id = await w.running(candidates=(cloud,), checkpoint="s3://bucket/run", hours=Decimal(2))
        row = (await w.books()).sessions[0]
        assert row.deadline is not None
        w.clock.advance(row.deadline - w.clock.now() - timedelta(seconds=10))
        await w.settle()
        w.clock.advance(10)
        yield shelf, request_id


async def row_of(w: World) -> Instance:
    return (await w.books()).instances[0]


async def test_a_verified_checkpoint_lets_the_end_go_on_and_one_that_arrives_late_too(w: World) -> None:
    async with near_its_end(w) as (shelf, _):
        await w.settle()
        row = await row_of(w)
        assert (row.state, row.gate) == (InstanceState.TERMINATING, gating.SAVING)
        assert "no checkpoint" in str(row.gate_note)
        assert len(w.alive()) == 1
        assert [entry[2] for entry in w.board.shown if entry[1] == f"{row.id}/gate-saving"] == [ALICE.id]
        w.clock.advance(60)
        shelf.put("run/step-9.pt", 5, w.clock.now())
        await w.settle()
        assert ((await row_of(w)).gate, w.alive()) == (gating.PASSED, [])
        await w.run(90, 30)
        assert (await w.books()).sessions[0].state is SessionState.TERMINATED


async def test_what_is_never_saved_is_stopped_with_its_disk_until_its_owner_ends_it(w: World) -> None:
    async with near_its_end(w) as (shelf, request_id):
        await w.settle()
        shelf.down = True
        w.board.down = True
        w.clock.advance(601)
        await w.settle()
        row = await row_of(w)
        assert row.gate == gating.HELD
        assert row.gate_until is not None
        assert len(w.alive()) == 1
        await w.run(60, 30)
        assert (await row_of(w)).status == "stopped"
        stopped_bill = w.bill()
        w.clock.advance(4 * 3600)
        await w.settle()
        assert w.bill() - stopped_bill < Decimal("0.2")  # The disk alone.
        pages = [note for note in (await w.books()).notifications if note.subject == f"{row.id}/unverified"]
        assert len(pages) == 1
        reply = await w.end(request_id)
        assert reply.code == "released", reply
        await w.settle()
        assert w.alive() == []
        await w.run(90, 30)
        assert (await w.books()).sessions[0].state is SessionState.TERMINATED


@pytest.mark.parametrize("policy", ["keep", "destroy"])
async def test_where_a_stop_keeps_nothing_the_money_ends_the_hold_and_the_policy_may_before(
    sqlite_db: Database, clock: SteppedClock, policy: str
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(checkpoint_unverified=policy)
        async with near_its_end(w, "tensordock"):
            await w.settle()
            w.clock.advance(601)
            await w.settle()
            row = await row_of(w)
            if policy == "keep":
                assert row.gate == gating.HELD
                assert row.gate_until is not None
                w.clock.advance(row.gate_until - w.clock.now() + timedelta(seconds=31))
                await w.settle()
            assert ((await row_of(w)).gate, w.alive()) == (gating.DESTROYED, [])
            grant = (await w.books()).grants[0]
            await w.run(120, 30)
            assert w.bill() <= grant.total_cap_usd + Decimal("0.05")


async def test_an_end_that_somebody_ordered_and_a_place_that_nobody_can_look_at_hold_nothing(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, served(Shelf()) as stores:
        looks_at(w, stores)
        asked = await w.running(candidates=("vast",), checkpoint="s3://bucket/run")
        assert (await w.end(asked)).code == "terminating"
        await w.settle()
        assert w.alive() == []
        await w.running(candidates=("vast",), checkpoint="/workspace/out")
        row = (await w.books()).instances[-1]
        assert await gating.held_until(w.ctx, row, w.clock.now()) is None
        assert await ending.terminate_due(w.ctx) == 0
