"""Find network volumes by the names that their owners gave them, and refuse a machine that could not mount one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from bot.rules.jobs import job_text
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.market.filters import in_region
from bot.rules.market.ranking import rank
from bot.rules.policy import volume_checks
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.market.codec import offer_from_json
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx
from ledger.kernel.actor import Actor
from ledger.kernel.ids import short_id
from ledger.kernel.states import ENDABLE_SESSION, SessionState
from ledger.kernel.volume_name import volume_of
from ledger.models import Request
from ledger.queries.runs.volumes_by_name import is_taken
from ledger.queries.views import SessionView, session_views
from providers.cloud_names import machines_of
from providers.gpus.constraint import GpuConstraint

#: More volumes than one person has.
MOST = 200
#: How many GPUs are named when the requested one is not for sale where a volume is.
NAMED = 8


async def mine(ctx: Context, actor: Actor) -> list[SessionView]:
    """List a person's volumes, the soonest to end first. Nobody else mounts them."""
    async with ctx.db.read() as tx:
        whose = await authorization.mine(tx, ctx.policy, actor)
        views = await session_views(tx, whose=whose, limit=MOST)
    return [view for view in views if volume_of(view.session.gpu)]


def path_of(ctx: Context, view: SessionView) -> str:
    """Return where machines find a volume; "" where its cloud is no longer set up."""
    provider = ctx.providers.get(view.instance.cloud) if view.instance is not None else None
    return provider.capabilities.volume_path.format(volume_of(view.session.gpu)) if provider is not None else ""


def trouble(view: SessionView) -> str:
    """Say in a sentence what is wrong with a volume: not listed, or not paid for; "" where nothing is."""
    row, session = view.instance, view.session
    if row is not None and row.absent_at and session.state in ENDABLE_SESSION:
        return f"{machines_of(row.cloud)} doesn't list this volume now. It stays yours, and you still pay for it."
    if session.volume_grace_at is not None and session.state in ENDABLE_SESSION:
        return "The approved amount doesn't pay for this volume until its end."
    return ""


def because(job: JobRequest, reason: str) -> JobRequest:
    """Return the job with the reason that approvers read."""
    return replace(job, reason=reason.strip())


async def named(ctx: Context, actor: Actor, name: str) -> SessionView | Reply:
    """Return the volume of this name, or the refusal that lists those that there are."""
    found = await mine(ctx, actor)
    volume = next((view for view in found if volume_of(view.session.gpu) == name.lower()), None)
    if volume is not None:
        return volume
    have = ", ".join(volume_of(view.session.gpu) for view in found)
    make = cli_command("volume create data 200GB")
    said = f"Your volumes: {have}." if have else f"You have none. To ask for one: {make}."
    return refuse(ReplyCode.NO_VOLUME, f"You have no volume “{name[:40]}”. {said}")


async def taken(ctx: Context, tx: Tx, actor: Actor, job: JobRequest, undecided: Sequence[Request]) -> Reply | None:
    """Refuse a second volume of the same name: its owner already has it, or asked for it."""
    name = job.makes_volume
    if (same := next((one for one in undecided if job_of(one.job).makes_volume == name), None)) is not None:
        said = f"You already asked for a volume {name} ({short_id(same.id)})."
        return refuse(ReplyCode.ALREADY_REQUESTED, said, {"request_id": same.id})
    if await is_taken(tx, await authorization.mine(tx, ctx.policy, actor), name):
        more = cli_command(f"volume extend {name} 7d")
        return refuse(ReplyCode.BAD_VOLUME, f"You already have a volume {name}. To keep it for longer: {more}.")
    return None


async def with_volume(ctx: Context, actor: Actor, job: JobRequest) -> JobRequest | Reply:
    """Bind a job to the place of the volume that it names, or refuse it before anything is posted."""
    if job.volume is None:
        return job
    found = await named(ctx, actor, job.volume)
    if isinstance(found, Reply):
        return found
    row, session = found.instance, found.session
    if row is None or session.state is not SessionState.RUNNING or session.deadline is None:
        return _cannot(job.volume, "it is not ready yet, or it is ending")
    cloud, offer = machines_of(row.cloud), offer_from_json(row.offer)
    if row.absent_at:
        return _cannot(job.volume, f"{cloud} does not list it now. Try again when it does")
    others = [name for name in job.candidates if name != cloud]
    if job.candidates and cloud not in job.candidates:
        without = [name for name in others if name not in ctx.volume_clouds]
        why = f" {volume_checks.no_volumes(without[0], ctx.volume_clouds)}" if without else ""
        return _elsewhere(job.volume, f"it is at {cloud}, and you asked for {', '.join(others)}.{why}")
    if job.regions and not any(in_region(offer, region) for region in job.regions):
        return _elsewhere(job.volume, f"it is in {offer.region}, and you asked for {', '.join(job.regions)}.")
    if session.volume_grace_at is not None:
        return _cannot(job.volume, "it outgrew its approved amount, and nobody approved its new cost yet")
    now = ctx.clock.now()
    if too_soon := _ends_first(job, session.deadline, now):
        return _cannot(job.volume, too_soon)
    bound = replace(job, volume_session=session.id, candidates=(cloud,), regions=(offer.region,))
    return await _sold_there(ctx, bound) or bound


def _ends_first(job: JobRequest, deadline: datetime, now: datetime) -> str:
    """Say that a machine would outlive its volume; "" where the volume stays longer."""
    last = now + timedelta(hours=float(job.hours + volume_checks.BEFORE_END_H))
    if last <= deadline:
        return ""
    more = cli_command(f"volume extend {job.volume} 7d")
    return f"it ends {deadline:%Y-%m-%d %H:%M} UTC, before the machine would. Extend it first: {more}"


async def _sold_there(ctx: Context, job: JobRequest) -> Reply | None:
    """Refuse a job whose GPU is not for sale beside its volume; None where it is, or where not all offers are known."""
    (cloud,), (region,) = job.candidates, job.regions
    every = replace(job, gpu=GpuConstraint(count_min=job.gpu.count_min, count_max=job.gpu.count_max))
    market = await ctx.catalog.market(every, job.disk_gb, policy=ctx.policy, observed=False)
    if job.may_wait or market.completeness.proof is None:
        return None
    there = [offer for offer in market.offers if in_region(offer, region)]
    able = ctx.catalog.capabilities
    if rank(there, job, ctx.policy, able, proof=None, whole=bool(job.work), to_run=True).options:
        return None
    sold = sorted({offer.gpu for offer in there})
    has = f"For sale there now: {', '.join(sold[:NAMED])}." if sold else "Nothing is for sale there now."
    wanted = job_text.gpus(job.gpu)
    return _elsewhere(
        job.volume or "", f"{cloud} has no {wanted} for this request in {region}, where the volume is. {has}"
    )


def _cannot(name: str, why: str) -> Reply:
    return refuse(ReplyCode.NO_VOLUME, f"No machine can use volume {name}: {why}.")


def _elsewhere(name: str, why: str) -> Reply:
    return refuse(ReplyCode.VOLUME_ELSEWHERE, f"No machine can use volume {name}: {why}")
