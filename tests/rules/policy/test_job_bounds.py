"""The bounds of a job that counts machines."""

from __future__ import annotations

import pytest

from bot.rules.jobs.checks import check, facts_of
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from providers.gpus.constraint import GpuConstraint
from tests.rules.builders import job


def checked(asked: JobRequest, policy: Policy) -> BoundsVerdict | None:
    return check(asked, facts_of(asked, policy, {}, agent_reaches=True))


@pytest.mark.parametrize(("nodes", "said"), [(0, "and not 0"), (5, "and not 5"), (-1, "and not -1")])
def test_a_set_has_two_to_four_machines(nodes: int, said: str) -> None:
    verdict = checked(job(nodes=nodes), Policy())
    assert verdict is not None
    assert (verdict.code, said in verdict.sentence) == ("bad_nodes", True)


def test_the_gpus_of_all_machines_count() -> None:
    eight = GpuConstraint(("H100",), 8, 8)
    assert checked(job(gpu=eight, nodes=2), Policy(max_gpus=16)) is None
    verdict = checked(job(gpu=eight, nodes=3), Policy(max_gpus=16))
    assert verdict is not None
    assert verdict.sentence == "24 GPUs are above the limit of 16."


def test_several_machines_may_share_a_queue() -> None:
    assert checked(job(nodes=2, queue=("python a.py",)), Policy()) is None
    verdict = checked(job(nodes=5, queue=("python a.py",)), Policy())
    assert verdict is not None
    assert verdict.code == "bad_nodes"
