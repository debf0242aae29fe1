"""Build the market document: the same figures and sentences for REST, for `--json`, for MCP and for tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bot.rules.market.sort_key import SortKey
from bot.rules.values.phrases import plural
from bot.services.market.answers import CloudAnswer, completeness_of, lacking, nothing_found, refusals, without_key
from bot.services.market.offer_fields import (
    Cloud,
    Code,
    Country,
    ExpectedUsd,
    GpuCount,
    GpuName,
    HowComplete,
    ListedOn,
    OfferId,
    PricePerHour,
    Region,
    Sentence,
    Source,
    Spot,
    Strict,
)
from ledger.kernel import money
from providers.capabilities import PriceSource
from providers.completeness import UNKNOWN

if TYPE_CHECKING:  # A terminal reads these documents without the libraries behind a ranking.
    from bot.rules.market.listing import OfferRow
    from bot.services.market.catalog import MarketListing

_ZERO = Decimal(0)
#: So many rows are made at a time where a whole listing is written piece by piece.
PIECE = 100


class MarketPlace(Strict):
    """One place where the offer of a row is for sale, with the id to request it there."""

    offer_id: OfferId
    region: Region
    country: Country
    stock: str | None = Field(description="How much is left there: high, medium, low; null where nobody says.")


class MarketRow(Strict):
    """One offer in all the regions that sell it alike. Null means that its cloud does not say."""

    rank: int = Field(description="Its place in this order, from 1.")
    offer_id: OfferId
    cloud: Cloud
    gpu: GpuName
    gpu_count: GpuCount
    memory_gb: Decimal = Field(description="Memory of each GPU in GB.")
    spot: Spot
    price_usd_h: PricePerHour
    price_usd_gpu_h: Decimal = Field(description="Dollars per hour for each GPU.")
    disk_usd_h: Decimal = Field(description="The part of price_usd_h that is for the disk; 0 where it is free.")
    expected_usd: ExpectedUsd
    regions: tuple[MarketPlace, ...] = Field(description="Where it is for sale, the best ranked place first.")
    reliability: Decimal | None = Field(description="The share of time that the machine was up, from 0 to 1.")
    verified: bool | None = Field(description="Whether its cloud has verified the machine.")
    datacenter: bool | None = Field(description="Whether the machine stands in a datacenter.")
    cuda: Decimal | None = Field(description="The newest CUDA that its driver runs.")
    compute_capability: Decimal | None = Field(description="The GPU's CUDA compute capability.")
    available_for_s: int | None = Field(description="For how many seconds its cloud expects it to be available.")
    vcpus: int | None = Field(description="How many virtual processors.")
    ram_gb: Decimal | None = Field(description="Main memory in GB.")
    disk_gb_max: int | None = Field(description="The largest disk in GB.")
    download_mbps: Decimal | None = Field(description="Download in Mbit/s.")
    egress_usd_gb: Decimal = Field(description="Dollars per GB sent.")
    ingress_usd_gb: Decimal = Field(description="Dollars per GB received.")
    warning: str = Field(description="What to know before choosing it; empty when there is nothing.")
    read_at: datetime = Field(description="When the cloud gave this price.")
    source: Source = PriceSource.ACCOUNT


class MarketCloud(Strict):
    """How one cloud answered; `sentence` says why it gave no offers."""

    cloud: Cloud
    ok: bool = Field(description="Whether all is well.")
    offers: int = Field(description="How many offers it gave.")
    read_at: datetime = Field(description="When the cloud gave this price.")
    sentence: Sentence
    silent: bool = Field(default=False, description="Whether it gave no answer in time, so its offers are unknown.")
    set_up: bool = Field(default=True, description="Whether it is set up here; no other is asked.")
    source: Source = PriceSource.ACCOUNT
    listed_on: ListedOn = None
    completeness: HowComplete = UNKNOWN
    reading: bool = Field(
        default=False, description="Whether more offers of this cloud are being read; ask again soon."
    )
    copied_at: datetime | None = Field(
        default=None, description="When the other offers were read, if they are from the copy of the market; else null."
    )


class LeftOut(Strict):
    """Offers left out for one reason."""

    code: Code
    count: int = Field(description="How many offers.")
    sentence: Sentence


class MarketLeftOut(LeftOut):
    """Offers that were left out for one reason, with some of their ids."""

    examples: tuple[str, ...] = Field(description="The ids of some of them.")


class MarketHead(Strict):
    """What a page of the market says beside its rows. Money is decimal dollars as strings, times are UTC."""

    hours: Decimal = Field(description="The hours for which totals are computed.")
    disk_gb: int = Field(description="Every price per hour includes a disk of so many GB.")
    sort: SortKey = Field(description="What comes first.")
    rows: int = Field(description="How many rows there are on all pages.")
    offers: int = Field(description="How many offers these rows hold: a row has one offer for each region.")
    clouds: tuple[MarketCloud, ...] = Field(description="How each cloud answered.")
    completeness: HowComplete = UNKNOWN
    excluded: tuple[MarketLeftOut, ...] = Field(description="Offers that were left out, by reason.")
    advice: tuple[str, ...] = Field(description="What to change when nothing fits, and which places there are.")
    next_cursor: str | None = Field(
        description="What to send as `cursor` within 10 minutes for the next page of the same prices; null at the end."
    )

    @property
    def summary(self) -> str:
        """Say which clouds did not answer, how many offers there are, and what their prices include."""
        if not self.rows:
            return nothing_found(self.clouds)
        return f"{lacking(self.clouds)} {plural(self.rows, 'offer')}. {self.terms}".strip()

    @property
    def terms(self) -> str:
        """Say what the prices include, and that an offer in several regions is one, where there is such an offer."""
        once = " An offer in several regions is counted once." if self.rows != self.offers else ""
        return f"Prices per hour include a disk of {self.disk_gb} GB.{once}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what else people should know: what to change, what was left out, which clouds refused."""
        left_out = () if self.rows else tuple(one.sentence for one in self.excluded)
        return (*self.advice, *left_out, *without_key(self.clouds), *refusals(self.clouds))


