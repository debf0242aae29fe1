"""`gpu-shopper runs`: an own run is recorded, listed, and corrects the plans of the command line."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.cli.lazy import build
from bot.rules.plans.predictions import COLUMNS, read
from ledger.engine.db import Database
from migrations import run as schema
from tests.cli.test_inventory import clouds
from tests.support.databases import sqlite_url

__all__ = ["clouds"]

RUN = ("model=1B", "tokens=300M", "seq=2048", "batch=512")


@pytest.fixture
async def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger of this test's own, which the command line uses."""
    url = sqlite_url(tmp_path / "ledger.db")
    monkeypatch.setenv("GPU_SHOPPER_DATABASE_URL", url)

    db = Database(url)
    await schema.upgrade(db)
    await db.close()
    return url


async def called(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, build(), list(arguments))


async def planned_rate() -> Decimal:
    result = await called("plan", "1xRTX4090", *RUN, "--json")
    assert result.exit_code == 0, result.stderr
    return Decimal(json.loads(result.stdout)["options"][0]["tokens_per_s"]["expected"])


@pytest.mark.usefixtures("clouds", "ledger")
async def test_a_recorded_run_is_listed_and_corrects_the_next_plan() -> None:
    none = await called("runs", "list")
    assert (none.stdout, none.stderr) == ("", "No run is recorded yet.\n")
    before = await planned_rate()
    told = await called("runs", "record", "--rate", str(int(before / 2)), "1xRTX4090", *RUN)
    assert told.exit_code == 0, told.stderr
    assert "50% of what was predicted" in told.stdout
    columns = ("--columns", "of-predicted,GPU,session,run")
    listed = (await called("runs", "list", *columns)).stdout
    assert listed == "50%\t1x RTX4090\t\tmodel=1B tokens=300M seq=2048 batch=512\n"
    assert before / 2 < await planned_rate() < before


@pytest.mark.usefixtures("clouds", "ledger")
async def test_the_export_has_each_run_beside_its_range_and_nothing_private() -> None:
    none = await called("runs", "export")
    assert (none.stdout.splitlines(), none.stderr) == (
        [",".join(COLUMNS)],
        "No run with a stated range is recorded yet.\n",
    )
    before = await planned_rate()
    own = ("params=1.3B", "layers=24", "width=2048", "heads=16", "tokens=300M", "seq=2048", "stack=our-own")
    await called("runs", "record", "--rate", str(int(before)), "1xRTX4090", *RUN)
    await called("runs", "record", "--rate", str(int(before * 50)), "1xRTX4090", *own)
    found = await called("runs", "export")
    first, second = read(found.stdout)
    assert (first.gpu, first.gpus, first.inside, first.source) == ("RTX4090", 1, "yes", "own run")
    assert float(first.low) < float(first.predicted) < float(first.high)
    assert (second.model, second.stack, second.inside) == ("1.3B 24x2048", "other", "no")
    assert "our-own" not in found.stdout
    assert found.stderr.startswith("1 of 2 runs (50%) were inside the stated range")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--rate", "9k"), 2, "Say either the session or the machine"),
        (("--rate", "9k", "--session", "zzzz99", "4090"), 2, "Say either the session or the machine"),
        (("--rate", "9k", "4090", "6h"), 2, "Say one GPU with its number, and the run"),
        (("--rate", "9k", "2-4x4090", *RUN), 2, "Say one GPU with its number, and the run"),
        (("--rate", "fast", "4090", *RUN), 2, "--rate:"),
        (("--rate", "9k", "--session", "zzzz99"), 2, "; see `gpu-shopper sessions`"),
        (("--rate", "9k", "1x4090", "model=70B"), 1, "Does not fit"),
    ],
)
@pytest.mark.usefixtures("ledger")
async def test_what_cannot_be_recorded_is_explained(arguments: tuple[str, ...], code: int, says: str) -> None:
    result = await called("runs", "record", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in " ".join(result.stderr.split())


@pytest.mark.usefixtures("clouds")
async def test_a_ledger_that_cannot_be_read_corrects_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ledger.db").write_bytes(b"this is no database, and it is long enough to be read as one" * 20)
    (tmp_path / "ledger.db").chmod(0o600)
    monkeypatch.setenv("GPU_SHOPPER_DATABASE_URL", sqlite_url(tmp_path / "ledger.db"))
    assert await planned_rate() > 0
