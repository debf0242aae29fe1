"""Approvals in advance: reserved, used once inside their cover, revocable, and void where anything is outside."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import select

from bot.rules.approvals.decision import Decision
from bot.rules.policy.tiers import ApprovalTier
from bot.services.approvals import advance, by_offer
from bot.services.approvals.advance import Revoke
from bot.services.budgets import enforcement
from bot.services.requests import quoting
from bot.services.runtime.commands import Reply
from ledger.kernel.actor import Actor
from ledger.kernel.states import GrantState, RequestState
from ledger.models import AdvanceApproval
from tests.support.world import ALICE, BOB, CAROL, DAVE, World, facts

TOTAL = Decimal(50)


async def waiting(w: World, **changes: Any) -> str:
    """A request that begins to look in an hour, for at most $5 an hour and $50 in all."""
    said = {"wait": True, "start_at": "1h", "max_price_usd_h": Decimal(5), "budget_cap_usd": TOTAL, **changes}
    reply = await w.ask(**said)
    assert reply.ok, reply
    await w.settle()
    return str(reply.data["request_id"])


async def advances(w: World) -> list[AdvanceApproval]:
    async with w.ctx.db.read() as tx:
        return list(await tx.scalars(select(AdvanceApproval).order_by(AdvanceApproval.at, AdvanceApproval.id)))


async def states(w: World) -> list[GrantState]:
    return [row.state for row in await advances(w)]


async def reserved_usd(w: World) -> Decimal:
    """What the team's whole budget has reserved."""
    async with w.ctx.db.read() as tx:
        (line,) = await enforcement.named(w.ctx, tx, w.clock.now())
    return line.open_usd


async def revoke(w: World, request_id: str, actor: Actor = BOB) -> Reply:
    return await advance.revoke(w.ctx, Revoke(request_id, facts(actor)))


async def asked_as_usual(w: World, request_id: str, because: str) -> None:
    """Its start comes; then it waits for people, says why, and no machine was rented."""
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    assert view.request.outcome == f"Not covered by the approval in advance. {because}"
    assert not view.approvals
    assert GrantState.OPEN not in await states(w)
    assert not w.instances()


async def test_it_is_used_once_and_its_machine_is_the_only_one(w: World) -> None:
    request_id = await waiting(w)
    assert (await w.decide(request_id)).code == "in_advance"
    again = await w.decide(request_id)
    assert (again.ok, again.code) == (False, "already_voted")
    await w.run(3700, 600)
    await w.run(300, 60)
    view = await w.view(request_id)
    assert view.request.state is RequestState.APPROVED
    (row,) = await advances(w)
    assert (row.state, row.total_cap_usd, row.owner) == (GrantState.USED, TOTAL, ALICE.ref)
    assert [vote.source_approval_id for vote in view.approvals] == [row.id]
    assert len(w.instances()) == 1
    late = await revoke(w, request_id)
    assert (late.ok, late.code) == (False, "not_in_advance")


async def test_its_requester_and_others_who_are_no_approvers_may_not(w: World) -> None:
    request_id = await waiting(w)
    assert (await w.decide(request_id, ALICE)).code == "requester"
    assert (await w.decide(request_id, DAVE)).code == "not_an_approver"
    assert not await advances(w)


async def test_it_is_revoked_until_it_is_used_and_then_asked_as_usual(w: World) -> None:
    request_id = await waiting(w)
    assert (await revoke(w, request_id)).code == "not_in_advance"
    await w.decide(request_id)
    assert (await revoke(w, request_id, CAROL)).code == "not_in_advance"
    done = await revoke(w, request_id)
    assert done.ok
    assert done.sentence.startswith("You revoked your approval in advance of request ")
    assert await states(w) == [GrantState.VOID]
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert (view.request.state, view.request.outcome, view.approvals) == (RequestState.PENDING, "", ())
    assert (await revoke(w, "zzzz")).code == "unknown_id"


async def test_after_a_revocation_it_can_be_given_again(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id)
    await revoke(w, request_id)
    assert (await w.decide(request_id)).code == "in_advance"
    assert await states(w) == [GrantState.VOID, GrantState.OPEN]


async def test_it_reserves_its_total_until_the_request_ends(w: World) -> None:
    w.tune(budgets={"global": {"total": Decimal(80)}})
    request_id = await waiting(w)
    assert await reserved_usd(w) == 0
    await w.decide(request_id)
    assert await reserved_usd(w) == TOTAL
    other = await waiting(w)
    refused = await w.decide(other)
    assert (refused.ok, refused.code) == (False, "over_budget")
    assert (await w.cancel(request_id)).ok
    assert await reserved_usd(w) == 0
    assert await states(w) == [GrantState.VOID]
    assert (await w.decide(other)).ok


async def test_an_expiry_releases_it(w: World) -> None:
    w.tune(budgets={"global": {"total": Decimal(80)}})
    request_id = await waiting(w, max_price_usd_h=Decimal("0.01"), budget_cap_usd=Decimal(1), wait_until="2h")
    await w.decide(request_id)
    assert await reserved_usd(w) == 1
    await w.run(4 * 3600, 1800)
    assert (await w.view(request_id)).request.state is RequestState.EXPIRED
    assert await states(w) == [GrantState.VOID]
    assert await reserved_usd(w) == 0


