"""A ledger of the test's own on each database: a restore wants nobody else connected."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.databases import PostgresTemplate, copy_sqlite, path_with_programs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder."""
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The URL of a fresh, migrated ledger that nobody is connected to."""
    if request.param == "sqlite":
        yield copy_sqlite(request.getfixturevalue("sqlite_template"), folder)
        return
    monkeypatch.setenv("PATH", path_with_programs())
    template: PostgresTemplate = request.getfixturevalue("pg_template")
    async with template.clone() as cloned:
        yield cloned
