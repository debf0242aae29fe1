"""The Hub's configurations: read once a day, and never a reason for a failed plan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.outbound.model_hub import KEPT, MISSED, ModelHub
from tests.support.clock import SteppedClock
from tests.support.serving import serving

ANSWERS = {
    "plain": '{"hidden_size": 64}',
    "list": "[1]",
    "broken": "{",
    "deep": "[" * 100_000,
    "large": f'{{"x": "{"x" * 300_000}"}}',
}


class Hub:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.keys: set[str] = set()

    async def answer(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.calls.append(name)
        self.keys.add(request.headers.get("authorization", ""))
        if name == "moved":
            return RedirectResponse("/org/plain/resolve/main/config.json")
        return PlainTextResponse(ANSWERS.get(name, "none"), 200 if name in ANSWERS else 404)


@pytest.fixture
async def hub() -> AsyncIterator[tuple[Hub, str]]:
    one = Hub()
    async with serving(Starlette(routes=[Route("/org/{name}/resolve/main/config.json", one.answer)])) as url:
        yield one, url


async def test_a_configuration_is_read_once_a_day(hub: tuple[Hub, str]) -> None:
    server, url = hub
    clock = SteppedClock()
    reader = ModelHub(f"{url}/", clock, "hf_key")
    for _ in range(2):
        assert await reader.config("org/plain") == {"hidden_size": 64}
    assert (server.calls, server.keys) == (["plain"], {"Bearer hf_key"})
    clock.advance(KEPT + timedelta(seconds=1))
    assert await reader.config("org/plain") == {"hidden_size": 64}
    assert len(server.calls) == 2
    assert "hf_key" not in repr(reader)
    assert await ModelHub(url, clock).config("org/moved") == {"hidden_size": 64}
    assert server.keys == {"Bearer hf_key", ""}


@pytest.mark.parametrize("name", ["gone", "list", "broken", "deep", "large"])
async def test_what_is_no_configuration_is_nothing_and_asked_again_later(hub: tuple[Hub, str], name: str) -> None:
    server, url = hub
    clock = SteppedClock()
    reader = ModelHub(url, clock)
    for _ in range(2):
        assert await reader.config(f"org/{name}") is None
    assert server.calls == [name]
    clock.advance(MISSED + timedelta(seconds=1))
    assert await reader.config(f"org/{name}") is None
    assert server.calls == [name, name]


async def test_only_a_name_is_asked_for_and_a_hub_that_is_off_or_gone_is_no_error(hub: tuple[Hub, str]) -> None:
    server, url = hub
    clock = SteppedClock()
    for name in ("plain", "org/../etc", "org/a/b", "/plain", "org/", "org/x?y", "org/a..b", "órg/plain"):
        assert await ModelHub(url, clock).config(name) is None
    assert await ModelHub("", clock).config("org/plain") is None
    assert server.calls == []
    for wrong in ("http://127.0.0.1:9", "http://[", "nonsense"):
        assert await ModelHub(wrong, clock).config("org/plain") is None
