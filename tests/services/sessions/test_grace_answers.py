"""What somebody chooses for a machine in grace, from every interface by the same service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.instances.power import PowerAction
from bot.services.checkpoints.hold import disk_rate
from bot.services.instances import power
from bot.services.runtime.commands import AnswerGrace, Reply, Switch
from bot.services.sessions import grace_answers, session_state
from ledger.engine.db import Database
from ledger.kernel.states import GrantState, InstanceState, SessionState
from ledger.kernel.steps.grace import GraceChoice
from ledger.models import GraceRow, Instance
from tests.support.clock import SteppedClock
from tests.support.world import ALICE, BOB, DAVE, World, checked_world, facts


@pytest.fixture
async def one(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    async with checked_world(sqlite_db, clock) as built:
        yield built


async def offline(w: World, **changes: Any) -> str:
    """A session whose host lost contact."""
    w.tune(price_tolerance=Decimal(3))  # So that another offer is inside the approved rate.
    request_id = await w.running(candidates=("vast",), hours=Decimal(6), **changes)
    row = (await w.books()).instances[0]
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, "offline")
    await w.run(60, 30)
    return request_id


async def choose(
    w: World, request_id: str, choice: GraceChoice, who: object = ALICE, since: int | None = None
) -> Reply:
    decider = facts(who)  # type: ignore[arg-type]
    return await grace_answers.answer(w.ctx, AnswerGrace(request_id, decider, choice, since))


async def grace_of(w: World) -> GraceRow:
    return (await w.books()).graces[0]


async def rows(w: World) -> list[Instance]:
    return list((await w.books()).instances)


def back(w: World, row: Instance) -> None:
    assert row.ref is not None
    w.clouds["vast"].disturb(row.ref, "online")


async def test_only_its_people_choose_and_only_while_it_waits(one: World) -> None:
    w = one
    request_id = await offline(w)
    since = int((await grace_of(w)).since.timestamp())
    assert (await choose(w, request_id, GraceChoice.WAIT, DAVE)).code == "not_yours"
    assert (await choose(w, request_id, GraceChoice.WAIT, ALICE, since - 60)).code == "stale"
    assert (await choose(w, "nobody", GraceChoice.WAIT)).code == "unknown_id"
    reply = await choose(w, request_id, GraceChoice.WAIT, BOB, since)
    assert (reply.code, "waits for its machine until" in reply.sentence) == ("waits", True)
    grace = await grace_of(w)
    assert (grace.choice, grace.chosen_by) == (GraceChoice.WAIT, BOB.ref)
    back(w, (await rows(w))[0])
    await w.run(60, 30)
    assert (await grace_of(w)).outcome == "recovered"
    assert (await choose(w, request_id, GraceChoice.WAIT)).code == "stale"


async def test_a_machine_that_is_given_up_ends_its_session(one: World) -> None:
    w = one
    request_id = await offline(w)
    assert (await choose(w, request_id, GraceChoice.GIVE_UP)).code == "terminating"
    await w.run(180, 30)
    session = (await w.books()).sessions[0]
    assert (session.state, session.end_code, w.alive()) == (SessionState.TERMINATED, "asked", [])
    assert (await grace_of(w)).outcome == "given_up"


async def test_a_replacement_runs_beside_the_machine_whose_disk_stays(one: World) -> None:
    w = one
    request_id = await offline(w)
    reply = await choose(w, request_id, GraceChoice.REPLACE)
    assert reply.code == "replaces", reply
    assert (await choose(w, request_id, GraceChoice.REPLACE)).code == "stale"
    await w.run(120, 20)
    first, second = await rows(w)
    assert (first.state, second.state, len(w.alive())) == (InstanceState.LIVE, InstanceState.LIVE, 2)
    assert second.reachable_at is not None
    books = await w.books()
    assert (books.sessions[0].state, books.sessions[0].replacements_left) == (SessionState.RUNNING, 0)
    caps = [grant.total_cap_usd for grant in books.grants]
    # What the new one may cost, and what waiting may cost, is part of the same approval.
    assert caps[1] + (await grace_of(w)).limit_usd < caps[0]
    # The first one works again: it is stopped, so that only its disk is kept, and the replacement goes on.
    back(w, first)
    await w.run(180, 30)
    first, second = await rows(w)
    assert (first.state, first.status, second.state) == (InstanceState.STOPPED, "stopped", InstanceState.LIVE)
    assert (await w.books()).sessions[0].state is SessionState.RUNNING
    assert (await grace_of(w)).ended_at is None
    # Given up, it ends alone.
    assert (await choose(w, request_id, GraceChoice.GIVE_UP)).code == "terminating"
    await w.run(180, 30)
    first, second = await rows(w)
    assert (first.state, second.state, len(w.alive())) == (InstanceState.GONE, InstanceState.LIVE, 1)
    assert (await w.books()).sessions[0].state is SessionState.RUNNING


async def test_both_end_at_the_approved_end(one: World) -> None:
    w = one
    request_id = await offline(w)
    assert (await choose(w, request_id, GraceChoice.REPLACE)).ok
    await w.run(120, 20)
    await w.run(6 * 3600, 1200)
    await w.run(300, 30)
    books = await w.books()
    assert books.sessions[0].state is SessionState.TERMINATED
    assert [row.state for row in books.instances] == [InstanceState.GONE] * 2
    assert w.alive() == []
    spent = sum(entry.amount_usd for entry in books.entries if entry.kind == "accrue")
    approved = books.approvals[0].total_cap_usd
    assert approved is not None
    assert spent <= approved


async def test_a_replacement_that_fails_returns_the_session_to_its_first_machine(one: World) -> None:
    w = one
    request_id = await offline(w)
    w.arm("create_no_credit", "vast", times=None)
    assert (await choose(w, request_id, GraceChoice.REPLACE)).ok
    await w.run(120, 20)
    w.engine.faults.disarm()
    books = await w.books()
    assert books.sessions[0].state is SessionState.RUNNING
    assert books.instances[0].state is InstanceState.LIVE
    assert {row.state for row in books.instances[1:]} == {InstanceState.REJECTED}
    assert (books.graces[0].replaced, books.graces[0].ended_at) == (False, None)
    assert (await choose(w, request_id, GraceChoice.REPLACE)).code == "no_replacement"
    back(w, books.instances[0])
    await w.run(60, 30)
    assert (await grace_of(w)).outcome == "recovered"
    assert len(w.alive()) == 1


async def test_a_job_is_replaced_beside_by_itself_after_ten_minutes(one: World) -> None:
    w = one
    await offline(w, run="python train.py")
    await w.run(480, 60)
    assert len(await rows(w)) == 1
    await w.run(180, 30)
    assert [row.state for row in await rows(w)] == [InstanceState.LIVE] * 2
    assert (await grace_of(w)).replaced


async def set_aside_alone(w: World, request_id: str) -> Instance:
    """Its first machine works again and is stopped beside its replacement, which its cloud then loses."""
    assert (await choose(w, request_id, GraceChoice.REPLACE)).ok
    await w.run(120, 20)
    first, _ = await rows(w)
    back(w, first)
    await w.run(180, 30)
    first, second = await rows(w)
    assert first.state is InstanceState.STOPPED
    assert second.ref is not None
    w.clouds["vast"].disturb(second.ref, "vanish")
    return first


async def test_a_machine_that_was_set_aside_starts_again_when_its_replacement_is_gone(one: World) -> None:
    w = one
    request_id = await offline(w)
    await set_aside_alone(w, request_id)
    await w.run(900, 30)
    first, second = await rows(w)
    assert (first.state, first.status, second.state) == (InstanceState.LIVE, "running", InstanceState.GONE)
    books = await w.books()
    assert books.sessions[0].state is SessionState.RUNNING
    assert books.graces[0].outcome == "recovered"
    starts = [grant for grant in books.grants if grant.kind == "start"]
    assert [grant.state for grant in starts] == [GrantState.USED]


async def test_a_machine_that_was_set_aside_and_can_not_start_reads_as_stopped_and_costs_its_disk(one: World) -> None:
    w = one
    request_id = await offline(w)
    first = await set_aside_alone(w, request_id)
    w.clouds["vast"].disturb(str(first.ref), "gpu_taken")
    await w.run(1500, 30)
    books = await w.books()
    view = await w.session(books.sessions[0].id)
    assert (await rows(w))[0].state is InstanceState.STOPPED
    assert session_state.words(view, w.clock.now()) == "stopped, in grace"
    assert session_state.now_usd_h(view) == disk_rate(first) < first.price_usd_h
    texts = [str(note.body.get("text")) for note in books.notifications if note.kind == "reply"]
    assert len([text for text in texts if "could not start" in text]) == 1
    reply = await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.START))
    assert (reply.code, "Starting." in reply.sentence) == ("power_action", True)
    stop = await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.STOP, key="stop"))
    assert stop.code == "power_action"


async def test_an_extension_that_is_to_keep_a_disk_does_not_end_it(one: World) -> None:
    w = one
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.running(candidates=("vast",), hours=Decimal(6), disk_gb=900)
    w.clouds["vast"].disturb(str((await rows(w))[0].ref), "credit_gone")
    await w.run(300, 30)
    before = await grace_of(w)
    assert before.usd_h * 12 > before.limit_usd > before.usd_h * 6
    more = await w.more(request_id, "6", reason="keep it")
    await w.settle()
    assert (await w.decide(str(more.data["request_id"]))).ok
    await w.run(3600, 120)
    after = await grace_of(w)
    assert (after.ended_at, len(w.alive())) == (None, 1)
    assert after.limit_usd == before.limit_usd + before.usd_h * 6
    await w.run(11.5 * 3600, 600)
    assert ((await w.books()).sessions[0].end_code, w.alive()) == ("hours_cap", [])
