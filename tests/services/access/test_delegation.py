"""A delegate at work, and approvals with changes: on both databases, with what stands in the books afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.services.access import delegation
from bot.services.access.delegation import Delegate
from bot.services.approvals import decisions
from bot.services.runtime.commands import Decide, Reply
from ledger.kernel.actor import Actor
from tests.services.approvals.test_decisions import pending
from tests.support.world import ALICE, BOB, CAROL, DAVE, World, facts


async def give(w: World, who: Actor = BOB, to: Actor = DAVE, days: int = 7) -> Reply:
    until = (w.clock.now() + timedelta(days=days)).date()
    return await delegation.delegate(w.ctx, Delegate(facts(who), to, until))


async def click(w: World, request_id: str, action: str = "approve") -> Reply:
    """Dave decides in Slack, where Bob is looked up."""
    looked_up = replace(facts(DAVE), behalf=(facts(BOB),))
    return await decisions.decide(w.ctx, Decide(await w.token(request_id, action), looked_up))


@pytest.mark.both_databases
async def test_a_delegate_decides_until_the_day_or_until_it_is_taken_back(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.10"))
    assert (await give(w, DAVE, ALICE)).code == "not_an_approver"
    first, own, other = await pending(w), await pending(w, DAVE), await pending(w, BOB)
    assert (await w.decide(first, DAVE)).code == "not_an_approver"
    given = await give(w)
    assert given.code == "delegated"
    assert (await w.decide(own, DAVE)).code == "requester"
    assert (await click(w, other)).code == "delegator_requested"
    # A door that did not ask Slack about Bob cannot know whether his account still works.
    assert (await w.decide(first, DAVE)).code == "delegator_unknown"
    assert (await click(w, first)).code == "first_of_two"
    assert (await w.decide(first, BOB)).code == "already_voted"
    assert (await w.decide(first, CAROL)).code == "approved"
    books = await w.books()
    assert {(one.approver, one.on_behalf_of) for one in books.approvals} == {(DAVE.ref, BOB.ref), (CAROL.ref, None)}
    assert all(one.digest and len(one.digest) == 64 for one in books.approvals)
    assert [event.reason for event in books.events if event.kind == "request.in_place"] == [
        f"{DAVE.ref} approves or rejects for {BOB.ref}."
    ]
    # A second one takes the place of the first, and a click that is under way is judged by what holds when it lands.
    assert delegation.said(await delegation.listing(w.ctx, DAVE)).count("can approve for") == 1
    assert await delegation.delegators(w.ctx, DAVE) == [BOB]
    stale = replace(facts(DAVE), behalf=(facts(BOB),))
    assert (await delegation.revoke(w.ctx, Delegate(facts(BOB)))).code == "delegation_ended"
    assert (await delegation.revoke(w.ctx, Delegate(facts(BOB)))).code == "no_delegation"
    token = await w.token(own, "reject")
    assert (await decisions.decide(w.ctx, Decide(token, stale, "no"))).code == "requester"
    third = await pending(w)
    assert (await decisions.decide(w.ctx, Decide(await w.token(third), stale))).code == "not_an_approver"
    assert (await give(w, days=0)).code == "delegated"
    assert [one.ok for one in await asyncio.gather(give(w, to=DAVE), give(w, to=CAROL))] == [True, True]
    assert len(await delegation.listing(w.ctx, BOB)) == 1
    assert (await give(w, to=ALICE, days=0)).code == "delegated"
    assert [one.delegate for one in await delegation.listing(w.ctx, CAROL, everything=True)] == [ALICE.ref]
    assert delegation.said(await delegation.listing(w.ctx, CAROL)) == "There are no delegates."
    rows = (await w.books()).notifications
    assert {one.destination for one in rows if one.subject.startswith("del_")} == {DAVE.id, CAROL.id, ALICE.id}
    w.clock.advance(24 * 3600)
    assert await delegation.listing(w.ctx, CAROL, everything=True) == []


async def test_an_approver_shortens_and_lowers_and_nobody_decides_on_what_has_changed(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.10"))
    request_id = await pending(w, hours=Decimal(6))
    before = (await w.view(request_id)).options[1]
    stale = Decide(await w.token(request_id, rank=2), facts(CAROL))
    assert (await w.decide(request_id, BOB, rank=2, hours=Decimal(7))).code == "hours_raised"
    assert (await w.decide(request_id, BOB, rank=2, seen="0" * 12)).code == "changed_since"
    limit = Decimal("0.90")
    first = await w.decide(request_id, BOB, rank=2, hours=Decimal(3), cap_usd=limit)
    assert first.code == "first_of_two"
    assert (await decisions.decide(w.ctx, stale)).code == "changed_since"
    assert (await w.decide(request_id, CAROL, rank=2, hours=Decimal(4))).code == "hours_raised"
    assert (await w.decide(request_id, CAROL, rank=2, cap_usd=limit + 1)).code == "cap_raised"
    assert (await w.decide(request_id, CAROL, rank=2)).code == "approved"
    (grant,), (session,) = (await w.books()).grants, (await w.books()).sessions
    assert (Decimal(grant.hours), Decimal(session.hours)) == (Decimal(3), Decimal(3))
    assert grant.total_cap_usd <= limit < before.worst_usd
    await w.settle()
    told = [subject for kind, subject, destination, _ in w.board.shown if destination == ALICE.id]
    assert f"{request_id}/1/changed" in told
    await w.run(40, 20)
    view = await w.view(request_id)
    assert view.session is not None
    assert view.session.deadline is not None
    assert view.session.deadline - view.session.created_at < timedelta(hours=3, minutes=5)
    extension = str((await w.more(request_id)).data["request_id"])
    assert (await w.decide(extension, BOB, hours=Decimal("0.5"))).code == "first_of_two"
