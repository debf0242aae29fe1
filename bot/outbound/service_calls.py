"""Make the two GET requests to addresses that the operator sets: another replica's readiness, and the heartbeat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import httpx

from ledger.kernel.network_guard import forbid_in_transaction

TIMEOUT_S = 5.0
#: The check of `/readyz` that says whether a process can write to the ledger.
WRITABLE = "writable"

log = logging.getLogger(__name__)


async def writable_replicas(urls: Sequence[str], timeout_s: float = TIMEOUT_S) -> int:
    """Count the replicas whose `/readyz` reports a writable ledger; one that gives no reply can't write."""
    forbid_in_transaction("another replica")
    async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
        return sum(await asyncio.gather(*(_writable(client, url) for url in urls)))


async def _writable(client: httpx.AsyncClient, url: str) -> bool:
    try:
        checks = (await client.get(f"{url.rstrip('/')}/readyz")).json()["checks"]
        return checks.get(WRITABLE) is True
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError, AttributeError):
        return False


async def send_heartbeat(url: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Send a heartbeat to a monitor outside of this machine. True when it took the call."""
    forbid_in_transaction("the heartbeat")
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
            return (await client.get(url)).is_success
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # Its address may hold a token, so only the kind of the error is logged.
        log.warning("the heartbeat was not taken: %s", type(error).__name__)
        return False
