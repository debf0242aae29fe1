"""Tiers at work: the group of a spend decides, a second door is no second person, and what waits goes on to others."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from bot.rules.policy.tiers import ApprovalTier
from bot.services.approvals import explanation
from bot.services.requests import expiry
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState
from tests.services.requests.test_expiry import asked, pass_time, reminders
from tests.support.world import ALICE, BOB, CAROL, DAVE, World

ERIN = Actor(ActorKind.SLACK, "UERIN", "T1")
ADA = Actor(ActorKind.OPERATOR, "ada")
GROUPS = {"finance": (CAROL.id, ADA.ref, DAVE.id), "directors": (ERIN.id,)}


async def test_a_tier_names_its_group_its_number_and_the_next_one(w: World) -> None:
    large = ApprovalTier("large", "finance", 2, above_usd=Decimal("0.10"), then=("directors",))
    w.tune(
        approvers=(BOB.id,),
        approval_groups=GROUPS,
        approval_tiers=(large,),
        same_person=((CAROL.id, ADA.ref),),
        auto_approve_below_usd=Decimal(5),
        auto_approve_signed_by="UBOSS",
    )
    request_id = await asked(w)
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING  # A tier is for people: the auto-approval leaves it alone.
    assert view.request.rule.startswith("Tier large: needs 2 approvals from finance, because up to $")
    assert (await w.decide(request_id, BOB)).code == "other_group"
    assert (await w.decide(request_id, ERIN)).code == "other_group"
    assert (await w.decide(request_id, BOB, "reject", reason="no")).code == "other_group"
    assert (await w.decide(request_id, CAROL)).code == "first_of_two"
    # The same person at another door counts once, whichever way round.
    assert (await w.decide(request_id, ADA)).code == "already_voted"
    found = await explanation.why(w.ctx, request_id)
    assert (found.tier, found.group, found.required, found.given) == ("large", "finance", 2, (CAROL.ref,))
    assert found.approvers == (CAROL.id, DAVE.id)  # One name for each person.
    assert any("UTC directors can approve too: slack:UERIN" in sentence for sentence in found.sentences)
    assert (await w.decide(request_id, DAVE)).code == "approved"
    assert "It was approved by" in " ".join((await explanation.why(w.ctx, request_id)).sentences)
    await w.settle()


@pytest.mark.both_databases
@pytest.mark.slow
async def test_what_nobody_decides_goes_on_once_and_a_restart_repeats_nothing(w: World) -> None:
    w.tune(approval_groups=GROUPS, escalate_to=("directors", "finance"), escalate_after_s=1800)
    request_id = await asked(w)
    assert (await w.decide(request_id, ERIN)).code == "other_group"
    await pass_time(w, 900)
    assert reminders(w) == [(f"{request_id}/1.1", 1)]
    w.clock.advance(900)
    replicas = [w.replica() for _ in range(2)]
    await asyncio.gather(*(expiry.expire_due(one.ctx) for one in (w, *replicas)))
    for one in replicas:
        await one.ctx.db.close()
    await w.settle()
    assert reminders(w)[1:] == [(f"{request_id}/1.e1", 1)]
    # Two hours in, a reminder and a group were missed: one message, to everybody.
    await pass_time(w, 1800)
    await pass_time(w, 60)
    assert reminders(w)[2:] == [(f"{request_id}/1.e2", 1)]
    await pass_time(w, 6300 - 3660)
    assert reminders(w)[3:] == [(f"{request_id}/1.3", 1)]
    found = await explanation.why(w.ctx, request_id)
    assert "directors can approve too, because it has waited so long." in found.sentences
    assert (await w.decide(request_id, ALICE)).code == "requester"
    assert (await w.decide(request_id, ERIN)).code == "approved"
    kinds = [event.kind for event in (await w.books()).events if event.subject == request_id]
    assert kinds.count("request.escalated") == 2
    await w.settle()


async def test_teams_and_more_hours_have_their_tiers(w: World) -> None:
    lab = ApprovalTier("lab", "finance", team="research")
    w.tune(approval_groups=GROUPS, approval_tiers=(lab,), teams={"research": (ALICE.id,)}, may_approve_not_pinged=())
    other, own = await asked(w), await asked(w, hours=Decimal(24), candidates=("vast",))
    override = (await w.view(own)).override
    assert override is not None
    assert (await w.decide(override.id, BOB)).code == "other_group"
    assert (await w.decide(override.id, CAROL)).code == "approved"
    assert (await w.decide(other, BOB)).code == "other_group"
    assert (await w.decide(other, CAROL)).code == "approved"
    await w.settle()
    await w.run(40, 20)
    more = await w.more(other)
    assert more.code == "extension_requested"
    extension = str(more.data["request_id"])
    assert (await w.view(extension)).request.rule.startswith("Tier lab: needs 1 approval from finance")
    assert (await w.decide(extension, BOB)).code == "other_group"
    assert (await w.decide(extension, CAROL)).code == "approved"
    w.tune(may_approve_not_pinged=(BOB.id,), allow_slack_decisions=False)
    told = " ".join((await explanation.why(w.ctx, own)).sentences)
    assert "These approvers get no message: slack:UBOB." in told
    assert "You can't approve or reject in Slack here" in told
    assert (await w.decide(own, BOB)).code == "slack_off"
