"""What a request asks for, in a few words: one sentence for each kind."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.values.job_text import title, what_is_requested
from ledger.kernel.job import GpuConstraint, JobRequest
from ledger.kernel.request_kind import RequestKind


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (RequestKind.PROVISION, "2× A100-80GB for 2 hours"),
        (RequestKind.EXTEND, "2 h more for 4k7m2p"),
        (RequestKind.OVERRIDE_12H, "12-hour override of request 4k7m2p"),
        (RequestKind.OVERSPEND, "4k7m2p costs more than approved"),
    ],
)
def test_every_kind_says_what_it_asks_for(kind: RequestKind, said: str) -> None:
    job = JobRequest(GpuConstraint(names=("A100-80GB",), count_min=2, count_max=2), Decimal(2))
    assert what_is_requested(kind, job, "req_01abcd4k7m2p") == said


def test_no_kind_is_forgotten() -> None:
    job = JobRequest(GpuConstraint(), Decimal(2))
    assert len({what_is_requested(kind, job, "req_01abcd4k7m2p") for kind in RequestKind}) == len(RequestKind)


def test_a_set_names_its_machines() -> None:
    job = JobRequest(GpuConstraint(names=("H100",), count_min=8, count_max=8), Decimal(2), nodes=3)
    assert title(job) == "3 machines of 8× H100 for 2 hours"
