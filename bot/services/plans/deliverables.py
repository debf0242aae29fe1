"""Build the three files of a plan: `gpu_plan.md`, `cost_estimate.json`, `instance_manifest.json`.

Their JSON Schemas are published under docs/schemas. Money is decimal dollars as strings, times are UTC.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

import yaml
from pydantic import Field

from bot.rules.approvals.authority import Authority
from bot.rules.approvals.authority import plan as approval_plan
from bot.rules.market.filters import image_of
from bot.rules.market.ranking import RankedOption
from bot.rules.policy.policy import Policy
from bot.rules.pricing.hours_cap import rented
from bot.rules.pricing.spend_limits import price_cap
from bot.services.market.document import LeftOut, MarketCloud, cloud_facts
from bot.services.market.offer_fields import (
    Cloud,
    Country,
    ExpectedUsd,
    GpuCount,
    GpuName,
    Marks,
    OfferId,
    OutlookFields,
    PricePerHour,
    RankedFields,
    Region,
    RiskUsd,
    Sentence,
    Spot,
    Strict,
    Why,
    WorstUsd,
)
from bot.services.plans.planner import Planned
from bot.services.plans.text import body
from providers.capabilities import BOOT_DEADLINE_S

VERSION: Literal["1"] = "1"
_FENCE = "---\n"


class Three(Strict):
    """One number in three cases."""

    best: Decimal = Field(description="The low end: one described run in ten is below it.")
    expected: Decimal = Field(description="What is expected: the mean.")
    worst: Decimal = Field(
        description="What an approval covers: nine of ten runs need no more hours, and none costs more."
    )


class TokensPerSecond(Strict):
    """Tokens per second over all GPUs, and the range that holds four of five runs."""

    expected: Decimal = Field(description="What is expected.")
    low: Decimal = Field(description="The lower end of the range.")
    high: Decimal = Field(description="The upper end of the range.")


class CostComponent(Strict, from_attributes=True):
    """One part of a total, in dollars."""

    name: str = Field(description="Its name.")
    expected_usd: Decimal = Field(description="What is expected of this part.")
    worst_usd: WorstUsd


class OptionCost(Strict, RankedFields):
    """One ranked offer: what it is, how long the run takes on it and what it costs, with every assumption.

    `hours_known` tells whether the hours follow from the work or were given. `risk_usd` is what the ranking adds.
    """

    spot: Spot
    price_usd_h: PricePerHour
    hours: Three = Field(description="How long the run takes on it, in hours.")
    hours_known: bool = Field(description="True when the hours follow from the work; false when they were given.")
    tokens_per_s: TokensPerSecond | None = Field(
        description="Tokens per second over all GPUs; null where no tokens are counted."
    )
    outlook: OutlookFields | None = Field(
        default=None, description="Ranges and chances of a described run; null where only hours are known."
    )
    total_usd: Three = Field(description="The total of the run in three cases.")
    components: tuple[CostComponent, ...] = Field(description="The parts that add up to the total.")
    risk_usd: RiskUsd
    late_hours: Decimal = Field(description="Hours beyond the goal of the run.")
    fit: str = Field(description="Whether the work fits into the memory, in words.")
    marks: Marks
    why: Why
    assumptions: tuple[str, ...] = Field(description="What was assumed because nobody said it, in words.")
    unknown: tuple[str, ...] = Field(description="What could not be known, in words.")


class CloudRead(MarketCloud):
    """How one cloud answered, and when its prices were read."""


class Opening(Strict, from_attributes=True):
    """One limit that alone keeps the market closed, and what to write instead."""

    word: str = Field(description="The word of the /gpu language that keeps offers out.")
    instead: str = Field(description="What to write instead.")
    opens: int = Field(description="How many offers that would open.")
    expected_usd: ExpectedUsd
    sentence: Sentence


class MethodCost(Strict):
    """A lighter method than the one that was asked for, with its best offers; it is another run."""

    heading: str = Field(description="What it is, in words.")
    word: str = Field(description="The word of the /gpu language that asks for it.")
    options: tuple[OptionCost, ...] = Field(description="Its ranked offers, the best first.")


class CostEstimate(Strict):
    """`cost_estimate.json`: every option with its range, its parts and its assumptions."""

    schema_version: Literal["1"] = Field(description="The version of this document's form.")
    made_at: datetime = Field(description="When it was made.")
    work: tuple[str, ...] = Field(description="What runs, in words.")
    offers_found: int = Field(description="How many offers the clouds gave before any was skipped.")
    options: tuple[OptionCost, ...] = Field(description="The ranked offers, the best first.")
    left_out: tuple[LeftOut, ...] = Field(description="Offers that were skipped, by reason.")
    clouds: tuple[CloudRead, ...] = Field(description="How each cloud answered.")
    openings: tuple[Opening, ...] = Field(description="Limits that alone keep offers out, and what to write instead.")
    methods: tuple[MethodCost, ...] = Field(default=(), description="Lighter methods, each ranked by itself.")
    refused: str = Field(default="", description="A cheaper offer that cannot run it and the reason, in words.")
    assumptions: tuple[str, ...] = Field(description="What was assumed because nobody said it, in words.")
    unknown: tuple[str, ...] = Field(description="What could not be known, in words.")


class PlanResources(Strict):
    """What the recommended option gives."""

    offer_id: OfferId
    cloud: Cloud
    gpu: GpuName
    gpu_count: GpuCount
    memory_gb_per_gpu: Decimal = Field(description="Memory of each GPU in GB.")
    region: Region
    country: Country
    spot: Spot
    disk_gb: int = Field(description="The disk in GB.")
    image: str = Field(description="The container image.")
    vcpus: int | None = Field(description="How many virtual CPUs, where the cloud says it.")
    ram_gb: Decimal | None = Field(description="Memory of the machine in GB, where the cloud says it.")


class Lifecycle(Strict):
    """When it begins to cost, when it ends and what ends it. Caps are what an approval of this plan would cover."""

    hours: Decimal = Field(description="Hours, as a number or written as 6h, 90m or 2d.")
    max_hours_without_override: Decimal = Field(
        description="Above these hours the extra time is approved separately first."
    )
    needs_override: bool = Field(description="Whether its hours need the override.")
    warn_before_end_s: int = Field(description="How long before its end the owner gets a warning, in seconds.")
    boot_deadline_s: int = Field(description="How long a machine may take to become reachable, in seconds.")
    billed_from: str = Field(description="The moment from which the cloud counts.")
    billing_quantum_s: int = Field(description="The step in which time is billed, in seconds.")
    billing_minimum_s: int = Field(description="The least time that is billed, in seconds.")
    storage_billed_while_stopped: bool = Field(description="Whether the disk costs money while the machine is stopped.")
    can_stop: bool = Field(description="Whether its machine can be stopped and started again.")
    stops_billing: str = Field(description="What ends the cost at this cloud.")
    price_cap_usd_h: Decimal = Field(
        description="The most per hour that is covered; null for a decision that covers no offer."
    )
    total_cap_usd: Decimal = Field(
        description="The most in all that is covered; null for a decision that covers no offer."
    )
    amount_is_typed: bool = Field(description="Whether an approver has to type the amount.")


class InstanceManifest(Strict):
    """`instance_manifest.json`: the resources and lifecycle settings of the recommended option; None when nothing fits.

    A plan rents nothing, so the state is always `planned`.
    """

    schema_version: Literal["1"] = Field(description="The version of this document's form.")
    made_at: datetime = Field(description="When it was made.")
    state: Literal["planned"] = Field(description="Its state.")
    resources: PlanResources | None = Field(description="What the recommended offer gives; null when nothing fits.")
    lifecycle: Lifecycle | None = Field(description="When it begins to cost, and what ends it; null when nothing fits.")
    run: str | None = Field(description="The command to run.")
    checkpoint: str | None = Field(description="Where checkpoints are kept.")


class PlanLine(Strict):
    """One option in the head of the plan."""

    rank: int
    offer_id: str
    hours: Decimal
    price_usd_h: Decimal
    best_usd: Decimal
    expected_usd: Decimal
    worst_usd: Decimal
    marks: tuple[str, ...]


class PlanHead(Strict):
    """The head of `gpu_plan.md`, for programs: the recommendation and the options of the table below it."""

    schema_version: Literal["1"]
    made_at: datetime
    recommended: str | None
    options: tuple[PlanLine, ...]


def cost_estimate(planned: Planned) -> CostEstimate:
    """Return the cost estimate with every figure of a plan."""
    return CostEstimate(
        schema_version=VERSION,
        made_at=planned.made_at,
        work=planned.job.work,
        offers_found=planned.ranked.answered,
        options=tuple(_option(one) for one in planned.ranked.options),
        left_out=tuple(
            LeftOut(code=one.reason_code, count=one.count, sentence=one.sentence) for one in planned.ranked.excluded
        ),
        clouds=tuple(CloudRead(**cloud_facts(one)) for one in planned.answers),
        openings=tuple(map(Opening.model_validate, planned.relaxations)),
        methods=tuple(
            MethodCost(heading=one.heading, word=one.word, options=tuple(map(_option, one.options)))
            for one in planned.methods
        ),
        refused=planned.ranked.refused,
        assumptions=planned.assumed,
        unknown=planned.unknown,
    )


def _option(one: RankedOption) -> OptionCost:
    offer, costs = one.offer, one.estimate
    rate = costs.tokens_per_s if costs.rate_unit == "tokens" else None
    known = costs.best_hours is not None and costs.worst_hours is not None
    return OptionCost(
        rank=one.rank,
        offer_id=offer.id,
        cloud=offer.cloud,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        memory_gb=offer.memory_gb,
        region=offer.region,
        spot=offer.spot,
        price_usd_h=offer.price_usd_h or Decimal(0),
        hours=Three(best=costs.best_hours or costs.hours, expected=costs.hours, worst=costs.worst_hours or costs.hours),
        hours_known=known,
        tokens_per_s=None if rate is None else TokensPerSecond(expected=rate[0], low=rate[1], high=rate[2]),
        outlook=None if costs.outlook is None else OutlookFields.model_validate(costs.outlook),
        total_usd=Three(best=costs.best_usd, expected=costs.expected_usd, worst=costs.worst_usd),
        components=tuple(map(CostComponent.model_validate, costs.components)),
        risk_usd=one.risk_usd,
        late_hours=costs.late_hours,
        fit=costs.fit,
        marks=one.marks,
        why=one.why,
        assumptions=costs.assumptions,
        unknown=costs.unknown,
    )


def instance_manifest(planned: Planned, policy: Policy) -> InstanceManifest:
    """Return what the recommended option would be rented as."""
    job, best = planned.job, planned.best
    return InstanceManifest(
        schema_version=VERSION,
        made_at=planned.made_at,
        state="planned",
        resources=None if best is None else _resources(best, planned, policy),
        lifecycle=None if best is None else _lifecycle(best, planned, policy),
        run=job.run,
        checkpoint=job.checkpoint,
    )


def _resources(best: RankedOption, planned: Planned, policy: Policy) -> PlanResources:
    offer = best.offer
    return PlanResources(
        offer_id=offer.id,
        cloud=offer.cloud,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        memory_gb_per_gpu=offer.memory_gb,
        region=offer.region,
        country=offer.country,
        spot=offer.spot,
        disk_gb=planned.job.disk_gb,
        image=image_of(planned.job, policy, offer.cloud),
        vcpus=offer.vcpus,
        ram_gb=offer.ram_gb,
    )


def _lifecycle(best: RankedOption, planned: Planned, policy: Policy) -> Lifecycle:
    able, costs = planned.capabilities, best.estimate
    if able is None:
        raise ValueError("an option without the capabilities of its cloud")
    hours = costs.worst_hours or costs.hours
    spend = Authority(costs.worst_usd, costs.expected_usd, rented(hours) + costs.hold_hours)
    needed = approval_plan(policy, spend)
    return Lifecycle(
        hours=hours,
        max_hours_without_override=policy.max_hours,
        needs_override=needed.needs_override,
        warn_before_end_s=max(policy.warn_before_end_s, default=0),
        boot_deadline_s=able.boot_deadline_s or BOOT_DEADLINE_S,
        billed_from=able.billing.starts.value,
        billing_quantum_s=able.billing.quantum_s,
        billing_minimum_s=able.billing.minimum_s,
        storage_billed_while_stopped=able.billing.storage_while_stopped,
        can_stop=able.stop,
        stops_billing=able.meter_stop_verb,
        price_cap_usd_h=price_cap(best.offer.price_usd_h or Decimal(0), policy),
        total_cap_usd=costs.worst_usd,
        amount_is_typed=needed.confirm_amount,
    )


def plan_head(planned: Planned) -> PlanHead:
    """Return the head of the plan, for programs."""
    options = planned.ranked.options
    return PlanHead(
        schema_version=VERSION,
        made_at=planned.made_at,
        recommended=options[0].offer.id if options else None,
        options=tuple(
            PlanLine(
                rank=one.rank,
                offer_id=one.offer.id,
                hours=one.estimate.hours,
                price_usd_h=one.offer.price_usd_h or Decimal(0),
                best_usd=one.estimate.best_usd,
                expected_usd=one.estimate.expected_usd,
                worst_usd=one.estimate.worst_usd,
                marks=one.marks,
            )
            for one in options
        ),
    )


def gpu_plan(planned: Planned) -> str:
    """Return `gpu_plan.md`: a head for programs between two lines of dashes, then the page for people."""
    head = yaml.safe_dump(plan_head(planned).model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return f"{_FENCE}{head}{_FENCE}\n{body(planned)}"
