"""Budgets, and what was spent."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from bot.api.schemas.base import In, Out, optional
from bot.api.schemas.fields import Name, ShortReasonText, Since, SpentUsd
from bot.rules.budgets.budget import Period
from bot.services.market.offer_fields import Sentence

_PERIOD = Field(description="hourly, daily, monthly or total.")


class BudgetIn(In):
    """A budget: whose (global, team:NAME, user:ID, consumer:NAME, label:NAME), for which time, and how many dollars."""

    scope: str = Field(
        max_length=90,
        description="Whose budget: global, team:NAME, user:ID, consumer:NAME or label:NAME.",
        examples=["consumer:atlas"],
    )
    period: Annotated[Period, _PERIOD]
    limit_usd: Annotated[str, Field(pattern=r"^[0-9]{1,7}(\.[0-9]{1,6})?$")] | None = optional(
        "Dollars (an hourly one: dollars per hour); null deletes the limit."
    )
    thresholds: list[Annotated[str, Field(pattern=r"^(0(\.[0-9]{1,4})?|1(\.0{1,4})?)$")]] | None = optional(
        "The shares of the limit at which people are notified, such as 0.5 and 0.9; without them those of the policy.",
        max_length=10,
        examples=[["0.5", "0.9"]],
    )
    reason: ShortReasonText = ""


class BudgetOut(Out):
    """One budget: `open_usd` is what approvals in force may still spend. An hourly one is in dollars per hour."""

    key: str = Field(description="The budget's name: its scope and its period.")
    whose: str = optional("The same with the person's name, where it is known.", "")
    period: Annotated[str, _PERIOD]
    limit_usd: Decimal = Field(description="The limit for the period, in dollars.")
    spent_usd: SpentUsd
    open_usd: Decimal = Field(description="What approvals in force may still spend.")
    since: datetime | None = Field(description="From when on.")
    sentence: Sentence


class CostShare(Out):
    """The cost of one name in a group."""

    name: Name
    person_name: str = optional("The name of the person whom `name` is the id of, where it is known.", "")
    usd: Decimal = Field(description="Dollars.")


class FinishedOut(Out):
    """Sessions that ended with a result, and what one success has cost, failures included."""

    runs: int = Field(description="How many ended with a result.")
    successes: int = Field(description="How many of them succeeded.")
    spent_usd: SpentUsd
    success_rate: Decimal | None = Field(description="The share that succeeded, from 0 to 1; null before the first.")
    per_success_usd: Decimal | None = Field(
        description="What one success has cost, failures included; null before the first."
    )
    sentence: Sentence


class CostBucket(Out):
    """What was spent in the hour, day or month that began at `since`."""

    since: Since
    usd: Decimal = Field(description="Dollars.")


class StatementOut(Out):
    """What one team spent in one month (UTC), in dollars."""

    team: str = Field(description="The team, as the policy names it.")
    month: datetime = Field(description="When the month began.")
    total_usd: Decimal = Field(description="What its members and their programs spent in the month.")
    groups: dict[str, list[CostShare]] = Field(description="The same by owner, project, cloud and GPU.")
    markdown: str = Field(description="The same as a page in Markdown.")


class CostsOut(Out):
    """What was spent in dollars, the running hour of each machine included. Buckets without costs are left out.

    `total_usd`, `buckets`, `groups` and `finished` are of the time from `since` on.
    """

    period: Annotated[str, _PERIOD]
    everybody: bool = Field(description="Whether they are everybody's, and not only those of the caller or a program.")
    since: Since
    today_usd: Decimal = Field(description="Spent since the day began (UTC).")
    month_usd: Decimal = Field(description="Spent since the month began.")
    total_usd: Decimal = Field(description="What was spent from `since` on: booked and running.")
    running_usd: Decimal = Field(description="The part of `total_usd` that still runs and is not booked yet.")
    buckets: list[CostBucket] = Field(
        description="What was spent in each hour, day or month; those without costs are left out."
    )
    groups: dict[str, list[CostShare]] = Field(
        description="The same costs by owner, consumer, cloud, GPU, label and tool."
    )
    finished: FinishedOut = Field(
        description="How the work of the sessions that ended went, and what a success has cost."
    )
