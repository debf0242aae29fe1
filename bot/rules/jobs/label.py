"""For which project a job counts, and why it is needed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot.rules.jobs.facet import Fields, JobFacet, Key, Text, Word
from bot.rules.jobs.words import as_is
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord


def _read_reason(text: str, policy: Policy) -> Fields:
    """Read the reason of the request; approvers see it."""
    if wrong := job_bounds.reason(text, policy):
        raise BadWord(wrong.sentence)
    return {"reason": text}


LABEL = JobFacet(
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
