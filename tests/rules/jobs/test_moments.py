"""The words of a request that waits: in a line and in a file, each mistake by its own sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.moments import read_moment, resolve
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord
from bot.services.plans.job_file import read_job

POLICY = Policy()
NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def job_of(line: str) -> JobRequest:
    parsed = parse(f"provision {line}", POLICY)
    assert not isinstance(parsed, GrammarError), parsed.message
    assert parsed.job is not None
    return parsed.job


def message_of(line: str) -> str:
    parsed = parse(f"provision {line}", POLICY)
    assert isinstance(parsed, GrammarError)
    return parsed.message


def test_below_is_a_price_that_is_waited_for() -> None:
    job = job_of("8xH100 6h below=$16/h until=20:00")
    assert (job.wait, job.max_price_usd_h, job.wait_until, job.start_at) == (True, Decimal(16), "20:00", None)
    assert job.may_wait
    assert job_of("8xH100 6h below $16/h until 20:00") == job
    assert job_of("8xH100 6h retry=yes price=$16/h until 20:00") == job
    said = {"resources": {"gpu": "8xH100"}, "hours": 6, "below": "$16/h", "until": "20:00"}
    assert read_job(JobDocument.model_validate(said), POLICY) == job
    said = {"resources": {"gpu": "8xH100"}, "hours": 6, "max_price": "$16/h", "retry": True, "until": "20:00"}
    assert read_job(JobDocument.model_validate(said), POLICY) == job


def test_retry_waits_without_a_price_and_at_names_the_start() -> None:
    job = job_of("4090 2h retry until=6h")
    assert (job.wait, job.max_price_usd_h, job.wait_until) == (True, None, "6h")
    later = job_of("4090 2h at=20:00")
    assert (later.wait, later.start_at, later.may_wait) == (False, "20:00", True)
    plain = job_of("4090 2h retry=no")
    assert not plain.may_wait
    assert job_of("4090 2h retry=yes below=$3/h").wait


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("4090 2h until=20:00", "until= says how long to wait, so say for what: below=$16/h, retry or at=20:00."),
        ("4090 2h below=cheap", "“cheap” is not an amount of money; write $50 or 0.75."),
        ("4090 2h below=$3/h price=$4/h", "“price=$4/h” repeats what was already said. Keep one of the two."),
        ("4090 2h retry=often", "“often” does not answer retry; write retry=yes or retry=no."),
        ("4090 2h at=soon", "“soon” is not a moment; write at=20:00 (UTC), at=20:00+02:00, at=2026-12-01, "),
        ("4090 2h retry until=25:00", "“25:00” is not a moment; write until=20:00 (UTC), until=20:00+02:00, "),
        ("4090 2h retry until=2026-13-01", "“2026-13-01” is not a moment"),
        ("4090 2h retry until=2026-12-01z", "“2026-12-01z” is not a moment"),
        ("4090 2h retry until", "“until” needs a value; write until=20:00."),
    ],
)
def test_a_wrong_word_is_named(line: str, sentence: str) -> None:
    assert sentence in message_of(line)


@pytest.mark.parametrize(
    ("text", "end_of_day", "at"),
    [
        ("6h", True, NOON + timedelta(hours=6)),
        ("90m", True, NOON + timedelta(minutes=90)),
        ("2d", True, NOON + timedelta(days=2)),
        ("20:00", True, NOON + timedelta(hours=8)),
        ("20:00z", True, NOON + timedelta(hours=8)),
        ("11:00", True, NOON + timedelta(hours=23)),
        ("12:00", True, NOON + timedelta(hours=24)),
        ("20:00+02:00", True, NOON + timedelta(hours=6)),
        ("20:00-05:00", True, NOON + timedelta(hours=13)),
        ("2026-12-01", True, datetime(2026, 12, 2, tzinfo=UTC)),
        ("2026-12-01", False, datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01T20:00+01:00", True, datetime(2026, 12, 1, 19, tzinfo=UTC)),
        ("2026-12-01 20:00", True, datetime(2026, 12, 1, 20, tzinfo=UTC)),
    ],
)
def test_a_moment_is_seen_from_the_request(text: str, end_of_day: bool, at: datetime) -> None:
    assert resolve(read_moment(text, "until"), NOON, end_of_day=end_of_day) == at


def test_what_was_not_read_is_not_resolved() -> None:
    with pytest.raises(ValueError, match="was not read by read_moment"):
        resolve("never", NOON, end_of_day=True)
    with pytest.raises(BadWord):
        read_moment("", "until")
