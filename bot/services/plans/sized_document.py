"""Describe the models that a budget trains for programs: every figure of the table, and the words that plan each."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field

from bot.rules.market.model_for_budget import Sized, SizedModel
from bot.services.market.offer_fields import Cloud, ExpectedUsd, GpuCount, GpuName, OfferId, Spot, Strict, WorstUsd
from bot.services.plans.sized_text import sentences
from ledger.kernel import money


class SizedModelDocument(Strict):
    """One model that the budget trains, on the GPUs where its loss is least."""

    params: int = Field(description="Its parameters.")
    tokens: int = Field(description="The tokens that it is trained on.")
    loss: Decimal = Field(description="The loss that the scaling law expects, in nats per token.")
    loss_low: Decimal = Field(description="The lower end of the range that holds four of five runs.")
    loss_high: Decimal = Field(description="The upper end of that range.")
    flops: float = Field(description="FLOPs of the training: 6 for each parameter and token.")
    words: tuple[str, ...] = Field(description="The run in words of the /gpu language, as a plan takes them.")
    offer_id: OfferId
    cloud: Cloud
    gpu: GpuName
    gpu_count: GpuCount
    spot: Spot
    hours: Decimal = Field(description="How long the training is expected to take, in hours.")
    expected_usd: ExpectedUsd
    worst_usd: WorstUsd
    serving_usd: Decimal = Field(description="What the tokens that it serves later cost, in dollars; 0 without any.")


class SizingDocument(Strict):
    """The models that a budget trains, the least loss first, each on another GPU; none where it trains nothing."""

    budget_usd: Decimal = Field(description="The budget in dollars.")
    models: tuple[SizedModelDocument, ...] = Field(description="The models, the least loss first.")
    sentences: tuple[str, ...] = Field(description="The answer and what it rests on, one sentence each.")


def sizing_document(sized: Sized) -> SizingDocument:
    """Return the document of what a budget trains."""
    models = tuple(map(_model, sized.models))
    return SizingDocument(budget_usd=sized.question.budget_usd, models=models, sentences=sentences(sized))


def _model(one: SizedModel) -> SizedModelDocument:
    offer, costs = one.option.offer, one.option.estimate
    return SizedModelDocument(
        params=one.params,
        tokens=one.tokens,
        loss=_loss(one.loss),
        loss_low=_loss(one.loss_low),
        loss_high=_loss(one.loss_high),
        flops=6.0 * one.params * one.tokens,
        words=one.job.work,
        offer_id=offer.id,
        cloud=offer.cloud,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        spot=offer.spot,
        hours=costs.hours,
        expected_usd=costs.expected_usd,
        worst_usd=costs.worst_usd,
        serving_usd=money.amount(one.serving_usd),
    )


def _loss(value: float) -> Decimal:
    return money.half_up(Decimal(value), 4)
