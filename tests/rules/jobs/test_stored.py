"""What the ledger stores of a job, and how it is read again: old rows, too."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import checkpoint_of, job_of, job_with_people, stored_job
from ledger.kernel.stored_job import StoredJob
from providers.gpus.constraint import GpuConstraint

JOB = JobRequest(GpuConstraint(("H100-SXM",), 8, 8), Decimal("6.5"), run="python train.py", checkpoint="s3://runs/a")
PEOPLE: dict[str, Any] = {"public_key": "ssh-ed25519 AAAA", "share": ("operator:eve",), "secrets": ("HF_TOKEN",)}
#: The stored text of `JOB`, in any order. Releases read each other's rows, so it stays as it is.
TEXT = (
    '{"gpu": {"names": ["H100-SXM"], "count_min": 8, "count_max": 8, "memory_gb_min": null, "memory_gb_max": null, '
    '"cuda_min": null}, "hours": "6.5", "nodes": 1, "disk_gb": 50, "workload": "training", "candidates": [], '
    '"regions": [], "spot": "no", "max_price_usd_h": null, "budget_cap_usd": null, "min_reliability": null, '
    '"memory_gb_total_min": null, "verified_only": false, "min_cuda": null, "min_capability": null, '
    '"min_available_s": null, "image": null, "run": "python train.py", "profile": null, "config": null, '
    '"run_dir": null, "queue": [], "attempts": 1, "retry_codes": [], "repo": null, "install": null, "model": null, '
    '"tokens": null, "checkpoint": "s3://runs/a", "offer_id": null, "work": [], "reason": "", "public_key": null, '
    '"already_hours": "0", "label": null, "clouds_in_order": false, "ports": [], "share": [], "secrets": [], '
    '"mounts": [], "wait": false, "start_at": null, "wait_until": null, "idle_s": null, "volume": null, '
    '"volume_session": null}'
)


def test_the_stored_text_of_a_job() -> None:
    assert stored_job(JOB).json == json.loads(TEXT)
    assert job_of(StoredJob(json.loads(TEXT))) == JOB


def test_a_job_is_stored_without_its_people() -> None:
    assert stored_job(replace(JOB, **PEOPLE)).json == json.loads(TEXT)


@pytest.mark.parametrize(
    ("data", "job"),
    [
        ({"gpu": {}, "hours": "2"}, JobRequest(GpuConstraint(), Decimal(2))),
        (
            {"gpu": {"names": ["A100"], "colour": "red"}, "hours": "2", "priority": 3, "spot": "any"},
            JobRequest(GpuConstraint(("A100",)), Decimal(2), spot="any"),  # type: ignore[arg-type] # Its text is equal.
        ),
        (json.loads(TEXT) | {"public_key": "ssh-ed25519 AAAA", "share": ["operator:eve"], "secrets": ["HF"]}, JOB),
    ],
    ids=["without the keys of later releases", "with keys of a newer release", "with people"],
)
def test_rows_of_other_releases_are_read(data: dict[str, Any], job: JobRequest) -> None:
    assert job_of(StoredJob(data)) == job
    # What is stored of it again has every key, nobody, and nothing that this release doesn't know.
    assert set(stored_job(job_of(StoredJob(data))).json) == set(json.loads(TEXT))


def test_a_job_is_read_once() -> None:
    stored = stored_job(JOB)
    assert job_of(stored) is job_of(stored)
    assert checkpoint_of(stored) == "s3://runs/a"


def test_people_stand_beside_the_stored_job() -> None:
    whole = job_with_people(stored_job(JOB), share=("operator:eve",), secrets=("HF_TOKEN",))
    assert whole == replace(JOB, share=("operator:eve",), secrets=("HF_TOKEN",))
    assert job_with_people(stored_job(JOB)) == JOB
