"""`gpu-shopper compare`: dollars per run and runs per budget on every GPU for sale, and beside the clouds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from bot.cli.market import NO_CLOUD, command_of, marketed, policy_of
from bot.cli.shared import settings
from bot.cli.telling import tell
from bot.rules.comparison import Question
from bot.rules.comparison_text import markdown, to_json
from bot.rules.policy import Policy
from bot.services.planning import Compared, compare_market
from bot.services.tables import told_comparison

PAGE = Path("environment-options.md")

app = typer.Typer()


@app.command()
def compare(
    budget: str = typer.Option("", help="What there is to spend, with semicolons for several: 500;5000."),
    hours: str = typer.Option("", help="How long one run takes: 1h, 90m."),
    buffer: str = typer.Option("", help="Kept for retries and restarts: 10%."),
    baseline: str = typer.Option("", help="A price per hour that savings are measured against."),
    success: str = typer.Option("", help="How many runs succeed: 80%."),
    value: str = typer.Option("", help="What one success is worth in dollars."),
    as_markdown: bool = typer.Option(False, "--markdown", help=f"Write {PAGE}."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document with every figure."),
) -> None:
    """Compare what a run costs on every GPU for sale now, and in environments that cannot be rented here."""
    words = {
        "budget": budget,
        "hours": hours,
        "buffer": buffer,
        "baseline": baseline,
        "success": success,
        "value": value,
    }
    found = settings()
    policy = policy_of(found)
    question = question_of(words, policy)
    compared = marketed(found, lambda catalog, clock: compare_market(catalog, clock, question, policy))
    if as_markdown:
        PAGE.write_text(markdown(compared.found), encoding="utf-8")
        typer.echo(f"{PAGE} written.", err=as_json)
    if as_json:
        typer.echo(json.dumps(document(compared), indent=2))
    elif not as_markdown:
        tell(told_comparison(compared))
    if not any(answer.ok for answer in compared.answers):
        raise typer.Exit(NO_CLOUD)


def question_of(words: dict[str, str], policy: Policy) -> Question:
    """The options read by the same language as `/gpu compare`; ends the program at a word that it refuses."""
    parsed = command_of("compare", words, policy, example="--budget 500")
    if parsed.question is None:
        raise ValueError("a comparison without a question")
    return parsed.question


def document(compared: Compared) -> dict[str, Any]:
    """Every figure, and how each cloud answered."""
    answers = [{"cloud": one.cloud, "ok": one.ok, "sentence": one.sentence} for one in compared.answers]
    return {**to_json(compared.found), "answers": answers, "ages": list(compared.ages)}
