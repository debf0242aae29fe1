"""A secret on a real machine: stored in Slack, read by the command there, and in plain text nowhere else."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from ledger.engine.db import Database
from ledger.kernel.states import SessionState
from tests.scenarios.nodes.conftest import Build, NodeTown

pytestmark = pytest.mark.slow
#: A minute between two check-ins takes three seconds.
SPEED = 20.0
CANARY = "canary5e7"
VALUE = f"hf_{CANARY} 'it' \"is\" $(id) `id`\n\\second line"
#: `printenv` adds a line break.
SHA256 = hashlib.sha256(f"{VALUE}\n".encode()).hexdigest()
RUN = "printenv HF_TOKEN | sha256sum | tee hash; sleep 600"


async def store(here: NodeTown) -> None:
    """Alice stores a secret in the form."""
    alice = here.town.ws.as_("alice")
    await here.town.acked(alice.command("/gpu secret add HF_TOKEN"))
    await here.town.acked(alice.submit(await alice.view(), {"value": VALUE}))
    await here.town.screens.wrote("alice", "HF_TOKEN is stored")


async def rows(db: Database) -> str:
    """Every row of every table, decoded."""
    async with db.read() as tx:
        tables = (await tx.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'"))).all()
        found = [(await tx.execute(text(f'SELECT * FROM "{one}"'))).all() for one in tables]  # noqa: S608
    return repr(found)


def texts_of(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes().decode("latin-1")


async def test_a_job_reads_its_secret_and_its_plain_text_is_nowhere_else(build: Build, tmp_path: Path) -> None:
    async with build("vast", clock_speed=SPEED) as here:
        place = here.town
        alice = place.ws.as_("alice")
        gpu = place.clouds[place.cloud].STAPLE
        line = f'/gpu provision 1x{gpu} 2h clouds={place.cloud} secrets=HF_TOKEN run="{RUN}" for="a run"'
        await place.acked(alice.command(line))
        await place.screens.told("alice", "You have no secret HF_TOKEN")
        await store(here)
        await place.acked(alice.command(line))
        await place.approve()
        await place.ready()
        found = await here.until(lambda: here.read("opt/gpu-shopper/hash"))
        assert found.split() == [SHA256, "-"]
        (kept,) = here.node().root.glob("opt/gpu-shopper/**/credentials.sh")
        assert (stat.S_IMODE(kept.stat().st_mode), CANARY in kept.read_text()) == (0o600, True)
        assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
        on_machine = [path for path, said in texts_of(here.nodes.folder) if CANARY in said]
        assert on_machine == [str(kept)]
        await place.terminate()
        await place.gone()
        await place.until(lambda books: books.sessions[-1].state is SessionState.TERMINATED)
        await place.comes_to_rest()
        await here.nothing_left()
        sent = [one.reason for one in (await place.books()).events if one.kind == "instance.secrets_sent"]
        assert sent == ["Sent to its agent: HF_TOKEN."]
        cloud = place.clouds[place.cloud]
        everywhere = {
            "the ledger's rows": await rows(place.db),
            "the service's log": place.log.read_text(),
            "what the cloud was asked": repr(cloud.engine.calls),
            "the cloud's machines": repr(cloud.instances()),
            "what people read": repr(list(place.practice.workspace.messages)),
        }
        assert all(everywhere.values())
        assert [name for name, said in everywhere.items() if CANARY in said] == []
        assert "HF_TOKEN" in everywhere["what people read"]  # The approval names it.
    # The practice workspace keeps what alice typed; every other file of the service is searched, too.
    assert [path for path, said in texts_of(tmp_path) if CANARY in said] == []
