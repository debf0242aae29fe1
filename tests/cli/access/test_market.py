"""A new user without one key: the market, a plan and a comparison over real HTTP, and nothing that is bought."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.access.settings import BAD_SETTINGS
from bot.cli.lazy import build
from bot.clock import SystemClock
from bot.settings import load
from bot.wiring import build_context
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import Engine
from providers.sandbox.sandboxes import SANDBOXES, sandboxes
from providers.sandbox.server import build_app
from providers.sandbox.vast.sandbox import VastSandbox
from tests.cli.test_commands import elsewhere
from tests.support.serving import serving

__all__ = ["elsewhere"]

pytestmark = pytest.mark.usefixtures("elsewhere")

#: Offers of Vast.ai that its public search lists within the calls that may follow one another at once.
SEARCHED_AT_ONCE = 40
PUBLIC = ("vast", "runpod", "tensordock")
LINE = "Read without a key: today's offers of vast, runpod and tensordock; list prices of lambda (2026-05-07"


@pytest.fixture
async def clouds(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """Every cloud at its address here, and no key for any."""
    found = sandboxes(SystemClock(), SandboxTiming.quick())
    # A command waits for the whole market; so much of Vast.ai's is read without a pause between two searches.
    vast = found["vast"]
    assert isinstance(vast, VastSandbox)
    for offer in list(vast.account.market.slices())[SEARCHED_AT_ONCE:]:
        vast.withdraw(str(offer.offer_id))
    keys = {name for entry in REGISTRY.values() for name in (*entry.required, *entry.alternative)}
    async with serving(build_app(found)) as url:
        for name, cloud in found.items():
            for variable, value in cloud.environment(f"{url}/{name}").items():
                if variable in keys:
                    monkeypatch.delenv(variable, raising=False)
                else:
                    monkeypatch.setenv(variable, value)
        yield next(iter(found.values())).engine


async def run(*arguments: str) -> tuple[int, str, str]:
    """The command in a thread, since it has an event loop of its own and the clouds answer in this one."""
    result = await asyncio.to_thread(CliRunner().invoke, build(), arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.usefixtures("clouds")
async def test_inventory_shows_the_public_market_and_says_so_in_one_line() -> None:
    code, out, err = await run("inventory", "--gpu", "4090,h100", "--sort", "price")
    assert code == 0, err
    said = [line for line in (out + err).splitlines() if line.startswith(LINE)]
    assert len(said) == 1
    assert "To rent, set a key: `gpu-shopper doctor` names them." in said[0]
    assert "kaggle is not set up here, so it was not asked." in out + err
    assert "lambda (list)" in out


@pytest.mark.usefixtures("clouds")
async def test_programs_read_the_source_of_every_cloud_and_row() -> None:
    code, out, err = await run("inventory", "--gpu", "h100,4090", "--json")
    assert code == 0, err
    found = json.loads(out)
    sources = {one["cloud"]: one["source"] for one in found["clouds"] if one["ok"]}
    assert sources == {**dict.fromkeys(PUBLIC, "public"), "lambda": "list_price"}
    assert {one["cloud"]: one["listed_on"] for one in found["clouds"]}["lambda"] == "2026-05-07"
    assert {one["source"] for one in found["items"]} == {"public", "list_price"}
    assert all(one["source"] == sources[one["cloud"]] for one in found["items"])
    listed = [one for one in found["items"] if one["cloud"] == "lambda"]
    assert listed
    assert all("List price of 7 May 2026" in one["warning"] for one in listed)


async def test_plan_ranks_it_and_names_no_request(clouds: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    code, out, err = await run("plan", "model=1B", "tokens=10M", "--out", str(folder))
    assert code == 0, err
    assert LINE in out + err
    assert "gpu-shopper provision" not in out + err
    assert LINE in (folder / "gpu_plan.md").read_text(encoding="utf-8")
    estimate = json.loads((folder / "cost_estimate.json").read_text(encoding="utf-8"))
    assert {one["source"] for one in estimate["clouds"] if one["ok"]} == {"public", "list_price"}
    assert not clouds.creates


@pytest.mark.usefixtures("clouds")
@pytest.mark.parametrize("words", [("500",), ("model=1B", "tokens=10M")])
async def test_compare_says_so_too(words: tuple[str, ...], tmp_path: Path) -> None:
    code, out, err = await run("compare", *words)
    assert code == 0, err
    assert (out + err).count(LINE) == 1
    code, out, err = await run("compare", *words, "--markdown")
    assert code == 0, err
    assert LINE in (tmp_path / "environment-options.md").read_text(encoding="utf-8")


async def test_a_listing_that_is_closed_is_named_and_the_others_go_on(clouds: Engine) -> None:
    clouds.faults.arm("vast", "search_auth", None)
    code, out, err = await run("inventory", "--gpu", "4090")
    assert code == 0, err
    assert "vast: Vast shows its offers only with a key; set VAST_API_KEY." in out + err
    assert "Read without a key: today's offers of runpod and tensordock;" in out + err


async def test_nothing_is_sent_but_reads_of_the_public_listings(clouds: Engine) -> None:
    await run("inventory", "--gpu", "4090")
    await run("plan", "model=1B", "tokens=10M")
    assert {(one.cloud, one.path.removeprefix(f"/{one.cloud}")) for one in clouds.calls} == {
        ("vast", "/api/v0/bundles/"),
        ("runpod", "/graphql"),
        ("tensordock", "/api/v0/client/deploy/hostnodes"),
    }
    assert not clouds.creates


@pytest.mark.usefixtures("clouds")
async def test_a_service_without_a_key_has_no_cloud_to_list_to_sweep_or_to_buy_from() -> None:
    found = load()
    assert set(found.keyless) == {*PUBLIC, "lambda"}
    ctx = build_context(found, SystemClock())
    assert not ctx.providers
    assert not ctx.catalog.capabilities


@pytest.mark.usefixtures("clouds")
async def test_provision_is_refused_as_ever_and_preflight_names_what_is_missing() -> None:
    assert (await run("db", "upgrade"))[0] == 0
    code, out, err = await run("provision", "4090", "1h")
    assert code != 0
    assert "No cloud is set up here." in out + err
    code, out, err = await run("doctor")
    assert "VAST_API_KEY" in out + err


async def test_a_key_ends_the_public_market(clouds: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAST_API_KEY", SANDBOXES["vast"].API_KEY)
    code, out, err = await run("inventory", "--gpu", "4090", "--json")
    assert code == 0, err
    assert {one["cloud"]: one["source"] for one in json.loads(out)["clouds"] if one["ok"]} == {"vast": "account"}
    assert {one.cloud for one in clouds.calls} == {"vast"}


@pytest.mark.usefixtures("clouds")
async def test_practice_asks_no_public_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_SHOPPER_PRACTICE", "true")
    monkeypatch.setenv("GPU_SHOPPER_SLACK_API_URL", "http://127.0.0.1:9/")
    for words in (["inventory", "--gpu", "4090"], ["plan", "model=1B", "tokens=10M"], ["compare"]):
        code, out, err = await run(*words)
        assert (code, out) == (BAD_SETTINGS, "")
        assert "No cloud is set up, so there is no market." in err
