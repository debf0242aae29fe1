"""The caps on hours."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.rules.pricing.hours_cap import check, is_above, left, rented
from ledger.kernel.volume_name import VOLUME
from providers.gpus.constraint import GpuConstraint
from tests.rules.builders import HOURS

POLICY = Policy()


@pytest.mark.parametrize(
    ("hours", "already", "code", "allowed"),
    [
        ("12", "0", "ok", True),
        ("12.01", "0", "needs_override", True),
        ("6", "6.5", "needs_override", True),
        ("720", "0", "needs_override", True),
        ("720", "0.5", "too_long", False),
        ("10000", "0", "too_long", False),
        ("9E+40", "0", "too_long", False),
        ("0", "0", "not_positive", False),
        ("-3", "6", "not_positive", False),
        ("0.001", "0", "too_short", False),
        ("NaN", "0", "not_a_number", False),
        ("Infinity", "0", "not_a_number", False),
    ],
)
def test_hours(hours: str, already: str, code: str, allowed: bool) -> None:
    verdict = check(Decimal(hours), Decimal(already), POLICY)
    assert (verdict.code, verdict.allowed) == (code, allowed)
    assert verdict.needs_override is (code == "needs_override")
    assert verdict.sentence.endswith(".")


def test_the_sentences_name_the_limits() -> None:
    assert "12 hours" in check(Decimal(13), Decimal(0), POLICY).sentence
    assert "720 hours" in check(Decimal(10_000), Decimal(0), POLICY).sentence


@given(first=HOURS, second=HOURS)
def test_splitting_hours_never_gets_around_the_cap(first: Decimal, second: Decimal) -> None:
    """An extension is judged by the total, so two small asks are judged like one large ask."""
    assert check(second, first, POLICY).code == check(first + second, Decimal(0), POLICY).code


#: Around the cap and around overrides, to far more digits than anybody types.
TOTALS = st.decimals(min_value=0, max_value=800, places=30) | st.sampled_from([*map(Decimal, (0, 12, 20, 720))])


@given(total=TOTALS, allowed=TOTALS)
@example(total=Decimal("12.000000000000000000000000000000001"), allowed=Decimal(0))
@example(total=Decimal("11.999999999999999999999999999999999"), allowed=Decimal(12))
def test_the_cap_itself_and_an_override_are_inside(total: Decimal, allowed: Decimal) -> None:
    cap = POLICY.max_hours
    assert is_above(POLICY, total) is (total > cap)
    assert is_above(POLICY, total, allowed) is (not total <= max(cap, allowed))
    assert (left(POLICY, total) <= 0) is (total >= cap)
    assert left(POLICY, total, allowed) == max(cap, allowed) - total


@pytest.mark.parametrize(
    ("needed", "asked"), [("0.01", "0.25"), ("0.25", "0.25"), ("5.999999", "6"), ("6", "6"), ("6.000001", "6.25")]
)
def test_a_run_is_rented_in_quarters_of_an_hour(needed: str, asked: str) -> None:
    assert rented(Decimal(needed)) == Decimal(asked)


@given(HOURS)
def test_the_cap_counts_the_hours_of_machines_and_none_of_volumes(hours: Decimal) -> None:
    assert JobRequest(GpuConstraint(), hours).counted(hours) == hours
    assert JobRequest(GpuConstraint((f"{VOLUME}data",)), hours).counted(hours) == 0
