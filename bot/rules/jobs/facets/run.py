"""The command that runs on a machine, and the kind of work that it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bot.rules.jobs.facet import Detail, JobFacet, JobFacts, Key, Text
from bot.rules.jobs.words import as_is
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.values.reply_code import ReplyCode


@dataclass(frozen=True, kw_only=True)
class RunFields:
    """The command, and what kind of work it is."""

    run: str | None = None
    workload: str = "training"


def _check(_job: RunFields, facts: JobFacts) -> BoundsVerdict | None:
    if facts.named and not facts.commands and all(facts.clouds[name].batch for name in facts.named):
        said = f'{facts.named[0]} runs one program and nothing else. Name it, such as run="python train.py".'
        return BoundsVerdict(ReplyCode.RUN_MISSING, said)
    return None


def _details(job: RunFields) -> Iterator[Detail]:
    if job.run:
        yield Detail("runs", job.run)


RUN = JobFacet(
    fields=RunFields,
    check=_check,
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
