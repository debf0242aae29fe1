"""A backup or a restore that is killed at any step: the old state is whole, or the new one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.services.backups.backup import back_up
from bot.services.backups.restore import check
from tests.services.backups.deployments import PASSPHRASE as OPENS
from tests.services.backups.deployments import Contents, contents, go_on, installation, rent
from tests.support.clock import START, SteppedClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
REPOSITORY = Path(__file__).parents[3]


async def kills(**order: Any) -> AsyncIterator[int]:
    """The exit code of each process, until one was not killed."""
    command = [sys.executable, "-m", "tests.services.backups.killed", json.dumps(order)]
    program = await create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=REPOSITORY, env=os.environ)
    if program.stdin is None or program.stdout is None:
        raise RuntimeError("the program has no pipes")
    while line := await program.stdout.readline():
        yield json.loads(line)["code"]
        program.stdin.write(b"go on\n")
    assert await program.wait() == 0


async def nobody_connected(url: str) -> None:
    """Return when the programs that a killed restore had started have left the database."""
    # The server tells nobody.
    while (server := await installation(url, Path()).server()) is not None and server.state.connected:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def played(kills: AsyncIterator[int], url: str, before: Contents, after: Contents) -> list[Contents]:
    """What the ledger has after each kill: all of the old state or of the new one, and the new one at the end."""
    seen, codes = [], []
    async for code in kills:
        codes.append(code)
        await nobody_connected(url)
        seen.append(await contents(url))
    assert codes[-1] == 0
    assert set(codes[:-1]) == {-9}
    assert set(seen) == {before, after}
    assert seen == sorted(seen, key=lambda one: one == after), "the old state came back"
    return seen


async def test_a_restore_that_is_killed_at_any_step_leaves_a_whole_ledger(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    place = installation(url, folder)
    then = await rent(url, clock)
    made = await back_up(place, tmp_path / "safe", OPENS, START, "0.1.0")
    now = await go_on(url, clock)
    order = {"do": "restore", "url": url, "folder": str(folder), "path": str(made.path)}
    seen = await played(kills(**order), url, now, then)
    assert len(seen) > 10
    assert [path.name for path in folder.iterdir() if path.name.startswith(".gpu")] == []  # noqa: ASYNC240 # A few names.
    if place.ledger is None:  # psql is killed by nobody: it reads the end of its input in the middle of the dump.
        later = await go_on(url, clock)
        await played(kills(**order, every_s=0.15), url, later, then)
    await go_on(url, clock)


async def test_a_backup_that_is_killed_at_any_step_leaves_no_half_archive(
    url: str, folder: Path, tmp_path: Path, clock: SteppedClock
) -> None:
    then, safe = await rent(url, clock), tmp_path / "safe"
    order = {"do": "backup", "url": url, "folder": str(folder), "path": str(safe)}
    scratch = tmp_path / "scratch"
    scratch.mkdir()  # A folder of the test.
    codes = []
    async for code in kills(**order):
        codes.append(code)
        for archive in safe.glob("*.tar"):
            assert check(archive, scratch, OPENS).manifest.position == then.events
    assert len(codes) > 8
    assert {path.suffix for path in safe.iterdir()} == {".tar"}
    assert await contents(url) == then
