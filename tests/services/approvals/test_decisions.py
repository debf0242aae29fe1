"""Decisions: who may, what they cover, and that one click has one effect."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.approvals.decision import Decision
from bot.services.approvals import by_offer, decisions
from bot.services.runtime.commands import Decide, Reply
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import GrantState, InstanceState, RequestState
from providers.gpus.constraint import GpuConstraint
from tests.support.world import ALICE, BOB, CAROL, DAVE, World, facts

BIG: dict[str, Any] = {"gpu": GpuConstraint(("H100-SXM",), 8, 8), "hours": Decimal(12)}


async def pending(w: World, actor: Actor = ALICE, **changes: Any) -> str:
    reply = await w.ask(actor, **changes)
    assert reply.ok, reply
    await w.settle()
    return str(reply.data["request_id"])


async def state(w: World, request_id: str) -> RequestState:
    return (await w.view(request_id)).request.state


async def test_who_may_not_decide_is_told_why_and_changes_nothing(w: World) -> None:
    request_id = await pending(w)
    token = await w.token(request_id)
    before = await w.books()
    for who, code in (
        (facts(ALICE), "requester"),
        (facts(DAVE), "not_an_approver"),
        (facts(BOB, known=False), "lookup_failed"),
        (facts(BOB, is_bot=True), "bot"),
        (facts(BOB, is_deleted=True), "deleted"),
        (facts(BOB, team_ok=False), "other_team"),
        (facts(BOB, is_guest=True), "guest"),
    ):
        reply = await decisions.decide(w.ctx, Decide(token, who))
        assert (reply.ok, reply.code) == (False, code)
        assert reply.sentence.endswith(".")
    reject = await w.token(request_id, "reject")
    assert (await decisions.decide(w.ctx, Decide(reject, facts(DAVE), "no"))).code == "not_an_approver"
    assert (await decisions.decide(w.ctx, Decide(reject, facts(BOB), "  "))).code == "reason_needed"
    assert (await decisions.decide(w.ctx, Decide(reject, facts(BOB), "x" * 501))).code == "reason_too_long"
    assert (await decisions.decide(w.ctx, Decide("made-up", facts(BOB)))).code == "unknown_button"
    w.tune(allow_slack_decisions=False)
    assert (await decisions.decide(w.ctx, Decide(token, facts(BOB)))).code == "slack_off"
    after = await w.books()
    assert (len(after.events), after.approvals, after.grants) == (len(before.events), (), ())
    assert await state(w, request_id) is RequestState.PENDING


async def test_a_preview_judges_and_does_nothing(w: World) -> None:
    request_id = await pending(w)
    command = Decide(await w.token(request_id), facts(BOB))
    before = len((await w.books()).events)
    for _ in range(2):
        seen = await decisions.preview(w.ctx, command)
        assert (seen.ok, seen.code) == (True, "approved")
    assert seen.data["request_id"] == request_id
    assert seen.data["expected_usd"] <= seen.data["worst_usd"]
    assert len((await w.books()).events) == before
    assert await state(w, request_id) is RequestState.PENDING
    assert (await decisions.preview(w.ctx, Decide("made-up", facts(BOB)))).code == "unknown_button"


@pytest.mark.both_databases
async def test_an_approval_creates_what_it_covers_and_counts_once(w: World) -> None:
    request_id = await pending(w)
    assert (await w.decide(request_id)).code == "approved"
    for who in (BOB, CAROL):
        again = await w.decide(request_id, who)
        assert (again.ok, again.code) == (False, "already_approved")
        assert BOB.ref in again.sentence
    rejected = await w.decide(request_id, CAROL, "reject", reason="too late")
    assert rejected.code == "already_approved"
    books = await w.books()
    (approval,), (grant,), (session,), (instance,) = books.approvals, books.grants, books.sessions, books.instances
    option = next(o for o in books.options if o.id == approval.option_id)
    assert (approval.approver, approval.decision, option.rank) == (BOB.ref, "approve", 1)
    assert grant.price_cap_usd_h == (option.price_usd_h * Decimal("1.1")).quantize(Decimal("0.000001"))
    assert (grant.total_cap_usd, grant.state, grant.session_id) == (option.worst_usd, GrantState.OPEN, session.id)
    assert (instance.grant_id, instance.state) == (grant.id, InstanceState.READY)
    assert instance.name.endswith(instance.label)
    assert w.engine.creates == []
    await w.settle()


async def test_a_rejection_closes_the_request_with_its_reason(w: World) -> None:
    request_id = await pending(w)
    reply = await w.decide(request_id, CAROL, "reject", reason="use the cluster")
    assert reply.code == "rejected"
    view = await w.view(request_id)
    assert (view.request.state, view.request.outcome) == (RequestState.REJECTED, "use the cluster")
    assert view.request.decided_by == CAROL.ref
    assert (await w.decide(request_id)).code == "already_rejected"
    await w.settle()
    assert "request.result" in w.board.kinds(request_id)


async def test_two_approvers_take_the_option_that_the_first_one_fixed(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.10"))
    request_id = await pending(w)
    assert "Needs 2 approvals" in (await w.view(request_id)).request.rule
    assert (await w.decide(request_id, BOB, rank=2)).code == "first_of_two"
    assert (await w.decide(request_id, BOB, rank=2)).code == "already_voted"
    other = await w.decide(request_id, CAROL, rank=1)
    assert (other.ok, other.code) == (False, "other_offer")
    assert await state(w, request_id) is RequestState.PENDING
    assert (await w.books()).grants == ()
    assert (await w.decide(request_id, CAROL, rank=2)).code == "approved"
    books = await w.books()
    assert len({approval.option_id for approval in books.approvals}) == 1
    assert len(books.grants) == 1


async def test_the_second_approver_cannot_lift_the_limit_of_the_first(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.10"))
    request_id = await pending(w)
    assert (await w.decide(request_id, BOB, cap_usd=Decimal("0.50"))).code == "first_of_two"
    assert (await w.decide(request_id, CAROL, cap_usd=Decimal("0.60"))).code == "cap_raised"
    assert (await w.decide(request_id, CAROL)).code == "approved"
    assert (await w.books()).grants[0].total_cap_usd == Decimal("0.50")


@pytest.mark.both_databases
async def test_a_decision_whose_answer_was_lost_is_answered_as_done_and_never_taken_twice(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.10"), failover=False)
    request_id, unwanted = await pending(w, candidates=("vast",)), await pending(w, candidates=("vast",))
    gone = (await w.view(request_id)).options[0]

    async def call(who: Actor, key: str, of: str = request_id, reason: str = "") -> Reply:
        what, offer = (Decision.REJECT, None) if reason else (Decision.APPROVE, gone.offer_id)
        return await by_offer.decide(w.ctx, by_offer.Named(of, what, facts(who), offer, reason=reason, key=key))

    first = await asyncio.gather(*(call(BOB, "rest:1") for _ in range(3)))
    assert {one.code for one in first} == {"first_of_two"}
    assert (await call(BOB, "rest:2")).code == "already_voted"
    second = await call(CAROL, "rest:3")
    rejected = await call(BOB, "rest:4", unwanted, "too dear")
    assert (second.code, rejected.code) == ("approved", "rejected")
    before = await w.books()
    count = (len(before.events), len(before.approvals), len(before.grants), len(before.instances))
    for who, key, of, reason, was in (
        (BOB, "rest:1", request_id, "", first[0]),
        (CAROL, "rest:3", request_id, "", second),
        (BOB, "rest:4", unwanted, "too dear", rejected),
    ):
        again = await call(who, key, of, reason)
        assert (again.ok, again.code, again.sentence) == (True, was.code, was.sentence)
    assert (await call(CAROL, "rest:5")).code == "already_approved"
    after = await w.books()
    assert (len(after.events), len(after.approvals), len(after.grants), len(after.instances)) == count
    # What was approved is gone, and the request asks again with other offers: the old calls decide nothing about them.
    w.withdraw(gone)
    await w.settle()
    assert await state(w, request_id) is RequestState.PENDING
    assert (await call(BOB, "rest:1")).code == "first_of_two"
    assert (await call(CAROL, "rest:3")).code == "approved"
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version > 1) == (RequestState.PENDING, True)
    assert not [one for one in view.approvals if one.quote_version == view.request.quote_version]


@pytest.mark.both_databases
async def test_the_first_of_two_may_change_their_mind(w: World) -> None:
    w.tune(two_approvers_above_usd=Decimal("0.10"))
    request_id = await pending(w)
    assert (await w.decide(request_id, BOB)).code == "first_of_two"
    assert (await w.decide(request_id, BOB, "reject", reason="on second thoughts")).code == "rejected"
    assert await state(w, request_id) is RequestState.REJECTED


async def test_a_large_amount_is_typed_to_confirm(w: World) -> None:
    request_id = await pending(w, **BIG)
    view = await w.view(request_id)
    expected = view.options[0].expected_usd
    assert expected > 100
    asked = await w.decide(request_id)
    assert (asked.ok, asked.code) == (False, "amount_needed")
    for typed in ("", "12", "one hundred", f"{expected + 5:.2f}"):
        refused = await w.decide(request_id, typed_amount=typed)
        assert refused.code == ("amount_needed" if not typed else "amount_mismatch")
    assert (await w.books()).grants == ()
    assert (await w.decide(request_id, typed_amount=f"${expected:,.2f}")).code == "approved"
    assert (await w.books()).approvals[0].confirmed_usd == expected.quantize(Decimal("0.01"))


async def test_an_approver_may_lower_the_total_and_nobody_may_raise_it(w: World) -> None:
    request_id = await pending(w)
    worst = (await w.view(request_id)).options[0].worst_usd
    assert (await w.decide(request_id, cap_usd=worst + 1)).code == "cap_raised"
    assert (await w.decide(request_id, cap_usd=Decimal(0))).code == "bad_cap"
    assert (await w.decide(request_id, cap_usd=Decimal("NaN"))).code == "bad_cap"
    assert (await w.decide(request_id, cap_usd=Decimal("0.40"))).code == "approved"
    (grant,) = (await w.books()).grants
    assert grant.total_cap_usd == Decimal("0.40")


async def test_the_requesters_own_limit_caps_the_grant(w: World) -> None:
    limit = Decimal("0.90")
    request_id = await pending(w, budget_cap_usd=limit)
    view = await w.view(request_id)
    assert view.options[0].worst_usd > limit > view.options[0].expected_usd
    await w.decide(request_id)
    assert (await w.books()).grants[0].total_cap_usd == limit


async def test_the_requester_and_approvers_may_cancel_and_others_may_not(w: World) -> None:
    first, second = await pending(w), await pending(w)
    refused = await w.cancel(first, DAVE)
    assert (refused.ok, refused.code) == (False, "not_yours")
    assert (await w.cancel(first[-6:], ALICE, "not needed")).code == "cancelled"
    assert (await w.view(first)).request.outcome == "not needed"
    assert (await w.cancel(second, BOB)).code == "cancelled"
    assert (await w.cancel(second, BOB)).code == "already_cancelled"
    assert (await w.decide(first)).code == "already_cancelled"
    assert (await w.cancel("zzzzzz", ALICE)).code == "unknown_id"
    await w.settle()
    assert (await w.books()).grants == ()


async def test_an_approved_request_is_not_cancelled(w: World) -> None:
    request_id = await w.approved()
    assert (await w.cancel(request_id, ALICE)).code == "already_approved"


async def test_a_request_that_nobody_decides_expires(w: World) -> None:
    request_id = await pending(w)
    token = await w.token(request_id)
    w.clock.advance(w.ctx.policy.request_ttl_s)
    late = await decisions.decide(w.ctx, Decide(token, facts(BOB)))
    assert (late.ok, late.code) == (False, "already_expired")
    await w.settle()
    view = await w.view(request_id)
    assert view.request.state is RequestState.EXPIRED
    assert view.request.outcome == "Nobody approved it within 2 hours."
    assert (await decisions.decide(w.ctx, Decide(token, facts(BOB)))).code == "already_expired"
    assert "request.result" in w.board.kinds(request_id)


async def test_a_request_is_not_decided_while_it_is_quoted(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    token = await w.token(request_id)
    w.tune(failover=False)
    w.arm("create_stale_offer", "vast")
    await w.tick()
    assert await state(w, request_id) is RequestState.QUOTING
    assert (await decisions.decide(w.ctx, Decide(token, facts(CAROL)))).code == "quoting"


async def test_the_same_rules_hold_for_every_kind_of_actor(w: World) -> None:
    w.tune(approvers=("operator:ada", BOB.id))
    request_id = await pending(w)
    token = await w.token(request_id)

    async def click(actor: Actor) -> Reply:
        return await decisions.decide(w.ctx, Decide(token, replace(facts(BOB), actor=actor)))

    assert (await click(Actor(ActorKind.CONSUMER, "key1"))).code == "bot"
    assert (await click(Actor(ActorKind.OPERATOR, "eve"))).code == "not_an_approver"
    assert (await click(Actor(ActorKind.OPERATOR, "ada"))).code == "approved"
    assert (await w.view(request_id)).request.decided_by == "operator:ada"


async def test_an_option_of_a_cloud_that_is_gone_is_refused_and_another_one_is_not(w: World) -> None:
    request_id = await pending(w)
    view = await w.view(request_id)
    gone = view.options[0].cloud
    w.use({name: provider for name, provider in w.ctx.providers.items() if name != gone})
    refused = await w.decide(request_id)
    assert (refused.ok, refused.code) == (False, "cloud_gone")
    assert f"{gone} is no longer set up" in refused.sentence
    other = next(option.rank for option in view.options if option.cloud != gone)
    assert (await w.decide(request_id, rank=other)).code == "approved"
    assert (await w.view(request_id)).instances[0].cloud != gone


async def test_nobody_decides_what_they_asked_for_under_another_name(w: World) -> None:
    ada = Actor(ActorKind.OPERATOR, "ada")
    w.tune(approvers=(BOB.id, ada.ref), same_person=((ALICE.id, ada.ref),))
    request_id = str((await w.ask(ALICE)).data["request_id"])
    await w.settle()
    assert (await w.decide(request_id, ada)).code == "requester"
    assert (await w.cancel(request_id, ada)).code == "cancelled"


async def test_both_names_of_a_person_have_the_rights_of_each_and_approve_once(w: World) -> None:
    bob = Actor(ActorKind.OPERATOR, "bob")
    w.tune(
        approvers=(BOB.id, CAROL.id),
        two_approvers_above_usd=Decimal("0.01"),
        same_person=((BOB.id, bob.ref),),
        budget_admins=(bob.ref,),
    )
    request_id = str((await w.ask(ALICE)).data["request_id"])
    await w.settle()
    assert (await w.decide(request_id, bob)).code == "first_of_two"
    assert (await w.decide(request_id, BOB)).code == "already_voted"
    assert (await w.decide(request_id, CAROL)).code == "approved"


async def test_a_chain_of_names_is_one_person_who_approves_nothing_of_their_own(w: World) -> None:
    ada = Actor(ActorKind.OPERATOR, "ada")
    w.tune(approvers=(BOB.id,), same_person=((ALICE.id, ada.ref), (ada.ref, BOB.id)))
    request_id = str((await w.ask(ALICE)).data["request_id"])
    await w.settle()
    assert (await w.decide(request_id, BOB)).code == "requester"
