"""`gpu-shopper run`: what it takes, what it refuses before anything is requested, and a key that rents once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.lazy import build
from bot.rules.jobs.stored import job_of
from tests.cli.test_session import books, url

__all__ = ["url"]
JOB = 'resources: {gpu: "RTX4090:1"}\nhours: 2h\nrun: python train.py --config configs/small.yaml\n'


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(), ["run", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_key_hands_a_job_over_once_and_says_how_to_go_on(url: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    code, out, said = run("job.yaml", "--idempotency-key", "ci-7-1")
    assert (code, out) == (0, "")
    (request,) = [one for one in books(url).requests if job_of(one.job).run]
    short = request.id[-6:]
    assert f"To follow it: `gpu-shopper run --follow {short}`." in said
    assert f"`gpu-shopper cancel {short}` before it is approved." in said
    code, out, said = run("job.yaml", "--idempotency-key", "ci-7-1", "--json")
    assert (code, json.loads(out)["request_id"]) == (0, request.id)
    assert len([one for one in books(url).requests if job_of(one.job).run]) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Name a job file, such as `gpu-shopper run job.yaml`, or a job with --follow ID."),
        (("job.yaml", "--follow", "4k7m2p"), "Name a job file, "),
        (("job.yaml",), "job.yaml has no command to hand over. Add one, such as run: "),
        (("job.yaml", "--timeout", "soon"), "--timeout soon is not a time; write 90m or 2h."),
        (("job.yaml", "--timeout", "-2h"), "--timeout -2h is not a time; write 90m or 2h."),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_requested(
    url: str, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "job.yaml").write_text("resources: {gpu: RTX4090}\nhours: 2h\n")
    before = len(books(url).requests)
    code, _, said = run(*arguments)
    assert (code, len(books(url).requests)) == (2, before)
    assert sentence in said


def test_a_job_that_does_not_exist_is_not_followed(url: str) -> None:
    code, _, said = run("--follow", "nothing0")
    assert (code, said) == (2, 'No request "nothing0". Run `gpu-shopper requests`.\n')
