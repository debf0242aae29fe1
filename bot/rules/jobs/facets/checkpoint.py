"""Where a job keeps its checkpoints: `checkpoint=hf://org/model`."""

from __future__ import annotations

from dataclasses import dataclass

from bot.rules.jobs.facet import JobFacet, Key, Text
from bot.rules.jobs.words import as_is


@dataclass(frozen=True, kw_only=True)
class CheckpointFields:
    """Where its checkpoints are."""

    checkpoint: str | None = None


CHECKPOINT = JobFacet(
    fields=CheckpointFields,
    words=(
        as_is(
            "checkpoint",
            "PLACE",
            "Where checkpoints are kept.",
            "checkpoint=hf://org/model",
            "a place for checkpoints",
            r"[^\s`]{1,300}",
        ),
    ),
    keys=(Key("checkpoint", Text | None, "Where checkpoints are kept."),),
)
