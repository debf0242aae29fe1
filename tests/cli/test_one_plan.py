"""One plan at all doors: files, Slack (message and dialog), the API and the command line, to the last digit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from typer.testing import CliRunner

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.lazy import build
from bot.practice.reader import all_text
from bot.rules.values.phrases import about_hours, rate, usd
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from bot.services.plans.deliverables import CostEstimate, InstanceManifest, cost_estimate, gpu_plan, instance_manifest
from bot.services.plans.run_history import record_run
from bot.services.plans.text import cells
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from tests.cli.test_plan import POLICY, WORDS, planned, schema
from tests.slack.conftest import Stage, staged
from tests.support.clock import SteppedClock
from tests.support.serving import serving

ADA = Actor(ActorKind.OPERATOR, "ada")
PATH = "/api/v1/plans"


@pytest.fixture
async def stage(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[Stage]:
    """Slack's door, with one own run recorded, so that every door must have read it."""
    async with staged(sqlite_db, clock) as built:
        await record_run(built.ctx.db, tuple(WORDS.split()), "H100-SXM", 8, Decimal(90_000), ADA, clock.now())
        yield built


async def by_api(url: str, key: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "one"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as http:
        answer = await http.post(PATH, json={"words": WORDS})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def by_cli(*arguments: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, build(), ["plan", *WORDS.split(), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


async def by_button(stage: Stage) -> str:
    """The plan in the dialog that the form's button opens."""
    await stage.command("alice", "/gpu provision")
    form = stage.ws.view("alice")
    assert form is not None
    await stage.click("alice", form, "More options")
    form = stage.ws.view("alice")
    assert form is not None
    values = {"gpu": "any", "hours": "any", "work": WORDS}
    await stage.as_("alice").click(form, "Compare offers", values=values)
    await stage.settle()
    shown = stage.ws.view("alice")
    assert shown is not None
    return all_text(shown)


@pytest.mark.slow
async def test_every_door_tells_one_plan(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await planned(stage)
    assert made.best is not None
    ctx = stage.ctx
    created = await api_keys.create(ctx.db, ctx.labels, NewKey("atlas", "operator:ada"), ADA, stage.w.clock.now())
    key = str(created.data["token"])
    await stage.command("alice", f"/gpu plan {WORDS}")
    message, dialog = all_text(stage.ws.ephemerals("alice")[-1]), await by_button(stage)
    async with serving(build_api(Dependencies(ctx, ApiSettings("C0GPU")), {})) as url:
        answer = await by_api(url, key)
        monkeypatch.setenv("GPU_SHOPPER_URL", url)
        monkeypatch.setenv("GPU_SHOPPER_API_KEY", key)
        monkeypatch.setenv("COLUMNS", "400")
        printed = json.loads(await by_cli("--json"))
        terminal = await by_cli("--out", str(tmp_path), "--columns", "all")

    # The documents are the same everywhere, whole, keep to their schemas, and come back as they were.
    estimate, manifest = cost_estimate(made), instance_manifest(made, POLICY)
    filed = json.loads((tmp_path / "cost_estimate.json").read_text(encoding="utf-8"))
    assert estimate.model_dump(mode="json") == answer["estimate"] == printed == filed
    assert manifest.model_dump(mode="json") == answer["manifest"]
    assert json.loads((tmp_path / "instance_manifest.json").read_text(encoding="utf-8")) == answer["manifest"]
    assert answer["chart"] is None
    assert (tmp_path / "gpu_plan.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert gpu_plan(made) == answer["page"] == (tmp_path / "gpu_plan.md").read_text(encoding="utf-8")
    jsonschema.validate(printed, schema("cost_estimate.json"))
    jsonschema.validate(answer["manifest"], schema("instance_manifest.json"))
    assert CostEstimate.model_validate(printed) == estimate
    assert InstanceManifest.model_validate(answer["manifest"]) == manifest

    # What people read holds the numbers of those documents.
    assert len(made.ranked.options) == len(printed["options"]) == len(answer["report"]["tables"][0]["rows"])
    for option, said, row in zip(
        made.ranked.options, printed["options"], answer["report"]["tables"][0]["rows"], strict=True
    ):
        assert list(cells(option)) == row
        total = {name: Decimal(amount) for name, amount in said["total_usd"].items()}
        shown = (
            option.offer.id,
            usd(total["expected"]),
            f"{usd(total['best'])}–{usd(Decimal(said['outlook']['usd_high']))}",
            about_hours(Decimal(said["hours"]["expected"])),
            rate(Decimal(said["price_usd_h"])).removesuffix("/h"),
        )
        for text in (message, dialog, terminal, answer["page"]):
            assert [word for word in shown if word not in text] == []
    basis = "corrected by 1 run of this installation"
    for text in (message, dialog, terminal, answer["page"], json.dumps(printed)):
        assert basis in text
