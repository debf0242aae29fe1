"""`gpu-shopper progress`: show the time and money that a running job still needs, against its approval."""

from __future__ import annotations

import json
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated

import typer

from bot.cli.access.job_file import count_in
from bot.cli.access.settings import fail
from bot.rules.plans.completion import ApprovedScope, Outlook, rate_from, to_completion
from bot.rules.values.phrases import read_amount

#: The exit code when the approval does not cover the expected end, for scripts.
OVER = 3


def progress(
    step: Annotated[int, typer.Option(min=0, help="The step that the job has reached.")],
    target: Annotated[int, typer.Option(min=1, help="The step at which it is done.")],
    tokens_per_step: Annotated[str, typer.Option(help="Tokens of one step: batch x sequence length; 1M.")],
    rate: Annotated[list[str], typer.Option(help="Measured tokens per second; give it several times.")],
    price: Annotated[str, typer.Option(help="Dollars per hour of everything that is billed.")],
    spent: Annotated[str, typer.Option(help="Dollars spent so far.")] = "",
    approved: Annotated[str, typer.Option(help="Dollars approved in all.")] = "",
    hours_left: Annotated[str, typer.Option(help="Hours until the approved end.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show when a job is done, what it costs by then, and whether the approval covers that."""
    scope = ApprovedScope(
        price_usd_h=_amount("--price", price) or Decimal(0),
        spent_usd=_amount("--spent", spent) or Decimal(0),
        approved_usd=_amount("--approved", approved),
        hours_left=_amount("--hours-left", hours_left),
    )
    seen = rate_from([Decimal(count_in("--rate", one)) for one in rate])
    found = to_completion(step, target, count_in("--tokens-per-step", tokens_per_step), seen, scope)
    typer.echo(json.dumps(asdict(found), indent=2, default=str) if as_json else found.sentence)
    if found.outlook is Outlook.OVER:
        raise typer.Exit(OVER)


def _amount(option: str, text: str) -> Decimal | None:
    """Parse a number from zero up, written like an amount of money; None for no text."""
    found = read_amount(text) if text else None
    if text and found is None:
        fail(f"{option} {text} is not a number; write 12.50.", 2)
    return found
