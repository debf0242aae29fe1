"""No secret is ever said: not at the most talkative log level, not in a failure, not to people, not in a path."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bot.practice.snapshot import snapshot
from tests.e2e.processes import PROGRAM, Nursery
from tests.e2e.town import BOT_TOKEN, LABEL_KEY, SIGNING, Town, town

pytestmark = pytest.mark.slow

#: What every cloud does wrong while somebody asks, rents and ends.
FAULTS = ("search_503", "list_503", "get_503", "create_lost_reply", "destroy_429")
COMMANDS = (("doctor",), ("inventory", "--gpu", "4090"), ("profiles", "lint"), ("db", "check"))


def canaries(place: Town) -> set[str]:
    """Every value that the environment keeps secret: what was set, except addresses and names."""
    credentials = {
        value
        for cloud in place.clouds.values()
        for name, value in cloud.environment("http://127.0.0.1").items()
        if not urlsplit(value).scheme and name.endswith(("KEY", "TOKEN"))
    }
    return credentials | {BOT_TOKEN, SIGNING, LABEL_KEY}


def stored(folder: Path) -> str:
    """The bytes of the ledger's files."""
    return "".join(path.read_bytes().decode("latin-1") for path in folder.glob("*.db*"))


async def said_by(*command: str, environment: dict[str, str], folder: Path) -> str:
    """Everything that one command of the program writes, whatever it ends with."""
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *command,
        env=environment,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    return (await process.communicate())[0].decode()


async def test_no_secret_is_ever_said(sqlite_db_url: str, tmp_path: Path, processes: Nursery) -> None:
    async with town(sqlite_db_url, tmp_path, processes, "vast") as place:
        place.environment = {**place.environment, "GPU_SHOPPER_LOG_LEVEL": "debug"}
        engine = place.clouds["vast"].engine
        await place.start()
        for cloud in place.clouds:
            for fault in FAULTS:
                engine.faults.arm(cloud, fault, 1)
        await place.ask()
        await place.approve()
        await place.ready()
        said = [await said_by(*words, environment=dict(place.environment), folder=tmp_path) for words in COMMANDS]
        for cloud in place.clouds:
            engine.faults.arm(cloud, "create_auth", 1)
        await place.terminate()
        await place.gone()
        await place.comes_to_rest()
        places = {
            "the log": place.log.read_text(),
            "the commands": "\n".join(said),
            "the workspace": json.dumps(snapshot(place.practice.workspace), default=str),
            "the clouds' transcripts": "\n".join(f"{call.method} {call.path}" for call in engine.calls),
            "the ledger": stored(tmp_path),
        }
    assert all(places.values()), {name: len(text) for name, text in places.items()}
    secrets = canaries(place)
    assert len(secrets) >= len(place.clouds) + 3
    found = [(where, secret[:6]) for where, text in places.items() for secret in secrets if secret in text]
    assert found == []
