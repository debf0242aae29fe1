"""A program with a key of its own that takes all it can get: streams, requests beside each other, slow names."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import httpx

from tests.scenarios.processes.processes import PROGRAM

SCOPES = ("market:read", "requests:read", "sessions:read", "webhooks:write")
STREAMS, CALLS, NAMES = 12, 60, 24
HOLDS_S = 12.0


def api_key(environment: Mapping[str, str], folder: Path) -> str:
    """Create the program's key as an operator does it, in a terminal."""
    scopes = [word for scope in SCOPES for word in ("--scope", scope)]
    command = [PROGRAM, "keys", "create", "atlas", "--owner", "operator:ada", *scopes, "--json"]
    done = subprocess.run(command, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr or done.stdout)
    return str(json.loads(done.stdout)["token"])


def write_off_unreachable(environment: Mapping[str, str], folder: Path) -> int:
    """Close what no key can show any more, as the page asks an operator to; return how many.

    Rows of a replaced key move to the new one when it lists an instance of them. Where all have ended, it lists none.
    """

    def command(*words: str) -> str:
        done = subprocess.run(
            [PROGRAM, "unreachable", *words, "--json"],
            env=dict(environment),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.stderr.write(f"The operator could not run {' '.join(words)}: {done.stderr or done.stdout}\n")
        return done.stdout if done.returncode == 0 else "[]"

    ids = [row["id"] for row in json.loads(command("list"))]
    closed = [row_id for row_id in ids if command("gone", row_id, "--yes", "--reason", "the key was replaced") != "[]"]
    return len(closed)


async def press(port: int, key: str, random: Random) -> None:
    """Open more streams, send more calls and name more hosts than one program may, for as long as it takes."""
    headers = {"Authorization": f"Bearer {key}"}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers, trust_env=False, timeout=HOLDS_S, limits=limits
    ) as client:
        await asyncio.gather(
            *(_stream(client) for _ in range(STREAMS)),
            *(_quiet(client.get("/inventory")) for _ in range(CALLS)),
            *(_webhook(client, random) for _ in range(NAMES)),
        )


async def _stream(client: httpx.AsyncClient) -> None:
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(HOLDS_S), client.stream("GET", "/events") as answer:
            async for _ in answer.aiter_bytes():
                pass


async def _webhook(client: httpx.AsyncClient, random: Random) -> None:
    url = f"https://host-{random.randrange(10**9)}.example/hook"
    await _quiet(client.post("/webhooks", json={"url": url, "note": url}))


async def _quiet(call: Awaitable[httpx.Response]) -> None:
    """Make a call whose answer does not matter; the process may be killed under it."""
    with suppress(httpx.HTTPError):
        await call
