"""The checkpoint gate: verified, waited for, kept, released, or given up as the policy and the money say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from typing import cast

import pytest

from bot.outbound.checkpoint_stores import Stores
from bot.rules.jobs.stored import job_of
from bot.services.checkpoints import hold as checkpoint_hold
from bot.services.checkpoints import verification
from bot.services.instances import termination
from bot.services.market import codec
from bot.services.market.catalog import Catalog
from bot.services.runtime.commands import AnswerCheckpointHold, FinishSession
from bot.services.sessions import service
from ledger.core.writes import amend, book
from ledger.engine.db import Database
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Instance, Node
from providers.contract import Listing, Provider
from providers.errors import Unavailable
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import InFront
from tests.support.stores import Shelf, served
from tests.support.world import ALICE, DAVE, World, checked_world, facts

KIND = "session.checkpoint_hold"


def looks_at(w: World, stores: Stores) -> None:
    """From now on the service has these stores, and their credentials are set."""
    catalog = Catalog(w.ctx.providers, w.clock, w.ctx.timing.offers_timeout_s, stores=tuple(stores.secrets))
    w.ctx = replace(w.ctx, catalog=catalog, checkpoints=stores)
    w.tune(checkpoint_places=("s3://bucket/run",))


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


class Elsewhere(InFront):
    """The same cloud with the key of another account."""

    account = "elsewhere"


class Blind(InFront):
    """The same cloud, whose listings lack everything."""

    async def list(self) -> Listing:
        return replace(await self.inner.list(), items=())


async def row_of(w: World) -> Instance:
    return (await w.books()).instances[0]


def told(w: World, row: Instance, step: str) -> list[str]:
    """Who was shown the message of a step."""
    return [to for kind, of, to, _ in w.board.shown if kind == KIND and of == f"{row.session_id}/{row.id}/{step}"]


def end_s(row: Instance) -> int:
    assert row.checkpoint_until is not None
    return int(row.checkpoint_until.timestamp())


async def test_a_verified_checkpoint_lets_the_end_go_on_and_one_that_arrives_late_too(w: World) -> None:
    async with near_its_end(w) as (shelf, _):
        await w.settle()
        row = await row_of(w)
        assert (row.state, row.checkpoint_step) == (InstanceState.TERMINATING, CheckpointStep.SAVING)
        assert "no checkpoint" in str(row.gate_note)
        assert len(w.alive()) == 1
        assert told(w, row, CheckpointStep.SAVING) == [ALICE.id]
        w.clock.advance(60)
        shelf.put("run/step-9.pt", 5, w.clock.now())
        await w.settle()
        assert ((await row_of(w)).checkpoint_step, w.alive()) == (CheckpointStep.PASSED, [])
        await w.run(90, 30)
        assert (await w.books()).sessions[0].state is SessionState.TERMINATED


@pytest.mark.slow
async def test_what_is_never_saved_is_stopped_with_its_disk_until_its_owner_ends_it(w: World) -> None:
    async with near_its_end(w) as (shelf, request_id):
        ours = w.ctx.providers
        w.wrap("vast", lambda inner: cast("Provider", Elsewhere(inner)))
        await w.settle()
        row = await row_of(w)
        # With another account set up nothing is decided about it, because nothing could be done.
        assert (row.state, row.checkpoint_step, len(w.alive())) == (InstanceState.TERMINATING, None, 1)
        w.use(ours)
        w.clock.advance(30)
        await w.settle()
        shelf.down = True
        w.board.down = True
        w.clock.advance(601)
        await w.settle()
        row = await row_of(w)
        # Nobody reads that it is stopped before the cloud shows it, and until then the machine's rate is what counts.
        assert (row.checkpoint_step, "is stopped" in str(row.gate_note)) == (CheckpointStep.STOPPING, False)
        assert row.checkpoint_until is not None
        assert row.checkpoint_until - w.clock.now() <= timedelta(seconds=w.ctx.policy.checkpoint_hold_s)
        await w.run(62, 31)
        row = await row_of(w)
        assert (row.checkpoint_step, "is stopped" in str(row.gate_note)) == (CheckpointStep.HELD, True)
        assert row.checkpoint_until is not None
        # At least the day that its approval reserved, and what was left of the rest on top.
        assert row.checkpoint_until - w.clock.now() > timedelta(hours=24)
        assert len(w.alive()) == 1
        await w.run(60, 30)
        assert (await row_of(w)).status == "stopped"
        stopped_bill = w.bill()
        w.clock.advance(4 * 3600)
        await w.settle()
        assert w.bill() - stopped_bill < Decimal("0.2")  # The disk alone.
        reply = await w.end(request_id)
        assert reply.code == "released", reply
        await w.settle()
        assert w.alive() == []
        await w.run(90, 30)
        assert (await w.books()).sessions[0].state is SessionState.TERMINATED
        # The hours that it was held are no hours that the cloud took to end it.
        assert row.id not in [one.subject for one in (await w.books()).notifications]


async def test_what_earlier_machines_of_its_session_cost_is_not_taken_off_what_is_left(bare: World) -> None:
    await bare.running(candidates=("tensordock",))
    row, now = await row_of(bare), bare.clock.now()
    async with bare.ctx.db.write() as tx:
        before = await checkpoint_hold.left_usd(bare.ctx, tx, row, now)
        spent = {"debit": f"session:{row.session_id}", "credit": "payable:vast:main"}
        await book(
            tx, key="earlier", kind=EntryKind.ACCRUE, amount_usd=Decimal(60), at=now, session_id=row.session_id, **spent
        )
        assert await checkpoint_hold.left_usd(bare.ctx, tx, row, now) == before > 0


async def test_a_machine_of_which_nothing_was_reserved_is_held_as_the_policy_says_and_extended_from_there(
    bare: World,
) -> None:
    await bare.running(candidates=("tensordock",))
    row, now = await row_of(bare), bare.clock.now()
    able = bare.ctx.providers["tensordock"].capabilities
    bare.tune(checkpoint_hold_s=1200)
    async with bare.ctx.db.write() as tx:
        await amend(tx, Instance, row.id, hold_s=None, hold_usd=None)
        row = await tx.get_one(Instance, row.id, populate_existing=True)
        assert checkpoint_hold.reserved(row).granted_h == 0
        assert await checkpoint_hold.latest_hold_end(bare.ctx, tx, row, now, able) == now + timedelta(seconds=1200)
        await checkpoint_hold.extended(bare.ctx, tx, row, Decimal("0.5"), now)
        row = await tx.get_one(Instance, row.id, populate_existing=True)
        # More time than before, and not the extra time alone.
        assert await checkpoint_hold.latest_hold_end(bare.ctx, tx, row, now, able) == now + timedelta(
            seconds=1200 + 1800
        )


async def test_a_hold_is_reserved_when_it_is_approved_and_its_end_is_asked_about_and_comes_by_its_cap(w: World) -> None:
    """Where a stop cannot keep the disk. The run spends none of what is for the hold, whatever the price does."""
    w.tune(fallback_contacts=("UFALL",), budget_admins=("UADMIN", "operator:ada"))
    async with near_its_end(w, "tensordock") as (_, request_id):
        books = await w.books()
        option = next(one for one in books.options if one.id == books.instances[0].option_id)
        costs = codec.estimate_from_json(option.estimate)
        assert costs.hold_usd == (option.price_usd_h * Decimal("1.1") * 2).quantize(Decimal("0.000001"), ROUND_CEILING)
        assert (costs.expected_usd < costs.worst_usd - costs.hold_usd, costs.hold_hours) == (True, Decimal(2))
        assert "to save checkpoints: up to 2 hours more" in codec.hold_line(option)
        create = books.grants[0]
        assert create.total_cap_usd == option.worst_usd
        assert [one.amount_usd for one in books.entries if one.kind == "reserve"] == [option.worst_usd]
        await w.settle()
        row = await row_of(w)
        assert (row.hold_usd, row.hold_s) == (costs.hold_usd, 7200)
        hold = (await w.books()).grants[1]
        assert (hold.kind, hold.total_cap_usd, hold.approval_id) == ("hold", Decimal(0), create.approval_id)
        w.clock.advance(601)
        await w.settle()
        row = await row_of(w)
        ordered_at = row.terminate_asked_at
        assert ordered_at is not None
        assert (row.checkpoint_step, row.checkpoint_until, row.status) == (
            CheckpointStep.HELD,
            ordered_at + timedelta(hours=2),
            "running",
        )
        assert told(w, row, CheckpointStep.HELD) == [ALICE.id]
        w.clock.advance(3000)
        await w.settle()
        assert sorted(told(w, row, checkpoint_hold.ASKED)) == ["UADMIN", "UFALL"]
        pages = [note for note in (await w.books()).notifications if note.subject == f"{row.id}/unverified"]
        assert len(pages) == 1
        w.clock.advance(ordered_at + timedelta(hours=2) - w.clock.now() + timedelta(seconds=31))
        await w.settle()
        row = await row_of(w)
        assert (row.checkpoint_step, w.alive(), told(w, row, "destroyed")) == (CheckpointStep.DESTROYED, [], [ALICE.id])
        await w.run(120, 30)
        assert (await w.end(request_id)).code == "already_ending"
        # It was never above what was approved, although it was held for the whole of it.
        assert w.bill() <= create.total_cap_usd


async def test_a_held_machine_is_let_go_or_extended_and_a_stale_click_changes_nothing(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    async with checked_world(sqlite_db, clock) as w, near_its_end(w, "tensordock") as (_, request_id):
        warned_s = int((await w.books()).sessions[0].deadline.timestamp())  # type: ignore[union-attr]
        await w.settle()
        row = await row_of(w)
        # The buttons of the warning before the end spoke of another one, and of nothing that is not saved.
        done = FinishSession(request_id, facts(ALICE), seen_end_s=warned_s)
        assert (await service.done(w.ctx, done)).code == "stale"
        for seen_s, who, code in ((warned_s, ALICE, "stale"), (end_s(row), DAVE, "not_yours")):
            said = AnswerCheckpointHold(row.session_id, facts(who), seen_s, saved=True)
            assert (await checkpoint_hold.answer(w.ctx, said)).code == code
        assert (await w.more(request_id, seen_end_s=warned_s)).code == "stale"
        asked = await w.more(request_id, "3", seen_end_s=end_s(row))
        assert asked.code == "extension_requested", asked
        assert (await w.decide(str(asked.data["request_id"]))).code == "approved"
        longer = await row_of(w)
        assert (end_s(longer) - end_s(row), longer.hold_s) == (3 * 3600, 5 * 3600)
        assert (await w.books()).sessions[0].hours == "2"
        stale = AnswerCheckpointHold(row.session_id, facts(ALICE), end_s(row))
        assert (await checkpoint_hold.answer(w.ctx, stale)).code == "stale"
        assert (await row_of(w)).checkpoint_step == CheckpointStep.SAVING
        again = await w.more(request_id, "1", seen_end_s=end_s(longer))
        assert again.code == "extension_requested", again
        # Two hours of the run, two of the hold, and three more of it.
        assert job_of((await w.books()).requests[-1].job).already_hours == 7
        saved = AnswerCheckpointHold(row.session_id, facts(ALICE), end_s(longer), saved=True)
        reply = await checkpoint_hold.answer(w.ctx, saved)
        assert reply.code == "released", reply
        late = await w.books()
        assert late.requests[-1].state == "cancelled"  # Nobody decides about more time for what is let go.
        await w.settle()
        assert w.alive() == []
        assert (await checkpoint_hold.answer(w.ctx, saved)).code == "stale"
        nothing = AnswerCheckpointHold("zzzzzz", facts(ALICE), 1)
        assert (await checkpoint_hold.answer(w.ctx, nothing)).code == "unknown_id"


@pytest.mark.parametrize("why", ["opted in", "no money"])
async def test_what_may_not_be_held_goes_at_once_and_is_told(
    sqlite_db: Database, clock: SteppedClock, why: str
) -> None:
    async with checked_world(sqlite_db, clock) as w:
        w.tune(checkpoint_unverified="destroy" if why == "opted in" else "keep")
        async with near_its_end(w, "tensordock"):
            if why == "no money":
                w.ctx = replace(w.ctx, policy=replace(w.ctx.policy, checkpoint_hold_s=60))
                row = await row_of(w)
                async with w.ctx.db.write() as tx:
                    await amend(tx, Instance, row.id, hold_s=0)
            await w.settle()
            if why == "opted in":
                w.clock.advance(601)
                await w.settle()
            row = await row_of(w)
            if why == "no money":
                assert row.checkpoint_step == CheckpointStep.HELD
                w.clock.advance(31)
                await w.settle()
                # The operators are asked first, and have a few minutes.
                row = await row_of(w)
                pages = [one.subject for one in (await w.books()).notifications]
                assert (row.checkpoint_step, f"{row.id}/unverified" in pages) == (CheckpointStep.HELD, True)
                w.clock.advance(301)
                await w.settle()
            step = (await row_of(w)).checkpoint_step
            assert (step, w.alive(), told(w, row, "destroyed")) == (CheckpointStep.DESTROYED, [], [ALICE.id])


async def test_the_hold_counts_as_time_so_twelve_hours_and_a_hold_need_an_override(w: World) -> None:
    async with served(Shelf()) as stores:
        looks_at(w, stores)
        reply = await w.ask(candidates=("tensordock",), checkpoint="s3://bucket/run", hours=Decimal("11.5"))
        await w.settle()
        view = await w.view(str(reply.data["request_id"]))
        assert view.override is not None
        assert view.override.rule.startswith("13.5 hours in all is above 12 hours")
        assert (await w.decide(view.request.id)).code == "approved"
        assert (await w.view(view.override.id)).request.state is RequestState.APPROVED
        shorter = await w.ask(candidates=("tensordock",), checkpoint="s3://bucket/run", hours=Decimal(10))
        await w.settle()
        assert (await w.view(str(shorter.data["request_id"]))).override is None


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
        assert await verification.waits_until(w.ctx, row, w.clock.now()) is None
        assert await termination.terminate_due(w.ctx) == 0


async def test_a_stop_that_does_not_happen_is_bound_by_the_machine_and_told_and_less_money_is_an_earlier_end(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    class Deaf(InFront):
        async def stop(self, ref: str) -> None:
            raise Unavailable("vast", f"{ref} is not answered for")

    async with checked_world(sqlite_db, clock) as w:
        w.tune(terminate_page_s=60.0)
        async with near_its_end(w) as (_, request_id):
            ours = w.ctx.providers
            w.wrap("vast", lambda inner: cast("Provider", Deaf(inner)))
            await w.settle()
            w.clock.advance(601)
            await w.settle()
            said = await row_of(w)
            await w.run(93, 31)
            row = await row_of(w)
            assert (row.checkpoint_step, row.checkpoint_until) == (CheckpointStep.STOPPING, said.checkpoint_until)
            assert f"{row.id}/stop" in [one.subject for one in (await w.books()).notifications]
            w.use(ours)
            await w.run(93, 31)
            row = await row_of(w)
            assert (row.checkpoint_step, row.status) == (CheckpointStep.HELD, "stopped")
            assert row.checkpoint_until is not None
            async with w.ctx.db.write() as tx:  # Far more had been said than there is money for.
                longer = row.checkpoint_until + timedelta(days=300)
                await amend(tx, Instance, row.id, checkpoint_until=longer, due_at=w.clock.now())
            await w.settle()
            sooner = await row_of(w)
            assert end_s(row) - 60 < end_s(sooner) < int(longer.timestamp())
            assert f"{sooner.checkpoint_until:%Y-%m-%d %H:%M}" in str(sooner.gate_note)
            assert (await w.end(request_id)).code == "released"
            await w.settle()
            await w.run(90, 30)


async def test_what_is_kept_outlives_a_listing_that_lacks_it_and_its_loss_is_told(w: World) -> None:
    async with near_its_end(w, "runpod"):
        await w.settle()
        w.clock.advance(601)
        await w.settle()
        await w.run(60, 30)
        ours, row = w.ctx.providers, await row_of(w)
        assert row.checkpoint_step == CheckpointStep.HELD
        w.wrap("runpod", lambda inner: cast("Provider", Blind(inner)))
        await w.run(120, 30)
        w.use(ours)
        await w.run(60, 30)
        assert ((await row_of(w)).state, len(w.alive())) == (InstanceState.TERMINATING, 1)
        w.clouds["runpod"].disturb(str(row.ref), "vanish")
        await w.run(120, 30)
        (session,) = (await w.books()).sessions
        assert session.state is SessionState.TERMINATED
        assert session.end_reason.endswith("The cloud no longer has its disk, and GPU Shopper didn't delete it.")


async def test_an_agent_that_fell_silent_does_not_make_an_old_checkpoint_a_new_one(w: World) -> None:
    async with near_its_end(w) as (shelf, _):
        row, at = await row_of(w), w.clock.now() - timedelta(minutes=90)
        shelf.put("run/model.pt", 5, at)
        mute = Node(instance_id=row.id, session_id=row.session_id, token_hash="0" * 64, made_at=at, at=at, seq=5)
        async with w.ctx.db.write() as tx:
            tx.add(mute)
        await w.settle()
        assert (await row_of(w)).checkpoint_step == CheckpointStep.SAVING
        w.clock.advance(601)
        await w.settle()
        await w.run(900, 300)  # Nor when it stands still.
        row = await row_of(w)
        assert (row.status, row.checkpoint_step) == ("stopped", CheckpointStep.HELD)
        assert "lacks the last" in str(row.gate_note)
        # What is ended because it is silent is taken to have worked no longer.
        assert verification._may_have_worked_until(Instance(outcome_code="no_heartbeat"), mute) == at
        assert verification._may_have_worked_until(Instance(status="booting"), mute) == at
