"""Who may decide what. Each refusal has its own stable code."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.approvals.approvers import ANYBODY, eligible_delegators
from bot.rules.approvals.authority import ApprovalPlan, Authority, plan
from bot.rules.approvals.decision import (
    DeciderFacts,
    Decision,
    DecisionInput,
    RequestFacts,
    is_requester,
    linked,
    verdict,
)
from bot.rules.policy.policy import Policy
from bot.rules.policy.validation import validated
from bot.rules.values.phrases import Verdict
from bot.rules.values.reply_code import ReplyCode
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import UNDECIDED, RequestState
from tests.rules.builders import NOW, usd

REQUESTER = Actor(ActorKind.SLACK, "U1", "T1")
BOSS = Actor(ActorKind.SLACK, "U2", "T1")
OTHER = Actor(ActorKind.SLACK, "U3", "T1")
POLICY = Policy(approvers=("U2",), approver_groups=("S1",), may_approve_not_pinged=("U3", "operator:ada"))
ONE = ApprovalPlan(required=1, rule="", confirm_amount=False, needs_override=False)
REQUEST = RequestFacts(
    state=RequestState.PENDING,
    requester=REQUESTER,
    quote_version=2,
    expires_at=NOW + timedelta(hours=1),
    expected_usd=Decimal("123.456"),
    worst_usd=Decimal(200),
)
APPROVE = DecisionInput(Decision.APPROVE, quote_version=2, offer_id="vast:1")
REJECT = DecisionInput(Decision.REJECT, quote_version=2, reason="too dear")
CANCEL = DecisionInput(Decision.CANCEL, quote_version=2)


def judge(
    what: DecisionInput = APPROVE,
    who: DeciderFacts | None = None,
    *,
    policy: Policy = POLICY,
    needed: ApprovalPlan = ONE,
    **request: Any,
) -> Verdict:
    """The verdict on a decision by the boss, unless You can't approve your own request."""
    return verdict(policy, needed, what, replace(REQUEST, **request), who or DeciderFacts(BOSS), NOW)


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────


def made(
    policy: Policy, worst: str, expected: str, hours: str = "6", state: RequestState | None = None
) -> ApprovalPlan:
    return plan(policy, Authority(Decimal(worst), Decimal(expected), Decimal(hours)), override_state=state)


def test_every_spend_needs_one_approver_by_default() -> None:
    found = made(Policy(), "0.01", "0.01")
    assert (found.required, found.confirm_amount, found.needs_override) == (1, False, False)
    assert found.rule == "Needs 1 approval."


def test_two_approvers_above_an_amount() -> None:
    policy = Policy(two_approvers_above_usd=Decimal(50))
    assert made(policy, "50", "40").required == 1
    found = made(policy, "50.01", "40")
    assert found.required == 2
    assert "$50.01 is above $50.00" in found.rule
    earlier = Authority(Decimal("49.01"), Decimal(60), Decimal(3))
    slice_of_it = plan(policy, Authority(Decimal(1), Decimal(41), Decimal(3)), earlier).rule
    assert "up to $50.01 in all is above $50.00" in slice_of_it
    assert "Above $100.00 the approver types the amount." in slice_of_it


def test_automatic_approval_is_off_until_the_policy_says_so() -> None:
    policy = Policy(auto_approve_below_usd=Decimal(5))
    assert made(policy, "4.99", "4").required == 0
    assert made(policy, "5", "4").required == 1


def test_what_must_be_confirmed_is_never_approved_automatically() -> None:
    policy = Policy(auto_approve_below_usd=Decimal(1000))
    assert made(policy, "300", "100").required == 0
    found = made(policy, "300", "100.01")
    assert (found.required, found.confirm_amount) == (1, True)
    assert "Above $100.00 the approver types the amount" in found.rule
    assert made(policy, "30", "10", "13", RequestState.APPROVED).required == 1


@pytest.mark.parametrize(
    ("hours", "state", "needed"),
    [
        ("12", None, False),
        ("12.5", None, True),
        ("12.5", RequestState.PENDING, True),
        ("12.5", RequestState.REJECTED, True),
        ("12.5", RequestState.APPROVED, False),
    ],
)
def test_more_hours_need_an_approved_override(hours: str, state: RequestState | None, needed: bool) -> None:
    found = made(Policy(), "5", "4", hours, state)
    assert found.needs_override is needed
    assert ("override" in found.rule) is needed


