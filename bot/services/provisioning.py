"""What every door does with a job that somebody wants: its time is found where only the work is described."""

from __future__ import annotations

from dataclasses import replace

from bot.services import planning, requests
from bot.services.commands import Provision, Reply
from bot.services.context import Context


async def provision(ctx: Context, command: Provision) -> Reply:
    """Ask for GPUs. A described run is asked for with the time that it may take."""
    job = command.job
    if job.work:
        told = await planning.rented_hours(ctx.catalog, ctx.clock, job, ctx.policy)
        if isinstance(told, Reply):
            return told
        command = replace(command, job=told)
    return await requests.submit(ctx, command)
