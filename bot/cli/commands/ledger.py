"""`gpu-shopper ledger` and `bills`: costs that tools share, sums and checks, and bills that an operator confirms."""

from __future__ import annotations

import json
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from bot.cli.access.api_client import ApiClient, RefusedCall, spoken
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, Json
from bot.cli.terminal.screen import fail, group
from bot.cli.terminal.terminal_tables import show, show_result
from bot.clock import SystemClock
from bot.rules.values.phrases import usd
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.text_table import TextReport
from bot.services.billing import shared_file

app = group("The ledger that tools share.")
File = Annotated[Path, typer.Option("--file", help="The file that tools share.")]
SHARED = Path("cost_ledger.json")


@app.command()
def append(
    skill: Annotated[str, typer.Option(help="The tool that spent it.")],
    provider: Annotated[str, typer.Option(help="Where it was spent.")],
    action: Annotated[str, typer.Option(help="What it was spent on.")],
    amount: Annotated[str, typer.Option("--amount-usd", help="Dollars; less than 0 for a refund.")],
    timestamp: Annotated[str, typer.Option(help="When, with its zone; now when left out.")] = "",
    notes: Annotated[str, typer.Option(help="Anything else.")] = "",
    name: Annotated[str, typer.Option("--id", help="The tool's own id of the cost: the same id is booked once.")] = "",
    as_json: Json = False,
) -> None:
    """Append a cost of another tool."""
    at = timestamp or SystemClock().now().isoformat()
    entry = {"skill": skill, "provider": provider, "action": action, "amount_usd": amount, "timestamp": at}
    show_result(spoken(lambda api: api.post("/ledger/entries", entry | {"notes": notes, "id": name})), as_json=as_json)


@app.command("import")
def import_(file: File = SHARED, as_json: Json = False) -> None:
    """Import what other tools wrote into the shared file; entries that are known already change nothing."""
    try:
        entries = shared_file.others(shared_file.read_locked(file))
    except shared_file.SharedFileError as error:
        fail(f"{error}.", 2)

    async def all_of(api: ApiClient) -> dict[str, Any]:
        new, wrong = 0, []
        for number, entry in enumerate(entries, 1):
            try:
                new += (await api.post("/ledger/entries", entry))["code"] == ReplyCode.BOOKED
            except RefusedCall as refused:
                wrong.append(f"entry {number}: {refused}")
        return {"new": new, "wrong": wrong}

    done = spoken(all_of)
    report = TextReport(sentences=(f"{done['new']} of {len(entries)} entries are new.", *done["wrong"]))
    show(done if as_json else report)


@app.command()
def export(file: File = SHARED, since: Annotated[str, typer.Option(help="A day, such as 2026-03-01.")] = "") -> None:
    """Merge all costs into the shared file: each creation, instance-hour and end, and what other tools appended."""
    own = spoken(lambda api: api.get("/ledger/entries", since=since))
    try:
        new = shared_file.merge(file, own)
    except (shared_file.SharedFileError, OSError) as error:
        fail(f"{error}.", 2)
    show(TextReport(sentences=(f"{len(own)} costs are in {file}; {new} are new.",)))


@app.command()
def verify(as_json: Json = False) -> None:
    """Verify the hash chain of all entries and every sum; exits with 1 when something is wrong."""
    found = spoken(lambda api: api.get("/ledger/verify"))
    said = f"{found['entries']} entries, {found['hashed']} in the hash chain, {found['waiting']} waiting for it."
    report = TextReport(lead=said, sentences=(*found["problems"], f"Newest hash: {found['head'] or 'none'}"))
    show(found if as_json else report)
    if not found["ok"]:
        raise typer.Exit(1)


@app.command()
def summary(
    out: Annotated[Path | None, typer.Option(help="Write it to this file, such as cost_summary.md.")] = None,
    as_json: Json = False,
) -> None:
    """Show total spend per tool, provider and owner, and the budgets."""
    found = spoken(lambda api: api.get("/ledger/summary"))
    if out is not None:
        out.write_text(found["markdown"], encoding="utf-8")
    elif as_json:
        show(found)
    else:
        show(TextReport(sentences=tuple(found["markdown"].splitlines())))


@app.command()
def manifest(
    out: Annotated[Path | None, typer.Option(help="Write it to this file, such as instance_manifest.json.")] = None,
) -> None:
    """List every live instance with its endpoint."""
    found = spoken(lambda api: api.get("/ledger/manifest"))
    if out is None:
        show(found)
    else:
        out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


bills_app = group("Bills above what their instance can have cost: list, confirm.")


@bills_app.command("list")
def list_bills(columns: Columns = "", as_json: Json = False) -> None:
    """List the bills that wait for an operator."""
    found = spoken(lambda api: api.get("/bills"))
    cells: ListColumns[Any] = (
        ("instance", itemgetter("id")),
        ("cloud", itemgetter("cloud")),
        ("id there", itemgetter("ref")),
        ("bill", lambda one: usd(Decimal(one["billed_usd"]))),
        ("ledger", lambda one: usd(Decimal(one["booked_usd"]))),
        ("at most", lambda one: usd(Decimal(one["most_usd"]))),
    )
    show(found if as_json else listing("No bill waits for you.", cells, found), columns)


@bills_app.command()
def confirm(
    row: Annotated[str, typer.Argument(metavar="ID", help="The id from the list.")],
    amount: Annotated[str, typer.Option("--amount", help="The amount of the bill, as the list shows it.")],
    reason: Annotated[str, typer.Option(help="How you know, for the audit log.")] = "",
    as_json: Json = False,
) -> None:
    """Correct the ledger by a bill that you checked at the cloud."""
    body = {"amount": amount.removeprefix("$").replace(",", ""), "reason": reason}
    show_result(spoken(lambda api: api.post(f"/bills/{quote(row, safe='')}/confirm", body)), as_json=as_json)
