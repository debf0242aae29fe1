"""Who may request, approve and hold a key: what Slack says of the person counts at every interface."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from bot.practice.model import User
from bot.practice.reader import all_text
from bot.rules.approvals.decision import DeciderFacts, Decision
from bot.rules.instances.power import PowerAction
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from bot.services.access.delegation import Delegate, delegate
from bot.services.approvals import break_glass, by_offer
from bot.services.approvals.break_glass import BreakGlass
from bot.services.instances import adoption, power
from bot.services.instances.adoption import Adopt
from bot.services.runtime.commands import Switch
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState
from tests.api.door import code_of, opened
from tests.services.runtime.test_recovery_mode import rowless
from tests.slack.conftest import Stage
from tests.slack.test_commands import private
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
ALICE, BOB = Actor(ActorKind.SLACK, "U0ALICE", HOME), Actor(ActorKind.OPERATOR, "bob")
LINKED = (("U0BOB", "operator:bob"),)


def change(stage: Stage, user: str, **values: Any) -> None:
    """Slack says something else of somebody from now on."""
    for name, value in values.items():
        setattr(stage.practice.workspace.users[user], name, value)
    stage.w.clock.advance(61)  # What Slack said is remembered for a minute.


async def begin(stage: Stage, **policy: Any) -> None:
    """Services that may look people up, with this policy."""
    await stage.replaced(**policy)
    stage.w.ctx = replace(stage.w.ctx, people=stage.door.ctx.people)


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
    request_id = str((await w.ask(ALICE, candidates=("vast",))).data["request_id"])
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
    request_id = str((await w.ask(ALICE, candidates=("vast",))).data["request_id"])
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


@pytest.mark.parametrize("code", INELIGIBLE)
@pytest.mark.slow
async def test_nobody_ineligible_extends_a_session_at_any_interface(stage: Stage, code: str) -> None:
    w = stage.w
    await begin(stage)
    bob = Actor(ActorKind.SLACK, "U0BOB", HOME)
    dave = Actor(ActorKind.SLACK, "U0DAVE", HOME)
    async with opened(w) as door:
        key = await door.key("atlas", "slack:U0DAVE")
        request_id = str((await w.ask(Actor(ActorKind.CONSUMER, "atlas"), candidates=("vast",))).data["request_id"])
        await w.settle()
        assert (await w.decide(request_id, bob)).ok
        await w.run(60, 20)
        session_id = (await w.books()).sessions[0].id
        change(stage, "U0DAVE", **INELIGIBLE[code])
        wanted = {"hours": 1, "reason": "more epochs"}
        refused = await door.call("POST", f"/sessions/{session_id}/extend", key, json=wanted)
        assert (refused.status_code, code_of(refused)) == (403, code)
        # The call was let in before Slack showed it; the service asks again.
        assert (await w.more(request_id, actor=Actor(ActorKind.CONSUMER, "atlas"))).code == code
        await stage.command("dave", f"/gpu extend {session_id[-6:]} 1h")
        assert "can't" in private(stage, "dave").text or "Only members" in private(stage, "dave").text
        assert [one for one in (await w.books()).requests if one.kind == "extend"] == []
        change(stage, "U0DAVE", deleted=False, is_bot=False, team_id=HOME, is_guest=False)
        assert (await w.more(request_id, actor=Actor(ActorKind.CONSUMER, "atlas"))).code == "extension_requested"
    assert (await w.end(request_id, dave)).ok
    await w.run(120, 30)


@pytest.mark.parametrize("code", INELIGIBLE)
@pytest.mark.slow
async def test_nobody_ineligible_starts_a_stopped_session_and_everybody_may_stop(stage: Stage, code: str) -> None:
    w, atlas = stage.w, Actor(ActorKind.CONSUMER, "atlas")
    await begin(stage)
    async with opened(w) as door:
        await door.key("atlas", "slack:U0DAVE")
    request_id = str((await w.ask(atlas, candidates=("runpod",))).data["request_id"])
    await w.settle()
    assert (await w.decide(request_id, Actor(ActorKind.SLACK, "U0BOB", HOME))).ok
    await w.run(60, 20)
    change(stage, "U0DAVE", **INELIGIBLE[code])
    assert (await power.switch(w.ctx, Switch(request_id, DeciderFacts(atlas), PowerAction.STOP))).ok
    await w.run(120, 30)
    start = Switch(request_id, DeciderFacts(atlas), PowerAction.START)
    assert (await power.switch(w.ctx, start)).code == code
    change(stage, "U0DAVE", deleted=False, is_bot=False, team_id=HOME, is_guest=False)
    assert (await power.switch(w.ctx, start)).ok
    assert (await w.end(request_id, atlas)).ok
    await w.run(120, 30)


@pytest.mark.parametrize("code", INELIGIBLE)
async def test_nobody_ineligible_adopts_an_orphan_or_gets_one(stage: Stage, code: str) -> None:
    w = stage.w
    await begin(stage, same_person=LINKED, approvers=("operator:bob",))
    lost = await rowless(w)
    alice = Actor(ActorKind.SLACK, "U0ALICE", HOME)
    adopt = Adopt(lost.id, Decimal(1), DeciderFacts(BOB), alice, "it trains", "C0GPU", "")
    for person in ("U0BOB", "U0ALICE"):
        change(stage, person, **INELIGIBLE[code])
        assert (await adoption.adopt_orphan(w.ctx, adopt)).code == code
        change(stage, person, deleted=False, is_bot=False, team_id=HOME, is_guest=False)
    assert (await w.books()).sessions == ()
    assert (await adoption.adopt_orphan(w.ctx, adopt)).code == "adopted"


@pytest.mark.parametrize("code", INELIGIBLE)
async def test_no_key_is_made_for_somebody_ineligible(stage: Stage, code: str) -> None:
    w = stage.w
    await begin(stage, same_person=LINKED)
    change(stage, "U0BOB", **INELIGIBLE[code])
    async with opened(w) as door:
        root = await door.key("operator:root", scopes=("admin",))
        for owner in ("slack:U0BOB", "operator:bob"):
            body = {"name": "atlas", "owner": owner}
            refused = await door.call("POST", "/keys", root, json=body)
            assert (refused.status_code, code_of(refused)) == (403, code)
        made = await door.call("POST", "/keys", root, json={"name": "atlas", "owner": "slack:U0CAROL"})
        assert made.status_code == 201
        wrong = await door.call("POST", "/keys", root, json={"name": "no name", "owner": "slack:U0CAROL"})
        assert wrong.status_code == 422
    own = NewKey("operator:bob")
    assert (await api_keys.issue(w.ctx, own, BOB)).code == code
    assert {one.actor for one in await api_keys.listing(w.ctx.db, w.clock.now())} == {"operator:root", "consumer:atlas"}


READS = ("list", "status {id}", "inventory 4090", "plan model=7b hours=2", "why {id}", "costs", "budget", "audit {id}")


async def test_guests_read_only_where_the_policy_lets_them(stage: Stage) -> None:
    w = stage.w
    await begin(stage)
    await stage.ask()
    other = str((await w.ask(Actor(ActorKind.SLACK, "U0CAROL", HOME), candidates=("vast",))).data["request_id"])
    await w.settle()
    own = next(one.id for one in (await w.books()).requests if one.id != other)
    change(stage, "U0ALICE", is_guest=True)
    for line in READS:
        await stage.command("alice", f"/gpu {line.format(id=own[-6:])}")
    refusals = [one.text for one in stage.ws.ephemerals("alice") if not one.text.startswith("Asking")]
    assert refusals == ["Guests can't use GPU Shopper. A full member can."] * len(READS)
    await stage.as_("alice").open_home()
    shown = await stage.ws.until(lambda: stage.ws.home("alice"))
    assert shown is not None
    home = all_text(shown)
    assert ("Guests can't use GPU Shopper" in home, "Your spend" in home) == (True, False)
    # What ends spending stays possible.
    await stage.command("alice", f"/gpu cancel {own[-6:]}")
    assert (await w.view(own)).request.state is RequestState.CANCELLED

    await stage.replaced(guests_may_request=True)
    await stage.command("alice", "/gpu list")
    assert "Guests" not in private(stage, "alice").text
    for line in ("status", "why"):
        await stage.command("alice", f"/gpu {line} {own[-6:]}")
        assert "ancelled" in all_text(private(stage, "alice"))
        await stage.command("alice", f"/gpu {line} {other[-6:]}")
        assert "There is no request" in private(stage, "alice").text
    await stage.as_("alice").open_home()
    await stage.ws.until(lambda: (v := stage.ws.home("alice")) and "Your spend" in all_text(v))
