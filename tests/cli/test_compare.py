"""`gpu-shopper compare`: the table, the page and every figure, out of clouds that really answer."""

from __future__ import annotations

import asyncio
import json
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bot.cli.lazy import build
from ledger.kernel.money import cents
from tests.cli.test_commands import elsewhere
from tests.cli.test_inventory import clouds

__all__ = ["clouds", "elsewhere"]


async def run(*arguments: str) -> tuple[int, str, str]:
    result = await asyncio.to_thread(CliRunner().invoke, build(), ["compare", *arguments])
    return result.exit_code, result.stdout, result.stderr


async def read(*arguments: str) -> dict[str, Any]:
    code, out, err = await run(*arguments, "--json")
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.usefixtures("clouds")
async def test_every_figure_can_be_checked_by_hand() -> None:
    found = await read("--budget", "500", "--hours", "2")
    sides = [(row, row[side]) for row in found["clouds"] for side in ("spot", "on_demand") if row[side]]
    assert {bool(row["spot"]) for row, _ in sides} == {True, False} or len(sides) > len(found["clouds"])
    for _, side in sides:
        cost = cents(Decimal(side["price_usd_h"]) * 2 * Decimal("1.10"))
        assert Decimal(side["cost_usd"]) == cost
        (line,) = side["budgets"]
        assert line["runs"] == int((500 / cost).to_integral_value(rounding=ROUND_FLOOR))
    assert {row["option"]["environment"]["name"] for row in found["elsewhere"]} >= {"AWS SageMaker", "Kaggle"}


@pytest.mark.usefixtures("clouds")
async def test_people_read_the_columns_that_they_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = await run("--budget", "500")
    assert code == 0
    for word in ("Spot $/Run", "Spot Runs", "On-Demand $/Run", "On-Demand Runs", "VRAM", "RTX4090", "Azure ML"):
        assert word in out
    assert "vast: " in out
    code, out, _ = await run("--budget", "500;5000")
    assert (code, sum(line.startswith("RTX4090 ") for line in out.splitlines())) == (0, 1)
    assert ("Spot Runs of $500.00" in out, "Spot Runs of $5,000.00" in out) == (True, True)


@pytest.mark.usefixtures("clouds")
async def test_the_page_is_written_and_holds_the_same_numbers(tmp_path: Path) -> None:
    code, out, _ = await run("--markdown", "--success", "80%", "--value", "1000")
    assert (code, out) == (0, "environment-options.md written.\n")
    text = (tmp_path / "environment-options.md").read_text(encoding="utf-8")
    assert "## $500.00" in text
    assert "## $5,000.00" in text
    assert "- Source: https://huggingface.co" in text
    found = await read("--success", "80%", "--value", "1000")
    first = found["clouds"][0]
    side = first["spot"] or first["on_demand"]
    assert f"${Decimal(side['cost_usd']):,.2f}" in text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--budget", "much"), 2, "not an amount of money"),
        (("--hours", '1" buffer="2'), 2, "is not a time"),
    ],
)
async def test_a_bad_option_is_explained(arguments: tuple[str, ...], code: int, says: str) -> None:
    found, out, err = await run(*arguments)
    assert (found, out) == (code, "")
    assert says in err
