"""More than twelve hours: an override with its own decision, before anything else can be approved."""

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


async def test_the_override_is_decided_first_and_buys_nothing(w: World) -> None:
    w.tune(allow_self_approval=True, approvers=(ALICE.id, BOB.id, CAROL.id))
    request_id, override_id = await ask(w)
    view = await w.view(override_id)
    assert view.parent is not None
    assert view.parent.id == request_id
    assert "above 12 hours" in view.request.rule
    early = await w.decide(request_id, BOB)
    assert (early.ok, early.code) == (False, "override_first")
    own = await w.decide(override_id, ALICE)
    assert (own.ok, own.code) == (False, "requester")  # Even where a policy lets people approve their own requests.
    assert (await w.decide(override_id, BOB)).code == "approved"
    books = await w.books()
    assert (books.grants, books.sessions) == ((), ())
    assert (await w.decide(override_id, CAROL)).code == "already_approved"
    assert (await w.decide(request_id, BOB)).code == "approved"
    assert [grant.hours for grant in (await w.books()).grants] == ["24"]
    await w.settle()
    assert "request.message" in w.board.kinds(override_id)


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
