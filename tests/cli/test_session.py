"""`gpu-shopper session`: the same services as over REST and in Slack, as the person who is logged in."""

from __future__ import annotations

import asyncio
import getpass
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.lazy import build
from ledger.engine.db import Database
from ledger.kernel.states import RequestState, SessionState
from ledger.queries.audit import Books, read_books
from migrations import run as schema
from tests.cli.test_terminal import Person
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import sqlite_url


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger of this test's own with one running session. Its policy lets the person who is logged in approve."""
    found = sqlite_url(tmp_path / "ledger.db")
    policy = tmp_path / "policy.yml"
    policy.write_text(f"policy: {{approvers: ['operator:{getpass.getuser()}']}}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_SHOPPER_DATABASE_URL", found)
    monkeypatch.setenv("GPU_SHOPPER_POLICY", str(policy))
    monkeypatch.setenv("GPU_SHOPPER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("VAST_API_KEY", "0" * 64)

    async def within() -> None:
        db = Database(found)
        await schema.upgrade(db)
        async with db.write() as tx:
            request = await rows.request(tx, RequestState.APPROVED, at=START)
            session = await rows.session(tx, SessionState.RUNNING, of=request)
            await rows.instance(tx, of=session)
        await db.close()

    asyncio.run(within())
    return found


def books(url: str) -> Books:
    async def within() -> Books:
        db = Database(url)
        found = await read_books(db)
        await db.close()
        return found

    return asyncio.run(within())


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(), ["session", *arguments])
    return result.exit_code, result.output


def test_budgets_and_costs_are_printed(url: str) -> None:
    def said(*arguments: str) -> str:
        result = CliRunner().invoke(build(), ["budget", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert said("show") == "The policy sets no budget.\n"
    assert "2026-" in said("costs")
    alone = CliRunner().invoke(build(), ["costs", "--period", "month", "--consumer", "atlas"])
    assert (alone.exit_code, alone.output.startswith("atlas: $0.00 since")) == (0, True)
    policy = Path("policy.yml")
    policy.write_text("policy: {budgets: {global: {daily: 50, monthly: 900}}}")
    assert "global: daily $48.00 left of $50.00 (4% used: $0.00 spent, $2.00 reserved)" in said("show")
    assert books(url).entries == ()


def test_the_ledger_that_tools_share_at_the_terminal(url: str, tmp_path: Path) -> None:
    def said(*arguments: str, ends: int = 0) -> str:
        result = CliRunner().invoke(build(), ["ledger", *arguments])
        assert result.exit_code == ends, result.output
        return result.output

    entry = ("--skill", "storage", "--provider", "s3", "--action", "store")
    when = ("--timestamp", "2026-03-01T10:00:00Z")
    assert "$1.25 of storage at s3 is booked." in said("append", *entry, "--amount-usd", "1.25", *when)
    assert "amount_usd must be a number." in said("append", *entry, "--amount-usd", "lots", *when, ends=2)
    shared = tmp_path / "cost_ledger.json"
    shared.write_text('[{"skill": "eval", "provider": "x", "action": "y", "amount_usd": 3, "timestamp": 5}]')
    assert "0 of 1 entries are new." in said("import", "--file", str(shared))
    assert "2 costs are in" in said("export", "--file", str(shared))
    assert json.loads(shared.read_text())[1]["action"] == "instance_created"
    assert "1 entries, 0 in the hash chain, 1 waiting" in said("verify")
    assert "storage" in said("summary")
    said("summary", "--out", str(tmp_path / "cost_summary.md"))
    assert "Total spend: **$1.25**" in (tmp_path / "cost_summary.md").read_text()
    said("manifest", "--out", str(tmp_path / "instance_manifest.json"))
    (live,) = json.loads((tmp_path / "instance_manifest.json").read_text())["instances"]
    assert live["provider"] == "vast"
    shared.write_text("3")
    assert "no list of entries" in said("import", "--file", str(shared), ends=2)
    assert "no list of entries" in said("export", "--file", str(shared), ends=2)


@pytest.mark.slow
def test_a_person_at_a_terminal_is_asked_before_an_end(url: str) -> None:
    (session,) = books(url).sessions

    def answered(*typed: str) -> tuple[int, str]:
        person, shown = Person("shutdown", session.id, env={}), ""
        for line in typed:
            person.sees("[y/N]")
            shown += person.seen
            person.types(f"{line}\r")
        return person.ends(), shown + person.seen

    code, said = answered("maybe", "no")
    assert (code, "Say y or n." in said) == (1, True)
    code, said = answered("")
    assert code == 1
    for part in (
        "1x RTX 4090 at vast of UADA, running, $",
        "so far",
        "will be deleted. [y/N]",
        "Nothing has changed.",
    ):
        assert part in said
    assert books(url).sessions[0].state == "running"
    code, said = answered("y")
    assert (code, "Ending session" in said) == (0, True)
    again = CliRunner().invoke(build(), ["session", "terminate", session.id], input="")
    assert (again.exit_code, "is ending already" in again.output) == (1, True)


def test_extend_asks_and_done_ends(url: str) -> None:
    (session,) = books(url).sessions
    missing = f"Say how much more time, such as `gpu-shopper extend {session.id} 2h`.\n"
    assert run("extend", session.id) == (2, missing)
    assert run("extend", session.id, "1h", "words", "--reason", "and an option")[0] == 2
    code, said = run("extend", session.id, "90m", "one", "more", "epoch")
    assert (code, "Asked for 1.5 hours more" in said) == (0, True)
    asked = next(row for row in books(url).requests if row.kind == "extend")
    assert (asked.requester, asked.reason) == (f"operator:{getpass.getuser()}", "one more epoch")
    code, said = run("extend", session.id, "soon")
    assert (code, "90m" in said) == (2, True)
    assert run("extend", "zzzzzz", "1h")[0] == 2
    assert run("done", session.id, "maybe") == (2, '"maybe" is not success, failed, destroy or preserve.\n')
    assert run("done", session.id, "failed", "destroy")[0] == 0
    assert books(url).sessions[0].end_code == "work_failed"
    code, said = run("terminate", session.id)
    assert (code, "is ending already" in said) == (1, True)
