"""The steady rate of a job: late rates that agree, without outliers, and only of the job that runs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.nodes.steady_rate import KEPT_RATES, LEAST_RATES, is_comparable, steady_rate, with_rate


def rates(*numbers: float) -> list[Decimal]:
    return [Decimal(str(one)) for one in numbers]


def after(before: list[Decimal], rate: str | None, **how: bool) -> tuple[Decimal, ...]:
    flags = {"is_running": True, "is_new_job": False, "is_stuck": False, **how}
    return with_rate(before, None if rate is None else Decimal(rate), **flags)


def test_a_rate_is_kept_while_the_job_advances() -> None:
    assert after(rates(5), "7") == (Decimal(5), Decimal(7))
    assert after(rates(5), None) == (Decimal(5),)
    assert after(rates(5), "0") == (Decimal(5),)
    assert after(rates(5), "7", is_running=False) == (Decimal(5),)
    assert after(rates(5), "7", is_stuck=True) == (Decimal(5),)
    assert after(rates(5), "7", is_new_job=True) == (Decimal(7),)


def test_only_the_newest_rates_are_kept() -> None:
    kept: tuple[Decimal, ...] = ()
    for number in range(1, KEPT_RATES + 4):
        kept = after(list(kept), str(number))
    assert (len(kept), kept[0], kept[-1]) == (KEPT_RATES, Decimal(4), Decimal(KEPT_RATES + 3))


def test_the_steady_rate_is_the_median_without_outliers() -> None:
    assert steady_rate(rates(*[1000] * 8, 100, 9000)) == Decimal(1000)
    # Eight of twelve agree, around 1,000; the median of all twelve would be 1,010.
    assert steady_rate(rates(990, 1000, 1000, 1000, 1010, 1010, 1010, 1020, 5000, 5000, 5000, 5000)) == Decimal(1005)


@pytest.mark.parametrize("said", [[1000.0] * (LEAST_RATES - 1), [1000.0] * 6 + [3000.0] * 5])
def test_too_few_rates_or_rates_that_differ_are_none(said: list[float]) -> None:
    assert steady_rate(rates(*said)) is None


def test_a_rate_in_other_units_is_not_comparable() -> None:
    assert [is_comparable(rate, 800.0) for rate in (99, 100, 800, 6400, 6401)] == [False, True, True, True, False]
