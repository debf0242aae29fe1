"""`gpu-shopper budget`: every budget as it stands, and everybody's costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import typer

from bot.cli.shared import explained, private_umask, settings
from bot.clock import SystemClock
from bot.rules.budget import said
from bot.rules.wording import usd
from bot.services import budgets, costs
from bot.services.context import Context
from bot.wiring import build_context, close

app = typer.Typer(add_completion=False, help="Budgets and costs.", no_args_is_help=True)


def _printed(step: Callable[[Context], Awaitable[list[str]]]) -> None:
    private_umask()

    async def within() -> list[str]:
        ctx = build_context(settings(), SystemClock())
        try:
            return await step(ctx)
        finally:
            await close(ctx)

    with explained():
        typer.echo("\n".join(asyncio.run(within())))


@app.command()
def show() -> None:
    """Every budget that the policy names: what is spent, reserved and left."""

    async def step(ctx: Context) -> list[str]:
        lines = await budgets.overview(ctx)
        return [f"{line.key}: {said(line)}" for line in lines] or ["The policy sets no budget."]

    _printed(step)


@app.command("costs")
def costs_() -> None:
    """What was booked today and this month, by owner, cloud, GPU and label."""

    async def step(ctx: Context) -> list[str]:
        found = await costs.overview(ctx)
        lines = [f"today {usd(found.today_usd)}", f"since {found.since:%Y-%m-%d} {usd(found.month_usd)}"]
        for by, rows in found.groups.items():
            lines += [f"{by} {name or 'none'}: {usd(amount)}" for name, amount in costs.shortened(rows)]
        return lines

    _printed(step)
