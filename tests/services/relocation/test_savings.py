"""Owners get one message a day when their run would finish cheaper elsewhere, with the command that moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from sqlalchemy import update

from bot.outbound.checkpoint_stores import Stores
from bot.rules.jobs.stored import job_of
from bot.services.relocation.savings import savings_due
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import RequestState, SessionState
from ledger.models import Event, Session
from ledger.queries.access import lock_consumer
from providers.completeness import AnswerPart
from providers.contract import Offer, Provider
from tests.services.checkpoints.test_verification import looks_at
from tests.services.relocation.run import PLACE, SOURCE, Run, running
from tests.support.world import CAROL, World


class Priced:
    """A cloud whose offers cost what a test wants; everything else is the real adapter's."""

    def __init__(self, inner: Provider, change: Callable[[Offer], Offer]) -> None:
        self._inner = inner
        self._change = change
        self.listings = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def offers(self, *args: object, **how: object) -> AnswerPart[Offer]:
        self.listings += 1
        found = await self._inner.offers(*args, **how)  # type: ignore[arg-type]
        return replace(found, items=tuple(map(self._change, found)))


def priced(w: World, share: str, of_usd_h: Decimal | None = None) -> dict[str, Priced]:
    """Let the offers of every cloud cost a share of what they do, or of one price."""
    found: dict[str, Priced] = {}

    def changed(offer: Offer) -> Offer:
        price = offer.price_usd_h if of_usd_h is None else of_usd_h
        return replace(offer, price_usd_h=price * Decimal(share) if price is not None else None)

    for cloud in w.clouds:
        w.wrap(cloud, lambda inner: found.setdefault(inner.name, Priced(inner, changed)))  # type: ignore[arg-type,return-value]
    assert isinstance(w.ctx.checkpoints, Stores)
    looks_at(w, w.ctx.checkpoints)  # The wrapped clouds have a market of their own.
    return found


async def told(w: World) -> list[Event]:
    return [one for one in (await w.books()).events if one.kind == EventKind.MIGRATION_SUGGESTED]


async def passed(run: Run, hours: float) -> None:
    """Let time pass; the run saves and reports at its end."""
    run.w.clock.advance(hours * 3600)
    for _ in range(3):
        await run.tick()
    run.put(int(run.first.step))
    run.first.saved_step, run.first.saved_at = int(run.first.step), run.w.clock.now()
    await run.tick()


async def test_two_replicas_that_look_at_once_tell_an_owner_once(w: World) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60):
        priced(w, "0.5")
        w.tune(suggest_move_usd=Decimal(2))
        assert sorted(await asyncio.gather(savings_due(w.ctx), savings_due(w.ctx))) == [0, 1]
        assert len(await told(w)) == 1


async def test_a_person_and_their_program_get_one_message(w: World) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60) as run:
        await w.running(hours=Decimal(60), run="python train.py", checkpoint=PLACE)
        second = (await w.books()).sessions[-1]
        async with w.ctx.db.write() as tx:
            await lock_consumer(tx, "consumer:atlas", run.owner.ref, "operator:ada", w.clock.now())
            await tx.execute(update(Session).where(Session.id == second.id).values(owner="consumer:atlas"))
        for agent in run.agents:
            agent.machine = run.first.machine
            agent.step = run.first.step
            agent.saved_step, agent.saved_at = int(agent.step), w.clock.now()
        run.put(int(run.first.step))
        await w.run(90, 30)
        priced(w, "0.5")
        w.tune(suggest_move_usd=Decimal(2))
        assert sorted(await asyncio.gather(savings_due(w.ctx), savings_due(w.ctx))) == [0, 1]
        (event,) = await told(w)
        assert event.data["to"] == [run.owner.id]
        # The other run alone brings no second message on the same day.
        async with w.ctx.db.write() as tx:
            await tx.execute(update(Session).where(Session.id == event.subject).values(state=SessionState.STOPPED))
        assert await savings_due(w.ctx) == 0
        notes = [one.destination for one in (await w.books()).notifications if "/cheaper/" in one.subject]
        assert notes == [run.owner.id]
        async with w.ctx.db.write() as tx:
            await tx.execute(update(Session).where(Session.id == event.subject).values(state=SessionState.RUNNING))


async def test_a_run_that_cannot_be_moved_or_whose_agent_is_silent_is_left_out(w: World) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60) as run:
        priced(w, "0.5")
        w.tune(suggest_move_usd=Decimal(2), end_when_unresponsive=False)
        run.first.silent = True
        w.clock.advance(400)
        assert await savings_due(w.ctx) == 0
        run.first.silent = False
        await passed(run, 0.1)
        assert await savings_due(w.ctx) == 1


