"""Approved by the policy: recorded as an approval, so that the grant, the audit and the people see a whole decision."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.approvals.auto_approval import signer
from bot.rules.policy.consumers import ConsumerPolicy
from bot.services.requests import quoting
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import GrantState, RequestState, SessionState
from providers.gpus.constraint import GpuConstraint
from tests.support.clock import START, SteppedClock
from tests.support.world import ALICE, World, checked_world

SIGNED: dict[str, Any] = {
    "auto_approve_below_usd": Decimal(5),
    "auto_approve_signed_by": "operator:ada",
    "auto_approve_until": (START + timedelta(days=1)).date(),
}


@pytest.fixture
def signed(w: World) -> World:
    """A world in which somebody signed for small spends."""
    w.tune(**SIGNED)
    return w


async def asked(w: World, **changes: object) -> str:
    """A request whose offers are there."""
    changes.setdefault("candidates", ("vast",))
    reply = await w.ask(ALICE, **changes)
    await quoting.quote_due(w.ctx)
    return str(reply.data["request_id"])


async def test_it_is_off_until_the_policy_says_so(w: World) -> None:
    view = await w.view(await asked(w))
    assert (view.request.state, view.request.rule) == (
        RequestState.PENDING,
        "Needs 1 approval.",
    )


async def test_a_small_spend_goes_ahead_under_an_approval_of_its_own(signed: World) -> None:
    w = signed
    request_id = await asked(w)
    view = await w.view(request_id)
    books = await w.books()
    (approval,), (grant,) = books.approvals, books.grants
    best = view.options[0]
    assert approval.approver == view.request.decided_by == signer(w.ctx.policy).ref
    assert (approval.decision, approval.option_id, approval.quote_version) == ("approve", best.id, 1)
    assert (approval.total_cap_usd, approval.hours) == (best.worst_usd, "2")
    assert "operator:ada signed for that" in approval.rule
    assert (grant.approval_id, grant.state, grant.total_cap_usd) == (approval.id, GrantState.OPEN, best.worst_usd)
    assert [entry.kind for entry in books.entries] == ["reserve"]
    moved = [event for event in books.events if event.subject == request_id and event.after == "approved"]
    assert [event.actor for event in moved] == [approval.approver]
    await w.settle()
    await w.run(40, 20)
    session = (await w.view(request_id)).session
    assert session is not None
    assert session.state is SessionState.RUNNING


async def test_what_an_ai_agent_requests_is_approved_by_a_person_only(signed: World) -> None:
    w = signed
    reply = await w.ask(Actor(ActorKind.AGENT, "coder"), candidates=("vast",))
    await quoting.quote_due(w.ctx)
    view = await w.view(str(reply.data["request_id"]))
    assert view.request.state is RequestState.PENDING
    assert (await w.books()).approvals == ()


async def test_the_requester_is_told_and_the_channel_sees_it(signed: World) -> None:
    w = signed
    request_id = await asked(w)
    await w.settle()
    (note,) = [n for n in (await w.books()).notifications if n.subject == f"{request_id}/by_policy"]
    assert note.destination == ALICE.id
    assert "Approved by the policy, because at most $" in note.body["text"]
    assert "request.message" in w.board.kinds(request_id)


async def test_a_spend_above_the_amount_is_decided_by_a_person(signed: World) -> None:
    w = signed
    w.tune(auto_approve_below_usd=Decimal("0.10"))
    request_id = await asked(w)
    view = await w.view(request_id)
    assert (view.request.state, view.request.required_approvals) == (RequestState.PENDING, 1)
    assert view.request.rule == "Needs 1 approval."
    assert (await w.decide(request_id)).code == "approved"


async def test_what_is_asked_again_is_looked_at_by_a_person(signed: World) -> None:
    w = signed
    request_id = await asked(w)
    for option in (await w.view(request_id)).options:
        w.withdraw(option)
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    assert "so a person must approve this" in view.request.rule
    assert len((await w.books()).approvals) == 1


@pytest.mark.both_databases
async def test_the_limit_of_a_day_holds_however_many_quote_at_once(signed: World) -> None:
    w = signed
    worst = (await w.view(await asked(w))).options[0].worst_usd
    w.tune(auto_approve_daily_usd=worst * Decimal("2.5"), max_open_requests_per_user=20)
    for _ in range(6):
        await w.ask(ALICE, candidates=("vast",))
    replicas = [w.replica() for _ in range(3)]
    await asyncio.gather(*(quoting.quote_due(one.ctx) for one in (w, *replicas)))
    for one in replicas:
        await one.ctx.db.close()
    books = await w.books()
    assert len(books.approvals) == 2
    rules = [row.rule for row in books.requests if row.state is RequestState.PENDING]
    assert len(rules) == 5
    assert all("in the last 24 hours" in rule for rule in rules)
    w.clock.advance(24 * 3600)
    await w.settle()
    assert (await w.view(await asked(w))).request.state is RequestState.APPROVED


async def test_a_program_has_limits_and_a_standing_approval_of_its_own(
    sqlite_db: Database, clock: SteppedClock
) -> None:
    atlas = Actor(ActorKind.CONSUMER, "atlas")
    async with checked_world(sqlite_db, clock) as w:
        w.use({name: w.ctx.providers[name] for name in ("vast", "runpod")})
        own = ConsumerPolicy(clouds=("vast",), gpus=("4090",), auto_approve_daily_usd=Decimal(1), **SIGNED)
        w.tune(consumers={"atlas": own})
        assert (await w.ask(atlas, candidates=("runpod",))).code == "cloud_not_allowed"
        assert (await w.ask(atlas, gpu=GpuConstraint(("H100-SXM",), 1, 1))).code == "gpu_not_allowed"
        made = [str((await w.ask(atlas)).data["request_id"]) for _ in range(3)]
        people = await w.ask(ALICE)
        await quoting.quote_due(w.ctx)
        views = [await w.view(one) for one in made]
        assert {option.cloud for view in views for option in view.options} == {"vast"}
        # The first is inside what was signed for in 24 hours; later ones and those of people wait for a person.
        states = sorted(view.request.state for view in views)
        assert states[0] is RequestState.APPROVED
        assert states[-1] is RequestState.PENDING
        approvers = {one.approver for one in (await w.books()).approvals}
        assert all(one.startswith("system:policy-atlas-") for one in approvers)
        assert (await w.view(str(people.data["request_id"]))).request.state is RequestState.PENDING
        await w.settle()
        for view in views:
            await w.end(view.request.id, atlas)
        await w.settle()
