"""The verdict of a chaos run is silent on a good walk and names each thing that could be wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text

from ledger.engine.db import Database
from providers.sandbox.engine import TrueInstance
from tests.scenarios.chaos.proxy import LABEL
from tests.scenarios.chaos.verdict import Evidence, LostPart, judge
from tests.support.clock import SteppedClock
from tests.support.world import checked_world

SIX_MINUTES_S = 360


@dataclass(frozen=True)
class Walked:
    """A ledger after one whole session, and what was seen from outside meanwhile."""

    db: Database
    seen: Evidence

    @property
    def rented(self) -> TrueInstance:
        """The one instance."""
        return self.seen.true[0]

    async def broken(self, **changes: Any) -> str:
        """What is wrong, had this been seen instead."""
        return "\n".join((await judge(self.db, replace(self.seen, **changes))).broken)


@pytest.fixture
async def walked(db: Database, clock: SteppedClock) -> Walked:
    """Alice's six minutes, from the approval to the confirmed end."""
    async with checked_world(db, clock) as w:
        await w.ready(hours=Decimal("0.1"))
        await w.run(SIX_MINUTES_S + 300)
        true = w.instances()
        assert [item.alive for item in true] == [False]
        sent = {found[0]: 1 for item in true if (found := LABEL.search(str(item.name)))}
        return Walked(db, Evidence(true, sent, {}, lambda _cloud, _start, _end: 0.0, clock.now()))


async def test_a_good_walk_is_clean_and_each_wrong_is_named(walked: Walked) -> None:
    assert await walked.broken() == ""
    rented = walked.rented
    label = next(iter(walked.seen.sent))
    assert "double" in await walked.broken(sent={label: 2})
    assert "1 requests from 0 commands" in await walked.broken(commands=0)
    assert "without an approval" in await walked.broken(sent_s={label: 1.0}, clicked_s={"unknown": 0.5})
    assert "acknowledged and lost: /gpu status" in await walked.broken(acknowledged={"v0=1234": "/gpu status"})
    assert "orphan" in await walked.broken(true=[rented, replace(rented, ref="other", ended_at=None)])
    later = (rented.ended_at or walked.seen.now) + timedelta(seconds=100)
    assert "late" in await walked.broken(true=[replace(rented, ended_at=later)])
    assert "bill" in await walked.broken(true=[replace(rented, gpu_usd=rented.gpu_usd + Decimal("0.02"))])
    both = replace(rented, ref=f"{rented.ref}0")
    assert "two instances" in await walked.broken(true=[rented, both])
    strange = str(rented.name).replace(label, "e2e1-aaaaaaaaaaaaaaaa-aa-aaaaaaaaaa")
    assert "without a row" in await walked.broken(true=[replace(rented, name=strange)])


async def test_a_machine_that_no_cloud_lost_and_counts_as_lost_is_named(walked: Walked) -> None:
    async with walked.db.write() as tx:
        await tx.execute(text("UPDATE instances SET outcome_code = 'lost'"))
    assert "ended by mistake" in await walked.broken()


async def test_a_machine_in_use_that_was_given_up_is_named(walked: Walked) -> None:
    async with walked.db.write() as tx:
        await tx.execute(text("UPDATE instances SET outcome_code = 'broken'"))
    assert "given up while it could wait" in await walked.broken()
    async with walked.db.write() as tx:
        await tx.execute(text("UPDATE instances SET reachable_at = NULL"))
    assert "given up" not in await walked.broken()


async def test_an_outage_of_the_cloud_or_of_every_process_excuses_a_late_end(walked: Walked) -> None:
    later = (walked.rented.ended_at or walked.seen.now) + timedelta(seconds=100)
    true = [replace(walked.rented, ended_at=later)]
    assert "late" not in await walked.broken(true=true, away_s=lambda _cloud, _start, _end: 100.0)


async def test_what_a_restored_copy_lacks_is_excused_and_what_is_bought_again_is_not(walked: Walked) -> None:
    rented, label = walked.rented, next(iter(walked.seen.sent))
    assert rented.ended_at is not None
    before, after = rented.created_at - timedelta(seconds=9), rented.ended_at + timedelta(seconds=9)
    whole = LostPart(before, 1.0, after, 9.0)
    later = LostPart(after, 9.0, after, 9.0)
    strange = replace(rented, name=str(rented.name).replace(label, "e2e1-aaaaaaaaaaaaaaaa-aa-aaaaaaaaaa"))
    assert "without a row" in await walked.broken(true=[strange], lost=[later])
    assert await walked.broken(true=[strange], lost=[whole]) == ""
    assert "double" not in await walked.broken(sent={label: 2}, sent_s={label: 2.0}, lost=[whole])
    assert "double" in await walked.broken(sent={label: 2}, lost=[later])
    assert "double" in await walked.broken(sent={label: 3}, sent_s={label: 2.0}, lost=[whole])
    assert "orphan" in await walked.broken(true=[replace(strange, ended_at=None)], lost=[whole])
    async with walked.db.write() as tx:
        await tx.execute(text("UPDATE instances SET outcome_code = 'lost'"))
    assert "ended by mistake" not in await walked.broken(lost=[whole])
    assert "ended by mistake" in await walked.broken(lost=[later])
