"""Serve `/healthz` (the process runs) and `/readyz` (it can do its work); neither discloses anything private."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.outbound.service_calls import WRITABLE
from bot.shared_read import SharedRead

CHECK_TIMEOUT_S = 2.0
#: The results of the checks are good for so long.
CHECKED_S = 1.0

#: The checks by name; `WRITABLE` is the one that other replicas read.
LEDGER, TICKER, CLOCK, ENDS = "ledger", "ticker", "clock", "ends"

#: Whether a cloud has confirmed the clock since the start. Until then nothing is bought, ended unasked or booked.
CONFIRMED = "confirmed"

#: What is shown and takes no process out of service: people's orders and approved ends work by the measured time.
ADVISORY = frozenset({CLOCK})

#: Name → a check that returns when all is well and raises otherwise.
Checks = Mapping[str, Callable[[], Awaitable[None]]]

log = logging.getLogger(__name__)


class Ready(BaseModel):
    """Whether this process can do its work, and which checks pass."""

    status: str = Field(description="ok, not ready, or ends only with the cause.")
    checks: dict[str, bool] = Field(description="Each part that was looked at, and how it is.")


def health_routes(checks: Checks, timeout_s: float) -> APIRouter:
    """Build the two health routes.

    `/readyz` answers 503 and names a check that fails or takes too long; only the log has the reason.
    """
    router = APIRouter()
    latest = _Latest(checks, timeout_s)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Answer 200 while the process runs."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=Ready, responses={503: {"model": Ready, "description": "Not ready."}})
    async def readyz() -> JSONResponse:
        """Answer 200 when every check passes, else 503. A clock in doubt is shown, and the answer stays 200.

        Until a cloud has confirmed the clock after a start, the answer is 503.
        """
        results = await latest.results()
        is_ready = all(passed for name, passed in results.items() if name not in ADVISORY)
        return JSONResponse({"status": "ok" if is_ready else "not ready", "checks": results}, 200 if is_ready else 503)

    return router


def ends_only(cause: Callable[[], str], healthy: Callable[[], bool]) -> ASGIApp:
    """Build what a process serves that only ends instances: `/healthz`, and 503 with the cause for all else."""
    failing = dict.fromkeys((LEDGER, TICKER, WRITABLE), False)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body: dict[str, Any] = {"status": f"ends only: {cause()}", "checks": failing | {ENDS: healthy()}}
        alive = scope["path"] == "/healthz"
        await JSONResponse({"status": "ok"} if alive else body, 200 if alive else 503)(scope, receive, send)

    return serve


class _Latest:
    """Run the checks for all callers together, at most once a second: anybody may ask, and each asks the ledger."""

    def __init__(self, checks: Checks, timeout_s: float) -> None:
        self._checks, self._timeout_s = checks, timeout_s
        self._read = SharedRead(self._run)
        self._latest: dict[str, bool] = {}
        self._until_s = 0.0

    async def results(self) -> dict[str, bool]:
        """Return which checks pass."""
        if asyncio.get_running_loop().time() < self._until_s:
            return self._latest
        return await self._read()

    async def _run(self) -> dict[str, bool]:
        passed = await asyncio.gather(*(_passes(n, c, self._timeout_s) for n, c in self._checks.items()))
        self._latest = dict(zip(self._checks, passed, strict=True))
        self._until_s = asyncio.get_running_loop().time() + CHECKED_S
        return self._latest


async def _passes(name: str, check: Callable[[], Awaitable[None]], timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await check()
    except Exception as error:  # noqa: BLE001 # Whatever a check raises means that it did not pass.
        log.warning("not ready: %s (%s)", name, type(error).__name__)
        return False
    return True
