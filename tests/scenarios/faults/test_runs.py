"""Runs of batch clouds: their own end ends the session, nothing else can, and no run is ever pushed twice."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from bot.rules.market.ranking import FREE
from bot.services.instances import launch
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from ledger.queries.views import RequestView
from providers.sandbox.kaggle.sandbox import KaggleSandbox
from tests.support.matrix import clouds_with
from tests.support.world import ALICE, World

batch_clouds = pytest.mark.parametrize("cloud", clouds_with(batch=True))
LONG_WORK_S = 5000.0


def batch(w: World, cloud: str) -> KaggleSandbox:
    sandbox = w.clouds[cloud]
    assert isinstance(sandbox, KaggleSandbox)
    return sandbox


async def ended(w: World, request_id: str, code: str) -> RequestView:
    """The request's view, whose session and instance ended with `code`."""
    view = await w.view(request_id)
    assert view.session is not None
    assert (view.session.state, view.session.end_code) == (SessionState.TERMINATED, code), view.session.end_reason
    assert [row.state for row in view.instances] == [InstanceState.GONE]
    assert view.request.state is RequestState.APPROVED
    return view


async def state(w: World, request_id: str) -> tuple[SessionState, InstanceState]:
    view = await w.view(request_id)
    assert view.session is not None
    return view.session.state, view.instances[-1].state


@batch_clouds
async def test_a_run_that_completes_ends_its_session_and_costs_nothing(w: World, cloud: str) -> None:
    request_id = await w.running(candidates=(cloud,))
    await w.run(700, 100)
    view = await ended(w, request_id, "run_completed")
    assert view.session is not None
    assert "succeeded" in view.session.end_reason
    assert view.instances[0].outcome_code == "run_completed"
    assert "session.ended" in w.board.kinds(view.session.id)
    books = await w.books()
    assert books.entries == ()
    assert "operator.page" not in w.board.kinds()
    assert len(w.engine.creates) == 1


