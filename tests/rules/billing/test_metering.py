"""Accruals: whole hours as they complete, one last piece, together what the cloud bills."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.billing.metering import (
    amount,
    at_other_rates,
    at_stop,
    booked_at_stops,
    is_booked,
    paid_s,
    pieces,
    rate_step,
    running,
    so_far,
)
from providers.capabilities import BillingRule
from tests.rules.builders import NOW, usd

SECOND = BillingRule()
LAMBDA = BillingRule(quantum_s=60, minimum_s=3600)
RULES = st.builds(BillingRule, quantum_s=st.sampled_from([1, 60, 3600]), minimum_s=st.sampled_from([0, 60, 3600]))


@pytest.mark.parametrize(
    ("seconds", "rule", "billed"),
    [
        ("0", LAMBDA, "0"),
        ("-5", LAMBDA, "0"),
        ("1800", SECOND, "1.000000"),
        ("0.5", SECOND, "0.000556"),
        ("61", BillingRule(quantum_s=60), "0.066667"),
        ("61", LAMBDA, "2.000000"),
        ("3661", LAMBDA, "2.066667"),
    ],
)
def test_a_duration_costs_its_quanta_and_at_least_the_minimum(seconds: str, rule: BillingRule, billed: str) -> None:
    """At two dollars an hour."""
    assert amount(Decimal(seconds), Decimal(2), rule) == Decimal(billed)


def test_hours_accrue_as_they_complete_and_the_rest_at_the_end() -> None:
    until = NOW + timedelta(hours=2, minutes=30)
    running = pieces(NOW, until, Decimal(2), SECOND, final=False)
    assert [(piece.suffix, piece.amount_usd, piece.until) for piece in running] == [
        ("h0", Decimal(2), NOW + timedelta(hours=1)),
        ("h1", Decimal(2), NOW + timedelta(hours=2)),
    ]
    ended = pieces(NOW, until, Decimal(2), SECOND, final=True)
    assert ended[:2] == running
    assert (ended[2].suffix, ended[2].amount_usd, ended[2].until) == ("final", Decimal(1), until)


def test_whole_hours_leave_no_rest_and_nothing_used_leaves_nothing() -> None:
    assert len(pieces(NOW, NOW + timedelta(hours=2), Decimal(2), SECOND, final=True)) == 2
    assert pieces(NOW, NOW, Decimal(2), LAMBDA, final=False) == []
    assert pieces(NOW, NOW - timedelta(hours=1), Decimal(2), LAMBDA, final=True) == []
    assert pieces(NOW, NOW + timedelta(hours=2), Decimal(0), SECOND, final=True) == []


def test_what_was_used_so_far_includes_the_running_hour() -> None:
    assert so_far(NOW, NOW + timedelta(minutes=90), Decimal(2), SECOND) == Decimal(3)
    assert so_far(None, NOW, Decimal(2), SECOND) == 0


def test_what_runs_since_the_last_booked_hour_is_what_an_end_now_would_add() -> None:
    until = NOW + timedelta(minutes=150)
    assert [running(NOW, until, Decimal(2), SECOND, hours) for hours in (0, 1, 2)] == [5, 3, 1]
    assert running(NOW, NOW + timedelta(minutes=90), Decimal(2), SECOND, 2) == 0  # A pause moved its beginning.
    assert running(NOW, NOW + timedelta(seconds=61), Decimal(2), LAMBDA, 0) == 2
    assert running(None, until, Decimal(2), SECOND, 0) == 0


def test_other_rates_are_what_the_booked_hours_do_not_cost_today() -> None:
    assert at_other_rates(Decimal(5), [(2, Decimal(2)), (3, Decimal("0.1"))]) == Decimal("0.7")
    assert at_other_rates(Decimal(0), []) == 0
    # Two and a half hours at two dollars, then one: as booked when it changed, and an hour later.
    step = rate_step(NOW, NOW + timedelta(minutes=150), Decimal(2), Decimal(1))
    assert at_other_rates(4 + step, [(2, Decimal(1))]) == at_other_rates(5 + step, [(3, Decimal(1))]) == Decimal("2.5")


@given(seconds=st.integers(1, 40 * 3600), rate=usd(), rule=RULES)
def test_the_pieces_add_up_to_the_bill(seconds: int, rate: Decimal, rule: BillingRule) -> None:
    found = pieces(NOW, NOW + timedelta(seconds=seconds), rate, rule, final=True)
    assert sum((piece.amount_usd for piece in found), Decimal(0)) == amount(Decimal(seconds), rate, rule)
    assert len({piece.suffix for piece in found}) == len(found)
    assert all(piece.amount_usd > 0 for piece in found)


@given(first=st.integers(0, 40 * 3600), more=st.integers(0, 3600), rate=usd(), rule=RULES)
def test_what_was_accrued_never_changes(first: int, more: int, rate: Decimal, rule: BillingRule) -> None:
    """A later look repeats the earlier pieces with the same keys, so that booking twice books once."""
    earlier = pieces(NOW, NOW + timedelta(seconds=first), rate, rule, final=False)
    later = pieces(NOW, NOW + timedelta(seconds=first + more), rate, rule, final=False)
    assert later[: len(earlier)] == earlier


@given(
    seconds=st.lists(st.integers(0, 5 * 3600), min_size=2, max_size=5), prices=st.lists(usd(), min_size=5, max_size=5)
)
def test_a_rate_that_changes_costs_each_part_its_own_rate(seconds: list[int], prices: list[Decimal]) -> None:
    booked: dict[str, Decimal] = {}
    steps, at, last = Decimal(0), NOW, len(seconds) - 1
    for number, (part, rate) in enumerate(zip(seconds, prices, strict=False)):
        at += timedelta(seconds=part)
        for piece in pieces(NOW, at, rate, SECOND, final=number == last):
            booked.setdefault(piece.suffix, piece.amount_usd)
        if number < last:
            steps += rate_step(NOW, at, rate, prices[number + 1])
    billed = sum((amount(Decimal(part), rate, SECOND) for part, rate in zip(seconds, prices, strict=False)), Decimal(0))
    assert abs(sum(booked.values(), steps) - billed) <= Decimal("0.00003")


@given(micro=st.integers(1, 40_000_000), rate=st.decimals("0.01", "90", places=6), rule=RULES)
def test_an_amount_pays_for_whole_steps_and_not_for_one_more(micro: int, rate: Decimal, rule: BillingRule) -> None:
    cap_usd, step = Decimal(micro) / 1_000_000, BillingRule(quantum_s=rule.quantum_s)
    most = paid_s(cap_usd, rate, rule, 10**9)
    assert most % rule.quantum_s == 0
    assert amount(Decimal(most), rate, step) <= cap_usd < amount(Decimal(most + rule.quantum_s), rate, step)
    assert paid_s(cap_usd, rate, rule, most // 2) == most // 2


def test_an_amount_that_is_exactly_the_price_of_the_hours_pays_for_all_of_them() -> None:
    assert paid_s(Decimal("0.333333"), Decimal("0.333333"), LAMBDA, 10**9) == 3600
    assert paid_s(Decimal("0.01"), Decimal("0.60"), LAMBDA, 10**9) == 60
    assert paid_s(Decimal("0.009999"), Decimal("0.60"), LAMBDA, 10**9) == 0
    assert paid_s(Decimal(-1), Decimal(1), LAMBDA, 10**9) == 0
    assert paid_s(Decimal(0), Decimal(0), LAMBDA, 7200) == 7200


def test_what_was_ended_at_once_costs_the_minimum_of_its_cloud() -> None:
    rule = BillingRule(quantum_s=60, minimum_s=60)
    assert [piece.amount_usd for piece in pieces(NOW, NOW, Decimal(6), rule, final=True)] == [Decimal("0.1")]
    assert pieces(NOW, NOW - timedelta(seconds=1), Decimal(6), rule, final=True) == []
    assert pieces(NOW, NOW, Decimal(6), BillingRule(), final=True) == []


def test_what_rounds_to_nothing_is_not_booked() -> None:
    assert is_booked(Decimal("0.000001"))
    assert not is_booked(Decimal("0.0000004"))


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=6), usd())
def test_stops_hours_and_the_rest_add_up_to_the_whole_time(ran_s: list[int], rate: Decimal) -> None:
    used_s = stopped_s = 0
    booked: dict[str, Decimal] = {}
    for one in ran_s:
        used_s += one
        until = NOW + timedelta(seconds=used_s)
        due = pieces(NOW, until, rate, SECOND, final=False, stopped_s=stopped_s)
        part, stopped_s = at_stop(NOW, until, rate, SECOND, stopped_s)
        for piece in [*due, *([part] if part else [])]:
            booked.setdefault(piece.suffix, piece.amount_usd)
        assert sum(booked.values()) == sum(one.amount_usd for one in pieces(NOW, until, rate, SECOND, final=True))
        assert (stopped_s == used_s) is (used_s % 3600 > 0)
        assert booked_at_stops(rate, stopped_s, used_s // 3600) <= rate
    assert running(NOW, until, rate, SECOND, used_s // 3600, stopped_s) == 0


def test_a_stop_that_is_seen_again_books_nothing_more() -> None:
    until = NOW + timedelta(seconds=90)
    _, stopped_s = at_stop(NOW, until, Decimal(6), SECOND, 0)
    assert at_stop(NOW, until, Decimal(6), SECOND, stopped_s) == (None, 90)


def test_a_stop_within_the_last_second_of_an_hour_leaves_the_hour_to_be_counted() -> None:
    part, stopped_s = at_stop(NOW, NOW + timedelta(seconds=3599.5), Decimal(6), SECOND, 0)
    assert (part and part.suffix, stopped_s) == ("stop-3599", 3599)
    hour, second, rest = pieces(NOW, NOW + timedelta(hours=2.5), Decimal(6), SECOND, final=True, stopped_s=stopped_s)
    assert hour.amount_usd > 0
    assert part is not None
    assert part.amount_usd + hour.amount_usd == second.amount_usd == 2 * rest.amount_usd == 6


def test_a_rate_that_changes_after_a_stop_leaves_what_the_stop_booked() -> None:
    at = NOW + timedelta(minutes=50)
    assert rate_step(NOW, at, Decimal(6), Decimal(12)) == -5
    assert rate_step(NOW, at, Decimal(6), Decimal(12), 1800) == -2
    assert rate_step(NOW, at, Decimal(6), Decimal(12), 3000) == 0


@given(
    st.integers(-10, 40 * 3600),
    st.integers(0, 3600),
    st.decimals("0.01", "30", places=6),
    RULES,
    st.integers(0, 40),
)
def test_what_runs_is_the_sum_of_the_pieces_that_are_not_booked(
    used_s: int, fraction: int, rate_usd_h: Decimal, rule: BillingRule, booked_h: int
) -> None:
    until = NOW + timedelta(seconds=used_s, milliseconds=fraction)
    every = pieces(NOW, until, rate_usd_h, rule, final=True)
    left = sum((piece.amount_usd for piece in every[booked_h:]), Decimal(0))
    assert running(NOW, until, rate_usd_h, rule, booked_h) == left
    for stopped_s in (1, max(used_s // 2, 0)):
        every = pieces(NOW, until, rate_usd_h, rule, final=True, stopped_s=stopped_s)
        assert pieces(NOW, until, rate_usd_h, rule, final=True, stopped_s=stopped_s, first_hour=1) == [
            piece for piece in every if piece.suffix != "h0"
        ]
