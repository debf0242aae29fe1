"""After a lost ledger: every instance of ours is found by its label, and an approver keeps what is used."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal

from bot.rules.labels import LabelKey
from bot.services import adopting, recovery, sweep
from bot.services.adopting import Adopt
from bot.services.commands import Reply
from ledger.db import Database
from ledger.lookups import waiting_strays
from ledger.models import Stray
from ledger.states import InstanceState, SessionState, StrayState
from ledger.values import Actor, ActorKind, new_id
from providers.sandbox.engine import SandboxTiming
from tests.services.test_recovery import rent, rowless
from tests.support.clock import SteppedClock
from tests.support.world import ALICE, BOB, World, facts, world

ADA = Actor(ActorKind.OPERATOR, "ada")


async def keep(
    w: World, stray_id: str, actor: Actor = BOB, hours: str = "2", reason: str = "it trains", key: str = ""
) -> Reply:
    command = Adopt(stray_id, Decimal(hours), facts(actor), ALICE, reason, "C0GPU", key)
    return await adopting.adopt_stray(w.ctx, command)


async def test_an_approver_keeps_what_the_ledger_had_lost(w: World) -> None:
    stray = await rowless(w)
    assert (await keep(w, stray.id, ADA)).code == "not_an_approver"
    assert (await keep(w, stray.id, reason=" ")).code == "reason_needed"
    assert (await keep(w, stray.id, hours="13")).code == "bad_word"
    assert (await keep(w, "str_nowhere")).code == "unknown_id"
    # Sent three times at once, because no answer came: it is adopted once, and everybody is told the same.
    kept, *others = await asyncio.gather(*(keep(w, stray.id, key="rest:1") for _ in range(3)))
    assert (kept.code, kept.ok, others) == ("adopted", True, [kept, kept])
    assert (await keep(w, stray.id, key="rest:1")) == kept
    assert (await keep(w, stray.id, key="rest:2")).code == "stale"
    assert (await keep(w, stray.id)).code == "stale"
    await w.run(60, 20)
    view = await w.session(str(kept.data["session_id"]))
    assert (view.session.state, view.session.owner) == (SessionState.RUNNING, ALICE.ref)
    assert view.instance is not None
    assert (view.instance.state, view.instance.ref, view.instance.label) == (
        InstanceState.LIVE,
        stray.ref,
        stray.label,
    )
    books = await w.books()
    assert [(one.approver, one.hours) for one in books.approvals] == [(BOB.ref, "2")]
    assert [one.kind for one in books.entries if one.kind == "loss"] == ["loss"]  # What it cost before.
    async with w.ctx.db.read() as tx:
        assert not await recovery.is_on(tx)
    await w.run(7200, 1800)
    assert w.alive() == []


async def test_from_an_empty_database_all_is_found_by_its_label(sqlite_db: Database, clock: SteppedClock) -> None:
    async with world(sqlite_db, clock, sandbox=SandboxTiming.quick()) as w:
        names = {}
        for number in range(3):
            ref = rent(w, f"gpu-1x4090-{w.ctx.labels.mint(new_id('req', clock.now()), number)}")
            names[ref] = number
        forger = LabelKey(w.ctx.labels.deployment, b"another key of sixteen bytes")
        forged = rent(w, f"gpu-1x4090-{forger.mint(new_id('req', clock.now()), 1)}")
        foreign = rent(w, "somebody-elses")
        for cloud in w.ctx.providers:
            await sweep.observe(w.ctx, cloud)
        async with w.ctx.db.read() as tx:
            waiting = {stray.ref: stray for stray in await waiting_strays(tx)}
        assert set(waiting) == set(names)
        assert {forged, foreign}.isdisjoint(waiting)
        first, second, third = waiting.values()
        async with w.ctx.db.write() as tx:
            tx.add(_forged(first, forged))
        assert (await keep(w, "str_forged0000000000")).code == "not_ours"
        w.clouds["vast"].disturb(second.ref, "vanish")
        assert (await keep(w, second.id)).code == "stale"
        w.ctx = replace(w.ctx, providers={name: one for name, one in w.ctx.providers.items() if name != "vast"})
        assert (await keep(w, third.id)).code == "not_set_up"


def _forged(of: Stray, ref: str) -> Stray:
    """As if a row had been written for the forged one."""
    return Stray(
        id="str_forged0000000000",
        cloud=of.cloud,
        account=of.account,
        ref=ref,
        label=of.label,
        state=StrayState.QUARANTINED,
        price_usd_h=Decimal(0),
        first_seen_at=of.first_seen_at,
        last_seen_at=of.last_seen_at,
        reason="forged",
    )
