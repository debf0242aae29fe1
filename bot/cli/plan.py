"""`gpu-shopper plan`: what a run needs, takes and costs on every offer; writes the plan's files. Rents nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from bot import logs
from bot.cli.market import NO_CLOUD, marketed, policy_of
from bot.cli.shared import fail, settings
from bot.cli.telling import tell
from bot.rules.grammar import GrammarError, parse
from bot.rules.job import JobArgs, job_request
from bot.rules.policy import Policy
from bot.services.chart import chart
from bot.services.deliverables import cost_estimate, gpu_plan, instance_manifest
from bot.services.planning import LOOK_HOURS, Planned
from bot.services.planning import plan as make_plan
from bot.services.tables import told_plan
from ledger.values import JobRequest

NO_OFFER = 1

app = typer.Typer()


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
    found = settings()
    policy = policy_of(found)
    wanted = job_of(job, policy)
    planned = marketed(found, lambda catalog, clock: make_plan(catalog, clock, wanted, policy))
    estimate = cost_estimate(planned).model_dump_json(indent=2)
    if out:
        write(planned, policy, Path(out))
        typer.echo(f"Written to {out}: gpu_plan.md, gpu_plan.png, cost_estimate.json, instance_manifest.json", err=True)
    if as_json:
        typer.echo(estimate)
    else:
        tell(told_plan(planned))
    if not any(answer.ok for answer in planned.answers):
        raise typer.Exit(NO_CLOUD)
    if planned.best is None:
        raise typer.Exit(NO_OFFER)


def job_of(said: list[str], policy: Policy) -> JobRequest:
    """The words of a file or of the command line, read by the language of `/gpu plan`."""
    words = _of_file(Path(said[0])) if len(said) == 1 and said[0].endswith((".yaml", ".yml", ".json")) else said
    quoted = [word if "=" not in word else f'{word.partition("=")[0]}="{word.partition("=")[2]}"' for word in words]
    if any(word.count(chr(34)) > 2 for word in quoted):
        fail("A double quote does not belong into a word; write model=7B.", 2)
    parsed = parse(f"plan {' '.join(quoted)}", policy)
    if isinstance(parsed, GrammarError):
        fail(parsed.sentence, 2)
    return job_request(parsed.args or JobArgs(), policy, LOOK_HOURS)


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


def write(planned: Planned, policy: Policy, folder: Path) -> None:
    """The plan's files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu_plan.md").write_text(gpu_plan(planned), encoding="utf-8")
    (folder / "gpu_plan.png").write_bytes(chart(planned))
    for name, made in (
        ("cost_estimate.json", cost_estimate(planned)),
        ("instance_manifest.json", instance_manifest(planned, policy)),
    ):
        (folder / name).write_text(made.model_dump_json(indent=2) + "\n", encoding="utf-8")
