"""The word `idle`: the same from a line and a file, and each mistake by its own sentence."""

from __future__ import annotations

from typing import Any

import pytest

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.services.plans.job_file import BadJob, read_job

POLICY = Policy()
JOB: dict[str, Any] = {"resources": {"gpu": "4090"}, "hours": 2, "run": "python x.py"}


def test_a_line_and_a_file_say_the_same() -> None:
    parsed = parse('provision 1x4090 2h run="python x.py" idle=30m', POLICY)
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    assert parsed.job.idle_s == 1800
    assert read_job(JobDocument.model_validate({**JOB, "idle": "30m"}), POLICY) == parsed.job
    assert JobRequest.from_json(parsed.job.to_json()) == parsed.job


@pytest.mark.parametrize(("said", "seconds"), [("45", 2700), (5, 300), ("2h", 7200), ("24h", 86_400), ("1.5h", 5400)])
def test_times(said: object, seconds: int) -> None:
    assert read_job(JobDocument.model_validate({**JOB, "idle": said}), POLICY).idle_s == seconds


@pytest.mark.parametrize("said", ["soon", "4m", "25h", "0", "-5m", "1d"])
def test_a_wrong_time_is_refused(said: str) -> None:
    with pytest.raises(BadJob) as found:
        read_job(JobDocument.model_validate({**JOB, "idle": said}), POLICY)
    assert "is not a time from 5m to 24h; write idle=30m." in str(found.value)


def test_without_it_nothing_is_set() -> None:
    assert read_job(JobDocument.model_validate(JOB), POLICY).idle_s is None