@batch_clouds
async def test_a_run_that_fails_ends_its_session_with_what_the_cloud_says(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("run_fails", cloud, after_s=60)
    await w.settle()
    await w.run(120, 20)
    view = await ended(w, request_id, "run_failed")
    assert view.session is not None
    assert "exited with code 1" in view.session.end_reason
    assert len(w.engine.creates) == 1  # A new run takes a new approval.


@batch_clouds
async def test_a_run_that_was_over_before_anybody_looked_ends_its_session(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    await launch.send_due(w.ctx)
    w.clock.advance(1500)
    await w.run(30, 15)
    view = await ended(w, request_id, "run_completed")
    assert view.session is not None
    assert "session.ready" not in w.board.kinds(view.session.id)


@batch_clouds
async def test_a_push_whose_reply_was_lost_is_adopted_even_when_its_run_is_over(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("create_lost_reply", cloud)
    await launch.send_due(w.ctx)
    assert (await state(w, request_id))[1] is InstanceState.UNKNOWN
    w.clock.advance(800)
    await w.run(60, 15)
    await ended(w, request_id, "run_completed")
    assert len(w.engine.creates) == 1


@batch_clouds
async def test_an_end_is_waited_for_and_its_owner_is_told_once(w: World, cloud: str) -> None:
    batch(w, cloud).work_s = LONG_WORK_S
    request_id = await w.running(candidates=(cloud,))
    reply = await w.end(request_id)
    assert "runs until it finishes or reaches its timeout" in reply.sentence
    await w.run(1800, 300)
    assert await state(w, request_id) == (SessionState.TERMINATING, InstanceState.TERMINATING)
    assert len(w.alive()) == 1
    assert "operator.page" not in w.board.kinds()
    told = [note for note in (await w.books()).notifications if note.kind == "reply"]
    assert [(note.destination, note.version) for note in told] == [(ALICE.id, 1)]
    assert "cannot cancel a run" in str(told[0].body["text"])
    await w.run(LONG_WORK_S - 1800, 600)
    await w.run(60, 30)
    view = await ended(w, request_id, "asked")
    assert view.session is not None
    assert view.session.end_reason.startswith("Ended on request.")
    assert view.session.end_reason.endswith("succeeded.")


@batch_clouds
async def test_the_approved_end_is_the_timeout_that_was_pushed(w: World, cloud: str) -> None:
    w.arm("runs_over", cloud)
    request_id = await w.running(candidates=(cloud,))
    await w.run(2 * 3600 - 120, 1800)
    assert (await state(w, request_id))[1] is InstanceState.LIVE
    await w.run(300, 60)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.TERMINATED
    assert w.alive() == []
    assert "operator.page" not in w.board.kinds()


@batch_clouds
async def test_a_status_that_never_becomes_final_is_closed_by_the_timeout_and_says_so(w: World, cloud: str) -> None:
    w.arm("stuck_running", cloud)
    request_id = await w.running(candidates=(cloud,))
    await w.run(2.4 * 3600, 1800)
    assert (await state(w, request_id))[1] is InstanceState.TERMINATING
    await w.run(900, 300)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.TERMINATED
    assert "counts as ended half an hour after its timeout" in view.session.end_reason
    await w.run(600, 300)
    assert (await w.books()).orphans == ()


@batch_clouds
async def test_a_run_that_never_leaves_the_queue_is_waited_for_until_its_timeout(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("never_boots", cloud)
    await w.settle()
    await w.run(3600, 600)
    assert await state(w, request_id) == (SessionState.PROVISIONING, InstanceState.LIVE)
    await w.run(1.6 * 3600, 600)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.TERMINATED
    assert len(w.engine.creates) == 1
    # Its own script would end it at once if it ever began; somebody takes it out of the queue by hand.
    batch(w, cloud).disturb(str(view.instances[0].ref), "cancel")


@batch_clouds
async def test_a_kernel_that_is_deleted_by_hand_is_closed_by_its_timeout(w: World, cloud: str) -> None:
    request_id = await w.running(candidates=(cloud,))
    row = (await w.view(request_id)).instances[0]
    w.clouds[cloud].disturb(str(row.ref), "vanish")
    await w.run(1800, 600)
    # Absence proves nothing here.
    assert await state(w, request_id) == (SessionState.RUNNING, InstanceState.LIVE)
    await w.run(2.2 * 3600, 600)
    assert (await state(w, request_id))[1] is InstanceState.GONE


@batch_clouds
async def test_a_push_that_lands_after_it_was_given_up_is_watched_to_its_end(w: World, cloud: str) -> None:
    request_id = await w.approved(candidates=(cloud,))
    w.arm("create_lands_late", cloud, after_s=900)
    await w.settle()
    await w.run(700, 50)
    assert [row.state for row in (await w.view(request_id)).instances] == [InstanceState.TOMBSTONE]
    await w.run(400, 50)
    (stray,) = (await w.books()).orphans
    assert stray.state is OrphanState.CONDEMNED
    assert len(w.alive()) == 1
    await w.run(900, 100)
    assert [one.state for one in (await w.books()).orphans] == [OrphanState.GONE]
    assert w.alive() == []
    assert len(w.engine.creates) == 1


@batch_clouds
async def test_a_stray_that_is_not_listed_any_more_is_over_when_no_run_lasts_longer(w: World, cloud: str) -> None:
    await w.approved(candidates=(cloud,))
    w.arm("create_lands_late", cloud, after_s=900)
    await w.settle()
    await w.run(1000, 50)
    (stray,) = (await w.books()).orphans
    w.clouds[cloud].disturb(stray.ref, "vanish")
    await w.run(3600, 900)
    assert [one.state for one in (await w.books()).orphans] != [OrphanState.GONE]
    longest = timedelta(seconds=w.ctx.providers[cloud].capabilities.run_max_s)
    await w.run(longest.total_seconds(), 3600)
    assert [one.state for one in (await w.books()).orphans] == [OrphanState.GONE]


@batch_clouds
async def test_a_free_offer_stands_for_itself_and_warns_when_few_hours_are_left(w: World, cloud: str) -> None:
    account = batch(w, cloud).account
    account.elsewhere[account.week(w.clock.now())] = 28 * 3600
    reply = await w.ask(candidates=(cloud,), hours=Decimal(1))
    await w.settle()
    (option,) = (await w.view(str(reply.data["request_id"]))).options
    assert option.marks[0] == FREE
    assert (option.price_usd_h, option.worst_usd) == (Decimal(0), Decimal(0))
    assert option.why.startswith("Free: it uses up to 1 h of a quota (2 h left)")
    assert "Only 2 of 30 GPU hours are left this week" in option.why


@batch_clouds
async def test_a_cloud_that_runs_programs_only_is_left_out_without_one(w: World, cloud: str) -> None:
    reply = await w.ask(candidates=(cloud,), run=None)
    assert (reply.ok, reply.code) == (False, "run_missing")
    assert 'run="python train.py"' in reply.sentence


@batch_clouds
async def test_sessions_that_run_already_are_counted_before_a_push(w: World, cloud: str) -> None:
    batch(w, cloud).work_s = LONG_WORK_S
    first = await w.running(candidates=(cloud,))
    # Two are offered at the same time, and one session is left.
    second, third = [await w.approved(candidates=(cloud,)) for _ in range(2)]
    await w.run(60, 15)
    states = [(await w.view(one)).request.state for one in (first, second, third)]
    assert states.count(RequestState.APPROVED) == 2
    assert len(w.alive()) == 2
    assert [call.outcome for call in w.engine.creates].count("committed") == 2
