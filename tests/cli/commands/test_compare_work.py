"""`compare model=1B`: what the same work costs on every GPU, with the same figures in every client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.access.api_client import ApiClient
from bot.cli.commands.mcp import Tools
from bot.cli.lazy import build
from bot.practice.reader import all_text
from ledger.engine.db import Database
from tests.cli.commands.test_sized_plan import key_of
from tests.cli.test_commands import elsewhere
from tests.cli.test_inventory import clouds
from tests.slack.conftest import Stage, staged
from tests.support.clock import SteppedClock
from tests.support.serving import serving

__all__ = ["clouds", "elsewhere"]

WORDS = "model=1B tokens=300M spot=any"


@pytest.fixture
async def stage(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[Stage]:
    async with staged(sqlite_db, clock) as built:
        yield built


async def by_cli(*arguments: str) -> tuple[int, str, str]:
    result = await asyncio.to_thread(CliRunner().invoke, build(), ["compare", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.slow
async def test_every_door_compares_the_same_work(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await key_of(stage)
    await stage.command("alice", f"/gpu compare {WORDS}")
    message = all_text(stage.ws.ephemerals("alice")[-1])
    async with serving(build_api(Dependencies(stage.ctx, ApiSettings("C0GPU")), {})) as url:
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as http:
            by_words = {"words": {"model": "1B", "tokens": "300M", "spot": "any"}}
            answer = (await http.post("/api/v1/compare", json=by_words)).json()
            agents = await Tools(ApiClient(http)).compare(run=WORDS)
        monkeypatch.setenv("GPU_SHOPPER_URL", url)
        monkeypatch.setenv("GPU_SHOPPER_API_KEY", key)
        monkeypatch.setenv("COLUMNS", "300")
        code, terminal, _ = await by_cli(*WORDS.split())
        printed = json.loads((await by_cli(*WORDS.split(), "--json"))[1])
        await by_cli(*WORDS.split(), "--markdown")
    page = (tmp_path / "environment-options.md").read_text(encoding="utf-8")
    assert code == 0
    assert printed["gpus"] == answer["comparison"]["gpus"]
    assert page == answer["page"]
    assert answer["report"]["sentences"][0].startswith("Cheapest: ")
    runs, unable = answer["report"]["tables"]
    assert unable["title"] == "Cannot run it"
    for text in (message, terminal, agents, page):
        assert answer["report"]["sentences"][0] in text.replace("\\", "")
        for row in runs["rows"]:
            assert [cell for cell in row if cell not in text] == []
        assert all(gpu in text for gpu, _ in unable["rows"])


@pytest.mark.usefixtures("clouds")
async def test_the_terminal_compares_by_itself() -> None:
    code, out, _ = await by_cli("7B")
    assert (code, "Cheapest: " in out, "1B tokens are compared" in out) == (0, True, True)
    code, out, _ = await by_cli("model=7B", "max=$0.01")
    assert (code, "No GPU for sale here can run this now." in out) == (0, True)
    code, out, _ = await by_cli("500")
    assert (code, "Spot $/Run" in out) == (0, True)
    code, _, err = await by_cli("model=7B", "--hours", "3")
    assert (code, "hours= compares runs by the hour" in err) == (2, True)


async def test_nothing_that_can_run_it_is_said_in_slack(stage: Stage) -> None:
    await stage.command("alice", "/gpu compare 7B max=$0.01")
    text = all_text(stage.ws.ephemerals("alice")[-1])
    assert "No GPU for sale here can run this now." in text
    assert "The expected total is above the budget." in text
