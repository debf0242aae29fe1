"""More time: taken from what was approved, or asked for, approved, reserved and added, and never past a human."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from bot.services.checkpoints import hold
from bot.services.runtime.commands import FinishSession, Terminate
from bot.services.sessions import overspend, service
from ledger.core.writes import amend
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState, SessionState
from ledger.models import Instance, Request, Session
from ledger.queries.budgets.open_spend import outstanding
from ledger.queries.overspend import running as running_sessions
from ledger.queries.overspend import running_ids
from ledger.queries.spend import EVERYBODY
from tests.support.world import ALICE, BOB, CAROL, DAVE, World, facts


async def session(w: World) -> Session:
    return (await w.books()).sessions[0]


async def end(w: World) -> datetime:
    row = await session(w)
    assert row.deadline is not None
    return row.deadline


async def outstanding_of(w: World) -> tuple[Decimal, Decimal]:
    async with w.ctx.db.read() as tx:
        return (await outstanding(tx, EVERYBODY, ()))[:2]


async def extension(w: World) -> Request:
    return next(row for row in reversed((await w.books()).requests) if row.kind == "extend")


async def asked(w: World, hours: str = "1") -> str:
    """A running session for whose time more was asked; the id of that question."""
    running = await w.running()
    reply = await w.more(running, hours)
    assert reply.code == "extension_requested", reply
    return str(reply.data["request_id"])


async def test_an_approved_extension_reserves_its_own_amount_and_moves_the_end(w: World) -> None:
    request_id = await asked(w, "1.5")
    before = await end(w)
    shown = await w.view(request_id)
    assert shown.options[0].expected_usd == shown.options[0].price_usd_h * Decimal("1.5")
    assert await end(w) == before  # Asking changes nothing.
    assert (await w.decide(request_id, BOB)).code == "approved"
    row = await session(w)
    assert (row.deadline, row.hours) == (before + timedelta(hours=1.5), "3.5")
    books = await w.books()
    (grant,) = [one for one in books.grants if one.kind == "extend"]
    assert (grant.state, grant.total_cap_usd) == ("used", shown.options[0].worst_usd)
    assert [e.amount_usd for e in books.entries if e.key == f"reserve/{grant.id}"] == [grant.total_cap_usd]
    await w.settle()
    assert "request.message" in w.board.kinds(request_id)
    await w.run((before - w.clock.now()).total_seconds() + 600, 1800)
    assert (await session(w)).state is SessionState.RUNNING
    await w.run(5400, 1800)
    await w.run(120, 30)
    row = await session(w)
    assert (row.state, row.end_reason) == (SessionState.TERMINATED, "The approved 3.5 hours have ended.")
    assert any(e.key == f"release/{grant.id}" for e in (await w.books()).entries)


async def test_an_extension_is_approved_shorter_and_cheaper_and_adds_what_was_approved(w: World) -> None:
    request_id = await asked(w, "8")
    before = await end(w)
    expected = (await w.view(request_id)).options[0].expected_usd
    assert (await w.decide(request_id, BOB, hours=Decimal(9))).code == "hours_raised"
    assert (await w.decide(request_id, BOB, cap_usd=Decimal(500))).code == "cap_raised"
    # Two of them: what the first one shortened is what the second one decides on, and may shorten further.
    async with w.ctx.db.write() as tx:
        await amend(tx, Request, request_id, required_approvals=2)
    assert (await w.decide(request_id, BOB, hours=Decimal(2))).code == "first_of_two"
    assert (await w.decide(request_id, CAROL, seen="0" * 12)).code == "changed_since"
    assert (await w.decide(request_id, CAROL, hours=Decimal("0.5"))).code == "approved"
    row, books = await session(w), await w.books()
    assert (row.deadline, row.hours) == (before + timedelta(minutes=30), "2.5")
    (grant,) = [one for one in books.grants if one.kind == "extend"]
    # Half an hour of what runs already costs half an hour, at most with the tolerance of an approval.
    assert grant.total_cap_usd == (expected / 16 * w.ctx.policy.price_tolerance).quantize(Decimal("0.000001"))
    assert Decimal(grant.hours) == Decimal("0.5")
    async with w.ctx.db.read() as tx:
        (one,) = await running_sessions(tx, await running_ids(tx))
    first = one.terms.expected_usd
    assert overspend.spend_forecast_of(one, w.clock.now()).approved_usd == first + (expected / 16).quantize(
        Decimal("0.000001")
    )
    told = [str(n.body["text"]) for n in books.notifications if n.subject == f"{request_id}/extended"]
    assert [text.partition(": ")[0] for text in told] == ["30 minutes more (30 minutes instead of 8 hours)"]
    # A limit below what the hours cost ends it when that is used up.
    cheaper = str((await w.more((await w.view(request_id)).request.parent_id or "", "8")).data["request_id"])
    assert (await w.decide(cheaper, BOB, cap_usd=Decimal("0.30"))).code == "approved"
    assert [one.total_cap_usd for one in (await w.books()).grants if one.kind == "extend"][-1] == Decimal("0.30")
    assert row.deadline is not None
    assert row.deadline < await end(w) < row.deadline + timedelta(hours=8)


async def test_a_look_at_the_rate_does_not_take_back_the_time_that_an_extension_paid_for(w: World) -> None:
    running = await w.running(hours=Decimal(1))
    request_id = str((await w.more(running, "11")).data["request_id"])
    await w.decide(request_id, BOB)
    given = await end(w)
    (row,) = (await w.books()).instances
    async with w.ctx.db.write() as tx:
        await amend(tx, Instance, row.id, status_text="something else")  # So that the next look writes and checks.
    await w.run(60, 30)
    assert await end(w) == given
    assert given - w.clock.now() > timedelta(hours=10)


async def test_9478_nobody_lifts_the_limit_of_their_own_session(w: World) -> None:
    w.tune(approvers=(ALICE.id, BOB.id))
    running = await w.running()
    request_id = str((await w.more(running, "1")).data["request_id"])
    assert (await w.decide(request_id, ALICE)).code == "requester"
    assert (await w.decide(request_id, DAVE)).code == "not_an_approver"
    # Having somebody else ask does not make it another person's session.
    await w.cancel(request_id, ALICE)
    by_bob = str((await w.more(running, "1", BOB)).data["request_id"])
    assert (await w.decide(by_bob, ALICE)).code == "requester"
    assert (await w.decide(by_bob, BOB)).code == "requester"


async def test_beyond_twelve_hours_in_all_another_human_decides_and_a_reason_is_needed(w: World) -> None:
    w.tune(approvers=(ALICE.id, BOB.id), allow_self_approval=True)
    running = await w.running(hours=Decimal(11))
    inside = await w.more(running, "1")
    assert inside.code == "extension_requested"
    assert (await w.decide(str(inside.data["request_id"]), ALICE)).code == "approved"  # Twelve in all, as allowed here.
    without = await w.more(running, "2")
    assert (without.ok, without.code) == (False, "reason_needed")
    assert "14 hours in all is above the limit of 12 hours" in without.sentence
    assert without.sentence.endswith(" 2h WHY`")
    beyond = await w.more(running, "2", reason="the last epoch")
    request_id = str(beyond.data["request_id"])
    assert "14 hours in all is above the limit of 12 hours" in (await extension(w)).rule
    assert (await w.decide(request_id, ALICE)).code == "requester"
    assert (await w.decide(request_id, BOB)).code == "approved"
    assert (await session(w)).hours == "14"
    assert (await w.more(running, "710", reason="for ever")).code == "too_long"


async def test_what_is_inside_the_approved_time_is_kept_without_a_question(w: World) -> None:
    running = await w.running(hours=Decimal(3))
    row = await session(w)
    approved = await end(w)
    await w.shorten(row.id, timedelta(hours=2))
    first = await w.more(running, "1", key="rest:once")
    assert (first.code, await end(w)) == ("kept_running", approved - timedelta(hours=1))
    # The same call again, after a crash before its answer: the end is moved once.
    assert (await w.more(running, "1", key="rest:once"), await end(w)) == (first, approved - timedelta(hours=1))
    seen_s = int((approved - timedelta(hours=1)).timestamp())
    kept = await w.more(running, "1", seen_end_s=seen_s, only_inside=True)
    assert (kept.code, await end(w)) == ("kept_running", approved)
    stale = await w.more(running, "1", seen_end_s=seen_s, only_inside=True)
    assert (stale.code, await end(w)) == ("stale", approved)
    outside = await w.more(running, "1", only_inside=True)
    assert (outside.code, await end(w)) == ("outside", approved)
    assert len((await w.books()).grants) == 1


async def test_a_click_on_a_stale_message_changes_nothing(w: World) -> None:
    running = await w.running()
    seen_s = int((await end(w)).timestamp()) - 60
    late = (
        await service.terminate(w.ctx, Terminate(running, facts(ALICE), seen_end_s=seen_s)),
        await service.done(w.ctx, FinishSession(running, facts(ALICE), seen_end_s=seen_s)),
        await w.more(running, seen_end_s=seen_s),
    )
    assert {reply.code for reply in late} == {"stale"}
    assert (await session(w)).state is SessionState.RUNNING
    assert len((await w.books()).requests) == 1


@pytest.mark.both_databases
async def test_one_question_at_a_time_and_one_per_message(w: World) -> None:
    running = await w.running()
    first = await w.more(running, key="click-1")
    again = await w.more(running, key="click-1")
    assert (again.code, again.data["request_id"]) == ("extension_requested", first.data["request_id"])
    assert (await w.more(running, key="click-2")).code == "already_requested"
    assert len([row for row in (await w.books()).requests if row.kind == "extend"]) == 1


@pytest.mark.both_databases
async def test_two_approvers_at_once_extend_once(w: World) -> None:
    request_id = await asked(w)
    before = await end(w)
    replies = await asyncio.gather(w.decide(request_id, BOB), w.decide(request_id, CAROL))
    assert sorted(reply.code for reply in replies) == ["already_approved", "approved"]
    assert await end(w) == before + timedelta(hours=1)


async def test_a_session_that_ends_closes_the_question_and_later_clicks_find_nothing(w: World) -> None:
    request_id = await asked(w)
    token = await w.token(request_id)
    await w.end((await extension(w)).parent_id or "")
    assert (await extension(w)).state is RequestState.CANCELLED
    late = await w.decide(request_id, BOB) if token else None
    assert late is not None
    assert late.code == "already_cancelled"
    running = (await extension(w)).parent_id or ""
    assert (await w.more(running)).code == "not_running"


async def test_an_undecided_extension_expires_with_the_session_which_ends_in_time(w: World) -> None:
    running = await w.running()
    w.clock.advance(await end(w) - timedelta(minutes=20) - w.clock.now())
    await w.settle()
    reply = await w.more(running)
    assert (await extension(w)).expires_at == await end(w)
    await w.run(20 * 60 + 10, 300)
    assert (await session(w)).state is SessionState.TERMINATING
    assert (await extension(w)).state in (RequestState.EXPIRED, RequestState.CANCELLED)
    assert (await w.decide(str(reply.data["request_id"]), BOB)).ok is False


async def test_the_warning_about_the_old_end_says_that_it_was_moved(w: World) -> None:
    running = await w.running()
    w.clock.advance(await end(w) - timedelta(minutes=10) - w.clock.now())
    await w.settle()
    row = await session(w)
    old = f"{row.id}/{int((await end(w)).timestamp())}"
    versions = [entry[3] for entry in w.board.shown if entry[1] == old]
    request_id = str((await w.more(running)).data["request_id"])
    await w.decide(request_id, BOB)
    await w.settle()
    # Once for the question, once for the new end.
    assert max(entry[3] for entry in w.board.shown if entry[1] == old) == max(versions) + 2
    w.clock.advance(await end(w) - timedelta(minutes=10) - w.clock.now())
    await w.settle()
    new = f"{row.id}/{int((await end(w)).timestamp())}"
    assert new in {entry[1] for entry in w.board.shown}


async def test_who_may_not_extend_and_what_cannot_be_extended(w: World) -> None:
    running = await w.running()
    assert (await w.more(running, actor=DAVE)).code == "not_yours"
    assert (await w.more("zzzzzz")).code == "unknown_id"
    assert (await w.more(running, "0")).code == "not_positive"
    assert (await w.more(running, reason="x" * 501)).code == "reason_too_long"
    waiting = str((await w.ask(BOB)).data["request_id"])
    assert (await w.more(waiting)).code == "no_session"
    providers = w.ctx.providers
    (row,) = (await w.books()).instances
    w.use({name: one for name, one in providers.items() if name != row.cloud})
    assert (await w.more(running)).code == "cloud_gone"
    w.use(providers)


async def test_a_run_of_a_batch_cloud_cannot_be_extended(w: World) -> None:
    batch = next(name for name, one in w.ctx.providers.items() if one.capabilities.batch)
    request_id = await w.approved(candidates=(batch,))
    await w.settle()
    assert (await w.more(request_id)).code == "cannot_extend"


async def test_an_operator_who_is_the_same_person_may_extend_and_an_approval_by_them_counts_as_theirs(w: World) -> None:
    login = Actor(ActorKind.OPERATOR, "alice")
    w.tune(same_person=((ALICE.id, login.ref),), approvers=(BOB.id, login.ref))
    running = await w.running()
    request_id = str((await w.more(running, actor=login)).data["request_id"])
    assert (await w.decide(request_id, login)).code == "requester"
    assert (await w.decide(request_id, replace(BOB, team="T1"))).code == "approved"


async def test_done_ends_the_session_and_says_how_it_went(w: World) -> None:
    first, second = await w.running(), await w.running()
    assert (await service.done(w.ctx, FinishSession(first, facts(ALICE)))).code == "terminating"
    assert (await service.done(w.ctx, FinishSession(second, facts(ALICE), succeeded=False))).code == "terminating"
    assert (await service.done(w.ctx, FinishSession(second, facts(DAVE)))).code == "not_yours"
    codes = {(row.end_code, row.end_reason) for row in (await w.books()).sessions}
    assert codes == {
        ("completed", "The work was reported as done."),
        ("work_failed", "The work was reported as failed."),
    }


async def test_what_replaces_a_machine_of_an_extended_session_holds_the_hours_of_its_own_approval(w: World) -> None:
    running = await w.running(candidates=("vast",))
    asked_for = await w.more(running, "1")
    assert (await w.decide(str(asked_for.data["request_id"]), BOB)).code == "approved"
    before = await end(w)
    (row,) = (await w.books()).instances
    w.clouds["vast"].disturb(str(row.ref), "vanish")
    await w.run(160, 20)
    books = await w.books()
    (grant,) = [one for one in books.grants if one.kind == "replace"]
    assert Decimal(grant.hours) == 2
    assert await end(w) == before
    # What is left of both amounts is in the new grant, is set aside with it, and is there once.
    lost, second = books.instances
    used = sum(one.amount_usd for one in books.entries if one.instance_id == row.id)
    approved = sum(one.total_cap_usd or 0 for one in books.approvals)
    assert lost.unsettled_usd
    assert grant.total_cap_usd == approved - used - lost.unsettled_usd
    outstanding_usd, _ = await outstanding_of(w)
    async with w.ctx.db.read() as tx:
        left = await hold.left_usd(w.ctx, tx, second, w.clock.now())
    runs = (await w.session(second.session_id)).accrued_usd - used
    assert outstanding_usd == grant.total_cap_usd - runs
    assert grant.total_cap_usd - Decimal("0.05") < left < grant.total_cap_usd


async def test_an_extension_that_the_first_machine_used_goes_on_with_the_second_and_ends_when_asked_again(
    w: World,
) -> None:
    running = await w.running(candidates=("vast",), hours=Decimal(1))
    asked_for = await w.more(running, "3")
    assert (await w.decide(str(asked_for.data["request_id"]), BOB)).code == "approved"
    before = await end(w)
    w.clock.advance(2 * 3600)  # More than its own approval paid for.
    await w.settle()
    (first,) = (await w.books()).instances
    w.clouds["vast"].disturb(str(first.ref), "vanish")
    await w.run(160, 20)
    books = await w.books()
    assert [one.state for one in books.instances] == ["gone", "live"]
    assert (await session(w)).state is SessionState.RUNNING
    assert await end(w) == before
    used = (await w.session((await session(w)).id)).accrued_usd
    assert used > (books.grants[0].total_cap_usd)
    w.tune(failover=False)
    async with w.ctx.db.write() as tx:
        await amend(tx, Session, books.sessions[0].id, replacements_left=0)
    w.clouds["vast"].disturb(str(books.instances[1].ref), "vanish")
    await w.run(160, 20)
    assert (await w.view(running)).request.state is RequestState.PENDING
    assert (await outstanding_of(w))[0] == 0  # The next approver decides on all of it.
