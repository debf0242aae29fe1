"""An instance that fails while somebody counts on it: told first, then ended, booked, replaced or asked again."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.services.instances import gpu_checks, launch, reconcile, termination
from bot.services.outbox import dispatch
from ledger.core.writes import amend
from ledger.kernel.states import InstanceState, NotificationState, OrphanState, RequestState, SessionState
from ledger.models import Instance, Notification, Session
from providers.sandbox.vast.account import Contract
from providers.sandbox.vast.sandbox import VastSandbox
from tests.support.world import ALICE, CHANNEL, World

KIND = "session.interrupted"


def contracts(w: World) -> list[Contract]:
    vast = w.clouds["vast"]
    assert isinstance(vast, VastSandbox)
    return list(vast.account.instances.values())


def hide(w: World, seconds: float) -> None:
    """The cloud answers 200 and lists nothing for a while."""
    for contract in contracts(w):
        contract.listed_at = w.clock.now() + timedelta(seconds=seconds)


async def row_of(w: World, number: int = 0) -> Instance:
    return (await w.books()).instances[number]


async def told(w: World) -> dict[str, Notification]:
    """What was announced about interrupted sessions, by where it is read."""
    return {note.destination: note for note in (await w.books()).notifications if note.kind == KIND}


async def dearer(w: World) -> None:
    """The cloud bills twice as much from now on, and one look at it sees that."""
    (contract,) = contracts(w)
    contract.gpu_usd_h *= 2
    contract.meter.start("gpu", w.clock.now(), contract.gpu_usd_h)
    await reconcile.observe(w.ctx, "vast")


async def booting(w: World) -> str:
    """A machine that nobody could reach yet; its price may end it, because nothing is on it."""
    request_id = await w.approved(candidates=("vast",))
    w.arm("running_before_reachable", "vast", after_s=5000)
    await w.settle()
    await w.run(40, 20)
    return request_id


async def test_a_price_that_rises_while_it_boots_is_told_before_the_end_and_then_asked_again(w: World) -> None:
    request_id = await booting(w)
    await dearer(w)
    assert (await row_of(w)).state is InstanceState.TERMINATING
    assert {place: note.state for place, note in (await told(w)).items()} == {
        ALICE.id: NotificationState.PENDING,
        CHANNEL: NotificationState.PENDING,
    }
    await termination.terminate_due(w.ctx)
    assert len(w.alive()) == 1  # Nobody was told yet.
    await dispatch.deliver_due(w.ctx, w.board)
    assert w.board.kinds().count(KIND) == 2
    w.clock.advance(1)
    await termination.terminate_due(w.ctx)
    assert w.alive() == []
    await w.run(120, 30)
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "above the approved" in view.request.outcome
    assert view.session is not None
    assert (view.session.state, view.session.ready_at) == (SessionState.QUEUED, None)


async def test_an_attempt_that_fails_is_an_attempt_and_the_end_goes_on(w: World) -> None:
    await booting(w)
    w.board.down = True
    await dearer(w)
    await dispatch.deliver_due(w.ctx, w.board)
    w.clock.advance(1)
    await termination.terminate_due(w.ctx)
    assert w.alive() == []
    assert {note.tries for note in (await told(w)).values()} == {1}


async def test_nobody_who_could_tell_keeps_a_gpu_alive(w: World) -> None:
    await booting(w)
    await dearer(w)
    for _ in range(9):
        await termination.terminate_due(w.ctx)
        w.clock.advance(1)
    assert len(w.alive()) == 1
    w.clock.advance(1)
    await termination.terminate_due(w.ctx)
    assert w.alive() == []


async def test_a_boot_that_failed_is_told_before_its_end(w: World) -> None:
    w.boots_in(5000)
    await w.approved(candidates=("runpod",))
    await w.settle()
    w.clock.advance(1000)
    await reconcile.observe(w.ctx, "runpod")
    await termination.terminate_due(w.ctx)
    assert len(w.alive()) == 1
    await dispatch.deliver_due(w.ctx, w.board)
    assert w.board.kinds().count(KIND) == 2
    w.clock.advance(1)
    await termination.terminate_due(w.ctx)
    assert w.alive() == []


@pytest.mark.parametrize("how", ["outbid_a", "outbid_b"])
async def test_a_spot_instance_that_is_outbid_is_told_at_once_and_replaced_after_the_grace(w: World, how: str) -> None:
    w.tune(price_tolerance=Decimal(3), grace_usd=Decimal(0))  # Waiting for it costs its disk, which is not paid here.
    request_id = await w.running(candidates=("vast",), spot=SpotPolicy.YES)
    row = await row_of(w)
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, how)
    await w.run(30, 30)
    assert w.board.kinds().count(KIND) == 2
    assert (await row_of(w)).trouble_at is not None
    await w.run(600, 150)
    assert (await row_of(w)).outcome_code == "outbid"
    await w.run(180, 30)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert [i.state for i in view.instances] == [InstanceState.GONE, InstanceState.LIVE]
    assert view.session.replacements_left == 0
    # The approved end stays where it was.
    first = view.instances[0].sent_at
    assert first is not None
    assert view.session.deadline is not None
    assert view.session.deadline <= first + timedelta(hours=2)


async def test_trouble_that_passes_ends_nothing_and_is_not_told_again_and_again(w: World) -> None:
    await w.running(candidates=("vast",), spot=SpotPolicy.YES)
    ref = (await row_of(w)).ref
    assert ref is not None
    for _ in range(3):
        w.clouds["vast"].disturb(ref, "outbid_a")
        await w.run(60, 60)
        w.clouds["vast"].disturb(ref, "outbid_over")
        await w.run(60, 60)
    row = await row_of(w)
    assert (row.state, row.status, row.trouble_at) == (InstanceState.LIVE, "running", None)
    # One message each to the owner and the channel: what follows edits it, and notifies nobody.
    assert len([note for note in (await w.books()).notifications if note.kind == KIND]) == 2
    assert "reply" not in w.board.kinds()


async def test_a_host_that_stays_away_ends_and_without_a_replacement_is_asked_again(w: World) -> None:
    w.tune(replacements=0, grace_usd=Decimal(0))
    request_id = await w.running(candidates=("vast",))
    row = await row_of(w)
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, "expire")
    await w.run(840, 210)
    await w.run(120, 30)
    view = await w.view(request_id)
    assert "The cloud stopped the instance." in view.request.outcome
    assert "10 minutes" in view.request.outcome
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert view.session is not None
    assert view.session.state is SessionState.QUEUED
    assert row.machine_id in view.request.failed_machines
    # Approved again, it runs again, and nobody takes its first readiness for the second one's.
    await w.decide(request_id)
    await w.run(60, 30)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING


async def test_a_listing_that_lies_for_minutes_costs_nobody_their_instance(w: World) -> None:
    for _ in range(3):
        await w.running(candidates=("vast",))
    hide(w, 150)
    await w.run(210, 30)
    books = await w.books()
    assert [row.state for row in books.instances if row.ref] == [InstanceState.LIVE] * 3
    assert books.orphans == ()
    assert len(w.alive()) == 3
    pages = [note for note in books.notifications if note.kind == "operator.page"]
    assert len(pages) == 3
    assert all("read by its id" in note.body["text"] for note in pages)


async def test_ssh_that_answers_outvotes_a_cloud_that_denies_the_instance(w: World) -> None:
    await w.running(candidates=("vast",))
    hide(w, 150)
    w.arm("get_null", "vast", times=None)
    await w.run(150, 25)
    assert (await row_of(w)).state is InstanceState.LIVE
    row = await row_of(w)
    page = next(note for note in (await w.books()).notifications if note.subject == f"{row.id}/missing")
    assert "SSH port answers" in page.body["text"]


async def test_a_cloud_that_cannot_be_asked_proves_nothing(w: World) -> None:
    await w.running(candidates=("vast",))
    hide(w, 120)
    w.arm("get_503", "vast", times=None)
    await w.run(120, 30)
    assert (await row_of(w)).state is InstanceState.LIVE


async def lost_and_found(w: World) -> str:
    """A running instance that every witness denies for two minutes, and that is there again."""
    w.tune(replacements=0)
    request_id = await w.running(candidates=("vast",))
    ref = (await row_of(w)).ref
    assert ref is not None
    hide(w, 100)
    w.arm("get_null", "vast", times=None)
    w.clouds["vast"].disturb(ref, "offline")
    await w.run(90, 30)
    row = await row_of(w)
    assert (row.state, row.outcome_code) == (InstanceState.GONE, "lost")
    w.engine.faults.disarm()
    w.clouds["vast"].disturb(ref, "online")
    await w.run(120, 30)
    return request_id


async def test_what_was_lost_and_is_there_again_is_kept_for_an_operator_until_its_approved_end(w: World) -> None:
    await lost_and_found(w)
    books = await w.books()
    (stray,) = books.orphans
    assert (stray.state, stray.instance_id) == (OrphanState.QUARANTINED, books.instances[0].id)
    assert "counted as lost" in stray.reason
    assert len(w.alive()) == 1
    assert "orphan.found" in w.board.kinds(stray.id)
    assert w.board.kinds().count(KIND) == 4  # Lost, and found: to the owner and to the channel.
    # Others go on: it is not a sign that the ledger has lost something.
    await w.running(candidates=("runpod",))
    await w.run(7200, 900)
    await w.run(90, 30)
    assert [stray.state for stray in (await w.books()).orphans] == [OrphanState.GONE]
    assert "after its approved end" in (await w.books()).orphans[0].reason


async def test_what_was_lost_and_whose_session_its_owner_ended_is_ended_too(w: World) -> None:
    request_id = await lost_and_found(w)
    assert (await w.end(request_id)).ok
    await w.run(180, 30)
    assert [stray.state for stray in (await w.books()).orphans] == [OrphanState.GONE]
    assert w.alive() == []


async def test_one_row_that_cannot_be_followed_stops_no_other_and_is_told(w: World) -> None:
    await w.running(candidates=("vast",))
    poisoned = await row_of(w)
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, poisoned.id, absent_at=["no time at all"])
    hide(w, 20)
    second = await w.approved(candidates=("vast",))
    while await launch.send_due(w.ctx):
        w.clock.advance(1)
    w.clock.advance(5)
    await reconcile.observe(w.ctx, "vast")
    await gpu_checks.checks_due(w.ctx)
    view = await w.view(second)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    await dispatch.deliver_due(w.ctx, w.board)
    assert w.board.kinds(poisoned.id) == ["operator.page"]


async def test_an_adoption_that_fails_is_told_and_holds_up_nobody(w: World) -> None:
    first = await w.approved(candidates=("vast",))
    session = (await w.view(first)).session
    assert session is not None
    async with w.ctx.db.write() as tx:
        await amend(tx, Session, session.id, hours="two")
    second = await w.approved(candidates=("vast",))
    await w.settle()
    await w.run(180, 60)
    row = (await w.view(first)).instances[0]
    assert row.state is InstanceState.UNKNOWN
    assert "operator.page" in w.board.kinds(row.id)
    other = (await w.view(second)).session
    assert other is not None
    assert other.state is SessionState.RUNNING
    before = len(w.board.shown)
    await w.run(60, 15)
    assert w.board.kinds(row.id).count("operator.page") <= 2  # One message a subject, and not at every try.
    assert len(w.board.shown) <= before + 1
    async with w.ctx.db.write() as tx:
        await amend(tx, Session, session.id, hours="2")
    await w.run(30, 15)
    mended = (await w.view(first)).session
    assert mended is not None
    assert mended.state is SessionState.RUNNING


async def test_an_unclear_create_that_cannot_be_searched_for_is_paged_after_its_window(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("create_lost_reply", "vast")
    w.arm("list_503", "vast", times=None)
    await w.tick()
    await w.run(240, 60)
    row = (await w.view(request_id)).instances[0]
    assert row.state is InstanceState.UNKNOWN
    assert "operator.page" not in w.board.kinds(row.id)
    await w.run(120, 60)
    assert "operator.page" in w.board.kinds(row.id)
    w.engine.faults.disarm()
    await w.run(60, 30)
    assert (await row_of(w)).state is InstanceState.LIVE
