"""`gpu-shopper runs`: record and list measured runs, which correct every later plan."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.api.schemas.sessions import RunOut
from bot.cli.access.api_client import spoken
from bot.cli.access.job_file import count_in, line_of
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, Json, plain_id
from bot.cli.terminal.screen import fail, group
from bot.cli.terminal.screen import say as say_line
from bot.cli.terminal.terminal_tables import show, show_result
from bot.cli.terminal.views import time_cell
from bot.rules.jobs.facets.work import workload
from bot.rules.plans.predictions import Prediction, coverage, table
from bot.rules.sizing.throughput import say
from ledger.kernel.ids import short_id

app = group("Measured runs, which correct later plans: record, list, export.")


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
    show_result(done, as_json=as_json)


@app.command("list")
def list_(columns: Columns = "", as_json: Json = False) -> None:
    """List the recorded runs, the newest first, beside the predicted rate."""
    found = spoken(lambda api: api.get("/runs"))
    cells: ListColumns[RunOut] = (
        ("when", lambda one: time_cell(one.at)),
        ("tokens/s", lambda one: say(float(one.measured_tokens_s))),
        ("of predicted", lambda one: f"{one.measured_tokens_s / one.predicted_tokens_s:.0%}"),
        ("in range", _is_in_range),
        ("recorded", lambda one: "at its end" if one.by_itself else "by hand"),
        ("GPU", lambda one: f"{one.gpu_count}x {one.gpu}"),
        ("session", lambda one: short_id(one.request_id or one.session_id) or "-"),
        ("run", lambda one: " ".join(one.words)),
    )
    runs = map(RunOut.model_validate, found)
    show(found if as_json else listing("No run is recorded yet.", cells, runs), columns)


def _is_in_range(one: RunOut) -> str:
    return "-" if one.stated is None else "yes" if one.stated.holds(one.measured_tokens_s) else "no"


@app.command("export")
def export() -> None:
    """Print the recorded runs as CSV, each beside its prediction, without names of people, sessions or own models.

    The last line, on standard error, says how many runs were inside their stated range.
    """
    found = map(RunOut.model_validate, spoken(lambda api: api.get("/runs")))
    rows = [row for one in found if (row := _prediction(one)) is not None]
    typer.echo(table(reversed(rows)), nl=False)
    say_line(coverage(rows), stderr=True)


def _prediction(one: RunOut) -> Prediction | None:
    """Return a run as a row; None where an older release recorded no range."""
    if one.stated is None:
        return None
    rates = float(one.stated.expected), float(one.stated.low), float(one.stated.high)
    work, measured = workload(tuple(one.words)), float(one.measured_tokens_s)
    return Prediction.of(work, one.gpu, one.gpu_count, rates, measured, date=f"{one.at:%Y-%m-%d}", source="own run")
