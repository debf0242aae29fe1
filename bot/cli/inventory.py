"""`gpu-shopper inventory`: the merged market of all clouds that are set up. Buys and writes nothing."""

from __future__ import annotations

import typer

from bot.cli.market import NO_CLOUD, command_of, marketed, policy_of
from bot.cli.shared import fail, settings
from bot.cli.telling import tell
from bot.rules.job import JobArgs, job_request
from bot.rules.policy import Policy
from bot.services.market_document import market_document
from bot.services.planning import LOOK_HOURS
from bot.services.tables import told_market
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
    document = market_document(market, wanted)
    if as_json:
        typer.echo(document.model_dump_json(indent=2))
    else:
        tell(told_market(document))
    if not any(cloud.ok for cloud in document.clouds):
        raise typer.Exit(NO_CLOUD)


def job_of(words: dict[str, str], policy: Policy) -> JobRequest:
    """The options read by the same language as `/gpu inventory`; ends the program at a word that it refuses."""
    parsed = command_of("inventory", words, policy, example="--region US,EU")
    return job_request(parsed.args or JobArgs(), policy, LOOK_HOURS)
