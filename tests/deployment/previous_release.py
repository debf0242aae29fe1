"""`make previous-release`: an earlier release's own code, in its own environment, on a ledger of today's schema.

It must refuse that ledger by itself when its own check knows no later revision. With that check satisfied its code must
run a whole rental on the schema, which today's code then takes over: the schema was only ever extended.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMIT = "d8cb0526"
BAD_SETTINGS = 78
#: Makes a ledger of today's schema; run by today's code.
MAKE = """
import asyncio, sys
from ledger.engine.db import Database
from migrations import run
async def main():
    db = Database(sys.argv[1])
    await run.upgrade(db)
    print(await run.current(db))
    await db.close()
asyncio.run(main())
"""
#: A rental from its request to its end; run by the earlier release, with its own sandboxes and its own tests' hands.
RENT = """
import asyncio, sys
from sqlalchemy import text
from ledger.engine.db import Database
from migrations import run
from providers.sandbox.clock import SandboxTiming
from tests.support.clock import SteppedClock
from tests.support.world import world
async def main():
    db = Database(sys.argv[1])
    async with db.write() as tx:
        await tx.execute(text("UPDATE alembic_version SET version_num = :at"), {"at": run.newest()})
    await run.require_newest(db)
    async with world(db, SteppedClock(), sandbox=SandboxTiming.quick()) as w:
        request_id = await w.running(candidates=("vast",))
        await w.end(request_id)
        await w.run(600, 30)
        violations = await w.violations()
        books = await w.books()
    print(books.sessions[-1].state, len(w.alive()), violations)
    await db.close()
asyncio.run(main())
"""
#: Puts the revision back, and reads with today's code what the earlier one wrote.
TAKE_OVER = """
import asyncio, sys
from sqlalchemy import select, text
from ledger.engine.db import Database
from ledger.models import Instance, Session
from migrations import run
async def main():
    db = Database(sys.argv[1])
    async with db.write() as tx:
        await tx.execute(text("UPDATE alembic_version SET version_num = :at"), {"at": run.newest()})
    await run.require_newest(db)
    await run.check(db)
    async with db.read() as tx:
        states = [one.state for model in (Session, Instance) for one in await tx.scalars(select(model))]
    print(*states)
    await db.close()
asyncio.run(main())
"""


def main() -> None:
    """Play it, and end with 1 where the way back is not as the changelog says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=COMMIT, help="the earlier release")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory(prefix="gpu-shopper-previous-") as name:
        release, data = Path(name, "release"), Path(name, "data")
        check_out(commit, release)
        python = installed(release)
        data.mkdir(mode=0o700)
        url = f"sqlite+aiosqlite:///{data / 'gpu-shopper.db'}"
        at = last_line([sys.executable, "-c", MAKE, url], ROOT)
        must(f"today's ledger is at {at}", at.isdigit())
        refused = subprocess.run(
            [python.parent / "gpu-shopper", "serve"], cwd=data, env=_settings(data), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        sentence = " ".join(refused.stderr.split())
        must(f"{commit} refuses it by itself: {sentence}", refused.returncode == BAD_SETTINGS and at in sentence)
        rented = last_line([str(python), "-c", RENT, url], release)
        must(f"{commit} runs a rental on it: {rented}", rented == "terminated 0 []")
        states = last_line([sys.executable, "-c", TAKE_OVER, url], ROOT)
        must(f"today's code takes over what it wrote: {states}", states == "terminated gone")


def check_out(commit: str, folder: Path) -> None:
    """Write the files of a commit into a new folder."""
    folder.mkdir()
    with subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
    if archive.returncode:
        raise SystemExit(f"git has no {commit} here")


def installed(release: Path) -> Path:
    """Install a release's locked packages into an environment of its own; return its Python."""
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(release / ".venv")}
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "sync", "--locked", "--quiet"], cwd=release, env=environment, check=True)
    return release / ".venv" / "bin" / "python"


def _settings(data: Path) -> Mapping[str, str]:
    """What `serve` needs before it looks at the ledger; nothing of it is called."""
    return {
        "PATH": os.environ["PATH"],
        "SLACK_BOT_TOKEN": "xoxb-previous-release",
        "SLACK_SIGNING_SECRET": "0" * 32,
        "RUNPOD_API_KEY": "rpa_previous",
        "GPU_SHOPPER_DATA_DIR": str(data),
        "GPU_SHOPPER_PORT": "0",
    }


def last_line(command: Sequence[str | Path], folder: Path) -> str:
    """What a program printed last; SystemExit with its error when it fails."""
    ran = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise SystemExit(ran.stderr[-2_000:])
    return ran.stdout.strip().splitlines()[-1]


def must(sentence: str, is_so: bool) -> None:
    print(f"{'ok ' if is_so else 'NOT'} {sentence}", flush=True)
    if not is_so:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
