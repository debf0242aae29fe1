"""`gpu-shopper plan`: what a run needs, takes and costs on every offer; writes the plan's files. Rents nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from bot import logs
from bot.cli.access.api_client import elsewhere, spoken
from bot.cli.lazy import load
from bot.cli.terminal.screen import UNAVAILABLE, fail
from bot.cli.terminal.terminal_tables import tell
from bot.rules.values.text_table import Told

#: File → the part of the answer that it holds.
TEXTS = {
    "gpu_plan.md": "page",
    "cost_estimate.json": "estimate",
    "instance_manifest.json": "manifest",
}
NO_OFFER = 1

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    job: Annotated[
        list[str],
        typer.Argument(help="A file such as job.yaml, one word of the language a line, or the words: model=7B."),
    ],
    out: str = typer.Option("", help="Folder for gpu_plan.md, gpu_plan.png and the two JSON files."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Rent nothing; a plan never does, scripts may say so."),
    as_json: bool = typer.Option(False, "--json", help="Print cost_estimate.json."),
) -> None:
    """Plan a run: memory, hours, total in the best, the expected and the worst case, and which offer to take."""
    del dry_run
    where = elsewhere()
    answer = (
        load("commands.in_process_market").planned(line_of(job), out) if where is None else _there(line_of(job), out)
    )
    if as_json:
        typer.echo(json.dumps(answer["estimate"], indent=2))
    else:
        tell(Told.model_validate(answer["told"]))
    if not any(cloud["ok"] for cloud in answer["estimate"]["clouds"]):
        raise typer.Exit(UNAVAILABLE)
    if not answer["estimate"]["options"]:
        raise typer.Exit(NO_OFFER)


def _there(line: str, out: str) -> Any:
    """The same from the service elsewhere; the chart is drawn where the plan is made."""
    answer = spoken(lambda door: door.post("/plans", {"words": line}))
    if out:
        write_texts(answer, Path(out))
        typer.echo(f"Written to {out}: {', '.join(TEXTS)}; gpu_plan.png is made on the server only.", err=True)
    return answer


def write_texts(answer: Mapping[str, Any], folder: Path) -> None:
    """The plan's files that are text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in TEXTS.items():
        made = answer[part]
        text = made if isinstance(made, str) else json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")


def line_of(said: list[str]) -> str:
    """The words of a file or of the command line as one line of the language of `/gpu plan`."""
    words = _of_file(Path(said[0])) if len(said) == 1 and said[0].endswith((".yaml", ".yml", ".json")) else said
    quoted = [word if "=" not in word else f'{word.partition("=")[0]}="{word.partition("=")[2]}"' for word in words]
    if any(word.count(chr(34)) > 2 for word in quoted):
        fail("A double quote does not belong into a word; write model=7B.", 2)
    return " ".join(quoted)


def _of_file(path: Path) -> list[str]:
    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        fail(f"{path} cannot be read: {logs.visible(str(error).splitlines()[0])}", 2)
    if not isinstance(told, dict) or not told:
        fail(f"{path} needs one word of the language a line, such as model: 7B.", 2)
    return [f"{key}={_said(value)}" for key, value in told.items() if value is not None]


def _said(value: object) -> str:
    """YAML reads yes and no as truth; a list is written with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(_said(one) for one in value) if isinstance(value, list) else str(value)
