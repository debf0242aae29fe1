"""The market as a document: the same figures and sentences for REST, for `--json` and behind the table for people."""

from __future__ import annotations

import hashlib
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from bot.rules.values.phrases import sum_of
from ledger.kernel.job import JobRequest

if TYPE_CHECKING:  # A terminal reads these documents without the libraries behind a ranking.
    from bot.rules.market.ranking import RankedOption
    from bot.services.market.catalog import Inventory


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MarketOption(_Strict):
    """One ranked offer. `price_usd_h` is for the whole offer, `memory_gb` for each GPU."""

    rank: int
    offer_id: str
    cloud: str
    gpu: str
    gpu_count: int
    memory_gb: Decimal
    region: str
    country: str | None
    spot: bool
    price_usd_h: Decimal | None
    expected_usd: Decimal
    worst_usd: Decimal
    risk_usd: Decimal
    read_at: datetime
    marks: tuple[str, ...]
    why: str
    #: What the expected total is made of, in words.
    parts: str = ""


class MarketCloud(_Strict):
    """How one cloud answered; `sentence` says why it did not."""

    cloud: str
    ok: bool
    offers: int
    read_at: datetime
    sentence: str


class MarketLeftOut(_Strict):
    """Offers that were left out for one reason, with some of their ids."""

    code: str
    count: int
    sentence: str
    examples: tuple[str, ...]


class MarketDocument(_Strict):
    """What is for sale now, ranked by what `hours` would cost. Money is decimal dollars as strings, times are UTC."""

    hours: Decimal
    options: tuple[MarketOption, ...]
    answered: int
    clouds: tuple[MarketCloud, ...]
    excluded: tuple[MarketLeftOut, ...]
    ages: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """The same for the same prices read at the same time; that they have grown older changes nothing.

        When a cloud that gave nothing was asked is no part of it: one that is not set up here is asked each time.
        """
        told = self.model_dump_json(exclude={"ages": True, "clouds": {"__all__": {"read_at"}}})
        return hashlib.sha256(told.encode()).hexdigest()[:32]


def market_document(market: Inventory, job: JobRequest) -> MarketDocument:
    """The document of an inventory answer."""
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
