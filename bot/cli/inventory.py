"""`gpu-shopper inventory`: the merged market of all clouds that are set up. Buys and writes nothing."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from bot import logs
from bot.cli.market import NO_CLOUD, command_of, marketed, policy_of
from bot.cli.shared import console, fail, settings
from bot.rules.job import JobArgs, job_request
from bot.rules.policy import Policy
from bot.rules.ranking import RankedOption
from bot.rules.wording import hours, plural, rate, usd
from bot.services.catalog import Inventory, absent
from bot.services.planning import LOOK_HOURS
from ledger.values import JobRequest

app = typer.Typer()


@app.command()
def inventory(
    gpu: str = typer.Option("", help="GPU names in any spelling, with commas: 4090,a100."),
    count: str = typer.Option("", help="How many GPUs: 2 or 1-4."),
    gpu_ram: str = typer.Option("", help="Memory per GPU: 24GB exactly, 24GB+ at least, 24-80GB."),
    min_vram: int = typer.Option(0, min=0, help="Least memory per GPU in GB."),
    max_price: str = typer.Option("", help="The most per hour for the whole offer, in dollars."),
    provider: str = typer.Option("", help="Only these clouds: vast,runpod."),
    region: str = typer.Option("", help="Only in these regions or countries: US,EU."),
    spot: str = typer.Option("", help="no (the default), yes or any."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Show what is for sale now at every cloud, how old each price is, and what was left out and why."""
    if gpu_ram and min_vram:
        fail("--gpu-ram and --min-vram say the same; give one of them.", 2)
    words = {
        "gpu": gpu,
        "count": count,
        "memory": gpu_ram or (f"{min_vram}GB+" if min_vram else ""),
        "price": max_price,
        "clouds": provider,
        "region": region,
        "spot": spot,
    }
    found = settings()
    policy = policy_of(found)
    wanted = job_of(words, policy)
    market = marketed(found, lambda catalog, _: catalog.inventory(wanted, policy))
    if as_json:
        typer.echo(json.dumps(document(market), indent=2))
    else:
        show(market, wanted)
    if not any(answer.ok for answer in market.answers):
        raise typer.Exit(NO_CLOUD)


def job_of(words: dict[str, str], policy: Policy) -> JobRequest:
    """The options read by the same language as `/gpu inventory`; ends the program at a word that it refuses."""
    parsed = command_of("inventory", words, policy, example="--region US,EU")
    return job_request(parsed.args or JobArgs(), policy, LOOK_HOURS)


def notes(market: Inventory) -> list[str]:
    """The sentences under the table: the age of the prices, who did not answer, what was left out and why."""
    return [*market.ages, *absent(market.answers), *(one.sentence for one in market.ranked.excluded)]


def show(market: Inventory, wanted: JobRequest) -> None:
    """A table for people. Text of clouds is escaped and stripped of control characters."""
    out = console()
    options = market.ranked.options
    if options:
        table = Table("#", "offer", "GPU", "region", "per hour", f"for {hours(wanted.hours)}", "why", box=None)
        for option in options:
            table.add_row(*(escape(logs.visible(cell)) for cell in _cells(option)))
        out.print(table)
        out.print(f"{plural(market.ranked.answered, 'offer')} answered.")
    else:
        out.print("No offer fits now.")
    for note in notes(market):
        out.print(escape(logs.visible(logs.redact(note))))


def _cells(option: RankedOption) -> tuple[str, ...]:
    offer = option.offer
    price = rate(offer.price_usd_h or Decimal(0))
    gpus = f"{offer.gpu_count}x {offer.gpu}{' spot' if offer.spot else ''}"
    return (str(option.rank), offer.id, gpus, offer.region, price, usd(option.estimate.expected_usd), option.why)


def document(market: Inventory) -> dict[str, Any]:
    """The same for programs. Money is a decimal string, times are ISO 8601 in UTC."""
    return {
        "options": [_option(option) for option in market.ranked.options],
        "answered": market.ranked.answered,
        "clouds": [
            {
                "cloud": one.cloud,
                "ok": one.ok,
                "offers": one.count,
                "read_at": one.at.isoformat(),
                "sentence": one.sentence,
            }
            for one in market.answers
        ],
        "excluded": [
            {"code": one.reason_code, "count": one.count, "sentence": one.sentence, "examples": list(one.example_ids)}
            for one in market.ranked.excluded
        ],
    }


def _option(option: RankedOption) -> dict[str, Any]:
    offer, estimate = option.offer, option.estimate
    return {
        "rank": option.rank,
        "offer_id": offer.id,
        "cloud": offer.cloud,
        "gpu": offer.gpu,
        "gpu_count": offer.gpu_count,
        "memory_gb": str(offer.memory_gb),
        "region": offer.region,
        "country": offer.country,
        "spot": offer.spot,
        "price_usd_h": str(offer.price_usd_h),
        "expected_usd": str(estimate.expected_usd),
        "worst_usd": str(estimate.worst_usd),
        "risk_usd": str(option.risk_usd),
        "read_at": offer.fetched_at.isoformat(),
        "marks": list(option.marks),
        "why": option.why,
    }
