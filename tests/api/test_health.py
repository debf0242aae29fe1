"""Health: alive, ready, and silent about why not."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from bot.api.app import routes
from bot.api.health import Checks
from tests.support.serving import serving


async def fine() -> None:
    """A check that passes."""


async def broken() -> None:
    raise OSError("password=hunter2 was refused by db.internal")


async def hanging() -> None:
    await asyncio.Event().wait()


async def ask(checks: Checks, path: str, timeout_s: float = 5.0) -> httpx.Response:
    async with serving(routes(checks, timeout_s)) as url, httpx.AsyncClient(trust_env=False) as client:
        return await client.get(url + path)


async def test_alive_says_nothing_about_the_checks() -> None:
    answer = await ask({"ledger": broken}, "/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_ready_when_every_check_passes() -> None:
    answer = await ask({"ledger": fine, "ticker": fine}, "/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "checks": {"ledger": True, "ticker": True}}


async def test_not_ready_names_the_check_and_keeps_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask({"ledger": broken, "ticker": fine}, "/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "checks": {"ledger": False, "ticker": True}}
    assert "hunter2" not in answer.text + caplog.text
    assert "OSError" in caplog.text


async def test_a_clock_in_doubt_is_shown_and_takes_nothing_out_of_service() -> None:
    answer = await ask({"ledger": fine, "clock": broken}, "/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "checks": {"ledger": True, "clock": False}})


async def test_a_clock_that_no_cloud_has_confirmed_yet_is_not_ready() -> None:
    answer = await ask({"ledger": fine, "clock": broken, "confirmed": broken}, "/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "not ready")


async def test_a_check_that_hangs_does_not_hang_the_page() -> None:
    answer = await ask({"ledger": hanging}, "/readyz", timeout_s=0.01)
    assert answer.json()["checks"] == {"ledger": False}


@pytest.mark.parametrize("path", ["/redoc", "/", "/slack/events", "/api"])
async def test_nothing_else_is_served(path: str) -> None:
    assert (await ask({}, path)).status_code == 404


async def test_the_routes_are_one_page_that_loads_nothing() -> None:
    answer = await ask({}, "/docs")
    assert answer.status_code == 200
    for path in ("/api/v1/inventory", "/api/v1/sessions/{session}/extend", "/healthz"):
        assert path in answer.text
    for loaded in ("<script", "src=", "url(", "@import", "<link", "href=http", "href='http", 'href="http'):
        assert loaded not in answer.text, loaded
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
