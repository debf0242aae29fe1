"""For which project a job counts, and why it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bot.rules.jobs.facet import Fields, JobFacet, JobFacts, Key, Text, Word
from bot.rules.jobs.words import as_is
from bot.rules.policy import job_bounds
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord


@dataclass(frozen=True, kw_only=True)
class LabelFields:
    """Why it is needed, and for what it counts."""

    reason: str = ""
    #: The project that it counts for; None is the policy's own.
    label: str | None = None


def _read_reason(text: str, policy: Policy) -> Fields:
    """Read the reason of the request; approvers see it."""
    if wrong := job_bounds.reason(text, policy):
        raise BadWord(wrong.sentence)
    return {"reason": text}


def _check(job: LabelFields, facts: JobFacts) -> BoundsVerdict | None:
    return job_bounds.reason(job.reason, facts.policy)


LABEL = JobFacet(
    fields=LabelFields,
    are_facts=True,
    check=_check,
    words=(
        as_is(
            "label",
            "NAME",
            "The project that it counts for.",
            "label=mosaic",
            "a label",
            r"[A-Za-z0-9][\w.-]{0,39}",
            "project",
        ),
        Word(
            "for", "TEXT", "Why it is needed; approvers read this.", 'for="fine-tune"', _read_reason, ("reason", "why")
        ),
    ),
    keys=(
        Key("label", Text | None, "The project that it counts for."),
        Key("reason", Annotated[str, Field(max_length=4000)] | None, "Approvers read this."),
    ),
)
