"""`gpu-shopper plan`: plan a training run and write the plan's files; it rents nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.access.api_client import elsewhere, spoken
from bot.cli.access.job_file import job_in, line_of
from bot.cli.command_table import load
from bot.cli.terminal.screen import UNAVAILABLE, fail, say
from bot.cli.terminal.terminal_tables import print_report
from bot.rules.grammar.column_words import read_columns
from bot.rules.values.bad_word import BadWord
from bot.rules.values.phrases import short_hours
from bot.rules.values.text_table import TextReport
from bot.services.plans.columns import PLAN_COLUMNS, PLAN_COLUMNS_HELP, USUAL, with_columns
from providers.capabilities import PriceSource

#: File → the part of the answer that it holds.
TEXTS = {"gpu_plan.md": "page", "cost_estimate.json": "estimate", "instance_manifest.json": "manifest"}
PICTURE = "gpu_plan.png"
NO_OFFER = 1


def plan(
    job: Annotated[
        list[str], typer.Argument(help="A job file (YAML or JSON; docs/schemas/job.json), or the words: model=7B.")
    ],
    out: str = typer.Option("", help="Folder for gpu_plan.md, gpu_plan.png and the two JSON files."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Does nothing: a plan never rents. Scripts may pass it."),
    columns: str = typer.Option("", help=PLAN_COLUMNS_HELP),
    as_json: bool = typer.Option(False, "--json", help="Print cost_estimate.json."),
) -> None:
    """Plan a training run: memory, time, and the best, expected and worst total on every offer."""
    del dry_run
    try:
        shown = read_columns(columns, PLAN_COLUMNS, USUAL)
    except BadWord as error:
        fail(str(error), 2)
    in_file = len(job) == 1 and job[0].endswith((".yaml", ".yml", ".json"))
    document = job_in(job[0]) if in_file else {"words": line_of(job)}
    answer = _there(document, out) if elsewhere() else load("commands.in_process_market").planned(document, out)
    if out:
        write(answer, Path(out))
    report, sized = TextReport.model_validate(answer["report"]), answer.get("sizing")
    if as_json:
        document = answer["estimate"] if sized is None else {**answer["estimate"], "sizing": sized}
        typer.echo(json.dumps(document, indent=2))
    else:
        # The models of a budget have columns of their own.
        print_report(with_columns(report, shown) if sized is None else report)
        if answer["estimate"]["options"] and _can_rent(answer):
            others = "The other ids: `--columns rank,gpu,offer`." if sized is None else "Plan another by its words."
            say(f"Request #1: `gpu-shopper provision {_words(answer)}`. {others}")
    if not any(cloud["ok"] for cloud in answer["estimate"]["clouds"]):
        raise typer.Exit(UNAVAILABLE)
    if not answer["estimate"]["options"]:
        raise typer.Exit(NO_OFFER)


def _there(document: Mapping[str, Any], out: str) -> Any:
    """Get the same plan from a remote service, with its picture where files are written."""
    return spoken(lambda api: api.post("/plans?chart=true" if out else "/plans", document))


def _can_rent(answer: Mapping[str, Any]) -> bool:
    """Whether the first offer was read with a key."""
    estimate = answer["estimate"]
    first = next(one for one in estimate["clouds"] if one["cloud"] == estimate["options"][0]["cloud"])
    # A service of another release says nothing of sources.
    return bool(first.get("source", PriceSource.ACCOUNT) == PriceSource.ACCOUNT)


def _words(answer: Mapping[str, Any]) -> str:
    """Return what to type after `provision`: the first offer, and the run or, where its time is unknown, the hours."""
    best = answer["estimate"]["options"][0]
    work = answer["estimate"]["work"] if best["hours_known"] else ()
    hours = short_hours(Decimal(answer["manifest"]["lifecycle"]["hours"]))
    return f"offer={best['offer_id']} {' '.join(work) or hours}"


def write(answer: Mapping[str, Any], folder: Path) -> None:
    """Write the plan's files and its picture."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in TEXTS.items():
        made = answer[part]
        text = made if isinstance(made, str) else json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    (folder / PICTURE).write_bytes(base64.b64decode(answer["chart"]))
    typer.echo(f"Written to {folder}: {', '.join(TEXTS)}, {PICTURE}", err=True)
