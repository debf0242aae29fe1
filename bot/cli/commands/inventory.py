"""`gpu-shopper inventory`: list what all configured clouds sell; it buys and writes nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Annotated

import typer

from bot.cli.access.api_client import elsewhere, spoken
from bot.cli.access.job_file import least_memory, line_of
from bot.cli.command_table import load
from bot.cli.terminal.screen import UNAVAILABLE, console, fail
from bot.cli.terminal.terminal_tables import print_report
from bot.rules.grammar.column_words import read_columns
from bot.rules.market.sort_key import SORT_HELP
from bot.rules.values.bad_word import BadWord
from bot.rules.values.text_table import TextReport
from bot.services.market.document import MarketPage, market_page, pieces
from bot.services.market.market_table import COLUMNS, COLUMNS_HELP, USUAL, answered, market_table


def inventory(
    said: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="What you look for, as in Slack: 4090 US.")
    ] = None,
    gpu: str = typer.Option("", help="GPU names in any spelling, with commas: 4090,a100."),
    count: str = typer.Option("", "--count", "--gpus", help="How many GPUs: 2 or 1-4."),
    gpu_ram: str = typer.Option("", help="Memory per GPU: 24 or 24GB+ at least, 24GB exactly, 24-80GB."),
    min_vram: int = typer.Option(0, min=0, help="Least memory per GPU in GB."),
    max_price: str = typer.Option("", help="The most per hour for the whole offer, in dollars."),
    provider: str = typer.Option("", help="Only these clouds: vast,runpod."),
    region: str = typer.Option("", help="Only in these regions or countries: US,EU."),
    spot: str = typer.Option("", help="no (the default), yes or any."),
    disk: str = typer.Option("", help="Least disk: 200GB, 1TB."),
    reliability: str = typer.Option("", help="Least reliability: 0.98 or 98%."),
    total: str = typer.Option("", help="Least memory of all GPUs together: 160GB."),
    verified: str = typer.Option("", help="yes: only machines that their cloud has verified."),
    cuda: str = typer.Option("", help="Least CUDA that the driver runs: 12.4."),
    capability: str = typer.Option("", help="Least CUDA compute capability: 8.9 or sm_89."),
    available: str = typer.Option("", help="For how long the cloud must expect the offer to be there: 24h, 3d."),
    sort: str = typer.Option("", help=SORT_HELP),
    limit: int = typer.Option(0, min=0, help="How many rows at most; 0 for all."),
    columns: str = typer.Option("", help=COLUMNS_HELP),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document, a row on each line."),
) -> None:
    """List what every cloud sells now; on a terminal a long list opens in a pager."""
    if gpu_ram and min_vram:
        fail("--gpu-ram and --min-vram say the same; give one of them.", 2)
    try:
        shown = read_columns(columns, COLUMNS, USUAL)
    except BadWord as error:
        fail(str(error), 2)
    words = {
        "words": line_of(said or ()),
        "gpu": gpu,
        "count": count,
        "memory": f"{min_vram}GB+" if min_vram else least_memory(gpu_ram),
        "max_price": max_price,
        "provider": provider,
        "region": region,
        "spot": spot,
        "disk": disk,
        "reliability": reliability,
        "total": total,
        "verified": verified,
        "cuda": cuda,
        "capability": capability,
        "available": available,
        "sort": sort,
    }
    found = _as_json(words, limit) if as_json else _page(words, limit)
    if not as_json:
        _show(market_table(found, shown))
    if not answered(found):
        raise typer.Exit(UNAVAILABLE)


def _page(words: dict[str, str], limit: int) -> MarketPage:
    if elsewhere():
        return MarketPage.model_validate(spoken(lambda api: api.get("/inventory", limit=limit or "all", **words)))
    return market_page(load("commands.in_process_inventory").inventory(words), 0, limit or None)


def _show(report: TextReport) -> None:
    """Print a report, in a pager where it is longer than the screen; PAGER and LESS choose which and how."""
    out = console()
    if not out.is_terminal or sum(len(table.rows) for table in report.tables) < out.height:
        print_report(report, is_list=True)
        return
    os.environ.setdefault("LESS", "FRX")  # Colours, no clearing, and the end at once where all fits: as git does.
    with out.pager(styles=True):
        print_report(report, out)


def _as_json(words: dict[str, str], limit: int) -> MarketPage:
    """Print the document as it arrives, whatever its length, and return what it says beside its rows."""
    if elsewhere():
        return spoken(lambda api: _copied(api.lines("/inventory", limit=limit or "all", **words)))
    listing = load("commands.in_process_inventory").inventory(words)
    for piece in pieces(listing, 0, limit or None):
        typer.echo(piece, nl=False)
    return market_page(listing, 0, 0)


async def _copied(lines: AsyncIterator[str]) -> MarketPage:
    first = ""
    async for line in lines:
        first = first or line
        typer.echo(line)
    # A short answer is one line; of a long one the first line ends where its rows begin.
    return MarketPage.model_validate_json(first if first.endswith("}") else f"{first}]}}")
