"""The commands of a job's queue, with their results and costs."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from pydantic import Field

from bot.api.schemas.base import Out, optional


class QueueCommandOut(Out):
    """One command of a queue. Until it ended, everything but its number and its text is null."""

    number: int = Field(description="Its place in the queue, from 1 on.")
    command: str = Field(description="The command.")
    exit_code: int | None = optional("Its exit code; null until it ended, and where nobody saw its end.")
    gpu: int | None = optional("The GPU that ran it, from 0 on.")
    attempts: int | None = optional("How often it was started.")
    started_at: datetime | None = optional("When its last attempt began.")
    ended_at: datetime | None = optional("When it ended.")
    cost_usd: Decimal | None = optional("Its share of the machine's bill: by its time, and by its share of the GPUs.")
    log_tail: str = optional("The end of its log.", "")


class QueueResultsOut(Out):
    """All commands of a queue. Their costs and `idle_usd` add up to `total_usd`."""

    items: list[QueueCommandOut] = Field(description="The commands, in the order of the queue.")
    total_usd: Decimal = Field(description="What the session has cost so far.")
    idle_usd: Decimal = Field(description="What no command that ended has used: boots, idle GPUs, and what still runs.")
