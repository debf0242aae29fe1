"""What operators read about an edit of the policy: each setting that differs, and nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

from bot.rules.policy.changes import changes
from bot.rules.policy.consumers import ConsumerPolicy
from bot.rules.policy.defaults import frozen
from bot.rules.policy.policy import Policy
from bot.rules.policy.tiers import ApprovalTier

BEFORE = Policy(approvers=("U0BOB01", "operator:ada"))


def test_an_equal_policy_changes_nothing() -> None:
    assert changes(BEFORE, replace(BEFORE)) == ()


def test_who_may_spend_comes_first_with_names_that_a_message_mentions() -> None:
    after = replace(
        BEFORE,
        runway_hours=Decimal(24),
        approvers=("operator:ada", "U0ALICE"),
        allow_self_approval=True,
        two_approvers_above_usd=Decimal(500),
    )
    assert changes(BEFORE, after) == (
        "approvers: adds slack:U0ALICE; removes slack:U0BOB01.",
        "allow_self_approval: on instead of off.",
        "two_approvers_above_usd: 500 instead of none.",
        "runway_hours: 24 instead of 12.",
    )


def test_tables_say_which_entries_changed() -> None:
    before = replace(
        BEFORE, budgets=frozen(**{"global": frozen(daily=Decimal(50)), "user:*": frozen(daily=Decimal(9))})
    )
    after = replace(
        before, budgets=frozen(**{"global": frozen(daily=Decimal(900)), "team:x": frozen(total=Decimal(1))})
    )
    assert changes(before, after) == (
        "budgets: adds team:x (total 1); changes global (daily 900 instead of daily 50); removes user:*.",
    )


def test_tiers_programs_and_people_with_two_names_are_written_in_words() -> None:
    after = replace(
        BEFORE,
        approval_tiers=(ApprovalTier(name="large", above_usd=Decimal(200), approvals=2, group="approvers"),),
        same_person=(("U0ALICE", "operator:alice"),),
        consumers=frozen(atlas=ConsumerPolicy(max_hours=Decimal(4))),
    )
    said = " ".join(changes(BEFORE, after))
    assert "same_person: adds slack:U0ALICE and operator:alice." in said
    assert "name large" in said
    assert "consumers: adds atlas (max_hours 4" in said


def test_the_words_of_presets_are_not_repeated() -> None:
    after = replace(BEFORE, presets=frozen(nightly="1x4090 1h run='curl https://x?X-Amz-Signature=5'"))
    assert changes(BEFORE, after) == ("presets: adds nightly.",)


def test_an_order_that_matters_is_said() -> None:
    after = replace(BEFORE, approvers=("operator:ada", "U0BOB01"))
    assert changes(BEFORE, after) == ("approvers: the order is operator:ada, slack:U0BOB01.",)


def test_every_setting_is_compared() -> None:
    for item in fields(Policy):
        value: dict[str, Any] = {item.name: object()}
        odd = replace(BEFORE, **value)
        assert [one.split(":")[0] for one in changes(BEFORE, odd)] == [item.name]
