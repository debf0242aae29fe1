"""Define the question which model a budget trains."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from bot.rules.jobs.job import JobRequest
from bot.rules.sizing.workload import Workload

#: The word that says how many tokens the model serves later.
SERVED = "served-tokens"


@dataclass(frozen=True, slots=True)
class SizingQuestion:
    """Hold a budget for which a model is to be sized.

    `job` has every limit that was said, and in `work` all words of the run but the model; `work` is that run, in which
    `tokens` are the data that there are, `served_tokens` what the model serves later, `goal_hours` the time there is.
    """

    job: JobRequest
    budget_usd: Decimal
    work: Workload
