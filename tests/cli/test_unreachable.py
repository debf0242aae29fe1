"""`gpu-shopper unreachable`: what no key can see is listed, and closed on a word that is asked for first."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.lazy import build
from ledger.engine.db import Database
from ledger.kernel.states import OrphanState
from ledger.queries.audit import read_books
from migrations import run as schema
from tests.cli.test_orphans import url
from tests.cli.test_terminal import Person
from tests.support import rows

__all__ = ["url"]


def made(url: str) -> list[str]:
    """The ids of an instance that runs and of an orphan, of one account whose cloud is not set up."""

    async def within() -> list[str]:
        db = Database(url)
        await schema.upgrade(db)
        async with db.write() as tx:
            row = await rows.instance(tx)
            orphan = await rows.stray(tx, OrphanState.QUARANTINED, cloud=row.cloud, account=row.account)
        await db.close()
        return [row.id, orphan.id]

    return asyncio.run(within())


def states(url: str) -> tuple[list[str], list[str]]:
    """The states of instances and orphans, and who moved one to gone."""

    async def within() -> tuple[list[str], list[str]]:
        db = Database(url)
        books = await read_books(db)
        await db.close()
        every = [*(str(one.state) for one in books.instances), *(str(one.state) for one in books.orphans)]
        return every, [one.actor for one in books.events if one.after == "gone"]

    return asyncio.run(within())


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(), ["unreachable", *arguments])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.slow
def test_a_whole_account_is_closed_by_one_word(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, orphan = made(url)
    tmp_path.joinpath("ledger.db").chmod(0o600)
    code, said = run("list")
    assert (code, said.count("vast/acct-1"), row in said, orphan in said) == (0, 2, True, True)
    assert run("gone", "vast/acct-1")[1].startswith("Say why, for the audit log: --reason")
    code, said = run("gone", "vast/acct-2", "--reason", "closed")
    assert (code, said.startswith("Nothing is open in vast/acct-2")) == (1, True)

    person = Person("unreachable", "gone", "vast/acct-1", "--reason", "closed", env={})
    person.sees("Close 2 instances as gone?")
    assert row in person.seen
    person.types("n\n")
    person.sees("Nothing was closed.")
    assert person.ends() == 1
    assert states(url) == (["live", "quarantined"], [])

    code, said = run("gone", "vast/acct-1", "--reason", "closed")
    assert (code, said.startswith("2 instances closed, and")) == (0, True)
    assert states(url) == (["gone", "gone"], [f"operator:{getpass.getuser()}"] * 2)
    assert run("list") == (0, "Every open instance is in an account that can be reached.")
    assert run("gone", row, "--reason", "closed")[1] == f"{row} is gone, so it needs no closing."
