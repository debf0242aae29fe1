"""`plan budget=$500`: the model that the money trains, with the same figures in Slack, REST, MCP and the terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.access.api_client import ApiClient
from bot.cli.commands.mcp import Tools
from bot.cli.lazy import build
from bot.practice.reader import all_text
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from tests.cli.test_commands import elsewhere
from tests.cli.test_inventory import clouds
from tests.slack.conftest import Stage, staged
from tests.support.clock import SteppedClock
from tests.support.serving import serving

__all__ = ["clouds", "elsewhere"]

ADA = Actor(ActorKind.OPERATOR, "ada")
WORDS = "budget=$50 by=48h spot=any"


@pytest.fixture
async def stage(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[Stage]:
    async with staged(sqlite_db, clock) as built:
        yield built


async def by_cli(*arguments: str) -> tuple[int, str, str]:
    result = await asyncio.to_thread(CliRunner().invoke, build(), ["plan", *arguments])
    return result.exit_code, result.stdout, result.stderr


async def key_of(stage: Stage) -> str:
    ctx = stage.ctx
    created = await api_keys.create(ctx.db, ctx.labels, NewKey("atlas", "operator:ada"), ADA, stage.w.clock.now())
    return str(created.data["token"])


@pytest.mark.slow
async def test_every_door_names_one_model(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await key_of(stage)
    await stage.command("alice", f"/gpu plan {WORDS}")
    message = all_text(stage.ws.ephemerals("alice")[-1])
    async with serving(build_api(Dependencies(stage.ctx, ApiSettings("C0GPU")), {})) as url:
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as http:
            answer = (await http.post("/api/v1/plans", json={"words": WORDS})).json()
            agents = await Tools(ApiClient(http)).plan(WORDS)
        monkeypatch.setenv("GPU_SHOPPER_URL", url)
        monkeypatch.setenv("GPU_SHOPPER_API_KEY", key)
        monkeypatch.setenv("COLUMNS", "300")
        code, terminal, _ = await by_cli(*WORDS.split(), "--out", str(tmp_path))
        printed = json.loads((await by_cli(*WORDS.split(), "--json"))[1])
    assert code == 0
    page = (tmp_path / "gpu_plan.md").read_text(encoding="utf-8")
    sizing = answer["sizing"]
    assert printed["sizing"] == sizing
    first = sizing["models"][0]
    assert sizing["sentences"][0].startswith("About ")
    for text in (message, terminal, agents, page):
        assert sizing["sentences"][0] in text.replace("\\", "")
        for row in answer["report"]["tables"][0]["rows"]:
            assert [cell for cell in row[1:] if cell not in text] == []
    # The rest of the answer plans the first model, at the same offer and with the same amounts.
    best = answer["estimate"]["options"][0]
    assert (best["offer_id"], best["total_usd"]["expected"]) == (first["offer_id"], first["expected_usd"])
    assert answer["manifest"]["resources"]["offer_id"] == first["offer_id"]
    assert f"offer={first['offer_id']} {' '.join(first['words'])}" in message
    assert f"offer={first['offer_id']} {' '.join(first['words'])}" in terminal
    assert Decimal(first["expected_usd"]) <= 50
    assert Decimal(first["hours"]) <= 48


async def test_nothing_is_said_in_one_sentence(stage: Stage) -> None:
    await stage.command("alice", "/gpu plan budget=$0.0001 by=1h")
    text = all_text(stage.ws.ephemerals("alice")[-1])
    assert "Nothing for sale now trains a model for &lt;$0.01 in 1 hour." in text


@pytest.mark.usefixtures("clouds")
async def test_the_terminal_plans_by_itself(tmp_path: Path) -> None:
    code, out, _ = await by_cli("budget=$50", "served-tokens=1M", "tokens=100M", "--out", str(tmp_path))
    assert (code, "Request #1" in out) == (0, True)
    assert "of the total are for 1M tokens that it serves later" in out
    assert "All of your data are used once" in out
    assert "below the 5B to 500B that the law was fitted on" in out
    assert "| model | tokens | loss |" in (tmp_path / "gpu_plan.md").read_text(encoding="utf-8")
    job = tmp_path / "job.yaml"
    job.write_text("budget: $50\nwork: {served-tokens: 1M, by: 24h}\n", encoding="utf-8")
    code, out, _ = await by_cli(str(job))
    assert (code, "About " in out) == (0, True)
    code, out, _ = await by_cli("budget=$0.0001", "--out", str(tmp_path))
    assert (code, "Nothing for sale now trains a model for <$0.01." in out) == (1, True)
    assert "Nothing for sale now" in (tmp_path / "gpu_plan.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("budget=0", "must be above zero"),
        ("model=7B budget=$500 served-tokens=1B", "served-tokens= chooses a model for a budget"),
    ],
)
@pytest.mark.usefixtures("clouds")
async def test_bad_words_are_refused_in_the_terminal_and_in_slack(stage: Stage, words: str, says: str) -> None:
    code, _, err = await by_cli(*words.split())
    assert (code, says in err) == (2, True)
    await stage.command("alice", f"/gpu plan {words}")
    assert says in all_text(stage.ws.ephemerals("alice")[-1])


async def test_a_wrong_document_is_refused_at_its_field(stage: Stage) -> None:
    key = await key_of(stage)
    async with (
        serving(build_api(Dependencies(stage.ctx, ApiSettings("C0GPU")), {})) as url,
        httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as http,
    ):
        answer = await http.post("/api/v1/plans", json={"budget": "$0"})
    found: dict[str, Any] = answer.json()
    assert answer.status_code == 422, found
    assert found["fields"][0]["field"] == "budget", found
