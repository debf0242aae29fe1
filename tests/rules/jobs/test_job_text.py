"""What a request asks for, in a few words: one sentence for each kind."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.job_text import days, gpus, machine, title, what_is_requested
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.volume_name import VOLUME
from providers.gpus.constraint import GpuConstraint


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (RequestKind.PROVISION, "2× A100-80GB for 2 hours"),
        (RequestKind.EXTEND, "2 h more for 4k7m2p"),
        (RequestKind.OVERRIDE_12H, "8-hour override of request 4k7m2p"),
        (RequestKind.OVERSPEND, "4k7m2p costs more than approved"),
    ],
)
def test_every_kind_says_what_it_asks_for(kind: RequestKind, said: str) -> None:
    job = JobRequest(GpuConstraint(names=("A100-80GB",), count_min=2, count_max=2), Decimal(2))
    assert what_is_requested(kind, job, "req_01abcd4k7m2p", Decimal(8)) == said


def test_no_kind_is_forgotten() -> None:
    job = JobRequest(GpuConstraint(), Decimal(2))
    assert len({what_is_requested(kind, job, "req_01abcd4k7m2p") for kind in RequestKind}) == len(RequestKind)


def test_a_set_names_its_machines() -> None:
    job = JobRequest(GpuConstraint(names=("H100",), count_min=8, count_max=8), Decimal(2), nodes=3)
    assert title(job) == "3 machines of 8× H100 for 2 hours"


def test_a_volume_is_named_with_its_size_and_its_time() -> None:
    job = JobRequest(GpuConstraint(names=(f"{VOLUME}data",)), Decimal(336), disk_gb=2000)
    assert what_is_requested(RequestKind.VOLUME, job, None) == "A 2,000 GB volume data for 14 days"
    assert gpus(job.gpu) == machine(1, 1, f"{VOLUME}data") == "volume data"


@pytest.mark.parametrize(("hours", "said"), [("24", "1 day"), ("336", "14 days"), ("36", "36 hours"), ("6", "6 hours")])
def test_a_long_time_is_said_in_days_where_it_is_a_number_of_them(hours: str, said: str) -> None:
    assert days(Decimal(hours)) == said


def test_what_runs_is_named_by_its_gpus() -> None:
    assert machine(1, 4, "H100", "x") == "4x H100"
    assert machine(2, 8, "") == "2 machines of 8× GPU"


def test_an_override_without_a_known_limit_names_no_number() -> None:
    job = JobRequest(GpuConstraint(), Decimal(2))
    assert what_is_requested(RequestKind.OVERRIDE_12H, job, "req_01abcd4k7m2p") == "override of request 4k7m2p"
