"""Who may request, approve and hold a key: what Slack says of the person counts at every interface."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from bot.practice.model import User
from bot.rules.approvals.decision import DeciderFacts, Decision
from bot.services.access.delegation import Delegate, delegate
from bot.services.approvals import break_glass, by_offer
from bot.services.approvals.break_glass import BreakGlass
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState
from tests.api.door import code_of, opened
from tests.slack.conftest import Stage
from tests.slack.test_identity import HOME

BY_POLICY = {
    "auto_approve_below_usd": Decimal(50),
    "auto_approve_daily_usd": Decimal(500),
    "auto_approve_signed_by": "Finance",
    "auto_approve_until": date(2027, 1, 1),
}
INELIGIBLE: dict[str, dict[str, Any]] = {
    "deleted": {"deleted": True},
    "bot": {"is_bot": True},
    "other_team": {"team_id": "T0OTHER"},
    "guest": {"is_guest": True},
}
BOB = Actor(ActorKind.OPERATOR, "bob")
LINKED = (("U0BOB", "operator:bob"),)


def change(stage: Stage, user: str, **values: Any) -> None:
    """Slack says something else of somebody from now on."""
    for name, value in values.items():
        setattr(stage.practice.workspace.users[user], name, value)
    stage.w.clock.advance(61)  # What Slack said is remembered for a minute.


async def begin(stage: Stage, **policy: Any) -> None:
    """Services that may look people up, with this policy."""
    await stage.replaced(**policy)
    stage.w.ctx = replace(stage.w.ctx, people=stage.door.people)


@pytest.mark.parametrize("code", INELIGIBLE)
async def test_nobody_ineligible_requests_for_themselves_or_by_a_program(stage: Stage, code: str) -> None:
    w = stage.w
    await begin(stage, **BY_POLICY)
    stage.practice.workspace.add_user(User("U0LEFT", "left", "Left", "left@practice.example", **INELIGIBLE[code]))
    for actor in (Actor(ActorKind.SLACK, "U0LEFT", HOME), Actor(ActorKind.SLACK, "U0LEFT")):
        assert (await w.ask(actor, candidates=("vast",))).code == code
    assert (await w.books()).requests == ()
    change(stage, "U0BOB", **INELIGIBLE[code])
    async with opened(w) as door:
        key = await door.key("atlas", "slack:U0BOB")
        refused = await door.call("POST", "/sessions", key, json={"gpu": "RTX4090", "hours": 2})
        assert (refused.status_code, code_of(refused)) == (403, code)
        assert (await w.ask(Actor(ActorKind.CONSUMER, "atlas"), candidates=("vast",))).code == code


async def test_the_policy_approves_nothing_of_somebody_who_left_meanwhile(stage: Stage) -> None:
    w, alice = stage.w, Actor(ActorKind.SLACK, "U0ALICE", HOME)
    await begin(stage, **BY_POLICY)
    allowed = str((await w.ask(alice, candidates=("vast",))).data["request_id"])
    await w.settle()
    assert (await w.view(allowed)).request.state is RequestState.APPROVED
    left = str((await w.ask(alice, candidates=("vast",))).data["request_id"])
    change(stage, "U0ALICE", deleted=True)
    await w.settle()
    change(stage, "U0ALICE", deleted=False)
    unsure = str((await w.ask(alice, candidates=("vast",))).data["request_id"])
    stage.fault("users.info", "error", times=9)
    w.clock.advance(61)
    await w.settle()
    for request_id in (left, unsure):
        request = (await w.view(request_id)).request
        assert (request.state, request.required_approvals) == (RequestState.PENDING, 1)
        assert "Slack doesn't show the requester as a member" in request.rule


async def test_guests_request_where_the_policy_lets_them_and_spend_nothing_alone(stage: Stage) -> None:
    w, alice = stage.w, Actor(ActorKind.SLACK, "U0ALICE", HOME)
    await begin(stage, **BY_POLICY, guests_may_request=True)
    change(stage, "U0ALICE", is_guest=True)
    asked = await w.ask(alice, candidates=("vast",))
    assert asked.ok
    await w.settle()
    assert (await w.view(str(asked.data["request_id"]))).request.state is RequestState.PENDING


@pytest.mark.parametrize("code", INELIGIBLE)
async def test_a_key_or_a_shell_approves_only_for_somebody_who_is_still_a_member(stage: Stage, code: str) -> None:
    w = stage.w
    await begin(stage, same_person=LINKED, approvers=("operator:bob",), break_glass=("operator:bob",))
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    own = str((await w.ask(BOB, candidates=("vast",))).data["request_id"])
    await w.settle()
    offer_id = (await w.view(request_id)).options[0].offer_id
    async with opened(w) as door:
        key = await door.key("operator:bob")
        assert (await door.call("GET", "/requests", key)).status_code == 200
        change(stage, "U0BOB", **INELIGIBLE[code])
        refused = await door.call("POST", f"/requests/{request_id}/reject", key, json={"reason": "No."})
        assert (refused.status_code, code_of(refused)) == (403, code)
        assert (await door.call("GET", "/requests", key)).status_code == 403
    named = by_offer.Named(request_id, Decision.APPROVE, DeciderFacts(BOB), offer_id=offer_id)
    assert (await by_offer.decide(w.ctx, named)).code == code
    alone = BreakGlass(own, DeciderFacts(BOB), "It cannot wait.")
    assert (await break_glass.break_glass(w.ctx, alone)).code == "no_break_glass"
    day = w.clock.now().date()
    passed_on = Delegate(DeciderFacts(BOB), Actor(ActorKind.SLACK, "U0DAVE"), day)
    assert (await delegate(w.ctx, passed_on)).code == "not_an_approver"
    change(stage, "U0BOB", deleted=False, is_bot=False, team_id=HOME, is_guest=False)
    change(stage, "U0DAVE", **INELIGIBLE[code])
    assert (await delegate(w.ctx, passed_on)).code == "bad_delegate"
    # While Slack says nothing, nothing is approved; and it is approved when it answers again.
    stage.fault("users.info", "error", times=1)
    w.clock.advance(61)
    assert (await by_offer.decide(w.ctx, named)).code == "lookup_failed"
    assert (await by_offer.decide(w.ctx, named)).code == "approved"


async def test_nobody_stands_in_for_an_operator_who_left(stage: Stage) -> None:
    w = stage.w
    await begin(stage, same_person=LINKED, approvers=("operator:bob",))
    dave = Actor(ActorKind.OPERATOR, "dave")
    assert (await delegate(w.ctx, Delegate(DeciderFacts(BOB), dave, w.clock.now().date()))).ok
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    await w.settle()
    offer_id = (await w.view(request_id)).options[0].offer_id
    named = by_offer.Named(request_id, Decision.APPROVE, DeciderFacts(dave), offer_id=offer_id)
    change(stage, "U0BOB", deleted=True)
    assert (await by_offer.decide(w.ctx, named)).code == "not_an_approver"
    change(stage, "U0BOB", deleted=False)
    assert (await by_offer.decide(w.ctx, named)).code == "approved"


async def test_a_silent_slack_stops_no_call_of_a_key(stage: Stage) -> None:
    await begin(stage, same_person=LINKED)
    stage.fault("users.info", "error", times=99)
    async with opened(stage.w) as door:
        key = await door.key("operator:bob")
        assert [(await door.call("GET", "/requests", key)).status_code for _ in range(3)] == [200, 200, 200]
    assert len(stage.calls("users.info")) == 1
