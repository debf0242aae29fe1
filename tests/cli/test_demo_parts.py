"""What a demo is made of: its folder, somebody's own policy, and the sentence about the bill."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from bot.cli.demo.demo_script import WIDTH, bill_line
from bot.cli.demo.demo_stack import POLICY, demo_policy
from bot.cli.demo.scratch_folder import LOCK, PREFIX, remove_abandoned, scratch_folder
from bot.rules.policy.policy import Policy

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
