"""`gpu-shopper progress`: the rest of a job in hours and dollars, and an exit code for scripts."""

from __future__ import annotations

import json

import pytest

from bot.cli.commands.progress import OVER
from tests.cli.test_commands import elsewhere, run

__all__ = ["elsewhere"]

#: 1,000 steps of a million tokens at 100,000 tokens/s are 10,000 s; at $3.60 an hour they cost $10.
JOB = ("--step", "9000", "--target", "10000", "--tokens-per-step", "1M", "--price", "3.60", "--spent", "5")


def test_the_rest_of_a_job_by_hand() -> None:
    code, out, _ = run("progress", *JOB, "--rate", "100k", "--rate", "100k", "--approved", "20", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["outlook"], found["steps_left"]) == ("within", 1000)
    assert found["hours"]["expected"] == "2.777778"
    assert found["total_usd"]["expected"] == "15.000001"


def test_beyond_the_approval_is_said_and_told_to_scripts() -> None:
    code, out, _ = run("progress", *JOB, "--rate", "100k", "--approved", "12", "--hours-left", "1")
    assert code == OVER
    assert "Expected $3.00 above the approval." in out
    assert "beyond the approved end" in out


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("--rate", "fast"), "“fast” is not a number of tokens"),
        (("--approved", "all"), "--approved all is not a"),
    ],
)
def test_a_bad_number_is_explained(changed: tuple[str, str], says: str) -> None:
    code, out, err = run("progress", *JOB, "--rate", "100k", *changed)
    assert (code, out) == (2, "")
    assert says in err
