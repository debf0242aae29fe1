"""Read a budget without a model as a question: which model, on how many tokens, does the money train?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from bot.rules.jobs.facets.work import workload
from bot.rules.jobs.job import JobRequest
from bot.rules.market.sizing_question import SERVED, SizingQuestion
from bot.rules.policy.policy import Policy
from bot.rules.sizing.workload import WorkKind, Workload
from bot.rules.values.bad_word import BadWord
from bot.rules.values.phrases import short_hours
from providers.gpus.constraint import GpuConstraint

_EXAMPLE = "plan budget=$500 served-tokens=10B"
#: Fields that name a machine: together with hours they ask for a rental, not for a model.
_MACHINE = frozenset([*GpuConstraint.__dataclass_fields__, "offer_id"])
#: Numbers of a run that describe its model.
_OF_MODEL = ("model", "total_params", "active_params", "layers", "width", "heads")


def describes_model(work: Workload) -> bool:
    """Whether any word of a run describes its model."""
    return any(getattr(work, name) is not None for name in _OF_MODEL)


def chooses_model(said: Mapping[str, Any]) -> bool:
    """Whether these fields of a plan leave the model to the plan: a budget, no model, and no rental of a machine."""
    rents = "hours" in said and not _MACHINE.isdisjoint(said)
    return "budget_cap_usd" in said and not rents and not describes_model(workload(said.get("work", ())))


def refused(said: Mapping[str, Any], *, plans: bool) -> str:
    """Say why words about serving do not belong to a command; empty where they do, or where there are none."""
    if workload(said.get("work", ())).served_tokens is None or (plans and chooses_model(said)):
        return ""
    return f"{SERVED}= chooses a model for a budget; write {_EXAMPLE}."


def sizing_question(said: Mapping[str, Any], job: JobRequest, policy: Policy) -> SizingQuestion:
    """Make the question of a plan that leaves the model open. Raises `BadWord`; `said` must have a budget."""
    work = workload(job.work)
    if work.kind is not WorkKind.TRAINING:
        raise BadWord(f"type={work.kind.value} starts from a model, so name it: plan model=7B type={work.kind.value}.")
    if work.steps is not None:
        raise BadWord("Steps follow from the model here; write the data that you have as tokens=20B.")
    words = tuple(word for word in job.work if not word.startswith("type="))
    if "hours" in said:
        if work.goal_hours is not None:
            raise BadWord("hours= and goal= both say how long it may take; keep one of the two.")
        words = (*words, f"goal={short_hours(said['hours'])}")
    # A workload without a word would be no run at all.
    words = ("type=training", *words)
    gpu = job.gpu if "count_min" in said else replace(job.gpu, count_max=policy.max_gpus)
    job = replace(job, hours=Decimal(1), gpu=gpu, work=words)
    return SizingQuestion(job, said["budget_cap_usd"], workload(words))
