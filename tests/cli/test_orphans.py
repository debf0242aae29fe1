"""`gpu-shopper orphans`: what waits is listed, and an operator's word is taken with its reason."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.lazy import build
from ledger.engine.db import Database
from ledger.kernel.states import OrphanState
from ledger.models import Event, Orphan
from ledger.queries.audit import read_books
from migrations import run as schema
from tests.support import rows
from tests.support.databases import sqlite_url


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger of this test's own, which the command line uses."""
    found = sqlite_url(tmp_path / "ledger.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_SHOPPER_DATABASE_URL", found)
    return found


def made(url: str, *states: OrphanState) -> list[Orphan]:
    """A ledger with orphans in these states."""

    async def within() -> list[Orphan]:
        db = Database(url)
        await schema.upgrade(db)
        async with db.write() as tx:
            orphans = [await rows.stray(tx, state, reason="no row") for state in states]
        await db.close()
        return orphans

    return asyncio.run(within())


def written(url: str) -> tuple[list[Orphan], list[Event]]:
    async def within() -> tuple[list[Orphan], list[Event]]:
        db = Database(url)
        books = await read_books(db)
        await db.close()
        return list(books.orphans), list(books.events)

    return asyncio.run(within())


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(), ["orphans", *arguments])
    return result.exit_code, result.output


def test_those_that_wait_come_first(url: str) -> None:
    gone, waits = made(url, OrphanState.GONE, OrphanState.QUARANTINED)
    code, said = run("list")
    assert code == 0
    assert [line.split()[:2] for line in said.splitlines()] == [[waits.id, "quarantined"], [gone.id, "gone"]]


def test_nothing_to_list_is_said(url: str) -> None:
    made(url)
    assert run("list") == (0, "There are no orphans.\n")


def test_a_word_is_taken_with_its_reason(url: str) -> None:
    (orphan,) = made(url, OrphanState.QUARANTINED)
    code, said = run("condemn", orphan.id)
    assert (code, "--reason" in said) == (1, True)
    code, said = run("condemn", orphan.id, "--reason", "a test")
    assert code == 0
    assert "is terminated within minutes" in said
    orphans, events = written(url)
    assert [row.state for row in orphans] == [OrphanState.CONDEMNED]
    assert [(event.actor, event.reason) for event in events] == [(f"operator:{getpass.getuser()}", "a test")]
