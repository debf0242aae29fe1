"""`gpu-shopper runs`: record and list measured runs, which correct every later plan."""

from __future__ import annotations

from typing import Annotated

import typer

from bot import logs
from bot.api.schemas.sessions import RunOut
from bot.cli.access.api_client import spoken
from bot.cli.access.job_file import count_in, line_of
from bot.cli.commands.requests import Json, plain_id
from bot.cli.terminal.screen import fail, group
from bot.cli.terminal.terminal_tables import show
from bot.rules.sizing.throughput import say
from ledger.kernel.ids import short_id

app = group("Measured runs, which correct later plans: record, list.")


@app.command("record")
def record_(
    rate: Annotated[str, typer.Option(help="Tokens per second over all GPUs, as the run's own log says: 41000, 41k.")],
    words: Annotated[
        list[str] | None, typer.Argument(help="The machine and the run: 8xH100-SXM model=7B seq=2048 batch=512.")
    ] = None,
    session: Annotated[str, typer.Option(help="Instead of words: the id of the session that the run had.")] = "",
    as_json: Json = False,
) -> None:
    """Record the measured rate of a finished run."""
    if bool(session) is bool(words):
        fail("Say either the session or the machine with the run, such as 8xH100-SXM model=7B seq=2048.", 2)
    of = {"session": plain_id(session)} if session else {"job": {"words": line_of(words or [])}}
    done = spoken(lambda api: api.post("/runs", {"tokens_s": str(count_in("--rate", rate)), **of}))
    if as_json:
        show(done)
    else:
        typer.echo(logs.visible(done["sentence"]))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the recorded runs, the newest first, beside the predicted rate."""
    found = spoken(lambda api: api.get("/runs"))
    if as_json:
        show(found)
        return
    for one in map(RunOut.model_validate, found):
        share = one.measured_tokens_s / one.predicted_tokens_s
        where = f"{one.gpu_count}x {one.gpu}"
        of = f"  session {short_id(one.session_id)}" if one.session_id else ""
        rate = say(float(one.measured_tokens_s))
        line = f"{one.at:%Y-%m-%d}  {rate:>9} tokens/s  {share:>5.0%} of predicted  {where}{of}"
        typer.echo(logs.visible(f"{line}  {' '.join(one.words)}"))
    if not found:
        typer.echo("No run is recorded yet.")
