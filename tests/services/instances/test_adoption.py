"""After a lost ledger: every instance of ours is found by its label, and an approver keeps what is used."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import cast

import pytest

from bot.rules.values.labels import LabelKey
from bot.services.billing import shared_ledger
from bot.services.instances import adoption, reconcile
from bot.services.instances.adoption import Adopt
from bot.services.runtime import recovery_mode
from bot.services.runtime.commands import Reply
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import InstanceState, OrphanState, SessionState
from ledger.models import Orphan
from ledger.queries.orphans import quarantined
from providers.contract import NotSeen, ObservedInstance, Provider
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.runpod.sandbox import RunPodSandbox
from providers.sandbox.runpod.validation import Order
from tests.services.runtime.test_recovery_mode import rent, rowless
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import InFront
from tests.support.world import ALICE, BOB, CAROL, DAVE, World, facts, world

ADA = Actor(ActorKind.OPERATOR, "ada")


async def keep(
    w: World, orphan_id: str, actor: Actor = BOB, hours: str = "2", reason: str = "it trains", key: str = ""
) -> Reply:
    command = Adopt(orphan_id, Decimal(hours), facts(actor), ALICE, reason, "C0GPU", key)
    return await adoption.adopt_orphan(w.ctx, command)


@pytest.mark.both_databases
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
    (before,) = [one for one in books.entries if one.kind == "loss"]  # What it cost before.
    # The file that tools share has all that was spent, whether or not there was a session for it.
    shared = await shared_ledger.exported(w.ctx)
    assert [Decimal(str(one["amount_usd"])) for one in shared if one["action"] == "loss"] == [before.amount_usd]
    assert {one["provider"] for one in shared} == {"vast"}
    assert not [one for one in await shared_ledger.exported(w.ctx, w.clock.now()) if one["action"] == "loss"]
    async with w.ctx.db.read() as tx:
        assert not await recovery_mode.is_on(tx)
    await w.run(7200, 1800)
    assert w.alive() == []


async def test_what_it_cost_before_takes_no_time_and_no_money_from_the_adopted_session(w: World) -> None:
    orphan = await rowless(w)
    w.clock.advance(12000)
    adopted = await keep(w, orphan.id)
    assert await w.violations() == []
    view = await w.session(str(adopted.data["session_id"]))
    assert view.instance is not None
    assert (view.instance.billing_from, view.session.deadline) == (w.clock.now(), w.clock.now() + timedelta(hours=2))


async def test_an_adopted_instance_that_is_stopped_keeps_its_disk(w: World) -> None:
    stray = await rowless(w)
    w.clouds["vast"].disturb(stray.ref, "outbid_a")
    assert (await keep(w, stray.id)).code == "adopted"
    await w.run(60, 20)
    assert len(w.alive()) == 1


async def stopped_pod(w: World) -> Orphan:
    """A pod of ours without a row, which somebody stopped at the console: its GPU is free and its volume costs on."""
    runpod = w.clouds["runpod"]
    assert isinstance(runpod, RunPodSandbox)
    account = runpod.account
    kind = next(gpu.id for gpu in account.market.types.values() if gpu.price_usd_h.get("SECURE") is not None)
    name = f"gpu-1x4090-{w.ctx.labels.mint(new_id('req', w.clock.now()), 1)}"
    pod = account.deploy(Order(name, "x", kind, 1, "SECURE", volume_gb=500), 0.0)
    w.clock.advance(60)
    account.act(pod.ref, "stop", account.next_boot())
    await w.run(30, 30)
    (orphan,) = (await w.books()).orphans
    return orphan


async def test_a_stopped_pod_is_booked_at_the_rate_of_a_stopped_volume_before_and_after_its_adoption(w: World) -> None:
    """The volume of a stopped pod costs twice what it costs while the pod runs."""
    orphan = await stopped_pod(w)
    rate = Decimal("0.2") * 500 / 720
    assert abs(orphan.price_usd_h - rate) < Decimal("0.00001")
    await w.run(3600, 900)
    assert (await keep(w, orphan.id)).code == "adopted"
    row = (await w.books()).instances[0]
    assert abs(row.storage_usd_h - rate) < Decimal("0.00001")


async def test_to_keep_it_is_approved_like_a_request_and_a_refusal_says_how_it_is_ended(w: World) -> None:
    stray = await rowless(w)

    async def say(actor: Actor, owner: Actor = ALICE, amount: str | None = None) -> Reply:
        word = Adopt(stray.id, Decimal(12), facts(actor), owner, "it trains", "C0GPU", typed_amount=amount)
        return await adoption.adopt_orphan(w.ctx, word)

    own = await say(BOB, BOB)
    assert (own.code, "orphans condemn" in own.sentence) == ("requester", True)
    w.tune(confirm_above_usd=Decimal(0))
    asked = await say(BOB)
    assert asked.code == "amount_needed"
    expected = asked.sentence.split("$")[-1].split()[0].rstrip(".,;")
    w.tune(budgets={"global": {"monthly": Decimal("0.01")}}, two_approvers_above_usd=Decimal(0))
    assert (await say(BOB, amount="1")).code == "amount_mismatch"
    assert (await say(BOB, amount=expected)).code == "first_of_two"
    assert (await say(BOB, amount=expected)).code == "already_voted"
    over = await say(CAROL, amount=expected)
    assert (over.code, "orphans condemn" in over.sentence) == ("over_budget", True)
    books = await w.books()
    assert (books.instances, books.approvals, [one.state for one in books.orphans]) == (
        (),
        (),
        [OrphanState.QUARANTINED],
    )
    w.tune(budgets={"global": {"monthly": Decimal(100)}})
    assert (await say(CAROL, DAVE, expected)).code == "first_of_two"  # For somebody else: another question.
    w.clock.advance(30)
    assert (await say(CAROL, amount=expected)).code == "adopted"
    books = await w.books()
    assert sorted(one.approver for one in books.approvals) == sorted((BOB.ref, CAROL.ref))
    assert [one.required_approvals for one in books.requests] == [2]


@pytest.mark.both_databases
async def test_of_two_who_decide_at_once_one_is_refused_and_does_nothing(w: World) -> None:
    stray = await rowless(w)

    class Meanwhile(InFront):
        async def get(self, ref: str) -> ObservedInstance | NotSeen:
            await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "not ours any more", w.clock.now())
            return await self.inner.get(ref)

    inner = w.ctx.providers["vast"]
    w.wrap("vast", lambda one: cast("Provider", Meanwhile(one)))
    assert (await keep(w, stray.id)).code == "stale"
    books = await w.books()
    assert ([one.state for one in books.orphans], books.instances) == ([OrphanState.CONDEMNED], ())
    w.wrap("vast", lambda _: inner)
    other = await rowless(w)
    codes = {one.code for one in await asyncio.gather(keep(w, other.id), keep(w, other.id))}
    assert codes == {"adopted", "stale"}
    assert len((await w.books()).instances) == 1


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
            await reconcile.observe(w.ctx, cloud)
        async with w.ctx.db.read() as tx:
            waiting = {stray.ref: stray for stray in await quarantined(tx) if stray.instance_id is None}
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


def _forged(of: Orphan, ref: str) -> Orphan:
    """As if a row had been written for the forged one."""
    return Orphan(
        id="str_forged0000000000",
        cloud=of.cloud,
        account=of.account,
        ref=ref,
        label=of.label,
        state=OrphanState.QUARANTINED,
        price_usd_h=Decimal(0),
        first_seen_at=of.first_seen_at,
        last_seen_at=of.last_seen_at,
        reason="forged",
    )
