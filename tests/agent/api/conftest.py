"""An API of one machine on a loopback port, and a caller with its token."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from bot.agent.api.access import Access
from bot.agent.api.app import Api
from bot.agent.deadline import Deadline
from tests.agent.signing import INSTANCE, PUBLIC, signed
from tests.support.serving import serving

TOKEN = "gpua_" + "t" * 43
TOKEN_SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.fixture
async def api(tmp_path: Path) -> Api:
    access = Access(Deadline(INSTANCE, PUBLIC))
    assert access.accept(signed(0.0, n=1, api_token_sha256=TOKEN_SHA256))
    return Api(tmp_path / "agent", access)


@pytest.fixture
async def caller(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(api.app()) as url,
        httpx.AsyncClient(
            base_url=f"{url}/node/v1", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20, trust_env=False
        ) as client,
    ):
        yield client
