"""Budgets and costs in Slack: who reads what, and how an administrator goes above a budget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from bot.practice.reader import all_text
from bot.rules.budgets.budget import Period
from bot.services.runtime.event_order import number_all
from bot.slack.blocks import money
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import RequestState
from tests.slack.conftest import Stage
from tests.slack.test_commands import private
from tests.support import rows


async def test_budgets_and_costs_of_ones_own_and_of_everybody(stage: Stage) -> None:
    await stage.command("alice", "/gpu budget")
    assert "You have no budget" in private(stage, "alice").text
    await stage.replaced(budgets={"user:*": {"daily": Decimal(50)}, "label:mosaic": {"total": Decimal(9)}})
    await stage.command("alice", "/gpu budget")
    mine = all_text(private(stage, "alice"))
    assert "*<@U0ALICE>*: daily $50.00 left of $50.00 (0% used" in mine
    assert "mosaic" not in mine
    await stage.command("bob", "/gpu budget")
    assert "*label:mosaic*: total $9.00 left of $9.00" in all_text(private(stage, "bob"))
    await stage.command("alice", "/gpu costs")
    assert "Your costs" in private(stage, "alice").text
    await stage.command("alice", "/gpu costs summary")
    assert "Your costs in all: $0.00" in private(stage, "alice").text.replace("*", "")
    await stage.command("bob", "/gpu costs")
    assert "Everybody's costs" in private(stage, "bob").text


async def test_above_a_budget_an_administrator_types_the_amount(stage: Stage) -> None:
    await stage.replaced(budgets={"global": {"daily": Decimal("0.01")}}, budget_admins=("U0CAROL",))
    message = await stage.ask()
    await stage.click("bob", message, stage.approve_button(message))
    assert "This doesn't fit the daily budget of global" in private(stage, "bob").text
    (request,) = (await stage.w.books()).requests
    assert request.state is RequestState.PENDING
    await stage.click("carol", message, stage.approve_button(message))
    view = stage.ws.view("carol")
    assert view is not None
    assert "This doesn't fit the daily budget of global" in all_text(view)
    expected = (await stage.w.view(request.id)).options[0].expected_usd
    await stage.submit("carol", {"amount": f"{expected:.2f}"})
    (request,) = (await stage.w.books()).requests
    assert request.state is RequestState.APPROVED


def test_a_chart_has_a_column_for_every_day_between_and_names_them_as_people_do() -> None:
    day, amounts = timedelta(days=1), {0: Decimal(0), 1: Decimal("2.5"), 4: Decimal(7)}
    first = datetime(2026, 10, 31, tzinfo=UTC)
    (chart,) = money.spend_chart(
        "Dollars per day", [(first + n * day, usd) for n, usd in amounts.items()], Period.DAILY
    )
    points = chart["chart"]["series"][0]["data"]
    assert [(one["label"], one["value"]) for one in points] == [
        ("Nov 1", 2.5), ("Nov 2", 0.0), ("Nov 3", 0.0), ("Nov 4", 7.0),
    ]  # fmt: skip
    months = [(datetime(2026, month, 1, tzinfo=UTC), Decimal(1)) for month in (1, 3)]
    (chart,) = money.spend_chart("Dollars per month", months, Period.MONTHLY)
    assert chart["chart"]["axis_config"]["categories"] == ["2026-01", "2026-02", "2026-03"]
    hours = [(first + timedelta(hours=hour), Decimal(1)) for hour in (8, 10)]
    (chart,) = money.spend_chart("Dollars per hour, UTC", hours, Period.HOURLY)
    assert chart["chart"]["axis_config"]["categories"] == ["08:00", "09:00", "10:00"]
    assert money.spend_chart("Dollars per day", [(first, Decimal(0))], Period.DAILY) == []


def test_bars_in_text_fit_a_phone_and_show_every_day() -> None:
    first, amounts = datetime(2026, 11, 8, tzinfo=UTC), ("0", "1234.5", "0.001", "617.25")
    days = [(first + timedelta(days=n), Decimal(usd)) for n, usd in enumerate(amounts)]
    bars, below = money.spend_bars("Your spend", days)
    lines = bars["text"]["text"].strip("`").split("\n")
    assert lines == [
        "Nov 8      $0.00",
        "Nov 9  $1,234.50 ████████████",
        "Nov 10    &lt;$0.01 █",
        "Nov 11   $617.25 ██████",
    ]
    assert max(map(len, lines)) <= 30
    assert below["elements"][0]["text"] == "Your spend per day, in UTC."
    assert money.spend_bars("Your spend", days[:1]) == []


def test_nothing_spent_is_said_in_few_words() -> None:
    assert money.budget([]).blocks


async def test_the_journal_is_for_its_owner_and_those_who_decide(stage: Stage) -> None:
    await stage.ask()
    (request,) = (await stage.w.books()).requests
    for who in ("alice", "bob"):
        await stage.command(who, f"/gpu audit {request.id[-6:]}")
        told = all_text(private(stage, who))
        assert "request made" in told
        assert "Nothing was changed." in told
    await stage.command("dave", f"/gpu audit {request.id[-6:]}")
    assert "Only its owner" in private(stage, "dave").text
    await stage.command("bob", "/gpu audit zzzzzz")
    assert "There is no request" in private(stage, "bob").text


async def test_an_event_that_was_recorded_late_is_marked(stage: Stage) -> None:
    await stage.ask()
    (request,) = (await stage.w.books()).requests
    async with stage.w.ctx.db.write() as tx:
        at = stage.w.clock.now() - timedelta(hours=2)
        await rows.event(tx, EventKind.REQUEST_VOTE, request.id, at=at, reason="Approved.")
    await number_all(stage.w.ctx)
    await stage.command("alice", f"/gpu audit {request.id[-6:]}")
    assert private(stage, "alice").text.count("*recorded late*") == 1