# ── who decides ──────────────────────────────────────────────────────────────────────────────────


def test_an_approver_approves() -> None:
    assert judge() == Verdict(True, ReplyCode.APPROVED, "You approved the request.")


@pytest.mark.parametrize(
    "who",
    [
        DeciderFacts(OTHER),
        DeciderFacts(Actor(ActorKind.SLACK, "U9", "T1"), groups=("S0", "S1")),
        DeciderFacts(Actor(ActorKind.OPERATOR, "ada")),
    ],
)
def test_those_listed_in_other_ways_approve_too(who: DeciderFacts) -> None:
    assert judge(who=who).allowed


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"known": False}, "lookup_failed"),
        ({"is_bot": True}, "bot"),
        ({"is_deleted": True}, "deleted"),
        ({"team_ok": False}, "other_team"),
        ({"is_guest": True}, "guest"),
    ],
)
@pytest.mark.parametrize("what", [APPROVE, REJECT, CANCEL])
def test_doubtful_people_decide_nothing(changes: dict[str, bool], code: str, what: DecisionInput) -> None:
    assert judge(what, DeciderFacts(BOSS, **changes)).code == code  # type: ignore[arg-type]


@pytest.mark.parametrize("what", [APPROVE, REJECT])
def test_an_outsider_decides_nothing(what: DecisionInput) -> None:
    assert judge(what, DeciderFacts(Actor(ActorKind.SLACK, "U8", "T1"), groups=("S7",))).code == "not_an_approver"


def test_an_operator_is_not_taken_for_a_slack_user_of_that_name() -> None:
    assert judge(who=DeciderFacts(Actor(ActorKind.OPERATOR, "U2"))).code == "not_an_approver"


def test_a_denial_wins_over_every_list() -> None:
    policy = replace(POLICY, never_approve=("U2",))
    boss = DeciderFacts(BOSS, groups=("S1",))
    assert judge(who=boss, policy=policy).code == "not_an_approver"
    # It is said of a person, under whichever of their names.
    by_another_name = replace(POLICY, never_approve=("operator:boss",), same_person=(("U2", "operator:boss"),))
    assert judge(who=boss, policy=by_another_name).code == "not_an_approver"
    behalf = DeciderFacts(BOSS, behalf=(DeciderFacts(Actor(ActorKind.SLACK, "U3", "T1")),))
    assert eligible_delegators(by_another_name, behalf, ANYBODY) == ()


@pytest.mark.parametrize("what", [APPROVE, REJECT])
@pytest.mark.parametrize(
    ("requester", "known_as"),
    [
        (BOSS, ()),
        (Actor(ActorKind.SLACK, "U2"), ()),
        (Actor(ActorKind.CONSUMER, "K1"), (BOSS,)),
    ],
)
def test_nobody_decides_what_they_asked_for(what: DecisionInput, requester: Actor, known_as: tuple[Actor, ...]) -> None:
    assert judge(what, requester=requester, linked=known_as).code == "requester"
    allowed = replace(POLICY, allow_self_approval=True)
    assert judge(what, policy=allowed, requester=requester, linked=known_as).allowed


def test_the_same_id_in_another_team_is_another_person() -> None:
    assert judge(requester=Actor(ActorKind.SLACK, "U2", "T9")).allowed


def test_self_approval_still_needs_an_approver() -> None:
    policy = replace(POLICY, allow_self_approval=True)
    assert judge(who=DeciderFacts(REQUESTER), policy=policy).code == "not_an_approver"


def test_decisions_in_slack_can_be_switched_off() -> None:
    policy = replace(POLICY, allow_slack_decisions=False)
    assert judge(policy=policy).code == "slack_off"
    assert judge(CANCEL, policy=policy).code == "slack_off"
    assert judge(who=DeciderFacts(Actor(ActorKind.OPERATOR, "ada")), policy=policy).allowed
    assert judge(CANCEL, DeciderFacts(REQUESTER), policy=policy).allowed


