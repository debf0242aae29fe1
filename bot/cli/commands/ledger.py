"""`gpu-shopper ledger`: costs of other tools come in, ours go out, and the whole is checked and summed up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.access.api_client import ApiClient, RefusedCall, spoken
from bot.cli.commands.requests import Json
from bot.cli.terminal.screen import fail
from bot.cli.terminal.terminal_tables import show
from bot.clock import SystemClock
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.text_table import TextReport
from bot.services.billing import shared_file

app = typer.Typer(add_completion=False, help="The ledger that tools share.", no_args_is_help=True)
File = Annotated[Path, typer.Option("--file", help="The file that tools share.")]
SHARED = Path("cost_ledger.json")


@app.command()
def append(
    skill: Annotated[str, typer.Option(help="The tool that spent it.")],
    provider: Annotated[str, typer.Option(help="Where it was spent.")],
    action: Annotated[str, typer.Option(help="On what.")],
    amount: Annotated[str, typer.Option("--amount-usd", help="Dollars; less than 0 for a refund.")],
    timestamp: Annotated[str, typer.Option(help="When, with its zone; now when left out.")] = "",
    notes: Annotated[str, typer.Option(help="Anything else.")] = "",
    name: Annotated[str, typer.Option("--id", help="The tool's own id of it: the same one is booked once.")] = "",
    as_json: Json = False,
) -> None:
    """Append a cost of another tool."""
    at = timestamp or SystemClock().now().isoformat()
    entry = {"skill": skill, "provider": provider, "action": action, "amount_usd": amount, "timestamp": at}
    done = spoken(lambda door: door.post("/ledger/entries", entry | {"notes": notes, "id": name}))
    show(done if as_json else TextReport(sentences=(done["sentence"],)))


@app.command("import")
def import_(file: File = SHARED, as_json: Json = False) -> None:
    """Take over what other tools wrote into the shared file; what is known already changes nothing."""
    try:
        entries = shared_file.others(shared_file.read_locked(file))
    except shared_file.SharedFileError as error:
        fail(f"{error}.", 2)

    async def all_of(door: ApiClient) -> dict[str, Any]:
        new, wrong = 0, []
        for number, entry in enumerate(entries, 1):
            try:
                new += (await door.post("/ledger/entries", entry))["code"] == ReplyCode.BOOKED
            except RefusedCall as refused:
                wrong.append(f"entry {number}: {refused}")
        return {"new": new, "wrong": wrong}

    done = spoken(all_of)
    told = TextReport(sentences=(f"{done['new']} of {len(entries)} entries are new.", *done["wrong"]))
    show(done if as_json else told)


@app.command()
def export(file: File = SHARED, since: Annotated[str, typer.Option(help="A day, such as 2026-03-01.")] = "") -> None:
    """Merge our own entries into the shared file: one for each creation, instance-hour and end."""
    own = spoken(lambda door: door.get("/ledger/entries", since=since))
    try:
        new = shared_file.merge(file, own)
    except (shared_file.SharedFileError, OSError) as error:
        fail(f"{error}.", 2)
    show(TextReport(sentences=(f"{len(own)} entries of ours are in {file}; {new} are new.",)))


@app.command()
def verify(as_json: Json = False) -> None:
    """Check the chain of all entries and every sum; ends with 1 when something is wrong."""
    found = spoken(lambda door: door.get("/ledger/verify"))
    said = f"{found['entries']} entries, {found['sealed']} sealed, {found['waiting']} waiting for their seal."
    told = TextReport(lead=said, sentences=(*found["problems"], f"Newest seal: {found['head'] or 'none'}"))
    show(found if as_json else told)
    if not found["ok"]:
        raise typer.Exit(1)


@app.command()
def summary(
    out: Annotated[Path | None, typer.Option(help="Write it there, as in cost_summary.md.")] = None,
    as_json: Json = False,
) -> None:
    """Total spend per tool, provider and owner, and the budgets."""
    found = spoken(lambda door: door.get("/ledger/summary"))
    if out is not None:
        out.write_text(found["markdown"], encoding="utf-8")
    elif as_json:
        show(found)
    else:
        show(TextReport(sentences=tuple(found["markdown"].splitlines())))


@app.command()
def manifest(
    out: Annotated[Path | None, typer.Option(help="Write it there, as in instance_manifest.json.")] = None,
) -> None:
    """Every live instance with its endpoint."""
    found = spoken(lambda door: door.get("/ledger/manifest"))
    if out is None:
        show(found)
    else:
        out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
