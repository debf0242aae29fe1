"""Only the token in the newest signed message opens the API."""

from __future__ import annotations

import httpx
import pytest

from bot.agent.api.app import Api
from tests.agent.api.conftest import TOKEN, TOKEN_SHA256
from tests.agent.signing import INSTANCE, OTHER_KEY, signed

HEADERS = [
    "",
    "Bearer",
    f"Basic {TOKEN}",
    f"Bearer {TOKEN}x",
    "Bearer " + "é" * 20,
    TOKEN,
    f"Bearer {TOKEN_SHA256}",
]


@pytest.mark.parametrize("shown", HEADERS)
@pytest.mark.parametrize("path", ["status", "openapi.json", "nothing"])
async def test_another_token_gets_nothing_and_does_not_learn_the_paths(
    caller: httpx.AsyncClient, shown: str, path: str
) -> None:
    reply = await caller.get(path, headers=[(b"Authorization", shown.encode())])
    assert reply.status_code == 401
    assert reply.headers["content-type"] == "application/problem+json"
    assert "gpu-shopper session token" in reply.json()["detail"]


async def test_two_headers_are_none(caller: httpx.AsyncClient) -> None:
    both = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")]
    request = caller.build_request("GET", "status")
    request.headers = httpx.Headers([*both, ("Host", request.headers["Host"])])
    assert (await caller.send(request)).status_code == 401


async def test_a_rotated_token_replaces_the_one_before_and_none_lets_nobody_in(
    api: Api, caller: httpx.AsyncClient
) -> None:
    assert (await caller.get("status")).status_code == 200
    assert not api.access.accept(signed(0.0, n=2, key=OTHER_KEY))
    assert not api.access.accept(signed(0.0, n=1, api_token_sha256="0" * 64))
    assert not api.access.accept(signed(0.0, n=3, instance=f"{INSTANCE[:-1]}0"))
    assert (await caller.get("status")).status_code == 200
    assert api.access.accept(signed(0.0, n=2, api_token_sha256="0" * 64))
    assert (await caller.get("status")).status_code == 401
    assert api.access.accept(signed(0.0, n=3))
    for shown in (f"Bearer {TOKEN}", "Bearer"):
        assert (await caller.get("status", headers={"Authorization": shown})).status_code == 401