# ── the state of the request ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", sorted(set(RequestState) - UNDECIDED))
@pytest.mark.parametrize("what", [APPROVE, REJECT, CANCEL])
def test_what_is_closed_stays_closed(state: RequestState, what: DecisionInput) -> None:
    found = judge(what, state=state, decided_by="@ada")
    assert found.code == f"already_{state}"
    assert found.sentence.endswith("by @ada.")
    assert judge(what, state=state).sentence.endswith(("ed.", "offer."))


def test_what_is_being_quoted_can_only_be_cancelled() -> None:
    assert judge(state=RequestState.QUOTING).code == "quoting"
    assert judge(REJECT, state=RequestState.QUOTING).code == "quoting"
    assert judge(CANCEL, state=RequestState.QUOTING).allowed


def test_an_expired_request_can_only_be_cancelled() -> None:
    assert judge(expires_at=NOW).code == "already_expired"
    assert judge(REJECT, expires_at=NOW).code == "already_expired"
    assert judge(CANCEL, expires_at=NOW).allowed


def test_an_old_quote_cannot_be_approved_but_can_be_rejected() -> None:
    assert judge(quote_version=3).code == "quote_moved"
    assert judge(REJECT, quote_version=3).allowed


# ── approve ──────────────────────────────────────────────────────────────────────────────────────


def test_two_approvers_are_two_people_who_choose_the_same_offer() -> None:
    two = replace(ONE, required=2)
    assert judge(needed=two).code == "first_of_two"
    after: dict[str, Any] = {"approvals": (BOSS.ref,), "chosen_offer_id": "vast:1"}
    assert judge(needed=two, **after).code == "already_voted"
    second = DeciderFacts(OTHER)
    assert judge(who=second, needed=two, **after).code == "approved"
    elsewhere = replace(APPROVE, offer_id="vast:2")
    found = judge(elsewhere, second, needed=two, **after)
    assert found.code == "other_offer"
    assert "vast:1" in found.sentence


ADA = Actor(ActorKind.OPERATOR, "ada")
ONE_PERSON = validated(replace(POLICY, same_person=(("U2", "operator:ada"), ("U9", "consumer:K9"))))


def test_the_other_names_of_a_person_are_those_of_the_policy() -> None:
    assert linked(POLICY, BOSS) == ()
    assert linked(ONE_PERSON, BOSS) == (Actor(ActorKind.SLACK, "U2"), ADA)
    assert linked(ONE_PERSON, ADA) == (Actor(ActorKind.SLACK, "U2"),)
    assert linked(ONE_PERSON, OTHER) == ()


def test_one_person_with_two_names_is_one_of_two_approvers() -> None:
    two = replace(ONE, required=2)
    after: dict[str, Any] = {"approvals": (BOSS.ref,), "chosen_offer_id": "vast:1"}
    assert judge(who=DeciderFacts(ADA), needed=two, **after).code == "approved"
    assert judge(who=DeciderFacts(ADA), needed=two, policy=ONE_PERSON, **after).code == "already_voted"


def test_one_rejection_ends_it_even_after_an_approval() -> None:
    needed = replace(ONE, required=2)
    assert judge(REJECT, DeciderFacts(OTHER), needed=needed, approvals=(BOSS.ref,)).code == "rejected"


def test_the_override_is_decided_first() -> None:
    assert judge(needed=replace(ONE, needs_override=True)).code == "override_first"


@pytest.mark.parametrize(
    ("cap", "held", "code"),
    [
        ("200", None, "approved"),
        ("50", None, "approved"),
        ("200.01", None, "cap_raised"),
        ("50", "50", "approved"),
        ("50.01", "50", "cap_raised"),
        ("0", None, "bad_cap"),
        ("NaN", None, "bad_cap"),
    ],
)
def test_a_cap_is_lowered_and_never_raised(cap: str, held: str | None, code: str) -> None:
    what = replace(APPROVE, cap_usd=Decimal(cap))
    assert judge(what, cap_usd=None if held is None else Decimal(held)).code == code


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("123.46", "approved"),
        ("$123.46", "approved"),
        ("123", "approved"),
        (" 123.460 usd", "approved"),
        ("124", "amount_mismatch"),
        ("123.45", "amount_mismatch"),
        ("yes", "amount_mismatch"),
        ("", "amount_needed"),
        (None, "amount_needed"),
    ],
)
def test_the_amount_is_typed_to_the_cent_or_in_whole_dollars(typed: str | None, code: str) -> None:
    found = judge(replace(APPROVE, typed_amount=typed), needed=replace(ONE, confirm_amount=True))
    assert found.code == code
    assert found.allowed or "type 123.46 or 123" in found.sentence


