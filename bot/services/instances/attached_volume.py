"""Find the network volume that a machine is launched with."""

from __future__ import annotations

from bot.services.runtime.context import Context
from ledger.kernel.job import JobRequest
from ledger.kernel.states import InstanceState
from ledger.queries.lookups import instances_of_session
from providers.contract import AttachedVolume


async def attached(ctx: Context, job: JobRequest) -> AttachedVolume | str | None:
    """Return the volume of a job as it is now; why it can't be mounted, as text; None where the job names none."""
    if job.volume is None or job.volume_session is None:
        return None
    async with ctx.db.read() as tx:
        rows = await instances_of_session(tx, job.volume_session)
    row = rows[-1] if rows else None
    provider = ctx.providers.get(row.cloud) if row is not None else None
    if row is None or provider is None or row.state is not InstanceState.LIVE or row.ref is None:
        return f"The volume {job.volume} has ended, so no machine was launched with it."
    return AttachedVolume(row.ref, provider.capabilities.volume_path.format(job.volume))
