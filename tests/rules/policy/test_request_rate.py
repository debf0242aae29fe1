"""The rate of requests: when another one is possible, in seconds for programs and in words for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bot.rules.policy.request_rate import FOR_MACHINES, WINDOW, CountedAs, TooMany, refusal
from ledger.kernel.request_kind import RequestKind

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def ago(*seconds: float) -> list[datetime]:
    """Moments so long before now, the newest first."""
    return [NOW - timedelta(seconds=one) for one in sorted(seconds)]


def test_the_next_one_is_possible_when_the_oldest_of_the_most_is_an_hour_old() -> None:
    assert refusal(ago(1, 2), 3, NOW) is None
    assert refusal(ago(1, 2, 3600), 3, NOW) is None
    assert refusal(ago(1, 2, 3599.5), 3, NOW) == TooMany(
        "You made 3 requests within an hour, and the policy allows no more (max_requests_per_hour). "
        "The next one is possible in 1 minute.",
        1,
    )
    assert refusal(ago(1, 2, 600), 3, NOW, CountedAs(RequestKind.EXTEND, "ses_1")) == TooMany(
        "You asked for more time for this session 3 times within an hour, and the policy allows no more "
        "(max_requests_per_hour). The next one is possible in 50 minutes.",
        3000,
    )


def test_after_the_policy_allows_fewer_the_newest_ones_count() -> None:
    known = refusal(ago(10, 20, 30, 40, 50), 1, NOW)
    assert known is not None
    assert (known.retry_after_s, known.sentence.startswith("You made 1 request within")) == (3590, True)


def test_a_clock_that_was_ahead_delays_a_request_by_an_hour_at_most() -> None:
    known = refusal(ago(-86_400, -86_401), 2, NOW)
    assert known is not None
    assert known.retry_after_s == WINDOW.total_seconds()
    assert known.sentence.endswith("in 1 hour.")


def test_what_is_about_a_session_is_counted_for_that_session_and_kind() -> None:
    more, move = CountedAs(RequestKind.EXTEND, "ses_1"), CountedAs(RequestKind.MIGRATE, "ses_1")
    assert len({FOR_MACHINES.key, more.key, move.key, CountedAs(RequestKind.EXTEND, "ses_2").key}) == 4
    known = refusal(ago(10), 1, NOW, move)
    assert known is not None
    assert known.sentence.startswith("You asked for a move of this session 1 time within an hour, and")