# ── reject and cancel ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reason", "code"),
    [("too dear", "rejected"), ("  ", "reason_needed"), ("x" * 500, "rejected"), ("x" * 501, "reason_too_long")],
)
def test_a_rejection_has_a_reason(reason: str, code: str) -> None:
    assert judge(replace(REJECT, reason=reason)).code == code


def test_the_requester_and_approvers_cancel_and_nobody_else() -> None:
    assert judge(CANCEL, DeciderFacts(REQUESTER)) == Verdict(True, ReplyCode.CANCELLED, "You cancelled the request.")
    assert judge(CANCEL).allowed
    assert judge(CANCEL, DeciderFacts(Actor(ActorKind.SLACK, "U8", "T1"))).code == "not_yours"


# ── over everything ──────────────────────────────────────────────────────────────────────────────

ACTORS = st.builds(
    Actor,
    st.sampled_from(ActorKind),
    st.sampled_from(["U1", "U2", "U3", "U8", "ada"]),
    st.sampled_from(["", "T1", "T2"]),
)
DECIDERS = st.builds(
    DeciderFacts,
    ACTORS,
    team_ok=st.booleans(),
    is_bot=st.booleans(),
    is_deleted=st.booleans(),
    is_guest=st.booleans(),
    groups=st.sampled_from([(), ("S1",), ("S7",)]),
    known=st.booleans(),
)
INPUTS = st.builds(
    DecisionInput,
    st.sampled_from(Decision),
    quote_version=st.integers(1, 3),
    offer_id=st.sampled_from(["vast:1", "vast:2"]),
    typed_amount=st.none() | st.text(max_size=8) | st.just("123.46"),
    cap_usd=st.none() | usd(300),
    reason=st.text(max_size=12),
)
REQUESTS = st.builds(
    replace,
    st.just(REQUEST),
    state=st.sampled_from(RequestState),
    requester=ACTORS,
    expires_at=st.sampled_from([NOW, NOW + timedelta(seconds=1)]),
    approvals=st.sampled_from([(), (BOSS.ref,)]),
)
PLANS = st.builds(ApprovalPlan, st.integers(0, 2), st.just(""), st.booleans(), st.booleans())


@given(what=INPUTS, who=DECIDERS, request=REQUESTS, needed=PLANS)
def test_whatever_is_allowed_was_allowed_by_every_rule(
    what: DecisionInput, who: DeciderFacts, request: RequestFacts, needed: ApprovalPlan
) -> None:
    found = verdict(POLICY, needed, what, request, who, NOW)
    assert found.sentence.endswith(".")
    if not found.allowed:
        return
    assert who.known
    assert who.team_ok
    assert (who.is_bot, who.is_deleted) == (False, False)
    # A guest may withdraw their own request, as everybody may.
    assert not who.is_guest or (what.decision is Decision.CANCEL and is_requester(request, who.actor))
    assert request.state in UNDECIDED
    assert request.state is not RequestState.WAITING or what.decision is not Decision.APPROVE
    if what.decision is not Decision.CANCEL:
        assert (who.actor.kind, who.actor.id, who.actor.team) != (
            request.requester.kind,
            request.requester.id,
            request.requester.team,
        )
        assert request.expires_at > NOW
    if what.decision is Decision.APPROVE:
        assert what.quote_version == request.quote_version
        assert not needed.needs_override
        assert not needed.confirm_amount or what.typed_amount == "123.46" or "123" in (what.typed_amount or "")
        assert what.cap_usd is None or what.cap_usd <= request.worst_usd
