"""Show the market as a table for people, with the columns that they choose. Light to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from bot.rules.values.phrases import hours, place_name, plural, rate, reliability, short_hours, usd
from bot.rules.values.text_table import TextReport, TextTable
from bot.services.market.answers import cloud_cell, lacking
from bot.services.market.document import MarketHead, MarketPage, MarketRow

#: So many places of a row are named; the others are counted.
PLACES = 2
NOTHING = "-"


@dataclass(frozen=True, slots=True)
class MarketColumn:
    """One column: its heading, and the cell of a row."""

    heading: str
    cell: Callable[[MarketRow], str]


def places(row: MarketRow) -> str:
    """Name the countries of a row, or its regions where no country is known: `US, SE +3`."""
    names = [*dict.fromkeys(place_name(one.region, one.country) for one in row.regions)]
    more = f" +{len(names) - PLACES}" if len(names) > PLACES else ""
    return ", ".join(names[:PLACES]) + more


def gpus(row: MarketRow) -> str:
    """Name the GPUs of a row: `4x A100-SXM-80GB`, with `spot` where they may be interrupted."""
    return f"{row.gpu_count}x {row.gpu}{' spot' if row.spot else ''}"


def _trust(row: MarketRow) -> str:
    return NOTHING if row.reliability is None else reliability(row.reliability)


def _number(number: Decimal | int | None, unit: str = "") -> str:
    if number is None:
        return NOTHING
    text = f"{Decimal(number).normalize():,f}"
    return f"{text} {unit}".rstrip()


def _yes(said: bool | None) -> str:
    return NOTHING if said is None else "yes" if said else "no"


def _time(seconds: int | None) -> str:
    if seconds is None:
        return NOTHING
    days = seconds // 86_400
    return f"{days} d" if days else hours(Decimal(seconds) / 3600)


COLUMNS: Mapping[str, MarketColumn] = {
    "rank": MarketColumn("#", lambda row: str(row.rank)),
    "offer": MarketColumn("offer", lambda row: row.offer_id),
    "cloud": MarketColumn("cloud", lambda row: cloud_cell(row.cloud, row.source)),
    "gpu": MarketColumn("GPU", gpus),
    "memory": MarketColumn("GB/GPU", lambda row: _number(row.memory_gb)),
    "region": MarketColumn("region", places),
    "price": MarketColumn("$/h", lambda row: rate(row.price_usd_h).removesuffix("/h")),
    "gpu-price": MarketColumn("$/GPU/h", lambda row: rate(row.price_usd_gpu_h).removesuffix("/h")),
    "total": MarketColumn("total", lambda row: usd(row.expected_usd)),
    "reliability": MarketColumn("reliable", _trust),
    "verified": MarketColumn("verified", lambda row: _yes(row.verified)),
    "datacenter": MarketColumn("datacenter", lambda row: _yes(row.datacenter)),
    "cuda": MarketColumn("CUDA", lambda row: _number(row.cuda)),
    "capability": MarketColumn("capability", lambda row: _number(row.compute_capability)),
    "available": MarketColumn("available", lambda row: _time(row.available_for_s)),
    "vcpus": MarketColumn("vCPUs", lambda row: _number(row.vcpus)),
    "ram": MarketColumn("RAM", lambda row: _number(row.ram_gb, "GB")),
    "disk": MarketColumn("largest disk", lambda row: _number(row.disk_gb_max, "GB")),
    "disk-price": MarketColumn("disk $/h", lambda row: usd(row.disk_usd_h)),
    "network": MarketColumn("download", lambda row: _number(row.download_mbps, "Mbit/s")),
    "egress": MarketColumn("$/GB out", lambda row: usd(row.egress_usd_gb)),
    "stock": MarketColumn("stock", lambda row: row.regions[0].stock or NOTHING),
}
#: What is shown unless somebody chooses: it fits 80 columns.
USUAL = ("gpu", "memory", "cloud", "region", "price", "reliability")
#: Said where the ids are not shown: they are long, and only a request for one certain offer needs them.
IDS = "Offer ids: add `--columns gpu,price,offer`."
COLUMNS_HELP = f"Which columns: {', '.join(COLUMNS)}, or all."


def market_table(found: MarketPage, columns: tuple[str, ...] = USUAL) -> TextReport:
    """Return what is for sale as a table, and below it what people should know."""
    if not found.items:
        return TextReport(sentences=(found.summary, *found.notes))
    chosen = [COLUMNS[name] for name in columns]
    rows = tuple(tuple(column.cell(row) for column in chosen) for row in found.items)
    ids = () if "offer" in columns else (IDS,)
    head = tuple(
        f"for {short_hours(found.hours)}" if column.heading == "total" else column.heading for column in chosen
    )
    return TextReport(tables=(TextTable(head=head, rows=rows),), sentences=(below(found), *ids, *found.notes))


def below(found: MarketPage) -> str:
    """Say how many there are, whether these are all of them, and what the prices include."""
    if len(found.items) == found.rows:
        return found.summary
    shown = f"Shown: {len(found.items):,} of {plural(found.rows, 'offer')}. {found.terms}"
    return f"{lacking(found.clouds)} {shown}".strip()


def in_words(found: MarketPage) -> tuple[str, ...]:
    """Return a page as lines for a program that reads prose: what there is, a line for each row, what to know."""
    more = (f"For the next rows send cursor={found.next_cursor}.",) if found.next_cursor else ()
    return (below(found), *map(sentence, found.items), *more, *found.notes)


def sentence(row: MarketRow) -> str:
    """Describe a row: `1: vast:123, 1x RTX4090 with 24 GB at vast in US, $0.34/h, 99.5% reliable.`"""
    known = [f"{reliability(row.reliability)} reliable"] if row.reliability is not None else []
    known += [row.warning.removesuffix(".")] if row.warning else []
    machine = f"{gpus(row)} with {_number(row.memory_gb)} GB at {row.cloud} in {places(row)}"
    return f"{row.rank}: {', '.join([row.offer_id, machine, rate(row.price_usd_h), *known])}."


def answered(found: MarketHead) -> bool:
    """Whether any cloud answered."""
    return any(one.ok for one in found.clouds)
