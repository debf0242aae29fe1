"""What approvers read of a job: every facet says what somebody asked for, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from bot.rules.jobs.facet_table import FACETS
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from providers.gpus.constraint import GpuConstraint

JOB = JobRequest(GpuConstraint(("H100-SXM",), 8, 8), Decimal(6))
WHOLE = replace(
    JOB,
    spot=SpotPolicy.ANY,
    budget_cap_usd=Decimal(50),
    max_price_usd_h=Decimal("2.5"),
    candidates=("vast", "runpod"),
    clouds_in_order=True,
    regions=("US", "EU"),
    min_reliability=Decimal("0.98"),
    verified_only=True,
    memory_gb_total_min=Decimal(160),
    min_cuda=Decimal("12.4"),
    min_capability=Decimal("8.9"),
    min_available_s=86_400,
    offer_id="vast:1",
    model="7B",
    image="pytorch/pytorch",
    ports=("8888/http", "6006/tcp"),
    secrets=("HF_TOKEN",),
    install="train",
    repo="https://github.com/org/project@main",
    mounts=("COPY /data s3://bucket/data",),
    run="python train.py",
    attempts=3,
    idle_s=1800,
)


def details(job: JobRequest) -> list[str]:
    return [f"{part.label} {part.value}".strip() for facet in FACETS for part in facet.details(job)]


def test_a_plain_job_says_its_disk_and_its_terms() -> None:
    assert details(JOB) == ["disk 50 GB", "on-demand only"]


def test_every_facet_says_what_was_asked_for() -> None:
    assert details(WHOLE) == [
        "disk 50 GB",
        "spot or on-demand",
        "at most $50.00 in all",
        "at most $2.50/h",
        "clouds vast, runpod in this order",
        "regions US, EU",
        "reliability 98% or more",
        "verified machines only",
        "160 GB or more in all",
        "CUDA 12.4 or newer",
        "compute capability 8.9 or more",
        "there for 24 h or more",
        "only offer vast:1",
        "model 7B",
        "image pytorch/pytorch",
        "ports 8888/http, 6006/tcp",
        "secrets HF_TOKEN",
        "installs train",
        "repository https://github.com/org/project@main",
        "files /data from s3://bucket/data",
        "runs python train.py",
        "attempts 3",
        "ends when idle for 30 minutes",
    ]
    assert "queue 2 commands" in details(replace(WHOLE, run=None, queue=("python a.py", "python b.py")))
