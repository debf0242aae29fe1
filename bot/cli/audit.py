"""`gpu-shopper audit`: the journal of one request or session, from this machine's ledger."""

from __future__ import annotations

import asyncio
import json

import typer

from bot.cli.shared import explained, fail, private_umask, settings
from bot.services.auditing import Audit, audit, content
from ledger.db import Database

app = typer.Typer(add_completion=False)


@app.command()
def show(
    subject: str = typer.Argument(help="The id of a request or session, or the end of one."),
    jsonl: bool = typer.Option(False, "--jsonl", help="Every event as one line of JSON, then the newest seals."),
) -> None:
    """Show what happened, in order, and check the seals. Ends with 1 when the journal was changed."""
    private_umask()

    async def within() -> Audit | None:
        db = Database(settings().database)
        try:
            return await audit(db, subject)
        except LookupError as error:
            fail(f"{error}.")
        finally:
            await db.close()

    with explained():
        found = asyncio.run(within())
    if found is None:
        return
    for event in found.events:
        one = content(event)
        moved = f"{event.before} → {event.after}" if event.before or event.after else ""
        plain = f"{event.at:%Y-%m-%d %H:%M:%S} UTC  {event.kind}  {moved}  {event.actor}  {event.reason}"
        typer.echo(json.dumps(one, ensure_ascii=False) if jsonl else plain)
    if jsonl:
        typer.echo(json.dumps({"heads": dict(found.heads)}))
    if found.broken:
        fail(f"The journal was changed: {'; '.join(found.broken)}.")
    typer.echo(f"{len(found.events)} events, {found.sealed} sealed, the chain is whole.", err=True)
