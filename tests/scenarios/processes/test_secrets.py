"""No secret is ever said: not at the most talkative log level, not in a failure, not to people, not in a path."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path

import httpx
import pytest

from bot.practice.snapshot import snapshot
from ledger.engine.db import Database
from tests.api.door import Door, opened
from tests.scenarios.processes.processes import PROGRAM, Nursery
from tests.support.canaries import STORES, WATCHED, of_clouds
from tests.support.canaries import said as heard
from tests.support.clock import SteppedClock
from tests.support.stack import BOT_TOKEN, LABEL_KEY, SIGNING, Town, town
from tests.support.world import World, checked_world

pytestmark = pytest.mark.slow

#: What every cloud does wrong while somebody asks, rents and ends.
FAULTS = ("search_503", "list_503", "get_503", "create_lost_reply", "destroy_429")
COMMANDS = (("doctor",), ("inventory", "--gpu", "4090"), ("profiles", "lint"), ("db", "check"))
#: The same program elsewhere, through the REST API.
ELSEWHERE = (("inventory", "--gpu", "4090"), ("sessions",))
#: What can be read by an administrator.
ROUTES = ("/inventory?gpu=4090", "/requests", "/sessions", "/budgets", "/costs", "/profiles", "/keys", "/webhooks")


#: What somebody pastes by mistake where a public key belongs.
PRIVATE_KEY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUCANARY"
PASTED = f"-----BEGIN OPENSSH PRIVATE KEY----- {PRIVATE_KEY} -----END OPENSSH PRIVATE KEY-----"


def canaries(place: Town) -> set[str]:
    """Every value that the environment keeps secret: what was set, except addresses and names."""
    return {*of_clouds(), *STORES.values(), BOT_TOKEN, SIGNING, LABEL_KEY, PRIVATE_KEY}


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
        place.environment = {**place.environment, **STORES, "GPU_SHOPPER_LOG_LEVEL": "debug"}
        engine = place.clouds["vast"].engine
        await place.start()
        for cloud in place.clouds:
            for fault in FAULTS:
                engine.faults.arm(cloud, fault, 1)
        await place.ask()
        await place.approve()
        await place.ready()
        await place.ws.as_("alice").command(f"/gpu key add {PASTED}")
        here = dict(place.environment)
        made = await said_by("keys", "create", "atlas", "--owner", "operator:ada", environment=here, folder=tmp_path)
        token = re.search(r"gpuk_\S+", made)
        assert token is not None, made
        away = {**here, "GPU_SHOPPER_URL": f"http://127.0.0.1:{place.bot.port}", "GPU_SHOPPER_API_KEY": token[0]}
        places = [*((words, here) for words in COMMANDS), *((words, away) for words in ELSEWHERE)]
        said = await asyncio.gather(*(said_by(*w, environment=e, folder=tmp_path) for w, e in places))
        for cloud in place.clouds:
            engine.faults.arm(cloud, "create_auth", 1)
        await place.terminate()
        await place.gone()
        await place.comes_to_rest()
        texts = {
            "the log": place.log.read_text(),
            "the commands": "\n".join(said),
            "the workspace": json.dumps(snapshot(place.practice.workspace), default=str),
            "the clouds' transcripts": "\n".join(f"{call.method} {call.path}" for call in engine.calls),
            "the ledger": stored(Path(sqlite_db_url.partition("///")[2]).parent),
        }
    assert all(texts.values()), {name: len(text) for name, text in texts.items()}
    # The token that a key's creation shows once is said nowhere afterwards.
    secrets = {*canaries(place), token[0]}
    assert len(secrets) >= len(place.clouds) + 8
    assert {where: found for where, text in texts.items() if (found := heard(text, secrets))} == {}


async def test_no_cloud_and_no_route_says_one(
    sqlite_db: Database, clock: SteppedClock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for name in WATCHED:
        caplog.set_level(logging.DEBUG, name)
    texts: dict[str, list[str]] = {"the routes": [], "the services": []}
    async with checked_world(sqlite_db, clock) as w, opened(w) as door:

        async def note(answer: httpx.Response) -> None:
            texts["the routes"].append(f"{answer.headers} {(await answer.aread()).decode()}")

        door.http.event_hooks["response"].append(note)
        key = await door.key()
        admin = await door.key("operator:ada", scopes=("admin",))
        asked = [await walk_begins(w, door, key, cloud) for cloud in w.clouds]
        await w.settle()
        await w.run(120, 20)
        for request_id in asked:
            session = (await w.view(request_id)).session
            assert session is not None
            for method, path in (("GET", f"/requests/{request_id}"), ("GET", f"/sessions/{session.id}")):
                await door.call(method, path, key)
            await door.call("DELETE", f"/sessions/{session.id}", key)
        w.arm(FAULTS[0])  # The inventory meets it.
        for path in ROUTES:
            assert (await door.call("GET", path, admin)).status_code < 500, path
        await door.call("GET", "/sessions", f"{key}wrong")
        await w.run(300, 60)
        texts["the services"] = [repr(await w.view(request_id)) for request_id in asked]
        texts["the clouds' transcripts"] = [f"{call.method} {call.path}" for call in w.engine.calls]
        assert {call.cloud for call in w.engine.creates} == set(w.clouds)
    texts["the logs, before they are cleaned"] = [f"{one.getMessage()} {one.exc_text}" for one in caplog.records]
    texts["the ledger"] = [stored(tmp_path)]
    assert all(texts.values()), {name: len(text) for name, text in texts.items()}
    secrets = {*of_clouds(clock), *STORES.values(), key, admin, "a label key for tests only"}
    assert {where: found for where, text in texts.items() if (found := heard("\n".join(text), secrets))} == {}


async def walk_begins(w: World, door: Door, key: str, cloud: str) -> str:
    """A request of one cloud that was just approved, while the cloud does everything wrong once."""
    sold, run = w.clouds[cloud], "python train.py" if w.ctx.providers[cloud].capabilities.batch else None
    gpu = {"name": sold.STAPLE, "count": sold.STAPLE_COUNT}
    more = {"run": run} if run else {}
    request_id = await door.asked(key, resources={"gpu": gpu}, candidates=[cloud], **more)
    for fault in FAULTS[1:]:
        w.arm(fault, cloud)
    decided = await w.decide(request_id)
    assert decided.ok, (cloud, decided)
    return request_id
