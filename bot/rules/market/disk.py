"""Size the disk of a request: what the policy asks for its workload, and what a described run writes to it."""

from __future__ import annotations

import math
from decimal import Decimal

from bot.rules.grammar.run_words import workload_of
from bot.rules.policy.policy import Policy
from bot.rules.sizing.run_time import stored_gb
from ledger.kernel.job import JobRequest

#: GB that an image with CUDA and a framework takes once it is unpacked.
IMAGE_GB = Decimal(20)


def disk_gb(job: JobRequest, policy: Policy) -> int:
    """Return the GB of disk to rent: what was asked, at least the policy's minimum and what the run needs.

    A run needs its image, its weights, its data and two checkpoints: the old one is kept until the new one is written.
    """
    work = workload_of(job)
    needed = 0 if work is None else math.ceil(IMAGE_GB + stored_gb(work))
    return max(policy.disk_gb(job.workload, job.disk_gb, job.model), needed)
