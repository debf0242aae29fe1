"""Read a job from what the ledger stores, and make what it stores of a job: without the people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.rules.jobs.job import JobRequest
from ledger.kernel.stored_job import StoredJob


def _read(data: Mapping[str, Any]) -> JobRequest:
    # An earlier release stored keys, shares and secrets in the job, so they are left out here, too.
    return JobRequest.from_json(data).without_people()


def job_of(stored: StoredJob) -> JobRequest:
    """Return the job without its people. It is read once, so asking again for the job of one row costs nothing."""
    return stored.read(_read)


def job_with_people(stored: StoredJob, *, share: tuple[str, ...] = (), secrets: tuple[str, ...] = ()) -> JobRequest:
    """Return the job with the people that it is shared with and the names of the secrets that it gets."""
    return replace(job_of(stored), share=share, secrets=secrets)


def checkpoint_of(stored: StoredJob) -> str | None:
    """Return where the checkpoints of a job are; None where it names no place."""
    location: str | None = stored.json.get("checkpoint")  # Every end is read every few seconds, and no job for it.
    return location


def stored_job(job: JobRequest) -> StoredJob:
    """Return what the ledger stores of a job: everything but its people, whose rows are their own.

    Their fields stay, empty, for the earlier release.
    """
    return StoredJob(job.without_people().to_json())
