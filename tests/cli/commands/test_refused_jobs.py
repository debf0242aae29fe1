"""A job that is refused costs nothing, at every door: no request, no quote, no event and no call to a cloud."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import httpx
import pytest
from typer.testing import CliRunner

from bot.api.app import build_api
from bot.api.dependencies import ApiSettings, Dependencies
from bot.cli.access.api_client import ApiClient
from bot.cli.commands.mcp import Tools
from bot.cli.lazy import build
from bot.rules.jobs.stored import job_of
from bot.rules.policy.model_profiles import ModelProfile
from bot.rules.policy.policy import Policy
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from ledger.engine.db import Database
from providers.contract import Provider
from tests.services.webhooks.test_subscriptions import ADA
from tests.slack.conftest import APPROVERS, Stage, staged
from tests.slack.test_commands import private
from tests.support.clock import SteppedClock
from tests.support.proxy_provider import InFront
from tests.support.serving import serving

WRONG_CONFIG = 'profile=moe 6h config=configs/mosaic_small.yaml run="python train.py"'
POLICY = Policy(
    approvers=APPROVERS,
    instance_profiles={"moe": ModelProfile("8xRTX3090", "64GB", ("mosaic_small_resume.yaml",))},
    presets={"wrong": WRONG_CONFIG},
)
NOT_ALLOWED = "The profile moe doesn't allow the config “configs/mosaic_small.yaml”. Allowed: mosaic_small_resume.yaml."
JOB = {"resources": {"gpu": "RTX4090"}, "hours": "2h", "run": "python train.py"}


def mounted(mount: Any, path: str = "/data", *clouds: str) -> dict[str, Any]:
    return {**JOB, "candidates": list(clouds), "file_mounts": {path: mount}}


#: What is wrong → a job document, and a part of the sentence that refuses it.
DOCUMENTS: Mapping[str, tuple[dict[str, Any], str]] = {
    "config": ({"profile": "moe", "hours": "6h", "config": "configs/mosaic_small.yaml", "run": "x"}, NOT_ALLOWED),
    "MOUNT": (
        mounted({"source": "s3://bucket/d", "mode": "MOUNT"}, "/data", "vast"),
        "MOUNT needs FUSE, which no machine at vast has. For /data, write mode: COPY",
    ),
    "MOUNT_CACHED": (
        mounted({"source": "s3://bucket/d", "mode": "MOUNT_CACHED"}, "/data", "runpod", "vast"),
        "MOUNT_CACHED needs FUSE, which no machine at runpod, vast has.",
    ),
    "mounted repository": (mounted({"source": "hf://org/name", "mode": "MOUNT"}), "hf:// can't be mounted"),
    "system folder": (mounted("s3://bucket/d", "/etc"), "/etc is reserved for the system"),
    "no mode": (mounted({"source": "s3://bucket/d"}), "needs a mode; write mode: COPY"),
    "scheme": (mounted("ftp://host/d"), "'ftp://host/d' is not a source; write it like s3://bucket/data"),
    "volume": ({**JOB, "volume": "team-data"}, "You have no volume “team-data”."),
    "name of a volume": ({**JOB, "volume": "Team Data"}, "is not a volume name"),
    "no such field": ({**JOB, "volumes": {"/data": "team-data"}}, "volumes"),
}
#: The same in words, where words are all that a door takes.
WORDS: Mapping[str, tuple[str, str]] = {
    "config": (WRONG_CONFIG, NOT_ALLOWED),
    "mount": ('4090 2h run="x" file_mounts=/data:s3://b/d', "“file_mounts” is not a known word."),
    "volume": ('4090 2h run="x" volume=team-data', "You have no volume “team-data”."),
}


class Counted(InFront):
    """An adapter that counts the calls that it passes on."""

    calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found
        self.calls += 1
        return found


@dataclass
class Doors:
    """Every way in which a job is handed over."""

    stage: Stage
    api: ApiClient
    folder: Path
    counted: list[Counted]

    async def left(self) -> tuple[Any, ...]:
        """What is stored of jobs, and how often a cloud was called."""
        books = await self.stage.w.books()
        rows = (books.requests, books.quotes, books.options, books.sessions, books.grants, books.entries, books.events)
        return (*map(len, rows), sum(one.calls for one in self.counted))

    async def slack(self, words: str) -> str:
        await self.stage.command("alice", f"/gpu provision {words}")
        return private(self.stage, "alice").text

    async def mcp(self, words: str) -> str:
        return str(await Tools(self.api).submit_request(words, reason="a try"))

    async def rest(self, document: dict[str, Any]) -> str:
        answer = await self.api.http.post("/api/v1/sessions", json=document, headers={"Idempotency-Key": token_hex()})
        assert answer.status_code in (400, 409, 422), answer.text
        return answer.text.replace("\\u201c", "“").replace("\\u201d", "”")

    async def file(self, document: dict[str, Any]) -> str:
        return await self._typed(document, "provision", "--job")

    async def run(self, document: dict[str, Any]) -> str:
        return await self._typed(document, "run", "--wait")

    async def _typed(self, document: dict[str, Any], *arguments: str) -> str:
        file = self.folder / "job.yaml"
        file.write_text(json.dumps(document))
        result = await asyncio.to_thread(CliRunner().invoke, build(), [*arguments, str(file)])
        assert result.exit_code in (1, 2), result.output
        return result.stderr


@pytest.fixture
async def doors(
    sqlite_db: Database, clock: SteppedClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Doors]:
    async with staged(sqlite_db, clock, policy=POLICY) as stage:
        counted = {name: Counted(one) for name, one in stage.ctx.providers.items()}
        stage.w.use(cast("Mapping[str, Provider]", counted))
        await stage.restart(stage.w.ctx)
        ctx = stage.ctx
        made = await api_keys.create(ctx.db, ctx.labels, NewKey("atlas", "operator:ada"), ADA, stage.w.clock.now())
        key = str(made.data["token"])
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            serving(build_api(Dependencies(ctx, ApiSettings("C0GPU")), {})) as url,
            httpx.AsyncClient(base_url=url, headers=headers) as http,
        ):
            monkeypatch.setenv("GPU_SHOPPER_URL", url)
            monkeypatch.setenv("GPU_SHOPPER_API_KEY", key)
            await stage.settle()  # Each cloud is listed once, whatever anybody asks.
            yield Doors(stage, ApiClient(http), tmp_path, list(counted.values()))


async def costs_nothing(doors: Doors, act: Callable[[Any], Awaitable[str]], job: Any, sentence: str) -> None:
    """Hand over a job that is wrong: the sentence says so, and nothing is left of it."""
    before = await doors.left()
    said = await act(job)
    assert sentence in said.replace("`", "")
    await doors.stage.settle()
    assert await doors.left() == before


@pytest.mark.parametrize("door", ["rest", "file", "run"])
async def test_a_refused_document_costs_nothing(doors: Doors, door: str) -> None:
    for document, sentence in DOCUMENTS.values():
        await costs_nothing(doors, getattr(doors, door), document, sentence)


@pytest.mark.parametrize("door", ["slack", "mcp"])
async def test_refused_words_cost_nothing(doors: Doors, door: str) -> None:
    for words, sentence in WORDS.values():
        await costs_nothing(doors, getattr(doors, door), words, sentence)


async def test_a_refused_form_costs_nothing(doors: Doors) -> None:
    stage = doors.stage
    await stage.command("alice", "/gpu provision")
    form = stage.ws.view("alice")
    assert form is not None
    await stage.click("alice", form, "More options")
    before = await doors.left()
    refused = await stage.submit("alice", {"preset": "wrong", "gpu": "any", "hours": "any"})
    assert refused.errors == {"preset": NOT_ALLOWED}
    await stage.settle()
    assert await doors.left() == before


async def test_a_job_that_is_repeated_after_its_config_was_withdrawn_costs_nothing(doors: Doors) -> None:
    stage = doors.stage
    right = WRONG_CONFIG.replace("mosaic_small", "mosaic_small_resume")
    await stage.command("alice", f"/gpu provision {right}")
    (request,) = (await stage.w.books()).requests
    assert job_of(request.job).run == (
        "python train.py --config configs/mosaic_small_resume.yaml --run-dir runs/mosaic_small_resume"
    )
    await stage.replaced(instance_profiles={"moe": ModelProfile("8xRTX3090", configs=("other.yaml",))})
    before = await doors.left()
    await stage.command("alice", "/gpu again")
    assert "Allowed: other.yaml." in private(stage, "alice").text
    assert await doors.left() == before
