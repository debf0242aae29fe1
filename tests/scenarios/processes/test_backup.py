"""The installed commands beside a real service: a backup of a running one, and a restore that waits for its end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

from ledger.kernel.states import SessionState
from tests.scenarios.processes.processes import PROGRAM, Nursery
from tests.support.databases import path_with_programs
from tests.support.stack import Town, town

pytestmark = [pytest.mark.slow, pytest.mark.both_databases, pytest.mark.timeout(240)]
PASSPHRASE = "a passphrase of the tests"


async def command(place: Town, *words: str) -> tuple[int, str]:
    """Run the installed program beside the service; its exit code and all that it said."""
    environment = {
        **place.environment,
        "PATH": path_with_programs(),
        "GPU_SHOPPER_BACKUP_PASSPHRASE": PASSPHRASE,
        "NO_COLOR": "1",
    }
    ran = await asyncio.to_thread(
        subprocess.run, [PROGRAM, *words], env=environment, capture_output=True, text=True, check=False
    )
    return ran.returncode, " ".join((ran.stdout + ran.stderr).split())


async def test_a_running_service_is_backed_up_and_restored_once_it_has_ended(
    db_url: str, tmp_path: Path, processes: Nursery
) -> None:
    async with town(db_url, tmp_path, processes, "runpod") as place:
        await place.start()
        await place.ask()
        await place.approve()
        await place.ready()
        code, said = await command(place, "backup", str(tmp_path / "safe"))
        assert (code, "is written" in said) == (0, True), said
        (archive,) = (tmp_path / "safe").glob("*.tar")
        code, said = await command(place, "backup", "--check", str(archive))
        assert (code, "would come back" in said) == (0, True), said
        await place.db.close()
        code, said = await command(place, "restore", str(archive))
        assert (code, "Stop" in said) == (1, True), said
        place.bot.signal(signal.SIGTERM)
        assert await place.bots.pop().finished() == 0
        await place.db.close()
        code, said = await command(place, "restore", str(archive))
        assert (code, "is restored" in said) == (0, True), said
        assert PASSPHRASE not in said
        await place.start()
        await place.until(lambda books: books.sessions[-1].state is SessionState.RUNNING)
        assert (await place.books()).orphans == ()
