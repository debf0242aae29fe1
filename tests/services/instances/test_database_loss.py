"""A lost database, at every cloud: what is ours is found by its label and kept, and what is forged is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from bot.rules.values.labels import LabelKey
from bot.services.instances import adoption, reconcile, termination
from bot.services.instances.adoption import Adopt
from bot.services.runtime import recovery_mode
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, OrphanState, SessionState
from ledger.models import Orphan
from providers.sandbox.clock import SandboxTiming
from tests.support.clock import SteppedClock
from tests.support.databases import sqlite_url
from tests.support.matrix import clouds_with
from tests.support.world import ALICE, BOB, World, facts, world


async def forged(w: World, cloud: str) -> str:
    """Somebody without the key makes an instance whose label reads like ours; its id there."""
    ours = w.ctx.labels
    w.ctx = replace(w.ctx, labels=LabelKey(ours.deployment, b"another key of sixteen bytes"))
    before = {one.ref for one in w.instances()}
    await w.running(candidates=(cloud,))
    w.ctx = replace(w.ctx, labels=ours)
    (ref,) = {one.ref for one in w.instances()} - before
    return ref


async def waiting(w: World, cloud: str) -> list[Orphan]:
    """What the ledger says after two looks at the cloud."""
    for _ in range(2):
        await reconcile.observe(w.ctx, cloud)
        w.clock.advance(40)
    await termination.terminate_due(w.ctx)
    return list((await w.books()).orphans)


@pytest.mark.parametrize("cloud", clouds_with(labels=True))
async def test_from_an_empty_database_what_is_ours_is_found_kept_and_paid(
    sqlite_db: Database, sqlite_template: Path, clock: SteppedClock, tmp_path: Path, cloud: str
) -> None:
    async with world(sqlite_db, clock, sandbox=SandboxTiming.quick()) as w:
        await w.running(candidates=(cloud,))
        (mine,) = w.instances()
        other = await forged(w, cloud)
        clock.advance(1800 if mine.gpu_usd else 1)  # A batch run is over by then.
        lost = tmp_path / "empty.db"
        shutil.copy(sqlite_template, lost)
        empty = Database(sqlite_url(lost))
        try:
            w.ctx = replace(w.ctx, db=empty)
            strays = await waiting(w, cloud)
            assert [(one.ref, one.state) for one in strays] == [(mine.ref, OrphanState.QUARANTINED)]
            assert other not in {one.ref for one in strays}
            assert len(w.alive()) == 2
            assert await recovery_mode.now_on(empty)
            again = await waiting(w, cloud)  # It is idempotent, also for a process that died before and looks anew.
            assert [one.id for one in again] == [one.id for one in strays]
            (stray,) = strays
            word = Adopt(stray.id, Decimal(2), facts(BOB), ALICE, "it trains", "C0GPU")
            assert (await adoption.adopt_orphan(w.ctx, word)).code == "adopted"
            assert (await adoption.adopt_orphan(w.ctx, word)).code == "stale"
            assert not await recovery_mode.now_on(empty)
            books = await w.books()
            (session,), (row,) = books.sessions, books.instances
            assert (session.owner, row.ref, row.state) == (ALICE.ref, mine.ref, InstanceState.LIVE)
            assert session.state is not SessionState.FAILED
            before = [entry for entry in books.entries if entry.kind == "loss"]
            assert {entry.session_id for entry in before} <= {session.id}
            if mine.gpu_usd:
                # Since the cloud's own start, not since it was found.
                paid = sum((entry.amount_usd for entry in before), Decimal(0))
                assert abs(paid / w.instances()[0].total_usd - 1) < Decimal("0.05")
                assert stray.billing_from is not None
                assert stray.billing_from <= stray.first_seen_at - timedelta(minutes=29)
        finally:
            await empty.close()
