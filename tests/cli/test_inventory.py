"""`gpu-shopper inventory`: one market out of clouds that really answer, for people and for programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bot.cli.access import market
from bot.cli.lazy import build
from bot.cli.terminal.terminal_tables import print_report
from bot.clock import SystemClock
from bot.rules.market.listing import listed
from bot.rules.market.sort_key import SortKey
from bot.rules.policy.policy import Policy
from bot.services.market.answers import CloudAnswer
from bot.services.market.catalog import MarketListing
from bot.services.market.document import market_page
from bot.services.market.market_table import market_table
from providers import http
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.sandboxes import sandboxes
from providers.sandbox.server import build_app
from tests.cli.test_commands import elsewhere
from tests.rules.builders import CLOUDS, NOW, job, offer
from tests.support.serving import serving

__all__ = ["elsewhere"]

NAMES = ("vast", "runpod")


@pytest.fixture
async def clouds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[None]:
    """Two clouds that are set up and answer, at a pace that only practice allows."""
    (tmp_path / "policy.yml").write_text("timing: {pace: 0.001}\n")
    monkeypatch.setenv("GPU_SHOPPER_POLICY", str(tmp_path / "policy.yml"))
    monkeypatch.setenv("GPU_SHOPPER_PRACTICE", "true")
    monkeypatch.setenv("GPU_SHOPPER_SLACK_API_URL", "http://127.0.0.1:9/")
    found = sandboxes(SystemClock(), SandboxTiming.quick(), names=NAMES, bad_rows=True)
    async with serving(build_app(found)) as url:
        for name, cloud in found.items():
            for variable, value in cloud.environment(f"{url}/{name}").items():
                monkeypatch.setenv(variable, value)
        yield


async def run(*arguments: str) -> tuple[int, str, str]:
    """The command in a thread, since it has an event loop of its own and the clouds answer in this one."""
    result = await asyncio.to_thread(CliRunner().invoke, build(), ["inventory", *arguments])
    return result.exit_code, result.stdout, result.stderr


async def read(*arguments: str) -> dict[str, Any]:
    code, out, err = await run(*arguments, "--json")
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.usefixtures("clouds")
async def test_the_whole_market_is_merged_filtered_and_ranked() -> None:
    found = await read("--gpu", "4090", "--max-price", "0.80")
    others = dict.fromkeys(set(REGISTRY) - set(NAMES), False)
    assert {one["cloud"]: one["ok"] for one in found["clouds"]} == dict.fromkeys(NAMES, True) | others
    assert len(found["items"]) == found["rows"] > Policy().options_shown
    assert [one["rank"] for one in found["items"]] == [*range(1, found["rows"] + 1)]
    assert sum(len(one["regions"]) for one in found["items"]) == found["offers"]
    assert all(one["gpu"] == "RTX4090" for one in found["items"])
    assert all(Decimal(one["price_usd_h"]) <= Decimal("0.80") for one in found["items"])
    assert all(one["read_at"].endswith("Z") for one in found["items"])
    assert found["next_cursor"] is None


@pytest.mark.usefixtures("clouds")
async def test_a_search_in_words_is_the_search_with_options() -> None:
    said = await read("4090", "US", "--max-price", "0.80")
    optioned = await read("--gpu", "4090", "--region", "US", "--max-price", "0.80")
    assert [one["offer_id"] for one in said["items"]] == [one["offer_id"] for one in optioned["items"]]
    code, _, err = await run("4090", "frobnicate")
    assert code == 2
    assert "“frobnicate” is not understood" in err


@pytest.mark.usefixtures("clouds")
async def test_sort_keys_columns_and_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await read("--gpu", "4090", "--sort", "price", "--limit", "3")
    prices = [Decimal(one["price_usd_h"]) for one in first["items"]]
    assert len(prices) == 3 < first["rows"]
    assert prices == sorted(prices)
    trusted = await read("--gpu", "4090", "--sort", "reliability", "--provider", "vast")
    shares = [Decimal(one["reliability"]) for one in trusted["items"]]
    assert shares == sorted(shares, reverse=True)
    monkeypatch.delenv("COLUMNS", raising=False)
    chosen = ("--gpu", "4090", "--sort", "price", "--limit", "3", "--columns", "rank,offer,gpu-price")
    code, out, err = await run(*chosen)
    piped = [line.split("\t") for line in out.splitlines()]
    assert [cells[:2] for cells in piped] == [[str(n), one["offer_id"]] for n, one in enumerate(first["items"], 1)]
    assert f"Shown: 3 of {first['rows']} offers. " in err
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = await run(*chosen)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["#", "offer", "$/GPU/h"]
    assert [line.split()[1] for line in lines[1:4]] == [one["offer_id"] for one in first["items"]]
    assert f"Shown: 3 of {first['rows']} offers. " in out
    assert f"include a disk of {first['disk_gb']} GB" in out


@pytest.mark.usefixtures("clouds")
async def test_people_read_a_table_and_what_its_prices_include(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = await run("--gpu", "4090", "--max-price", "0.50")
    assert code == 0
    assert out.splitlines()[0].split() == ["GPU", "GB/GPU", "cloud", "region", "$/h", "reliable"]
    assert out.splitlines()[1].startswith("1x RTX4090")
    assert "`--columns gpu,price,offer`" in out
    assert "Prices per hour include a disk of " in out
    assert "s old" not in out
    assert "\x1b[" not in out
    assert "not set up here" in out


@pytest.mark.usefixtures("clouds")
async def test_a_gpu_that_the_default_image_does_not_know_is_left_out_with_the_reason() -> None:
    found = await read("--gpu", "5090", "--provider", "vast")
    assert found["items"] == []
    assert [one["code"] for one in found["excluded"]] == ["image"]
    assert "compute capability" in found["excluded"][0]["sentence"]
    assert found["advice"][0].startswith("With image=pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel, ")
    code, out, _ = await run("--gpu", "5090", "--provider", "vast")
    assert code == 0
    assert "No offer fits now." in out
    assert found["excluded"][0]["sentence"] in out


@pytest.mark.usefixtures("clouds")
async def test_the_options_are_the_words_of_the_language() -> None:
    found = await read(
        "--min-vram", "80", "--count", "1-2", "--provider", "runpod", "--spot", "no", "--region", "US,EU"
    )
    assert {one["cloud"] for one in found["clouds"]} == {"runpod"}
    assert all(Decimal(one["memory_gb"]) >= 80 and one["gpu_count"] <= 2 for one in found["items"])
    ram = await read("--gpu-ram", "24GB", "--provider", "vast")
    assert {one["memory_gb"] for one in ram["items"]} == {"24"}
    four = await read("--gpus", "4", "--gpu-ram", "20")
    assert {one["gpu_count"] for one in four["items"]} == {4}
    assert min(Decimal(one["memory_gb"]) for one in four["items"]) >= 20
    assert max(Decimal(one["memory_gb"]) for one in four["items"]) > 24


@pytest.mark.usefixtures("clouds")
async def test_clouds_that_refuse_the_key_are_named_and_end_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAST_API_KEY", "wrongwrong")
    code, out, _ = await run("--gpu", "4090", "--provider", "vast")
    assert code == market.NO_CLOUD
    assert "vast: Vast.ai refuses the API key." in out
    assert "wrongwrong" not in out


async def test_where_no_cloud_answers_that_alone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BACKOFF_S", 0.01)
    for cloud in sandboxes(SystemClock(), SandboxTiming.quick(), names=NAMES).values():
        for variable, value in cloud.environment("http://127.0.0.1:9").items():
            monkeypatch.setenv(variable, value)
    code, out, _ = await run("--gpu", "4090", "--provider", "vast,runpod")
    assert (code, out) == (market.NO_CLOUD, "2 of 2 clouds did not answer: vast and runpod. Try again.\n")


async def test_practice_without_a_cloud_asks_nobody_and_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_SHOPPER_PRACTICE", "true")
    monkeypatch.setenv("GPU_SHOPPER_SLACK_API_URL", "http://127.0.0.1:9/")
    code, out, err = await run("--gpu", "4090")
    assert (code, out) == (78, "")
    assert "No cloud is set up" in err
    assert "VAST_API_KEY (https://" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gpu", "RTX9999"), "RTX9999"),
        (("--max-price", "cheap"), "cheap"),
        (("--spot", "maybe"), "write spot=no, spot=yes or spot=any"),
        (("--gpu-ram", "24GB", "--min-vram", "24"), "say the same"),
        (("--region", 'US" max="1'), "is not a region"),
        (("--sort", "prize"), "there are total, price, gpu-price"),
        (("--sort", "prize"), "Did you mean price?"),
        (("--columns", "offer,prize"), "Did you mean price?"),
    ],
)
async def test_a_bad_option_is_explained(arguments: tuple[str, ...], says: str) -> None:
    code, out, err = await run(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_hostile_text_of_a_cloud_cannot_break_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    bad = offer(region="[bold]x[/bold]\x1b[31m", country=None)
    rows, market = listed([bad], job(), Policy(), CLOUDS)
    answers = (CloudAnswer("vast", False, 0, NOW, "[red]no\x1b[0m"),)
    print_report(market_table(market_page(MarketListing("0" * 16, job(), SortKey.TOTAL, rows, market, answers))))
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert "[red]no" in out
    assert "\x1b[31m" not in out