class MarketPage(MarketHead):
    """One page of what is for sale, or all of it."""

    items: tuple[MarketRow, ...] = Field(description="The rows of this page.")


def cloud_facts(one: CloudAnswer) -> dict[str, Any]:
    """Return how one cloud answered under the names that documents use."""
    return {
        "cloud": one.cloud,
        "ok": one.ok,
        "offers": one.count,
        "read_at": one.at,
        "sentence": one.sentence,
        "silent": one.silent,
        "set_up": one.set_up,
        "source": one.source,
        "listed_on": one.listed_on,
        "completeness": one.completeness,
        "reading": one.reading,
        "copied_at": one.copied_at,
    }


def head(listing: MarketListing, next_cursor: str | None = None) -> MarketHead:
    """Return what every page of a listing says beside its rows."""
    return MarketHead(
        hours=listing.job.hours,
        disk_gb=listing.job.disk_gb,
        sort=listing.sort,
        rows=len(listing.rows),
        offers=listing.offers,
        clouds=tuple(MarketCloud(**cloud_facts(one)) for one in listing.answers),
        completeness=completeness_of(listing.answers),
        excluded=tuple(
            MarketLeftOut(code=one.reason_code, count=one.count, sentence=one.sentence, examples=one.example_ids)
            for one in listing.excluded
        ),
        advice=listing.advice,
        next_cursor=next_cursor,
    )


def cursor_after(listing: MarketListing, end: int) -> str | None:
    """Name the rest of a listing behind row `end`; None where nothing is left."""
    return f"{listing.id}.{end}" if end < len(listing.rows) else None


#: What `cursor_after` writes.
CURSOR = r"^[0-9a-f]{16}\.[0-9]{1,7}$"


def read_cursor(cursor: str) -> tuple[str, int]:
    """Return the name of the listing and the first row that are named by a cursor of the shape `CURSOR`."""
    name, _, start = cursor.partition(".")
    return name, int(start)


def market_page(listing: MarketListing, start: int = 0, limit: int | None = None) -> MarketPage:
    """Return `limit` rows of a listing from row `start`, counted from 0; all that follow without a limit."""
    end = len(listing.rows) if limit is None else start + limit
    about = head(listing, cursor_after(listing, end))
    return MarketPage(**dict(about), items=tuple(_rows(listing, start, end)))


def pieces(listing: MarketListing, start: int = 0, limit: int | None = None) -> Iterator[str]:
    """Write the document of `market_page` piece by piece, a row on each line, in constant memory."""
    end = len(listing.rows) if limit is None else min(start + limit, len(listing.rows))
    yield head(listing, cursor_after(listing, end)).model_dump_json().removesuffix("}") + ',"items":['
    for at in range(start, end, PIECE):
        lead = "\n" if at == start else ",\n"
        yield lead + ",\n".join(row.model_dump_json() for row in _rows(listing, at, min(at + PIECE, end)))
    yield "\n]}\n"


def _rows(listing: MarketListing, start: int, end: int) -> Iterator[MarketRow]:
    """Return the rows from `start` up to `end`, counted from 0. Their totals are computed now: most are never shown."""
    for rank, row in enumerate(listing.rows[start:end], start + 1):
        yield _row(rank, row, listing.market.expected_usd(row[0]))


def _row(rank: int, row: OfferRow, expected_usd: Decimal) -> MarketRow:
    first = row[0]
    price = first.price_usd_h or _ZERO
    return MarketRow(
        rank=rank,
        offer_id=first.id,
        cloud=first.cloud,
        gpu=first.gpu,
        gpu_count=first.gpu_count,
        memory_gb=first.memory_gb,
        spot=first.spot,
        price_usd_h=price,
        price_usd_gpu_h=money.amount(price / first.gpu_count),
        disk_usd_h=first.storage_usd_h,
        expected_usd=expected_usd,
        regions=tuple(
            MarketPlace(
                offer_id=one.id,
                region=one.region,
                country=one.country,
                stock=None if one.stock is None else one.stock.value,
            )
            for one in row
        ),
        reliability=_known(first.reliability),
        verified=first.verified,
        datacenter=first.datacenter,
        cuda=_known(first.cuda_max),
        compute_capability=_known(first.compute_capability),
        available_for_s=first.available_for_s,
        vcpus=first.vcpus,
        ram_gb=_known(first.ram_gb),
        disk_gb_max=first.disk_gb_max,
        download_mbps=_known(first.download_mbps),
        egress_usd_gb=first.egress_usd_gb,
        ingress_usd_gb=first.ingress_usd_gb,
        warning=first.warning,
        read_at=first.fetched_at,
        source=first.source,
    )


def _known(number: Decimal | None) -> Decimal | None:
    """Return a number, or None where the cloud said something that is none."""
    return number if number is not None and number.is_finite() else None
