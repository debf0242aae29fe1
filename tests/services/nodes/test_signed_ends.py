"""Ends that agents have: a newer one than the ledger's shows that the ledger is older, and the later one counts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from bot.agent.settings import read as read_settings
from bot.services.nodes import enrollment, signed_ends
from bot.services.nodes.checkins import Checkins
from bot.services.nodes.signed_ends import SignedEnd
from bot.services.recovery.acceptance import older_facts
from bot.services.runtime import recovery_mode
from bot.wire.checkin import Checkin, CheckinAnswer, SignedMessage
from ledger.engine.db import Database
from ledger.queries.nodes import NodeContext, node_contexts
from providers.sandbox.clock import SandboxTiming
from tests.support.clock import SteppedClock
from tests.support.world import World, checked_world

HOUR = timedelta(hours=1)


@pytest.fixture
async def noded(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A service that rented machines reach."""
    async with checked_world(db, clock, sandbox=SandboxTiming.quick()) as w:
        w.ctx = replace(w.ctx, node_url="https://gpu.example.com")
        yield w


async def context_of(w: World, request_id: str) -> NodeContext:
    (row,) = (await w.view(request_id)).instances
    async with w.ctx.db.read() as tx:
        return (await node_contexts(tx, [row.id]))[row.id]


def shown(w: World, instance: str, number: int, end: datetime | None) -> Checkin:
    """A check-in that shows an end as this deployment signs it."""
    signed = enrollment.signed(w.ctx.labels, instance, number, end, w.clock.now())
    return Checkin(seq=number + 1, signed_end=SignedMessage(*signed))


async def test_only_what_was_signed_here_for_this_machine_is_read(noded: World) -> None:
    w, end = noded, noded.clock.now().replace(microsecond=0) + HOUR
    report = shown(w, "ins_1", 7, end)
    assert signed_ends.read(w.ctx.labels, "ins_1", report) == SignedEnd(7, end)
    assert signed_ends.read(w.ctx.labels, "ins_2", report) is None
    assert signed_ends.read(w.ctx.labels, "ins_1", Checkin(seq=8)) is None
    assert report.signed_end is not None
    message, signature = report.signed_end.message, report.signed_end.signature
    forged = message.replace('"n":7', '"n":9')
    for wrong in ((forged, signature), (message, "AAAA"), (message, "no base64"), ("{}", signature)):
        assert signed_ends.read(w.ctx.labels, "ins_1", Checkin(seq=8, signed_end=SignedMessage(*wrong))) is None
    assert signed_ends.read(w.ctx.labels, "ins_1", shown(w, "ins_1", 8, None)) == SignedEnd(8, None)


async def test_beside_an_older_ledger_an_agent_keeps_the_latest_end_that_it_has(noded: World) -> None:
    w = noded
    stands = await context_of(w, await w.running(candidates=("runpod",)))
    until = stands.approved_until
    assert until is not None
    earlier, later = SignedEnd(5, until - HOUR), SignedEnd(5, until + HOUR)
    # A whole ledger signs its own end, also where it was shortened.
    for signed in (None, earlier, later):
        assert signed_ends.end_to_sign(stands, signed, 5) == until
        assert not signed_ends.shows_more(stands, signed, 5)
    # A number that the ledger has not stored is proof; the later end stays, an earlier one follows the ledger.
    assert signed_ends.shows_more(stands, later, 4)
    assert signed_ends.end_to_sign(stands, later, 4) is None
    assert signed_ends.end_to_sign(stands, earlier, 4) == until
    older = replace(stands, older_since=w.clock.now())
    assert signed_ends.end_to_sign(older, None, 5) is None
    assert signed_ends.end_to_sign(older, later, 5) is None
    assert signed_ends.end_to_sign(older, earlier, 5) == until
    assert (signed_ends.shows_more(older, later, 5), signed_ends.shows_more(older, earlier, 5)) == (True, False)


async def test_a_restored_ledger_learns_a_later_end_from_a_check_in(noded: World) -> None:
    """The agent was answered in the lost part: its end has a number that this ledger has not stored."""
    w = noded
    request_id = await w.running(candidates=("runpod",), hours=Decimal(1))
    stands = await context_of(w, request_id)
    until = stands.approved_until
    assert until is not None
    row = (await w.view(request_id)).instances[-1]
    truth = next(one for one in w.instances() if one.ref == row.ref)
    token = read_settings({**w.clouds["runpod"].variables(truth.ref), **w.clouds["runpod"].injected(truth.ref)})
    checkins = Checkins(w.ctx)
    report = replace(shown(w, row.id, 41, until + HOUR), seq=42)
    answer = await checkins.take(token.boot_token, report)
    assert isinstance(answer, CheckinAnswer)
    assert json.loads(answer.deadline.message)["deadline_s"] is None
    async with w.ctx.db.read() as tx:
        assert await recovery_mode.is_on(tx)
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.deadline is not None
    assert int(session.deadline.timestamp()) == int((until + HOUR).timestamp())
    answer = await checkins.take(token.boot_token, replace(report, seq=43))
    assert isinstance(answer, CheckinAnswer)
    assert json.loads(answer.deadline.message)["deadline_s"] == int((until + HOUR).timestamp())


async def test_a_later_end_that_an_agent_has_is_taken_into_the_ledger(noded: World) -> None:
    w = noded
    request_id = await w.running(candidates=("runpod",), hours=Decimal(1))
    stands = await context_of(w, request_id)
    until = stands.approved_until
    assert until is not None
    instance = stands.node.instance_id
    async with w.ctx.db.write() as tx:
        await signed_ends.take(tx, {instance: SignedEnd(9, until + HOUR), "ins_unknown": SignedEnd(9, until)}, until)
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.deadline == until + HOUR
    facts = await older_facts(w.ctx)
    assert facts is not None
    assert [(one.ledger_end, one.recorded_end) for one in facts.ends] == [(until, until + HOUR)]
    async with w.ctx.db.write() as tx:
        await signed_ends.take(tx, {instance: SignedEnd(9, until)}, until)
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.deadline == until + HOUR
