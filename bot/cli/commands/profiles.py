"""`gpu-shopper profiles`: show how each cloud bills and behaves, and check the profiles."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

import typer

from bot.cli.access.settings import fail
from bot.cli.terminal.listing import ListColumns, listing, print_listing
from bot.clock import SystemClock
from providers.capabilities import Capabilities
from providers.profiles import model
from providers.registry import REGISTRY

app = typer.Typer(
    add_completion=False, help="How each cloud bills and behaves: show, lint.", invoke_without_command=True
)


@app.callback()
def overview(ctx: typer.Context) -> None:
    """List the profiles, with how billing stops at each cloud."""
    if ctx.invoked_subcommand is not None:
        return
    columns: ListColumns[tuple[str, model.Front]] = (
        ("cloud", itemgetter(0)),
        ("kind", lambda profile: profile[1].kind),
        ("billing stops by", lambda profile: profile[1].meter_stop_verb),
        ("a job survives in", lambda profile: profile[1].detach_primitive),
        ("spot", lambda profile: "yes" if profile[1].spot_available else "no"),
    )
    profiles = [(name, _loaded(name).front) for name in model.names()]
    print_listing(listing("No profile is installed.", columns, profiles))


@app.command()
def show(
    name: str = typer.Argument(help="The cloud, such as runpod."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Print one profile: how billing stops, then the whole text."""
    found = _loaded(name)
    if as_json:
        typer.echo(found.front.model_dump_json(indent=2))
        return
    typer.echo(f"{found.billing_stop}\n\n{(model.FOLDER / f'{name}.md').read_text(encoding='utf-8')}", nl=False)


@app.command()
def lint() -> None:
    """Check every profile against the schema and its adapter; exits with 1 and a sentence per problem."""
    able = {
        name: entry.build(entry.config_class(), SystemClock(), None).capabilities for name, entry in REGISTRY.items()
    }
    problems = problems_of(able)
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{len(able)} profiles agree with the schema and with their adapters.")


def problems_of(able: dict[str, Capabilities]) -> list[str]:
    """List everything that is wrong in the folder: in a profile, a link in the notes, or a profile without a cloud."""
    found = [problem for name in model.names() for problem in model.lint(_path(name), able.get(name))]
    found += [f"{name}.md is missing" for name in able if name not in model.names()]
    found += [f"{name}.md: there is no cloud of that name" for name in model.names() if name not in able]
    return found + [problem for note in model.NOTES for problem in model.lint_note(_path(note))]


def _path(name: str) -> Path:
    return model.FOLDER / f"{name}.md"


def _loaded(name: str) -> model.Profile:
    try:
        return model.load(name)
    except model.ProfileError as error:
        fail(str(error))
