"""What a button is about."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from ledger.core.events import record
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.event_kind import EventKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Consumer, Delegation, Token
from ledger.queries.access import Whose
from ledger.queries.decisions import (
    approvals_of,
    button,
    delegators_of,
    end_delegations,
    given_by,
    in_force,
    opened_at,
    parents_of,
    people_behind,
    said_before,
    shown_options,
    subject_by_token,
    subject_of_request,
)
from tests.support import rows
from tests.support.clock import START

PROGRAM = "consumer:atlas"


async def test_what_a_button_is_about(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.PENDING)
        quote = await rows.quote(tx, request)
        option = await rows.option(tx, quote)
        request.chosen_option_id = option.id
        tx.add(Token(token="a", request_id=request.id, quote_version=1, action="approve", option_id=option.id))
        tx.add(Token(token="r", request_id=request.id, quote_version=1, action="reject"))
        await rows.approval(tx, request)
        await rows.approval(tx, request, quote_version=0)
    for session in (db.read(), db.write()):
        async with session as tx:
            ask = await subject_by_token(tx, "a")
            assert ask is not None
            assert ask.option is not None
            assert ask.chosen is not None
            assert (ask.action, ask.version, ask.option.id, ask.chosen.id) == ("approve", 1, option.id, option.id)
            assert len(ask.votes) == 1
            assert (ask.request.id, ask.override) == (request.id, None)
            refusal = await subject_by_token(tx, "r")
            assert refusal is not None
            assert (refusal.action, refusal.option) == ("reject", None)
            assert await subject_by_token(tx, "no\x00ne") is None
            unbuttoned = await subject_of_request(tx, request.id)
            assert (unbuttoned.token, unbuttoned.action, unbuttoned.version) == (None, "cancel", 1)


async def test_a_decided_request_has_no_votes_and_a_program_has_a_person(db: Database) -> None:
    async with db.write() as tx:
        tx.add(Consumer(actor=PROGRAM, owner=rows.BEN.ref, created_at=START, created_by=rows.BEN.ref))
        decided = await rows.request(tx, RequestState.APPROVED, requester=PROGRAM)
        await rows.approval(tx, decided, limit_usd=Decimal(5))
        again = await rows.request(tx, RequestState.PENDING, requester="consumer:unknown", quote_version=2)
        limit = await rows.approval(tx, again, quote_version=1, limit_usd=Decimal(5))
        await rows.approval(tx, again, rows.ADA, quote_version=1)
        vote = await rows.approval(tx, again)
        session = await rows.session(tx, SessionState.QUEUED, of=again)
        paid = await rows.grant(tx, again, by=vote)
        first = await rows.instance(tx, InstanceState.GONE, of=session, under=paid)
        await rows.entry(tx, first, "0.75")
        override = await rows.request(tx, kind=RequestKind.OVERRIDE_12H, parent_id=again.id)
    async with db.write() as tx:
        over = await subject_of_request(tx, decided.id)
        assert (over.owner, over.votes, over.limits, over.spent_usd) == (rows.BEN.ref, (), (), Decimal(0))
        now = await subject_of_request(tx, again.id)
        assert (now.owner, [one.id for one in now.votes], [one.id for one in now.limits]) == ("", [vote.id], [limit.id])
        assert now.override is not None
        assert (now.spent_usd, now.session, now.override.id) == (Decimal("0.75"), None, override.id)
        # The override is a decision about the request, and not about its session.
        assert (await subject_of_request(tx, override.id)).session is None


@pytest.mark.parametrize(("step", "held"), [(None, False), (CheckpointStep.HELD, True), (CheckpointStep.PASSED, False)])
async def test_more_time_is_decided_with_its_session(db: Database, step: CheckpointStep | None, held: bool) -> None:
    async with db.write() as tx:
        tx.add(Consumer(actor=PROGRAM, owner=rows.BEN.ref, created_at=START, created_by=rows.BEN.ref))
        session = await rows.session(tx, SessionState.TERMINATING, owner=PROGRAM)
        await rows.instance(tx, InstanceState.TERMINATING, of=session, checkpoint_step=step)
        other = await rows.session(tx, SessionState.TERMINATING)
        await rows.instance(tx, InstanceState.TERMINATING, of=other, checkpoint_step=CheckpointStep.HELD)
        more = await rows.request(tx, kind=RequestKind.EXTEND, parent_id=session.request_id)
    async with db.read() as tx:
        found = await subject_of_request(tx, more.id)
        assert found.session is not None
        assert (found.session.id, found.owner, found.behind_session) == (session.id, "", rows.BEN.ref)
        assert found.held is held


async def test_buttons_options_and_parents_of_what_waits(db: Database) -> None:
    later = START + timedelta(minutes=5)
    async with db.write() as tx:
        asked = await rows.request(tx, quote_version=2)
        await rows.option(tx, await rows.quote(tx, asked, version=1))
        quote = await rows.quote(tx, asked, at=later)
        second, first = await rows.option(tx, quote, 2), await rows.option(tx, quote, 1)
        other = await rows.request(tx)
        alone = await rows.option(tx, await rows.quote(tx, other, at=later + timedelta(minutes=1)))
        override = await rows.request(tx, quote_version=0, parent_id=asked.id, kind=RequestKind.OVERRIDE_12H)
        for name, version, action, option_id in (
            ("old", 1, "approve", first.id),
            ("one", 2, "approve", first.id),
            ("two", 2, "approve", second.id),
            ("no", 2, "reject", None),
        ):
            tx.add(Token(token=name, request_id=asked.id, quote_version=version, action=action, option_id=option_id))
        tx.add(Token(token="other", request_id=other.id, quote_version=2, action="cancel"))
        for name, owner in (("atlas", rows.BEN.ref), ("hera", rows.ADA.ref)):
            tx.add(Consumer(actor=f"consumer:{name}", owner=owner, created_at=START, created_by=owner))
    async with db.read() as tx:
        assert await button(tx, asked.id, "approve", 2, second.offer_id) == "two"
        assert await button(tx, asked.id, "approve", 1, first.offer_id) == "old"
        assert await button(tx, asked.id, "reject", 2, None) == "no"
        assert await button(tx, asked.id, "approve", 2, None) is None
        assert await button(tx, asked.id, "approve", 2, alone.offer_id) is None
        assert await button(tx, asked.id, "cancel", 2, None) is None
        shown = await shown_options(tx, [asked.id, override.id])
        assert {of: [one.id for one in options] for of, options in shown.items()} == {asked.id: [first.id, second.id]}
        assert {*await shown_options(tx, [asked.id, other.id])} == {asked.id, other.id}
        assert await opened_at(tx, [asked, override]) == {asked.id: later, override.id: START}
        assert {name: one.id for name, one in (await parents_of(tx, [override, asked])).items()} == {asked.id: asked.id}
        assert await parents_of(tx, [asked, other]) == {}
        assert await people_behind(tx, ["consumer:atlas", rows.ADA.ref]) == {"consumer:atlas": rows.BEN.ref}
        assert await people_behind(tx, []) == {}


HOUR = timedelta(hours=1)
NOW = START + HOUR
CY = Actor(ActorKind.SLACK, "UCY", "T1")


def given(name: str, by: Actor, to: Actor, *, until: datetime = NOW + HOUR, **values: datetime) -> Delegation:
    made = {"created_at": START} | values
    return Delegation(id=name, delegator=by.ref, delegate=to.ref, until=until, made_by=by.ref, **made)


async def test_delegations_in_force_from_and_to_somebody(db: Database) -> None:
    async with db.write() as tx:
        tx.add_all(
            [
                given("late", rows.ADA, rows.BEN, created_at=START + HOUR),
                given("ada_ben", rows.ADA, rows.BEN, until=NOW + timedelta(microseconds=1)),
                given("cy_ben", CY, rows.BEN),
                given("ben_cy", rows.BEN, CY),
                given("over", rows.ADA, rows.BEN, until=NOW),
                given("ended", rows.ADA, rows.BEN, ended_at=START),
            ]
        )
        record(tx, at=NOW, actor=rows.ADA, subject="late", kind=EventKind.DELEGATION_MADE, key="call-1")
    ada, ben, cy = (Whose.of([who]) for who in (rows.ADA, rows.BEN, CY))
    async with db.read() as tx:
        assert [one.id for one in await delegators_of(tx, ben, NOW)] == ["ada_ben", "cy_ben", "late"]
        assert [one.id for one in await delegators_of(tx, ada, NOW)] == []
        assert [one.id for one in await given_by(tx, ada, NOW)] == ["ada_ben", "late"]
        assert [one.id for one in await given_by(tx, ada, START)] == ["ada_ben", "over", "late"]
        assert [one.id for one in await in_force(tx, None, NOW)] == ["ada_ben", "ben_cy", "cy_ben", "late"]
        assert [one.id for one in await in_force(tx, cy, NOW)] == ["ben_cy", "cy_ben"]
        assert await said_before(tx, ada, "call-1", START)
        assert not await said_before(tx, ada, "call-1", NOW)
        assert not await said_before(tx, ada, "call-2", START)
        assert not await said_before(tx, ben, "call-1", START)
    async with db.write() as tx:
        await end_delegations(tx, ["late", "ended"], rows.BEN.ref, NOW)
    async with db.read() as tx:
        assert [one.id for one in await given_by(tx, ada, NOW)] == ["ada_ben"]
        late, ended = await tx.get_one(Delegation, "late"), await tx.get_one(Delegation, "ended")
        assert (late.ended_at, late.ended_by) == (NOW, rows.BEN.ref)
        assert (ended.ended_at, ended.ended_by) == (START, None)


async def test_who_approved_the_current_offers_in_the_order_of_their_decisions(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, quote_version=2)
        later = await rows.approval(tx, request, rows.ADA, at=START + HOUR)
        first = await rows.approval(tx, request, rows.BEN)
        await rows.approval(tx, request, CY, decision="reject")
        await rows.approval(tx, request, CY, quote_version=1)
        other = await rows.request(tx, quote_version=2)
        await rows.approval(tx, other, CY)
        bare = await rows.request(tx)
    async with db.read() as tx:
        assert [vote.id for vote in await approvals_of(tx, request)] == [first.id, later.id]
        assert list(await approvals_of(tx, bare)) == []
