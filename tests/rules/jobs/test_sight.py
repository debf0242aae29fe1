"""How much somebody sees: a field of a job is a fact only where somebody decided so."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal

import pytest

from bot.rules.access.sight import Sight
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.sight import JOB_FACTS, job_in_sight
from providers.gpus.constraint import GpuConstraint

#: What runs, where it is saved, and whose secrets it gets. A new field belongs here, or is a fact.
WORK = frozenset(
    {
        *("workload", "image", "run", "profile", "config", "run_dir", "queue", "attempts", "retry_codes", "repo"),
        *("install", "model", "tokens", "checkpoint", "work", "public_key", "ports", "secrets", "mounts"),
    }
)
NOTHING = JobRequest(GpuConstraint(), Decimal(1))
JOB = JobRequest(
    GpuConstraint(("H100",), 8, 8),
    Decimal(6),
    disk_gb=200,
    candidates=("vast",),
    spot=SpotPolicy.YES,
    budget_cap_usd=Decimal(50),
    run="python train.py",
    queue=("a", "b"),
    repo="https://example.org/code",
    checkpoint="https://bucket.example/ckpt?X-Amz-Signature=abc",
    secrets=("HF_TOKEN",),
    mounts=("COPY /data https://bucket.example/data?sig=abc",),
    image="ghcr.io/me/private",
    share=("operator:ada",),
)


def test_every_field_of_a_job_is_a_fact_or_work() -> None:
    assert {one.name for one in fields(JobRequest)} == JOB_FACTS | WORK
    assert not JOB_FACTS & WORK


def test_facts_are_the_machine_and_its_price() -> None:
    seen = job_in_sight(JOB, Sight.FACTS)
    for name in JOB_FACTS:
        assert getattr(seen, name) == getattr(JOB, name), name
    for name in WORK:
        assert getattr(seen, name) == getattr(NOTHING, name), name


@pytest.mark.parametrize("sight", [Sight.OWN, Sight.ALL])
def test_its_people_and_approvers_see_the_whole_job(sight: Sight) -> None:
    assert job_in_sight(JOB, sight) == JOB
    assert sight.shows_work


def test_only_its_people_read_how_to_connect() -> None:
    assert [sight for sight in Sight if sight.connects] == [Sight.OWN]
    assert job_in_sight(replace(JOB, run=None), Sight.FACTS).run is None
