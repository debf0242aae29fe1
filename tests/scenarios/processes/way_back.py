"""The ways back as operators go them: a backup that is restored by commands, and a schema that a release can't use."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import text

from ledger.engine.db import Database
from migrations.run import SchemaState, state
from tests.scenarios.processes.processes import PROGRAM
from tests.support.databases import path_with_programs

#: A revision that no release of today knows, and that says that only it can work on it.
LATER = SchemaState("9998", "9998")
#: What a process says that finds it.
ENDS_ONLY = "ends only: the ledger has another schema"
PASSPHRASE = "a passphrase of the tests"


class CommandFailed(RuntimeError):
    """A command of an operator did not end well; the message is what it said."""


async def command(environment: Mapping[str, str], *words: str) -> str:
    """Run the installed program as an operator does, and return all that it said."""
    own = {
        **os.environ,
        **environment,
        "PATH": path_with_programs(),
        "GPU_SHOPPER_BACKUP_PASSPHRASE": PASSPHRASE,
        "NO_COLOR": "1",
    }
    own.pop("LD_PRELOAD", None)  # An operator's terminal has the right time.
    ran = await asyncio.to_thread(
        subprocess.run, [PROGRAM, *words], env=own, capture_output=True, text=True, timeout=120, check=False
    )
    said = ran.stdout + ran.stderr
    if ran.returncode:
        raise CommandFailed(" ".join(said.split()))
    return said


async def backup(environment: Mapping[str, str], folder: Path) -> Path:
    """Back the deployment up, and return the archive."""
    before = _archives(folder)
    await command(environment, "backup", str(folder))
    return (_archives(folder) - before).pop()


def _archives(folder: Path) -> set[Path]:
    return set(folder.glob("*.tar"))


async def restore(environment: Mapping[str, str], archive: Path) -> None:
    """Put an archive back while no process works on the ledger."""
    await command(environment, "restore", str(archive))


async def set_schema(db: Database, at: SchemaState) -> SchemaState:
    """Let the ledger say at which revision it is and who can work on it; return what it said."""
    before = await state(db)
    line = text("UPDATE alembic_version SET version_num = :revision, readable_from = :readable_from")
    async with db.write() as tx:
        await tx.execute(line, at._asdict())
    return before
