"""`gpu-shopper budget`: show and set budgets, and show the costs."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from bot.api.schemas.money import BudgetOut, CostsOut
from bot.cli.access.api_client import spoken
from bot.cli.terminal.options import Json
from bot.cli.terminal.screen import fail, group
from bot.cli.terminal.terminal_tables import print_report, show_result
from bot.cli.terminal.terminal_tables import show as print_answer
from bot.cli.terminal.views import name_of
from bot.rules.budgets.budget import CostView, Period
from bot.rules.values.bad_word import near
from bot.rules.values.bad_word import show as quoted
from bot.rules.values.phrases import read_amount, usd
from bot.rules.values.text_table import TextReport, TextTable

CUTS = "day: 24 hours by the hour; month: this month by the day; year: 12 months; total. Also hourly, daily, monthly."
#: A word of the command line → the time that it names; none for words that say whose costs.
WORDS: Mapping[str, CostView | None] = MappingProxyType(
    {**{str(one): one for one in CostView}, "today": CostView.DAY, "mine": None, "team": None}
)
#: The names of the periods that help shows: one for each.
SHOWN = (CostView.DAY, CostView.MONTH, CostView.YEAR, CostView.TOTAL)


def _one_of(*names: str) -> dict[str, Any]:
    """Return the parser of a few words; it refuses any other word with the same sentence as in Slack."""

    def read(said: str) -> str:
        if said in names:
            return said
        raise typer.BadParameter(f"{quoted(said)} is not one of {', '.join(filter(None, names))}.{near(said, names)}")

    return {"parser": read, "autocompletion": lambda: list(names)}


app = group("Budgets and costs.")


@app.command()
def show(as_json: Json = False) -> None:
    """Show what is spent, reserved and remaining in the budgets that you may see."""
    found = spoken(lambda api: api.get("/budgets"))
    lines = [BudgetOut.model_validate(one) for one in found]
    sentences = tuple(f"{line.whose or line.key}: {line.sentence}" for line in lines) or ("The policy sets no budget.",)
    print_answer(found if as_json else TextReport(sentences=sentences))


@app.command("set")
def set_(
    scope: Annotated[str, typer.Argument(help="global, team:NAME, user:ID, consumer:NAME or label:NAME.")],
    period: Annotated[str, typer.Argument(help=f"The period: {', '.join(Period)}.", **_one_of(*Period))],
    limit: Annotated[str, typer.Argument(help="Dollars, such as 300; none deletes the limit.")],
    reason: Annotated[str, typer.Option(help="Why, for the audit log.")] = "",
    warn_at: Annotated[
        list[str] | None, typer.Option("--warn-at", help="Warn at this share of the limit, such as 80%; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Set a budget while the service runs. You can only tighten the budgets of the policy file."""
    amount = None if limit == "none" else read_amount(limit)
    if amount is None and limit != "none":
        fail(f"{limit[:40]!r} is not an amount; write 300 or $299.50, or none to forget the limit.", 2)
    said = None if amount is None else f"{amount:f}"
    body: dict[str, Any] = {"scope": scope, "period": period, "limit_usd": said, "reason": reason}
    if warn_at:
        body["thresholds"] = [_share(one) for one in warn_at]
    show_result(spoken(lambda api: api.post("/budgets", body)), as_json=as_json)


def _share(percent: str) -> str:
    """Return the share that a percentage means, as REST takes it."""
    number = percent.removesuffix("%").strip()
    if not number.isdigit() or not 0 < int(number) <= 100:
        fail(f"{percent[:40]!r} is not a percentage from 1% to 100%; write 80%.", 2)
    return f"{Decimal(number) / 100:f}"


@app.command("costs")
def costs_(
    cut: Annotated[
        str,
        typer.Argument(metavar="PERIOD", help="As --period; also today, mine, team.", **_one_of("", *WORDS)),
    ] = "",
    period: Annotated[
        str, typer.Option(help=CUTS, metavar=f"[{'|'.join(SHOWN)}]", **_one_of(*CostView))
    ] = CostView.MONTH,
    consumer: Annotated[str, typer.Option(help="Only this program's.")] = "",
    mine: Annotated[bool, typer.Option("--mine", help="Only your own, and those of your programs.")] = False,
    form: Annotated[
        str, typer.Option("--format", help="focus: a month as a CSV file of FOCUS 1.2.", **_one_of("table", "focus"))
    ] = "table",
    team: Annotated[str, typer.Option(help="The statement of a team for a month.")] = "",
    month: Annotated[str, typer.Option(help="The month of the file or statement, such as 2026-03.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the file or statement here.")] = None,
    as_json: Json = False,
) -> None:
    """Show what was spent, by hour, day or month, and by owner, consumer, cloud, GPU, label and tool."""
    if form == "focus":
        _print_text(spoken(lambda api: api.text("/costs/focus", month=month)), out)
        return
    if team:
        stated = spoken(lambda api: api.get("/costs/statement", team=team, month=month))
        print_answer(stated) if as_json else _print_text(stated["markdown"], out)
        return
    if month or out:
        fail("--month and --out go with --format focus or --team.", 2)
    mine = mine or cut == "mine"
    view = WORDS.get(cut) or CostView(period)
    said = {"mine": "true" if mine else "", "period": str(view), "consumer": consumer}
    found = spoken(lambda api: api.get("/costs", **said))
    if as_json:
        print_answer(found)
        return
    costs = CostsOut.model_validate(found)
    shape = {Period.HOURLY: "%Y-%m-%d %H:00", Period.DAILY: "%Y-%m-%d"}.get(view.period, "%Y-%m")
    whose = f"{consumer}: " if consumer else "Everybody: " if costs.everybody else "You: "
    lead = f"{whose}{usd(costs.total_usd)} since {costs.since:%Y-%m-%d %H:%M} UTC; {usd(costs.today_usd)} of it today."
    lead += f" {usd(costs.running_usd)} of it is still running." if costs.running_usd else ""
    when = TextTable(head=("when", "cost"), rows=tuple((f"{b.since:{shape}}", usd(b.usd)) for b in costs.buckets))
    shares = [
        (by, one.person_name or name_of(one.name) or "-", usd(one.usd))
        for by, rows in costs.groups.items()
        for one in rows
    ]
    tables = (when, TextTable(head=("by", "name", "cost"), rows=tuple(shares))) if shares else ()
    done = (costs.finished.sentence,) if costs.finished.runs else ()
    print_report(TextReport(lead=lead, tables=tables, sentences=done), is_list=True)


def _print_text(text: str, out: Path | None) -> None:
    """Print a file, or write it where it is wanted."""
    if out is None:
        typer.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8", newline="")
    typer.echo(f"{out} is written.", err=True)
