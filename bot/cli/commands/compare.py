"""`gpu-shopper compare`: dollars per run and runs per budget on every GPU for sale and in other environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.access.api_client import elsewhere, spoken
from bot.cli.access.job_file import line_of
from bot.cli.command_table import load
from bot.cli.terminal.screen import UNAVAILABLE
from bot.cli.terminal.terminal_tables import print_report
from bot.rules.values.phrases import read_amount
from bot.rules.values.text_table import TextReport

PAGE = Path("environment-options.md")


def compare(
    said: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help="The budget in dollars: 500; or a run: model=7B tokens=2B."),
    ] = None,
    budget: str = typer.Option("", help="The budget in dollars, with semicolons for several: 500;5000."),
    hours: str = typer.Option("", help="How long one run takes: 1h, 90m."),
    buffer: str = typer.Option("", help="Kept for retries and restarts: 10%."),
    baseline: str = typer.Option("", help="A price per hour that savings are measured against."),
    success: str = typer.Option("", help="How many runs succeed: 80%."),
    value: str = typer.Option("", help="What one success is worth in dollars."),
    as_markdown: bool = typer.Option(False, "--markdown", help=f"Write {PAGE}."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document with every figure."),
) -> None:
    """Compare what a run costs on every GPU for sale now, and in environments that cannot be rented here.

    With a model, the same work is compared: dollars of the run and of a million tokens, and which GPUs cannot run it.
    """
    alone = said[0] if said and len(said) == 1 and "=" not in said[0] and read_amount(said[0]) is not None else ""
    line = "" if alone else line_of(said or [])
    times = {"budget": budget or alone, "hours": hours, "buffer": buffer}
    words = {**times, "baseline": baseline, "success": success, "value": value}
    if elsewhere():
        given = {name: word for name, word in words.items() if word}
        answer = spoken(lambda api: api.post("/compare", {"line": line, "words": given}))
    else:
        answer = load("commands.in_process_market").comparison(line, words)
    if as_markdown:
        PAGE.write_text(answer["page"], encoding="utf-8")
        typer.echo(f"{PAGE} written.", err=as_json)
    if as_json:
        figures = {name: answer[name] for name in ("answers", "ages")}
        typer.echo(json.dumps({**answer["comparison"], **figures}, indent=2))
    elif not as_markdown:
        print_report(TextReport.model_validate(answer["report"]))
    if not any(cloud["ok"] for cloud in answer["answers"]):
        raise typer.Exit(UNAVAILABLE)
