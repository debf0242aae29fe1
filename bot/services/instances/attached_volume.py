"""Find the network volume that a machine is launched with."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from bot.rules.jobs.stored import job_of
from bot.rules.sessions.extension import later
from bot.services.access import authorization
from bot.services.runtime.context import Context
from ledger.kernel.actor import Actor
from ledger.kernel.states import ENDABLE_SESSION, InstanceState
from ledger.models import Request, Session
from ledger.queries.lookups import instances_of_session
from providers.cloud_names import machines_of
from providers.contract import AttachedVolume


@dataclass(frozen=True, slots=True)
class NotMounted:
    """Say why a machine can't mount its volume, and whether that is so for every machine of its request."""

    sentence: str
    for_good: bool = False


async def attached(ctx: Context, request: Request, session: Session) -> AttachedVolume | NotMounted | None:
    """Return the volume of a machine's job as it is now; why it can't be mounted; None where it names none.

    An approval may come hours after the request. Meanwhile the volume may have got another owner, and the machine that
    is launched now ends that much later.
    """
    job = job_of(request.job)
    if job.volume is None or job.volume_session is None:
        return None
    async with ctx.db.read() as tx:
        volume, rows = await tx.get(Session, job.volume_session), await instances_of_session(tx, job.volume_session)
        owners = await authorization.mine(tx, ctx.policy, Actor.from_ref(request.requester))
    row = rows[-1] if rows else None
    provider = ctx.providers.get(row.cloud) if row is not None else None
    if volume is None or volume.state not in ENDABLE_SESSION:
        return NotMounted(f"Volume {job.volume} has ended, so no machine was launched.", for_good=True)
    if row is None or provider is None or row.state is not InstanceState.LIVE or row.ref is None:
        return NotMounted(f"Volume {job.volume} can't be mounted now, so no machine was launched.")
    if row.absent_at:
        said = f"{machines_of(row.cloud)} does not list volume {job.volume} now, so no machine was launched."
        return NotMounted(said)
    if volume.owner not in owners:
        return NotMounted(f"Volume {job.volume} has another owner now, so no machine was launched.", for_good=True)
    machine_ends = session.deadline or later(ctx.clock.now(), Decimal(session.hours))
    if volume.deadline is not None and machine_ends > volume.deadline:
        ends = f"{volume.deadline:%Y-%m-%d %H:%M} UTC"
        return NotMounted(f"Volume {job.volume} ends {ends}, before the machine would, so no machine was launched.")
    return AttachedVolume(row.ref, provider.capabilities.volume_path.format(job.volume))
