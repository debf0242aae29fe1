"""The command that runs on a machine, and the kind of work that it is."""

from __future__ import annotations

from collections.abc import Iterator

from bot.rules.jobs.facet import Detail, JobFacet, Key, Text
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.words import as_is


def _details(job: JobRequest) -> Iterator[Detail]:
    if job.run:
        yield Detail("runs", job.run)


RUN = JobFacet(
    words=(
        as_is(
            "run",
            "COMMAND",
            "The command to run.",
            'run="python train.py"',
            "a command of at most 1,000 characters",
            r".{1,1000}",
        ),
        as_is("workload", "NAME", "What kind of work.", "workload=training", "a kind of work", r"[A-Za-z][\w-]{0,30}"),
    ),
    keys=(
        Key("run", Text | None, "The command to run."),
        Key("workload", Text | None, "What kind of work, such as training."),
    ),
    details=_details,
)
