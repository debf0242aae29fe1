"""What a demo is made of: its folder, somebody's own policy, and the sentence about the bill."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from bot.cli.demo import history
from bot.cli.demo.demo_script import WIDTH, bill_line
from bot.cli.demo.demo_stack import POLICY, TIMING, demo_policy
from bot.cli.demo.scratch_folder import LOCK, PREFIX, remove_abandoned, scratch_folder
from bot.rules.policy.policy import Policy
from bot.rules.values.labels import LabelKey
from bot.services.audit import invariants
from bot.services.budgets import enforcement
from bot.wiring import assemble
from ledger.engine.db import Database
from ledger.queries.audit import read_books
from tests.support.clock import SteppedClock

KILLED = """
import os, signal
from bot.cli.demo.scratch_folder import scratch_folder
with scratch_folder() as folder:
    (folder / "ledger.db").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_killed_demo_leaves_a_folder_that_the_next_one_removes(where: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], timeout=60, check=False)
    (left,) = where.glob(f"{PREFIX}*")
    assert done.returncode != 0
    assert (left / "ledger.db").exists()
    with scratch_folder() as folder:
        assert [*where.iterdir()] == [folder]
    assert [*where.iterdir()] == []


def test_a_running_demo_and_what_is_not_a_demos_stay(where: Path) -> None:
    (where / f"{PREFIX}starting").mkdir()
    (where / "other").mkdir()
    (where / "elsewhere").mkdir()
    (where / "elsewhere" / LOCK).touch()
    (where / f"{PREFIX}link").symlink_to(where / "elsewhere")
    with scratch_folder() as folder:
        assert remove_abandoned(where) == []
        assert folder.exists()
    assert {path.name for path in where.iterdir()} == {f"{PREFIX}starting", "other", "elsewhere", f"{PREFIX}link"}


def test_the_people_of_somebodys_policy_become_those_of_the_practice_workspace() -> None:
    own = Policy(
        approvers=("U0REAL",),
        approver_groups=("S0REAL",),
        approval_groups={"finance": ("U0MONEY",)},
        budget_admins=("U0REAL",),
        max_hours=Decimal(4),
    )
    tried = demo_policy(own)
    assert tried.approvers == tried.approval_groups["finance"] == tried.budget_admins == POLICY.approvers
    assert tried.approver_groups == ()
    assert (tried.max_hours, tried.same_person) == (Decimal(4), POLICY.same_person)
    assert demo_policy(Policy()).budget_admins == ()


async def test_the_history_is_what_real_rentals_leave_behind(db: Database) -> None:
    clock = SteppedClock()
    ctx = assemble(db, clock, {}, LabelKey("try1", b"x" * 32), policy=history.team_policy(POLICY), timing=TIMING)
    await history.fill(ctx)
    assert await invariants.check(db, clock, is_settled=True) == []
    async with db.read() as tx:
        (line,) = await enforcement.named(ctx, tx, clock.now())
    assert line.spent_usd == Decimal(308)
    books = await read_books(db)
    assert max(entry.at for entry in books.entries) < clock.now()
    assert clock.now() - min(row.created_at for row in books.sessions) < timedelta(days=15)
    assert history.team_policy(POLICY).approval_tiers[0].approvals == 2


@pytest.mark.parametrize(
    ("booked", "billed", "words"),
    [
        ("0.000486", "0.000394", "$0.000092 more here, because the ledger counts until it saw the end"),
        ("0.000394", "0.000486", "$0.000092 less here, because the clouds count until now"),
    ],
)
def test_a_difference_between_ledger_and_bill_is_explained(booked: str, billed: str, words: str) -> None:
    line = bill_line(Decimal(booked), Decimal(billed))
    assert words in line
    assert len(line) <= WIDTH
    assert bill_line(Decimal(booked), Decimal(booked)) == f"ledger ${booked}, clouds ${booked}"