@pytest.mark.slow
async def test_an_owner_is_told_once_a_day_and_the_command_moves_the_run_there(w: World) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60) as run:
        w.tune(suggest_move_usd=Decimal(2))
        clouds = priced(w, "0.5")
        before = sum(one.listings for one in clouds.values())
        assert await savings_due(w.ctx) == 1
        assert sum(one.listings for one in clouds.values()) - before <= len(clouds)
        (event,) = await told(w)
        source, _ = await run.sessions()
        assert event.subject == source.id
        assert f"Session {source.short_id} would finish about $" in event.reason
        notes = [one for one in (await w.books()).notifications if "/cheaper/" in one.subject]
        assert [str(one.body["text"]) for one in notes] == [event.reason]
        await w.settle()
        shown = [text for _, of, to, text in w.board.shown if "/cheaper/" in of and to == run.owner.id]
        assert len(shown) == 1
        await passed(run, 12)
        assert await savings_due(w.ctx) == 0
        await passed(run, 12.1)
        assert await savings_due(w.ctx) == 1
        assert len(await told(w)) == 2

        reply = await run.ask("cheaper")
        assert reply.ok, reply
        await w.settle()
        view = await w.view(run.target_id)
        assert view.request.state is RequestState.PENDING, view.request.outcome
        assert view.options[0].offer["cloud"] in (await told(w))[-1].data["offer_id"]
        assert await savings_due(w.ctx) == 0
        await passed(run, 24.2)
        assert await savings_due(w.ctx) == 0, "it is being moved"


@pytest.mark.parametrize(
    "change",
    [
        {"suggest_move_usd": None},
        {"suggest_move_usd": Decimal(1000)},
        {"suggest_move_percent": Decimal(90)},
        {"checkpoint_places": ("s3://other",)},
    ],
)
@pytest.mark.slow
async def test_nobody_is_told_of_what_is_not_worth_it_or_not_possible(w: World, change: dict[str, object]) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60) as run:
        priced(w, "0.5")
        w.tune(**{"suggest_move_usd": Decimal(2), **change})
        assert await savings_due(w.ctx) == 0
        assert await told(w) == []
        assert run.migration is not None


async def test_nobody_is_told_where_a_move_would_be_refused(w: World) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60) as run:
        priced(w, "0.5")
        w.tune(suggest_move_usd=Decimal(2))
        files = dict(run.shelf.files)
        run.shelf.down = True
        assert await savings_due(w.ctx) == 0
        run.shelf.down = False
        run.shelf.files = {"run/step-1/model.pt": (0, w.clock.now())}
        assert await savings_due(w.ctx) == 0
        run.shelf.files = {path: (size, at.replace(year=2025)) for path, (size, at) in files.items()}
        assert await savings_due(w.ctx) == 0
        run.shelf.files = files
        assert await savings_due(w.ctx) == 1


async def test_an_offer_that_costs_as_much_is_not_suggested(w: World) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60):
        w.tune(suggest_move_usd=Decimal(0), suggest_move_percent=Decimal(0))
        priced(w, "2")
        assert await savings_due(w.ctx) == 0


async def test_a_run_that_is_nearly_done_stays(w: World) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60) as run:
        w.tune(suggest_move_usd=Decimal(2))
        priced(w, "0.5")
        run.first.target_step = int(run.first.step) + 1000
        for _ in range(3):
            await run.tick()
        assert await savings_due(w.ctx) == 0
        run.first.target_step = int(run.first.step) + 1_000_000
        for _ in range(3):
            await run.tick()
        assert await savings_due(w.ctx) == 1


@pytest.mark.slow
async def test_of_two_runs_of_one_owner_the_larger_saving_is_told_and_another_owner_is_told_too(w: World) -> None:
    w.tune(max_hours=Decimal(100))
    async with running(w, hours=60) as run:
        longer = await w.running(
            hours=Decimal(90), candidates=("vast",), run="python train.py", checkpoint="s3://bucket/run"
        )
        other = await w.running(
            CAROL, hours=Decimal(60), candidates=("vast",), run="python train.py", checkpoint="s3://bucket/run"
        )
        for agent in run.agents:
            agent.machine = {"steps": [{"name": "run", "state": "done"}]}
            agent.job, agent.saved_step, agent.saved_at = "running", run.first.saved_step, w.clock.now()
            agent.step = run.first.step
        run.put(int(run.first.step))
        for cloud in w.clouds.values():
            await cloud.tick()
        w.tune(suggest_move_usd=Decimal(2))
        clouds = priced(w, "0.5")
        assert await savings_due(w.ctx) == 2
        assert sum(one.listings for one in clouds.values()) <= len(clouds), "all runs share one search"
        sessions = {one.id: one.request_id for one in (await w.books()).sessions}
        assert {sessions[one.subject] for one in await told(w)} == {longer, other}
        assert await savings_due(w.ctx) == 0


async def test_cheaper_answers_with_nothing_that_is_dearer_in_all(w: World) -> None:
    """Less per hour is not less: the move itself, its boot and the work done again count, at both rates."""
    async with running(w, hours=1) as run:
        row = await run.row(SOURCE)
        priced(w, "0.95", row.price_usd_h)
        before = len((await w.books()).requests)
        reply = await run.ask("cheaper")
        assert (reply.ok, reply.code) == (False, "nothing_cheaper"), reply
        assert reply.sentence.startswith("Nothing is cheaper for session"), reply
        assert len((await w.books()).requests) == before
        # What saves in all is asked for, and nothing that costs more per hour than that.
        priced(w, "0.3", row.price_usd_h)
        reply = await run.ask("cheaper", key="move-2")
        assert reply.ok, reply
        asked = job_of((await w.view(run.target_id)).request.job)
        assert asked.max_price_usd_h is not None
        assert asked.max_price_usd_h < row.price_usd_h
