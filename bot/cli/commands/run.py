"""`gpu-shopper run`: hand over a job, and follow it to its exit code."""

from __future__ import annotations

import asyncio
import sys
from decimal import Decimal
from typing import Annotated, Any

import typer

from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.access.job_file import job_in
from bot.cli.access.job_watch import FollowedJob, JobWatch, ending, following
from bot.cli.terminal.options import IdempotencyKey, Json, plain_id
from bot.cli.terminal.screen import TIMED_OUT, fail, say
from bot.cli.terminal.terminal_tables import show
from bot.clock import SystemClock
from bot.rules.jobs.words import duration
from bot.rules.nodes.machine_logs import LINES, LINES_MAX
from ledger.kernel.ids import short_id


def run(
    job: Annotated[
        str, typer.Argument(help="A job file with `run:` (YAML or JSON; docs/schemas/job.json).", metavar="JOB")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job, and end with its exit code.")] = False,
    follow: Annotated[str, typer.Option(help="Follow a job that was handed over before.", metavar="ID")] = "",
    timeout: Annotated[str, typer.Option(help="Follow it no longer than this, such as 2h. The job continues.")] = "",
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=LINES_MAX, help="How many lines of its log to print.")
    ] = LINES,
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Hand over a job: it is requested, approved, launched, run, and its session ends by itself.

    With `--wait`, its states are printed until it ended, then the end of its log and its cost. Ctrl-C doesn't end it.
    """
    if bool(job) == bool(follow):
        fail("Name a job file, such as `gpu-shopper run job.yaml`, or a job with --follow ID.", 2)
    limit_s = _seconds(timeout) if timeout else None
    document = _job_of(job) if job else {}
    named = plain_id(follow) if follow else ""

    async def within(api: ApiClient) -> int:
        request_id = named or await _handed_over(api, document, idempotency_key, is_data=as_json and not wait)
        if not (wait or named):
            return 0
        return await followed(JobWatch(api, request_id, SystemClock(), limit_s), lines, as_json=as_json)

    if ended := spoken(within):
        raise typer.Exit(ended)


def _job_of(file: str) -> dict[str, Any]:
    """Read a job file that has a command; ends the program for one that has none."""
    document = job_in(file)
    if not document.get("run") and not document.get("queue"):
        fail(f'{file} has no command to hand over. Add one, such as run: "python train.py".', 2)
    return document


def _seconds(text: str) -> float:
    found = duration(text)
    if found is None or found <= 0:
        fail(f"--timeout {text[:20]} is not a time; write 90m or 2h.", 2)
    return float(found * Decimal(3600))


async def _handed_over(api: ApiClient, document: dict[str, Any], key: str, *, is_data: bool) -> str:
    """Request the job and return the id of its request; `is_data`: its answer is all that a program reads."""
    made = await api.post("/sessions", document, key)
    request_id = str(made["request_id"])
    say(made["sentence"], stderr=True)
    say(f"Job {short_id(request_id)}. {following(request_id)} {ending(request_id)}", stderr=True)
    if is_data:
        show(made)
    return request_id


async def followed(watch: JobWatch, lines: int, *, as_json: bool) -> int:
    """Follow the job to its end, print its log and its cost, and return the exit code."""
    continues = f"the job continues. {following(watch.request_id)} {ending(watch.request_id)}"
    try:
        found = await watch.until_over()
    except asyncio.CancelledError:
        say(f"You left, and {continues}", stderr=True)
        raise
    if found is None:
        say(f"It took longer than --timeout, and {continues}", stderr=True)
        return TIMED_OUT
    await _shown(watch, found, lines, as_json=as_json)
    return found.ends_with


async def _shown(watch: JobWatch, found: FollowedJob, lines: int, *, as_json: bool) -> None:
    log = await watch.log(found, lines)
    if as_json:
        show({**found.document, "log": log})
    else:
        for line in log:
            say(line)
        sys.stdout.flush()
    ended = await watch.end_failed_start(found)
    say(" ".join(filter(None, (found.sentence, ended))), stderr=True)
