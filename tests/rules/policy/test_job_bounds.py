"""The bounds of a job that counts machines."""

from __future__ import annotations

import pytest

from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from providers.gpus.constraint import GpuConstraint
from tests.rules.builders import job


@pytest.mark.parametrize(("nodes", "said"), [(0, "and not 0"), (5, "and not 5"), (-1, "and not -1")])
def test_a_set_has_two_to_four_machines(nodes: int, said: str) -> None:
    verdict = job_bounds.check(job(nodes=nodes), Policy())
    assert verdict is not None
    assert (verdict.code, said in verdict.sentence) == ("bad_nodes", True)


def test_the_gpus_of_all_machines_count() -> None:
    eight = GpuConstraint(("H100",), 8, 8)
    assert job_bounds.check(job(gpu=eight, nodes=2), Policy(max_gpus=16)) is None
    verdict = job_bounds.check(job(gpu=eight, nodes=3), Policy(max_gpus=16))
    assert verdict is not None
    assert verdict.sentence == "24 GPUs are above the limit of 16."


def test_several_machines_may_share_a_queue() -> None:
    assert job_bounds.check(job(nodes=2, queue=("python a.py",)), Policy()) is None
    verdict = job_bounds.check(job(nodes=5, queue=("python a.py",)), Policy())
    assert verdict is not None
    assert verdict.code == "bad_nodes"