async def test_a_rejection_voids_it(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id)
    assert (await w.decide(request_id, CAROL, "reject", reason="not now")).ok
    assert await states(w) == [GrantState.VOID]


async def test_an_approver_who_is_none_any_more_covers_nothing(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id)
    w.tune(approvers=(CAROL.id,))
    await asked_as_usual(w, request_id, "Only approvers can do this: slack:UCAROL.")


async def test_a_changed_tier_covers_nothing(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id)
    w.tune(
        approval_groups={"leads": (BOB.id,)},
        approval_tiers=(ApprovalTier(name="all", above_hours=Decimal(1), group="leads"),),
    )
    await asked_as_usual(w, request_id, "The policy's tier for it has changed since it was approved in advance.")


async def test_a_budget_that_is_gone_covers_nothing(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id)
    w.tune(budgets={"global": {"total": Decimal("0.10")}})
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    assert "budget" in view.request.outcome
    assert GrantState.OPEN not in await states(w)


async def test_two_approvers_are_needed_where_the_policy_says_so(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.5"))
    request_id = await waiting(w)
    first = await w.decide(request_id)
    assert first.sentence.endswith(" It needs 1 more approval.")
    assert not (await w.decide(request_id, CAROL)).sentence.endswith("more approval.")
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.APPROVED
    assert [vote.approver for vote in view.approvals] == [BOB.ref, CAROL.ref]
    assert await states(w) == [GrantState.USED, GrantState.USED]


async def test_one_of_two_is_not_enough(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.5"))
    request_id = await waiting(w)
    await w.decide(request_id)
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    assert "It needs more approvals than it had in advance." in view.request.outcome
    assert (await w.decide(request_id, CAROL)).code == "approved"


async def test_an_approval_too_many_is_void(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id)
    await w.decide(request_id, CAROL)
    await w.run(3700, 600)
    assert (await w.view(request_id)).request.state is RequestState.APPROVED
    assert await states(w) == [GrantState.USED, GrantState.VOID]


async def test_the_total_is_typed_and_may_be_lower(w: World) -> None:
    w.tune(confirm_above_usd=Decimal("0.1"))
    request_id = await waiting(w)
    needed = await w.decide(request_id)
    assert (needed.code, needed.data["expected_usd"]) == ("amount_needed", TOTAL)
    assert (await w.decide(request_id, typed_amount="50", cap_usd=Decimal(60))).code == "cap_raised"
    assert (await w.decide(request_id, typed_amount="50", hours=Decimal(1))).code == "not_changeable"
    assert (await w.decide(request_id, typed_amount="50", cap_usd=Decimal(2))).code == "in_advance"
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.APPROVED
    assert view.approvals[0].total_cap_usd is not None
    assert view.approvals[0].total_cap_usd <= 2


async def test_a_total_that_is_too_low_for_the_offer_covers_nothing(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id, cap_usd=Decimal("0.05"))
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    assert " above the $0.05 that was approved in advance." in view.request.outcome


async def test_without_a_price_limit_there_is_nothing_to_approve(w: World) -> None:
    reply = await w.ask(wait=True, start_at="1h")
    request_id = str(reply.data["request_id"])
    said = await by_offer.decide(w.ctx, by_offer.Named(request_id, Decision.APPROVE, facts(BOB)))
    assert (said.ok, said.code) == (False, "no_limit")


async def test_a_call_that_is_repeated_approves_once(w: World) -> None:
    request_id = await waiting(w)
    named = by_offer.Named(request_id, Decision.APPROVE, facts(BOB), key="call-1")
    first, again = await by_offer.decide(w.ctx, named), await by_offer.decide(w.ctx, named)
    assert (first.code, again.code, again.sentence) == ("in_advance", "in_advance", first.sentence)
    assert len(await advances(w)) == 1


async def test_a_revocation_and_the_match_at_one_moment_have_one_winner(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id)
    w.clock.advance(3601)
    await w.tick()
    for _ in range(3):
        await asyncio.gather(revoke(w, request_id), quoting.quote_due(w.ctx))
    await w.settle()
    view = await w.view(request_id)
    used = await states(w) == [GrantState.USED]
    assert (view.request.state is RequestState.APPROVED) == used == bool(view.approvals)


async def test_a_policy_that_approves_by_itself_needs_none(w: World) -> None:
    request_id = await waiting(w)
    await w.decide(request_id)
    w.tune(
        auto_approve_below_usd=Decimal(20),
        auto_approve_signed_by=BOB.id,
        auto_approve_until=date(2099, 1, 1),
    )
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.APPROVED
    assert [vote.source_approval_id for vote in view.approvals] == [None]
    assert await states(w) == [GrantState.VOID]


@pytest.mark.parametrize("hours", ["20"])
async def test_it_includes_the_override_above_the_limit_of_hours(w: World, hours: str) -> None:
    request_id = await waiting(w, hours=Decimal(hours))
    assert (await w.decide(request_id)).code == "in_advance"
    await w.run(3700, 600)
    view = await w.view(request_id)
    assert view.request.state is RequestState.APPROVED, view.request.outcome
    assert view.override is not None
    assert view.override.state is RequestState.APPROVED
