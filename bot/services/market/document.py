"""Build the market document and its table: the same figures and sentences for REST, for `--json` and for people."""

from __future__ import annotations

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import Field

from bot.rules.values.phrases import hours, rate, sum_of, usd
from bot.rules.values.text_table import TextReport, TextTable
from bot.services.market.offer_fields import (
    Cloud,
    Code,
    Country,
    ExpectedUsd,
    Marks,
    MaybePricePerHour,
    Parts,
    RankedFields,
    RiskUsd,
    Sentence,
    Spot,
    Strict,
    Why,
    WorstUsd,
)
from ledger.kernel.job import JobRequest

if TYPE_CHECKING:  # A terminal reads these documents without the libraries behind a ranking.
    from bot.rules.market.ranking import RankedOption
    from bot.services.market.catalog import Inventory


class MarketOption(Strict, RankedFields):
    """One ranked offer. `price_usd_h` is for the whole offer, `memory_gb` for each GPU."""

    country: Country
    spot: Spot
    price_usd_h: MaybePricePerHour
    expected_usd: ExpectedUsd
    worst_usd: WorstUsd
    risk_usd: RiskUsd
    read_at: datetime = Field(description="When the cloud gave this price.")
    marks: Marks
    why: Why
    parts: Parts = ""


class MarketCloud(Strict):
    """How one cloud answered; `sentence` says why it did not."""

    cloud: Cloud
    ok: bool = Field(description="Whether all is well.")
    offers: int = Field(description="How many offers it gave.")
    read_at: datetime = Field(description="When the cloud gave this price.")
    sentence: Sentence


class LeftOut(Strict):
    """Offers left out for one reason."""

    code: Code
    count: int = Field(description="How many offers.")
    sentence: Sentence


class MarketLeftOut(LeftOut):
    """Offers that were left out for one reason, with some of their ids."""

    examples: tuple[str, ...] = Field(description="The ids of some of them.")


class MarketDocument(Strict):
    """What is for sale now, ranked by what `hours` would cost. Money is decimal dollars as strings, times are UTC."""

    hours: Decimal = Field(description="The hours for which totals are reckoned.")
    options: tuple[MarketOption, ...] = Field(description="The ranked offers, the best first.")
    answered: int = Field(description="How many offers the clouds gave before any was skipped.")
    clouds: tuple[MarketCloud, ...] = Field(description="How each cloud answered.")
    excluded: tuple[MarketLeftOut, ...] = Field(description="Offers that were skipped, by reason.")
    ages: tuple[str, ...] = Field(description="How old the prices of each cloud are, in words.")

    @property
    def fingerprint(self) -> str:
        """Return a hash that is the same for the same prices read at the same time, however old they have become.

        The time of each cloud's answer is no part of it: a cloud that is not set up has a new one each time.
        """
        content = self.model_dump_json(exclude={"ages": True, "clouds": {"__all__": {"read_at"}}})
        return hashlib.sha256(content.encode()).hexdigest()[:32]


def market_document(market: Inventory, job: JobRequest) -> MarketDocument:
    """Return the document of an inventory answer."""
    return MarketDocument(
        hours=job.hours,
        options=tuple(_option(option) for option in market.ranked.options),
        answered=market.ranked.answered,
        clouds=tuple(
            MarketCloud(cloud=one.cloud, ok=one.ok, offers=one.count, read_at=one.at, sentence=one.sentence)
            for one in market.answers
        ),
        excluded=tuple(
            MarketLeftOut(code=one.reason_code, count=one.count, sentence=one.sentence, examples=one.example_ids)
            for one in market.ranked.excluded
        ),
        ages=market.ages,
    )


def _option(option: RankedOption) -> MarketOption:
    offer, estimate = option.offer, option.estimate
    return MarketOption(
        rank=option.rank,
        offer_id=offer.id,
        cloud=offer.cloud,
        gpu=offer.gpu,
        gpu_count=offer.gpu_count,
        memory_gb=offer.memory_gb,
        region=offer.region,
        country=offer.country,
        spot=offer.spot,
        price_usd_h=offer.price_usd_h,
        expected_usd=estimate.expected_usd,
        worst_usd=estimate.worst_usd,
        risk_usd=option.risk_usd,
        read_at=offer.fetched_at,
        marks=option.marks,
        why=option.why,
        parts=sum_of((part.name, part.expected_usd) for part in estimate.components),
    )


def market_table(found: MarketDocument) -> TextReport:
    """Return the market table: ranked offers, price ages, clouds that did not answer, and what was left out and why."""
    head = ("#", "offer", "GPU", "region", "per hour", f"for {hours(found.hours)}", "why")
    answered = f"{found.answered:,} offer{'' if found.answered == 1 else 's'} answered."
    absent = [one.sentence for one in found.clouds if not one.ok]
    sentences = (*found.ages, *absent, *(one.sentence for one in found.excluded))
    if not found.options:
        return TextReport(sentences=("No offer fits now.", *sentences))
    table = TextTable(head=head, rows=tuple(_market_row(one) for one in found.options))
    return TextReport(tables=(table,), sentences=(answered, *sentences))


def _market_row(one: MarketOption) -> tuple[str, ...]:
    gpus = f"{one.gpu_count}x {one.gpu}{' spot' if one.spot else ''}"
    price = "-" if one.price_usd_h is None else rate(one.price_usd_h)
    why = f"{one.why} Expected: {one.parts}." if one.parts else one.why
    return str(one.rank), one.offer_id, gpus, one.region, price, usd(one.expected_usd), why
