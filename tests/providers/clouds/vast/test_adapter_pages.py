"""The adapter against answers that the documentation excludes: nothing of them is taken for a fact."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import SecretStr

from providers.clouds.vast.adapter import VastConfig, VastProvider
from providers.errors import UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.registry import REGISTRY
from tests.providers.read_offers import every_offer
from tests.providers.scripted import Scripted, answer, playing
from tests.support.clock import SteppedClock


@asynccontextmanager
async def facing(*bodies: Any) -> AsyncIterator[tuple[VastProvider, Scripted]]:
    """An adapter that gets these JSON bodies, one after the other, then the last for ever."""
    async with playing(*(answer(body) for body in bodies)) as played:
        config = VastConfig(api_key=SecretStr("k"), base_url=f"http://127.0.0.1:{played.port}")
        provider = VastProvider(config, SteppedClock())
        try:
            yield provider, played
        finally:
            await provider.close()


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"instances": None},
        {"instances": [{"label": "no id"}]},
        {"instances": [7]},
        {"instances": [], "next_token": 7},
        {"success": True, "instances": [], "total_instances": 3, "next_token": None},
        {"success": False, "error": "x", "instances": []},
    ],
)
async def test_a_listing_of_another_shape_raises(body: Any) -> None:
    async with facing(body) as (provider, _):
        with pytest.raises(UnexpectedResponse):
            await provider.list()


async def test_tokens_that_lead_in_a_circle_raise() -> None:
    async with facing({"instances": [], "next_token": "a"}, {"instances": [], "next_token": "a"}) as (provider, played):
        with pytest.raises(UnexpectedResponse, match="does not end"):
            await provider.list()
    assert len(played.requests) == 2


async def test_a_listing_without_a_total_is_taken_as_it_is() -> None:
    async with facing({"instances": [{"id": 7, "label": "x"}], "next_token": None}) as (provider, _):
        assert [item.ref for item in (await provider.list()).items] == ["7"]


@pytest.mark.parametrize("body", [[], {}, {"instances": []}, {"instances": {"label": "no id"}}, {"success": False}])
async def test_one_instance_of_another_shape_raises(body: Any) -> None:
    async with facing(body) as (provider, _):
        with pytest.raises(UnexpectedResponse):
            await provider.get("7")


@pytest.mark.parametrize("body", [[], {}, {"credit": None}, {"credit": "lots"}, {"credit": True}])
async def test_a_balance_without_credit_raises(body: Any) -> None:
    async with facing(body) as (provider, _):
        with pytest.raises(UnexpectedResponse):
            await provider.balance()


@pytest.mark.parametrize("body", [{}, {"results": None}, {"results": [7]}, {"results": [{"items": [{}]}]}])
async def test_charges_of_another_shape_raise(body: Any) -> None:
    clock = SteppedClock()
    async with facing(body) as (provider, _):
        with pytest.raises(UnexpectedResponse):
            await provider.charges(clock.now() - timedelta(days=1), clock.now())


async def test_charges_that_never_end_raise() -> None:
    clock = SteppedClock()
    async with facing({"results": [], "next_token": "a"}) as (provider, _):
        with pytest.raises(UnexpectedResponse, match="does not end"):
            await provider.charges(clock.now() - timedelta(days=1), clock.now())


async def test_the_bill_is_asked_for_by_whole_days_and_cut_to_them() -> None:
    clock = SteppedClock()
    now = clock.now()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = [{"start": int((today - timedelta(days=n)).timestamp())} for n in (2, 1, 0, -1)]
    rows = [
        {"source": f"instance-{n}", "type": "gpu", "amount": 1, **day, "end": day["start"]}
        for n, day in enumerate(days)
    ]
    async with facing({"results": rows[:2], "next_token": "a"}, {"results": rows[2:], "next_token": None}) as (
        provider,
        played,
    ):
        lines = await provider.charges(now - timedelta(days=1), now)
    assert [line.ref for line in lines] == ["1", "2"]
    asked = json.loads(parse_qs(urlsplit(played.requests[0].split()[1].decode()).query)["select_filters"][0])["day"]
    assert asked == {"gte": days[1]["start"], "lte": days[3]["start"] - 1}


async def test_a_page_without_new_rows_ends_the_search() -> None:
    row = {"id": 1, "num_gpus": 1, "gpu_name": "RTX 4090", "gpu_ram": 24564, "dph_total": 0.3, "disk_space": 900}
    full = {"offers": [{**row, "id": n} for n in range(1, 65)]}
    async with facing(full) as (provider, played):
        found = await every_offer(provider, GpuConstraint(), disk_gb=40, spot=False)
    assert (len(found), len(played.requests)) == (64, 2)


async def test_a_last_row_without_a_price_ends_the_search() -> None:
    row = {"num_gpus": 1, "gpu_name": "RTX 4090", "gpu_ram": 24564, "disk_space": 900}
    async with facing({"offers": [{**row, "id": n} for n in range(1, 65)]}) as (provider, played):
        found = await every_offer(provider, GpuConstraint(), disk_gb=40, spot=False)
    assert (len(found), len(played.requests)) == (64, 1)


@pytest.mark.parametrize("body", [{}, {"success": False, "error": "busy"}])
async def test_a_destroy_that_does_not_say_success(body: Any) -> None:
    async with facing(body) as (provider, _):
        if body:
            with pytest.raises(UnexpectedResponse):
                await provider.terminate("7")
        else:
            await provider.terminate("7")


def test_the_registry_reads_the_settings() -> None:
    entry = REGISTRY["vast"]
    config = entry.config({"VAST_API_KEY": " k1 \n", "VAST_URL": "http://127.0.0.1:1"})
    assert isinstance(config, VastConfig)
    assert (config.api_key.get_secret_value(), config.base_url) == ("k1", "http://127.0.0.1:1")
    assert entry.config({}) == VastConfig()
    assert VastConfig().base_url == "https://console.vast.ai"
