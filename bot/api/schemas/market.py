"""Questions about the market, plans, comparisons and the profiles of the clouds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, Field

from bot.api.schemas.base import In, Out, optional
from bot.api.schemas.fields import Kind
from bot.rules.jobs.facet import Text
from bot.rules.market.sort_key import SORT_HELP
from bot.rules.values.text_table import TextReport
from bot.services.market.document import CURSOR
from bot.services.market.offer_fields import Cloud, HowComplete, ListedOn, Sentence, Source
from bot.services.plans.deliverables import CostEstimate, InstanceManifest
from bot.services.plans.sized_document import SizingDocument
from providers.capabilities import PriceSource
from providers.completeness import UNKNOWN

#: A page with more rows is sent piece by piece.
LARGEST_PAGE = 1_000


class CloudOut(Out):
    """The result of asking one cloud."""

    cloud: Cloud
    ok: bool = Field(description="Whether all is well.")
    sentence: Sentence
    source: Source = PriceSource.ACCOUNT
    listed_on: ListedOn = None
    completeness: HowComplete = UNKNOWN
    reading: bool = optional("Whether more offers of this cloud are being read; ask again soon.", False)


class PlanOut(Out):
    """A plan: what it costs, what to rent, the page that people read, and its table and sentences."""

    estimate: CostEstimate = Field(description="What it costs on every offer: cost_estimate.json.")
    manifest: InstanceManifest = Field(description="What to rent: instance_manifest.json.")
    page: str = Field(description="The same as a page for people, in Markdown.")
    report: TextReport = Field(description="The same as tables and sentences for people.")
    answers: list[CloudOut] = optional("How each cloud answered.", [])
    completeness: HowComplete = UNKNOWN
    sizing: SizingDocument | None = optional("The models that a budget trains, where no model was named.")
    chart: Base64Bytes | None = optional("With chart=true: the total against the hours of each offer, as a PNG.")


class CompareOut(Out):
    """A comparison with the result of each cloud, the age of its prices, its page and its tables for people."""

    comparison: dict[str, Any] = Field(description="The figures of the comparison.")
    answers: list[CloudOut] = Field(description="How each cloud answered.")
    completeness: HowComplete = UNKNOWN
    ages: list[str] = Field(description="How old the prices of each cloud are, in words.")
    page: str = Field(description="The same as a page for people, in Markdown.")
    report: TextReport = Field(description="The same as tables and sentences for people.")


class InventoryQuery(In):
    """A search in the words of `/gpu inventory`. `memory` and `min_vram` (GB) are per GPU; give one of them."""

    words: Text = optional("The search in words, as in Slack: 4090 US $0.40. The fields below add to it.", "")
    gpu: Text = optional("GPU names in any spelling, with commas: 4090,a100.", "")
    count: Text = optional("How many GPUs: 2, 1-4 or 2+.", "")
    memory: Text = optional("Memory per GPU: 40GB exactly, 40GB+ at least, 40-80GB between.", "")
    min_vram: Text = optional("The least memory per GPU in GB.", "")
    max_price: Text = optional("The most per hour for the whole offer, in dollars.", "")
    provider: Text = optional("Only these clouds, with commas.", "")
    region: Text = optional("Only these regions or countries, with commas: US,EU.", "")
    spot: Text = optional("no (the default), yes or any.", "")
    disk: Text = optional("The least disk: 200GB, 1TB.", "")
    reliability: Text = optional("The least reliability: 0.98 or 98%.", "")
    total: Text = optional("The least memory of all GPUs together: 160GB.", "")
    verified: Text = optional("yes: only machines that their cloud has verified.", "")
    cuda: Text = optional("The least CUDA that the driver runs: 12.4.", "")
    capability: Text = optional("The least CUDA compute capability: 8.9 or sm_89.", "")
    available: Text = optional("For how long the cloud must expect the offer to be there: 24h, 3d.", "")
    sort: Text = optional(SORT_HELP, "")
    limit: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["all"] = optional(
        f"How many rows; `all`, or more than {LARGEST_PAGE:,}, comes in one answer, piece by piece.", 50
    )
    cursor: Annotated[str, Field(pattern=CURSOR)] | None = optional("next_cursor of the page before.")


class CompareIn(In):
    """A comparison in the words of `/gpu compare`: budget, hours, buffer, baseline, success, value; or a run.

    A run, such as model=7B and tokens=2B, compares the same work.
    """

    line: Text = optional("The words in one line, as in Slack: model=7B tokens=2B. `words` adds to it.", "")

    words: dict[str, str] = Field(
        default={},
        max_length=10,
        description="The words of the /gpu language.",
        examples=[{"budget": "500", "hours": "1"}],
    )


class ProfileOut(Out):
    """The profile of one cloud: how it bills and what it sells."""

    cloud: Cloud
    kind: Kind
    stops_billing: str = Field(description="Which action stops the billing at this cloud.")
    spot: bool = Field(description="Whether the cloud sells interruptible (spot) machines.")
    text: str = Field(description="The whole profile, in Markdown.")
