"""Whose key it may be, and what it may do."""

from __future__ import annotations

import pytest

from bot.rules.access.scopes import FOR_PEOPLE, MEANING, PLAIN, TOKEN, BadHolder, Scope, holder, scopes
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.policy.policy import Policy
from ledger.kernel.actor import Actor, ActorKind
from tests.rules.approvals.test_decision import APPROVE, CANCEL, REJECT, judge


@pytest.mark.parametrize(
    ("name", "owner", "actor", "answers"),
    [
        ("atlas", "U012AB3CD", "consumer:atlas", "slack:U012AB3CD"),
        ("consumer:atlas", "slack:T1/U012AB3CD", "consumer:atlas", "slack:T1/U012AB3CD"),
        ("a.b-c_9", "operator:ada", "consumer:a.b-c_9", "operator:ada"),
        ("operator:ada", "", "operator:ada", "operator:ada"),
        ("operator:ada", "operator:ada", "operator:ada", "operator:ada"),
    ],
)
def test_a_holder_and_the_person_behind_it(name: str, owner: str, actor: str, answers: str) -> None:
    found = holder(name, owner)
    assert (found.actor.ref, found.owner.ref) == (actor, answers)
    assert found.is_person is name.startswith("operator:")


@pytest.mark.parametrize(
    ("name", "owner", "code"),
    [
        ("", "U012AB3CD", "bad_consumer"),
        ("Atlas", "U012AB3CD", "bad_consumer"),
        ("a" * 41, "U012AB3CD", "bad_consumer"),
        ("a/b", "U012AB3CD", "bad_consumer"),
        ("system:ticker", "U012AB3CD", "bad_consumer"),
        ("slack:U012AB3CD", "", "bad_consumer"),
        ("atlas", "", "bad_owner"),
        ("atlas", "ada", "bad_owner"),
        ("atlas", "consumer:hermes", "bad_owner"),
        ("atlas", "system:ticker", "bad_owner"),
        ("operator:ada", "operator:ben", "bad_owner"),
    ],
)
def test_nobody_answers_for_nobody(name: str, owner: str, code: str) -> None:
    with pytest.raises(BadHolder) as refused:
        holder(name, owner)
    assert refused.value.code == code


def test_decisions_belong_to_people() -> None:
    program, person = holder("atlas", "operator:ada"), holder("operator:ada", "")
    assert scopes((), program) == PLAIN
    assert scopes((), person) == (*PLAIN, Scope.APPROVALS_WRITE)
    assert FOR_PEOPLE.isdisjoint(PLAIN)
    assert set(MEANING) == set(Scope)
    assert scopes(("admin", "admin"), person) == (Scope.ADMIN,)
    for said, of, code in (
        (("approvals:write",), program, "scope_for_people"),
        (("market:read", "admin"), program, "scope_for_people"),
        (("everything",), person, "bad_scope"),
    ):
        with pytest.raises(BadHolder) as refused:
            scopes(said, of)
        assert refused.value.code == code


def test_a_program_decides_nothing_whatever_the_policy_says() -> None:
    """It may withdraw what it asked for, and that is all."""
    atlas = Actor(ActorKind.CONSUMER, "atlas")
    policy = Policy(approvers=(atlas.ref,), allow_self_approval=True)
    for what, code in ((APPROVE, "bot"), (REJECT, "bot"), (CANCEL, "cancelled")):
        assert judge(what, DeciderFacts(atlas), policy=policy, requester=atlas).code == code


@pytest.mark.parametrize("text", ["", "gpuk_", "gpuk_0123456789ab_short", "gpuk_0123456789ai_" + "a" * 43])
def test_what_is_no_key(text: str) -> None:
    assert TOKEN.fullmatch(text) is None
