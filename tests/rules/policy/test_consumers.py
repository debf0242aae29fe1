"""What the policy allows one program, and what a job fetches before it runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from bot.rules.approvals.auto_approval import applied, signer
from bot.rules.jobs import consumer_limits
from bot.rules.jobs.consumer_limits import NotAllowed
from bot.rules.jobs.job import JobRequest
from bot.rules.policy import consumers
from bot.rules.policy.consumers import ConsumerPolicy
from bot.rules.policy.policy import Policy
from bot.rules.policy.validation import validated
from ledger.kernel.actor import Actor, ActorKind
from providers.gpus.constraint import GpuConstraint

ATLAS = Actor(ActorKind.CONSUMER, "atlas")
ADA = Actor(ActorKind.OPERATOR, "ada")
LIMITS = ConsumerPolicy(clouds=("vast", "runpod"), gpus=("4090", "a100"), max_hours=Decimal(4))


def job(*names: str, hours: int = 2, clouds: tuple[str, ...] = ()) -> JobRequest:
    return JobRequest(GpuConstraint(names, 1, 1), Decimal(hours), candidates=clouds)


def test_what_is_left_open_is_what_the_policy_allows() -> None:
    found = consumer_limits.narrowed(job(), LIMITS, "atlas")
    assert found.candidates == ("vast", "runpod")
    assert found.gpu.names[0] == "RTX4090"
    assert {"A100-SXM-80GB", "A100-PCIE-40GB"} <= set(found.gpu.names)
    only = ConsumerPolicy(gpus=("4090",))
    assert consumer_limits.narrowed(job(clouds=("lambda",)), only, "atlas").candidates == ("lambda",)
    found = consumer_limits.narrowed(job("RTX4090", clouds=("lambda", "runpod")), LIMITS, "atlas")
    assert (found.candidates, found.gpu.names) == (("runpod",), ("RTX4090",))
    assert consumer_limits.narrowed(replace(job(), offer_id="vast:1"), LIMITS, "atlas").gpu.names[0] == "RTX4090"
    asked = job("H100-SXM", hours=100)
    assert consumer_limits.narrowed(asked, ConsumerPolicy(), "atlas") == asked


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (job("RTX4090", clouds=("lambda",)), "cloud_not_allowed"),
        (job("H100-SXM"), "gpu_not_allowed"),
        (job("RTX4090", hours=5), "too_long"),
        (replace(job("RTX4090"), offer_id="lambda:1"), "cloud_not_allowed"),
        (replace(job("RTX4090", clouds=("vast",)), offer_id="lambda:1"), "cloud_not_allowed"),
    ],
)
def test_what_is_outside_is_refused(asked: JobRequest, code: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        consumer_limits.narrowed(asked, LIMITS, "atlas")
    assert refused.value.code == code


def test_limits_are_of_programs_that_are_named() -> None:
    named = {"atlas": LIMITS, "ada": LIMITS}
    assert consumers.of(named, ATLAS) is LIMITS
    assert consumers.of(named, ADA) is None
    assert consumers.of({}, ATLAS) is None


def test_a_policy_with_programs_is_checked() -> None:
    validated(Policy(consumers={"atlas": LIMITS}))
    for wrong, said in (
        (ConsumerPolicy(gpus=("nonsense",)), "is not a GPU"),
        (ConsumerPolicy(max_hours=Decimal(0)), "max_hours must be above 0"),
        (ConsumerPolicy(auto_approve_below_usd=Decimal(1)), "needs auto_approve_signed_by"),
        (ConsumerPolicy(auto_approve_below_usd=Decimal(1), auto_approve_signed_by="Ada"), "auto_approve_until"),
    ):
        with pytest.raises(ValueError, match=said):
            validated(Policy(consumers={"atlas": wrong}))


def test_a_standing_approval_of_a_program_is_its_own() -> None:
    own = ConsumerPolicy(
        auto_approve_below_usd=Decimal(3), auto_approve_until=date(2026, 12, 31), auto_approve_signed_by="Ada"
    )
    policy = Policy(consumers={"atlas": own, "hermes": ConsumerPolicy()}, auto_approve_below_usd=Decimal(9))
    found, name = applied(policy, ATLAS)
    assert (found.auto_approve_below_usd, found.auto_approve_signed_by, name) == (Decimal(3), "Ada", "atlas")
    assert signer(found, name).id.startswith("policy-atlas-")
    assert applied(policy, ADA) == (policy, "")
    hermes, _ = applied(policy, Actor(ActorKind.CONSUMER, "hermes"))
    assert hermes.auto_approve_below_usd is None  # Named and not signed for: a person decides.
