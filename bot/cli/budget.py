"""`gpu-shopper budget`: the budgets as they stand, and the costs."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.api.schemas import BudgetOut, CostsOut
from bot.cli.asking import Json
from bot.cli.door import spoken
from bot.cli.telling import show as print_answer
from bot.rules.wording import usd
from bot.services.told import Told

app = typer.Typer(add_completion=False, help="Budgets and costs.", no_args_is_help=True)


@app.command()
def show(as_json: Json = False) -> None:
    """What is spent, reserved and left of the budgets that you may see."""
    found = spoken(lambda door: door.get("/budgets"))
    lines = [BudgetOut.model_validate(one) for one in found]
    sentences = tuple(f"{line.key}: {line.sentence}" for line in lines) or ("The policy sets no budget.",)
    print_answer(found if as_json else Told(sentences=sentences))


@app.command("costs")
def costs_(
    mine: Annotated[bool, typer.Option("--mine", help="Only your own, and those of your programs.")] = False,
    as_json: Json = False,
) -> None:
    """What was booked today and this month, by owner, cloud, GPU and label."""
    found = spoken(lambda door: door.get("/costs", mine="true" if mine else ""))
    if as_json:
        print_answer(found)
        return
    costs = CostsOut.model_validate(found)
    lines = [f"today {usd(costs.today_usd)}", f"since {costs.since:%Y-%m-%d} {usd(costs.month_usd)}"]
    for by, shares in costs.groups.items():
        lines += [f"{by} {one.name or 'none'}: {usd(one.usd)}" for one in shares]
    if costs.finished.runs:
        lines.append(f"finished {costs.finished.sentence}")
    print_answer(Told(sentences=tuple(lines)))
