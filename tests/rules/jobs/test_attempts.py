"""The words `attempts` and `retry-codes`: one job from lines and files, and each mistake by its own sentence."""

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
    parsed = parse('provision 1x4090 2h run="python x.py" attempts=3 retry-codes=75,137', POLICY)
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    assert (parsed.job.attempts, parsed.job.retry_codes) == (3, (75, 137))
    document = JobDocument.model_validate({**JOB, "attempts": 3, "retry_codes": [75, 137]})
    assert read_job(document, POLICY) == parsed.job
    assert JobRequest.from_json(parsed.job.to_json()) == parsed.job


def test_without_them_a_command_runs_once() -> None:
    job = read_job(JobDocument.model_validate(JOB), POLICY)
    assert (job.attempts, job.retry_codes) == (1, ())


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"attempts": 0}, "is not a number of attempts from 1 to 10; write attempts=3."),
        ({"attempts": 11}, "is not a number of attempts from 1 to 10"),
        ({"attempts": "often"}, "is not a number of attempts from 1 to 10"),
        ({"attempts": 2, "retry_codes": [0]}, "is not an exit code from 1 to 255; write retry-codes=75,137."),
        ({"attempts": 2, "retry_codes": [256]}, "is not an exit code from 1 to 255"),
        ({"attempts": 2, "retry_codes": ["x"]}, "is not an exit code from 1 to 255"),
        ({"attempts": 2, "retry_codes": [75, 75]}, "The exit code 75 is named twice."),
        ({"attempts": 2, "retry_codes": ["1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"]}, "17 exit codes are above"),
        ({"retry_codes": [75]}, "retry-codes= needs a number of attempts above 1"),
        ({"attempts": 2, "run": None}, 'attempts= is for a command; add one, such as run="python train.py".'),
    ],
)
def test_a_wrong_value_is_refused(said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadJob) as found:
        read_job(JobDocument.model_validate({**JOB, **said}), POLICY)
    assert sentence in str(found.value)
