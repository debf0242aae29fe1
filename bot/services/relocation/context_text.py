"""Write CONTINUATION_CONTEXT.md: what somebody, or their agent, needs to continue a run that moved."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.values.mounts import mounts_of
from bot.rules.values.phrases import rate
from bot.services.market.codec import offer_from_json
from ledger.core import Tx
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import short_id
from ledger.kernel.steps.relocation_step import MigrationStep
from ledger.models import Instance, Migration, Request, Session
from ledger.queries.journal import latest_events
from ledger.queries.lookups import instances_of_session
from ledger.queries.people.credentials import secrets_named

#: A migration has fewer steps than that.
MOST_STEPS = 16


async def write(
    tx: Tx, migration: Migration, request: Request, source: Session, target: Instance | None, now: datetime
) -> str:
    """Return the text, as Markdown. It has no secret: secrets are named, and a query part of a URL is left out."""
    job, there = job_of(request.job), short_id(request.id)
    rows = await instances_of_session(tx, source.id)
    step = f", step {migration.saved_step:,}" if migration.saved_step is not None else ""
    lines = [
        "# Continuation context",
        "",
        f"The run of session `{source.short_id}` moved to session `{there}` on {now:%Y-%m-%d %H:%M} UTC.",
        "",
        "## Where it runs",
        "",
        f"- Before: {_place(rows[-1] if rows else None)}. That machine is gone.",
        f"- Now: {_place(target)}.",
        f"- Status: `gpu-shopper session {there}`. Log: `gpu-shopper logs {there}`.",
        "",
        "## From where it continues",
        "",
        (
            f"- Save: `{migration.saved_from.partition('?')[0]}`{step}, {migration.saved_bytes:,} bytes, "
            f"stored {migration.saved_at:%Y-%m-%d %H:%M} UTC."
        ),
        (
            "- The command reads that place in `RESUME_FROM`, and the fetched files, where they were fetched, in "
            "`RESUME_DIR`."
        ),
        f"- New checkpoints go to `{(job.checkpoint or '').partition('?')[0]}`.",
        "",
        "## What runs",
        "",
        *_job(replace(job, secrets=(await secrets_named(tx, [request.id])).get(request.id, ()))),
        "",
        "## How it moved",
        "",
    ]
    events = await latest_events(tx, migration.id, EventKind.MIGRATION_STEP, MOST_STEPS)
    for event in sorted(events, key=lambda one: (one.at, one.id)):
        label = MigrationStep(event.after).label
        lines.append(f"- {event.at:%H:%M:%S} UTC: {label}.")
    return "\n".join(lines) + "\n"


def _place(row: Instance | None) -> str:
    if row is None:
        return "unknown"
    offer = offer_from_json(row.offer)
    return f"{offer.gpu_count}x {offer.gpu} at {row.cloud}, {rate(row.price_usd_h)}"


def _job(job: JobRequest) -> list[str]:
    facts = {
        "Command": job.run,
        "Repository": job.repo,
        "Software": job.install,
        "Image": job.image,
        "Config": job.config,
        "Run folder": job.run_dir,
        "Files": ", ".join(one.shown for one in mounts_of(job.mounts)),
        "Secrets by name": ", ".join(job.secrets),
    }
    return [f"- {name}: `{value}`" for name, value in facts.items() if value]
