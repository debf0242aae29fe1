"""Define the fields that describe an offer, and those of every document (code, sentence, id)."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from providers.capabilities import PriceSource
from providers.completeness import Completeness

Source = Annotated[
    PriceSource,
    Field(description="What it was read from: account, with its key; or public or list_price, without one."),
]
HowComplete = Annotated[
    Completeness,
    Field(description="How complete it is: complete, partial (and why), stale (and since when) or unknown."),
]
ListedOn = Annotated[date | None, Field(description="The day of a published list price; null for prices of now.")]
Cloud = Annotated[str, Field(description="The cloud's name.")]
Code = Annotated[str, Field(description="A stable code for programs; docs/errors.md lists them.")]
Sentence = Annotated[str, Field(description="The same for people, in one sentence.")]
Id = Annotated[str, Field(description="Its id.")]
OfferId = Annotated[str, Field(description="The offer's id at this service, such as vast:30406190.")]
GpuName = Annotated[str, Field(description="The GPU's name.")]
GpuCount = Annotated[int, Field(description="How many GPUs.")]
Region = Annotated[str, Field(description="Its region, in the cloud's words.")]
Country = Annotated[str | None, Field(description="Its country as two letters, where the cloud says it.")]
Spot = Annotated[bool, Field(description="Whether its cloud may interrupt it (spot).")]
_PER_HOUR = Field(description="Dollars per hour for the whole offer, all its GPUs together.")
PricePerHour = Annotated[Decimal, _PER_HOUR]
MaybePricePerHour = Annotated[Decimal | None, _PER_HOUR]
BestUsd = Annotated[
    Decimal,
    Field(description="The low end: one described run in ten costs less. The expected total where hours were given."),
]
ExpectedUsd = Annotated[
    Decimal,
    Field(
        description="The expected total: hours x rate, with setup, disk, transfer, retries and interruptions as far as "
        "they apply."
    ),
]
WorstUsd = Annotated[Decimal, Field(description="The total at worst: an approval covers no more.")]
RiskUsd = Annotated[
    Decimal, Field(description="What the ranking adds to the expected total for the risk that the machine is lost.")
]
Marks = Annotated[
    tuple[str, ...],
    Field(description="What it is best at: cost-efficiency, stability, or speed within the budget."),
]
Why = Annotated[str, Field(description="Why it has its rank, in words.")]
Parts = Annotated[
    str, Field(description="What the expected total is made of, in words; empty where it is one part alone.")
]


class Strict(BaseModel):
    """A document without unknown fields, made of a dictionary or of an object with the same names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OutlookFields(Strict, from_attributes=True):
    """What the simulation of a described run shows: the range of four of five runs, and chances between 0 and 1."""

    hours_low: Decimal = Field(description="One run in ten takes fewer hours, from its launch to its end.")
    hours_high: Decimal = Field(description="One run in ten takes more hours.")
    usd_low: Decimal = Field(description="One run in ten costs less, in dollars.")
    usd_high: Decimal = Field(description="One run in ten costs more, in dollars; never above the total at worst.")
    goodput: Decimal = Field(description="The share of its time in which the run advances.")
    utilisation: Decimal | None = Field(description="The expected share of the GPUs' peak rate over the whole time.")
    done: Decimal | None = Field(description="The chance that it is done by its goal; null without a goal.")
    within: Decimal | None = Field(description="The chance that it costs no more than the budget; null without one.")


class RankedFields(BaseModel):
    """The fields that every ranked offer begins with."""

    rank: int = Field(description="Its place, from 1.")
    offer_id: OfferId
    cloud: Cloud
    gpu: GpuName
    gpu_count: GpuCount
    memory_gb: Decimal = Field(description="Memory of each GPU in GB.")
    region: Region
