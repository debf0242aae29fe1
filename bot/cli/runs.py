"""`gpu-shopper runs`: what your own runs made. Every later plan is corrected by it, at every door."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import typer

from bot import logs
from bot.cli.market import policy_of
from bot.cli.market_here import job_of
from bot.cli.plan import line_of
from bot.cli.shared import fail, operator, settings
from bot.cli.strays import with_ledger
from bot.clock import SystemClock
from bot.rules.grammar_words import BadWord
from bot.rules.throughput import say
from bot.rules.workload_words import WORK_KEYS
from bot.services.measured import measured_runs, record_run, record_session
from ledger.values import short_id

app = typer.Typer(no_args_is_help=True, add_completion=False, help="What your own runs made: record, list.")


@app.command("record")
def record_(
    rate: Annotated[str, typer.Option(help="Tokens per second over all GPUs, as the run's own log says: 41000, 41k.")],
    words: Annotated[
        list[str] | None, typer.Argument(help="The machine and the run: 8xH100-SXM model=7B seq=2048 batch=512.")
    ] = None,
    session: Annotated[str, typer.Option(help="Instead of words: the id of the session that the run had.")] = "",
) -> None:
    """Record the rate of a finished run."""
    actor, now = operator(), SystemClock().now()
    tokens_s = _rate(rate)
    if bool(session) is bool(words):
        fail("Say either the session or the machine with the run, such as 8xH100-SXM model=7B seq=2048.", 2)
    if session:
        reply = with_ledger(lambda db: record_session(db, session, tokens_s, actor, now))
    else:
        job = job_of(line_of(words or []), policy_of(settings()))
        gpu = job.gpu
        if len(gpu.names) != 1 or gpu.count_min != gpu.count_max or not job.work:
            fail("Say one GPU with its number, and the run: 8xH100-SXM model=7B seq=2048.", 2)
        (name,) = gpu.names
        reply = with_ledger(lambda db: record_run(db, job.work, name, gpu.count_min, tokens_s, actor, now))
    if not reply.ok:
        fail(reply.sentence)
    typer.echo(reply.sentence)


@app.command("list")
def list_() -> None:
    """Show what was recorded, newest first, beside what was predicted at that time."""
    found = with_ledger(measured_runs)
    for one in found:
        run = one.run
        share = run.measured_tokens_s / run.predicted_tokens_s
        where = f"{one.count}x {run.gpu}"
        of = f"  session {short_id(one.session_id)}" if one.session_id else ""
        line = f"{one.at:%Y-%m-%d}  {say(run.measured_tokens_s):>9} tokens/s  {share:>5.0%} of predicted  {where}{of}"
        typer.echo(logs.visible(f"{line}  {' '.join(one.words)}"))
    if not found:
        typer.echo("No run is recorded yet.")


def _rate(text: str) -> Decimal:
    try:
        return Decimal(int(WORK_KEYS["tokens"].read(text)["tokens"]))
    except BadWord as error:
        fail(f"--rate: {error}", 2)
