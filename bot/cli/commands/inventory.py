"""`gpu-shopper inventory`: show the merged market of all configured clouds; it buys and writes nothing."""

from __future__ import annotations

import typer

from bot.cli.access.api_client import elsewhere, spoken
from bot.cli.lazy import load
from bot.cli.terminal.screen import UNAVAILABLE, fail
from bot.cli.terminal.terminal_tables import print_report
from bot.services.market.document import MarketDocument, market_table


def inventory(
    gpu: str = typer.Option("", help="GPU names in any spelling, with commas: 4090,a100."),
    count: str = typer.Option("", help="How many GPUs: 2 or 1-4."),
    gpu_ram: str = typer.Option("", help="Memory per GPU: 24GB exactly, 24GB+ at least, 24-80GB."),
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
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Show what every cloud sells now, how old each price is, and which offers were skipped and why."""
    if gpu_ram and min_vram:
        fail("--gpu-ram and --min-vram say the same; give one of them.", 2)
    words = {
        "gpu": gpu,
        "count": count,
        "memory": gpu_ram or (f"{min_vram}GB+" if min_vram else ""),
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
    }
    if elsewhere():
        document = MarketDocument.model_validate(spoken(lambda api: api.get("/inventory", **words)))
    else:
        document = load("commands.in_process_inventory").inventory(words)
    if as_json:
        typer.echo(document.model_dump_json(indent=2))
    else:
        print_report(market_table(document))
    if not any(cloud.ok for cloud in document.clouds):
        raise typer.Exit(UNAVAILABLE)
