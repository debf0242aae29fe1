"""More than twelve hours: one decision on the request records the override and the spend, each as its own row."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Request
from tests.support.world import ALICE, BOB, CAROL, World

LONG = {"hours": Decimal(24), "candidates": ("vast",)}


async def family(w: World) -> tuple[Request, Request]:
    """The long request and its override, as they are now."""
    rows = {row.kind: row for row in (await w.books()).requests}
    return rows[RequestKind.PROVISION], rows[RequestKind.OVERRIDE_12H]


async def ask(w: World) -> tuple[str, str]:
    reply = await w.ask(hours=Decimal(24), candidates=("vast",))
    assert reply.ok, reply
    await w.settle()
    request, override = await family(w)
    assert (request.state, override.state) == (RequestState.PENDING, RequestState.PENDING)
    return request.id, override.id


async def states(w: World) -> tuple[RequestState, RequestState]:
    request, override = await family(w)
    return request.state, override.state


async def test_one_decision_records_the_override_and_the_spend(w: World) -> None:
    request_id, override_id = await ask(w)
    assert (await w.decide(request_id, ALICE)).code == "requester"
    assert (await states(w)) == (RequestState.PENDING, RequestState.PENDING)
    assert (await w.decide(request_id, BOB)).code == "approved"
    assert (await states(w)) == (RequestState.APPROVED, RequestState.APPROVED)
    books = await w.books()
    assert sorted((one.request_id, one.approver) for one in books.approvals) == sorted(
        [(request_id, BOB.ref), (override_id, BOB.ref)]
    )
    assert [grant.hours for grant in books.grants] == ["24"]
    assert (await w.decide(override_id, CAROL)).code == "already_approved"


async def test_where_the_policy_asks_for_two_the_spend_is_approved_by_different_people(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.01"))
    request_id, override_id = await ask(w)
    assert (await w.decide(request_id, BOB)).code == "first_of_two"
    assert (await states(w)) == (RequestState.PENDING, RequestState.APPROVED)
    assert (await w.books()).grants == ()
    assert (await w.decide(request_id, BOB)).code == "already_voted"
    assert (await w.decide(request_id, CAROL)).code == "approved"
    voted = {(one.request_id, one.approver) for one in (await w.books()).approvals}
    assert voted == {(override_id, BOB.ref), (request_id, BOB.ref), (request_id, CAROL.ref)}


async def test_a_time_within_the_limit_needs_no_override_and_a_missing_amount_records_nothing(w: World) -> None:
    w.tune(confirm_above_usd=Decimal("0.01"))
    request_id, _ = await ask(w)
    assert (await w.decide(request_id, BOB)).code == "amount_needed"
    assert ((await states(w)), (await w.books()).approvals) == ((RequestState.PENDING, RequestState.PENDING), ())
    w.tune(confirm_above_usd=Decimal(1000))
    assert (await w.decide(request_id, BOB, hours=Decimal(8))).code == "approved"
    assert (await states(w)) == (RequestState.APPROVED, RequestState.CANCELLED)
    assert [one.request_id for one in (await w.books()).approvals] == [request_id]


async def test_the_override_alone_buys_nothing(w: World) -> None:
    w.tune(allow_self_approval=True, approvers=(ALICE.id, BOB.id, CAROL.id))
    request_id, override_id = await ask(w)
    view = await w.view(override_id)
    assert view.parent is not None
    assert view.parent.id == request_id
    assert "above 12 hours" in view.request.rule
    assert (await w.decide(request_id, ALICE)).code == "requester"
    own = await w.decide(override_id, ALICE)
    assert (own.ok, own.code) == (False, "requester")  # Even where a policy lets people approve their own requests.
    assert (await w.decide(override_id, BOB)).code == "approved"
    books = await w.books()
    assert (books.grants, books.sessions) == ((), ())
    assert (await w.decide(override_id, CAROL)).code == "already_approved"
    assert (await w.decide(request_id, BOB)).code == "approved"
    assert [grant.hours for grant in (await w.books()).grants] == ["24"]
    await w.settle()
    assert w.board.kinds(override_id) == []  # It is decided on the card of its request.


@pytest.mark.parametrize("which", ["override", "request"])
async def test_a_rejection_closes_both(w: World, which: str) -> None:
    request_id, override_id = await ask(w)
    reply = await w.decide(override_id if which == "override" else request_id, BOB, "reject", reason="too long")
    assert reply.code == "rejected"
    assert await states(w) == (RequestState.REJECTED, RequestState.REJECTED)


async def test_a_cancelled_request_takes_its_override_with_it(w: World) -> None:
    request_id, _ = await ask(w)
    assert (await w.cancel(request_id)).code == "cancelled"
    assert await states(w) == (RequestState.CANCELLED, RequestState.CANCELLED)


@pytest.mark.both_databases
async def test_both_expire_together(w: World) -> None:
    request_id, override_id = await ask(w)
    await w.run(w.ctx.policy.request_ttl_s, w.ctx.policy.request_ttl_s)
    assert await states(w) == (RequestState.EXPIRED, RequestState.EXPIRED)
    assert (await w.decide(override_id)).code == "already_expired"
    assert (await w.decide(request_id)).code == "already_expired"


async def test_an_approved_override_stays_approved_when_the_request_is_asked_again(w: World) -> None:
    request_id, override_id = await ask(w)
    await w.decide(override_id, BOB)
    await w.decide(request_id, BOB)
    w.tune(failover=False)
    w.arm("create_stale_offer", "vast")
    await w.settle()
    assert await states(w) == (RequestState.PENDING, RequestState.APPROVED)
    assert (await w.decide(request_id, CAROL)).code == "approved"
    assert len([row for row in (await w.books()).requests if row.kind == "override_12h"]) == 1
    await w.settle()
    assert len(w.alive()) == 1
