"""What is wrong with a job from any source: each facet refuses with its own sentence."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.jobs.checks import check, check_secrets, facts_of
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from providers.capabilities import Capabilities
from providers.gpus.constraint import GpuConstraint

PLAIN = Capabilities(stop=True, spot=False, labels=True, balance=True, charges=True, logs=False)
CLOUDS = {
    "vast": PLAIN,
    "lambda": replace(PLAIN, fuse=True),
    "kaggle": replace(PLAIN, batch=True, single_node="its machines can't reach each other"),
    "runpod-volumes": replace(PLAIN, volume_gb=(10, 4000)),
}
JOB = JobRequest(GpuConstraint(("RTX4090",)), Decimal(2))
MOUNT = ("MOUNT /data s3://bucket/data",)


def refusal(clouds: dict[str, Capabilities] | None = None, *, agent_reaches: bool = True, **said: Any) -> str:
    job = replace(JOB, **said)
    able = CLOUDS if clouds is None else clouds
    wrong = check(job, facts_of(job, Policy(), able, agent_reaches=agent_reaches))
    return "" if wrong is None else f"{wrong.code}: {wrong.sentence}"


def test_a_job_that_is_right_passes() -> None:
    assert refusal() == ""
    assert refusal(candidates=("kaggle",), run="python train.py") == ""
    assert refusal(candidates=("lambda",), mounts=MOUNT) == ""
    assert refusal(candidates=("vast",), offer_id="vast:1", budget_cap_usd=Decimal(5)) == ""


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (
            {"candidates": ("tensordock", "runpod-volumes")},
            "unknown_cloud",
            "None of tensordock, runpod-volumes",
        ),
        ({"candidates": ("kaggle",)}, "run_missing", "kaggle runs one program and nothing else."),
        ({"budget_cap_usd": Decimal(0)}, "bad_amount", "must be above zero"),
        ({"max_price_usd_h": Decimal(-1)}, "bad_amount", "cannot be negative"),
        ({"min_reliability": Decimal(2)}, "bad_reliability", "is not a reliability"),
        ({"offer_id": "vast:1", "candidates": ("lambda",)}, "offer_elsewhere", "vast:1 is not at lambda."),
        ({"queue": ("python a.py",), "candidates": ("kaggle",)}, "agent_missing", "queue= needs GPU Shopper's agent"),
        ({"mounts": MOUNT, "candidates": ("vast",)}, "bad_mount", "MOUNT needs FUSE, which no machine at vast has."),
        ({"nodes": 2, "candidates": ("kaggle",), "run": "x"}, "bad_nodes", "kaggle can't rent 2 machines as one set"),
        ({"nodes": 9}, "bad_nodes", "A set has 2 to 4 machines"),
        ({"hours": Decimal(0)}, "not_positive", "The time must be above zero."),
        ({"reason": "x" * 5000}, "reason_too_long", "The reason has 5,000 characters"),
    ],
)
def test_each_facet_refuses_with_its_own_sentence(said: dict[str, Any], code: str, words: str) -> None:
    found = refusal(**said)
    assert found.startswith(f"{code}: ")
    assert words in found


def test_without_an_address_of_the_service_nothing_needs_the_agent() -> None:
    missing = "until GPU_SHOPPER_NODE_URL is set."
    assert missing in refusal(agent_reaches=False, run="x", attempts=3)
    assert missing in refusal(agent_reaches=False, queue=("x",))
    assert missing in refusal(agent_reaches=False, run="x", mounts=("COPY /data hf://org/model",))
    assert refusal(agent_reaches=False, run="x", mounts=("COPY /data s3://bucket/data",)) == ""


def test_a_set_is_refused_only_by_clouds_that_there_are() -> None:
    assert refusal({}, nodes=2, run="x") == ""
    shares = refusal({"kaggle": CLOUDS["kaggle"]}, nodes=2, queue=("x",), agent_reaches=True)
    assert "each of its offers is one machine" in shares


def test_every_text_of_a_job_is_checked_for_secrets() -> None:
    token = "hf_" + "A" * 34
    for name, said in (
        ("run=", {"run": token}),
        ("offer=", {"offer_id": token}),
        ("file_mounts", {"mounts": (token,)}),
    ):
        wrong = check_secrets(replace(JOB, **said))
        assert wrong is not None
        assert wrong.sentence.startswith(f"{name} contains")
    assert check_secrets(replace(JOB, reason=token)) is None, "a reason is checked as every reason is"
    assert check_secrets(JOB) is None
