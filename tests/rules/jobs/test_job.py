"""What somebody asks for, and its JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from providers.gpus.constraint import GpuConstraint

money = st.decimals(min_value=0, max_value=10**6, places=6)
words = st.text(max_size=20)
constraints = st.builds(
    GpuConstraint,
    names=st.lists(words, max_size=3).map(tuple),
    count_min=st.integers(1, 64),
    count_max=st.integers(1, 64),
    memory_gb_min=st.none() | money,
    memory_gb_max=st.none() | money,
)
jobs = st.builds(
    JobRequest,
    gpu=constraints,
    hours=money,
    disk_gb=st.integers(1, 10_000),
    workload=words,
    candidates=st.lists(words, max_size=3).map(tuple),
    regions=st.lists(words, max_size=3).map(tuple),
    spot=st.sampled_from(SpotPolicy),
    max_price_usd_h=st.none() | money,
    budget_cap_usd=st.none() | money,
    min_reliability=st.none() | money,
    memory_gb_total_min=st.none() | money,
    verified_only=st.booleans(),
    min_cuda=st.none() | money,
    min_capability=st.none() | money,
    min_available_s=st.none() | st.integers(0, 10**9),
    image=st.none() | words,
    run=st.none() | words,
    model=st.none() | words,
    tokens=st.none() | st.integers(0, 10**15),
    checkpoint=st.none() | words,
    offer_id=st.none() | words,
    reason=words,
)


@given(jobs)
def test_a_job_request_survives_json(job: JobRequest) -> None:
    stored = json.loads(json.dumps(job.to_json()))
    assert JobRequest.from_json(stored) == job
    assert JobRequest.from_json(stored).to_json() == job.to_json()


def test_no_number_of_a_job_passes_through_a_float() -> None:
    job = JobRequest(gpu=GpuConstraint(memory_gb_min=Decimal("79.6")), hours=Decimal("0.1"))
    data = job.to_json()
    assert (data["hours"], data["gpu"]["memory_gb_min"]) == ("0.1", "79.6")
    assert data["spot"] == "no"


def test_older_code_reads_newer_rows() -> None:
    data: dict[str, Any] = {"gpu": {"names": ["A100"], "colour": "red"}, "hours": "2", "priority": 3}
    assert JobRequest.from_json(data) == JobRequest(gpu=GpuConstraint(names=("A100",)), hours=Decimal(2))


@pytest.mark.parametrize(
    ("names", "volume"), [(("volume:data",), "data"), (("RTX 4090",), ""), (("volume:a", "volume:b"), ""), ((), "")]
)
def test_a_job_asks_for_a_volume_or_for_a_machine(names: tuple[str, ...], volume: str) -> None:
    assert JobRequest(gpu=GpuConstraint(names=names), hours=Decimal(2)).makes_volume == volume


def test_a_job_keeps_its_ports() -> None:
    job = JobRequest(GpuConstraint(), Decimal(2), ports=("8888/http", "6006/tcp"))
    assert JobRequest.from_json(job.to_json()).ports == ("8888/http", "6006/tcp")
    assert JobRequest.from_json({"gpu": {}, "hours": "2"}).ports == ()
