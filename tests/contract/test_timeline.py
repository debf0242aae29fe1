"""State and money as functions of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from providers.sandbox.timeline import BilledTime, Timeline

T0 = datetime(2026, 1, 1, tzinfo=UTC)
USD = Decimal("3.6")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def test_a_timeline_walks_through_its_plan() -> None:
    line = Timeline("new")
    assert (line.at(T0), line.since(T0)) == ("new", None)
    line.plan(at(1), (0, "a"), (5, "b"))

    assert [line.at(at(s)) for s in (0, 1, 5, 6, 99)] == ["new", "a", "a", "b", "b"]
    assert line.since(at(99)) == at(6)


def test_a_new_plan_replaces_what_lay_ahead() -> None:
    line = Timeline("new")
    line.plan(at(0), (0, "a"), (10, "b"))
    line.plan(at(5), (0, "c"))

    assert [line.at(at(s)) for s in (4, 5, 11)] == ["a", "c", "c"]


def test_an_extension_keeps_what_comes_before_it() -> None:
    line = Timeline("new")
    line.plan(at(0), (0, "a"), (3, "b"), (10, "c"))
    line.extend(at(2), (4, "d"))

    assert [line.at(at(s)) for s in (1, 3, 6, 11)] == ["a", "b", "d", "d"]


def test_a_meter_counts_seconds_and_dollars_per_component() -> None:
    meter = BilledTime()
    meter.start("gpu", at(10), USD)
    meter.start("storage", at(0), Decimal("0.36"))
    meter.stop("gpu", at(110))

    assert meter.seconds("gpu", at(60)) == 50
    assert meter.seconds("gpu", at(999)) == 100
    assert meter.usd("gpu", at(999)) == Decimal("0.1")
    assert meter.usd("storage", at(1000)) == Decimal("0.1")
    assert meter.usd("gpu", at(999), since=at(60)) == Decimal("0.05")


def test_what_was_planned_and_stopped_before_it_began_costs_nothing() -> None:
    meter = BilledTime()
    meter.start("gpu", at(60), USD)
    meter.stop_all(at(30))

    assert meter.usd("gpu", at(999)) == 0
    assert meter.rate_usd_h("gpu", at(61)) == 0


def test_a_new_rate_ends_the_old_one() -> None:
    meter = BilledTime()
    meter.start("gpu", at(0), USD)
    meter.start("gpu", at(100), USD * 2)

    assert meter.rate_usd_h("gpu", at(99)) == USD
    assert meter.rate_usd_h("gpu", at(100)) == USD * 2
    assert meter.usd("gpu", at(200)) == Decimal("0.3")


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 1000)), max_size=12), st.integers(0, 2000), st.integers(0, 2000)
)
def test_a_bill_splits_at_any_moment(orders: list[tuple[bool, int]], cut: int, end: int) -> None:
    meter = BilledTime()
    for start, seconds in sorted(orders, key=lambda order: order[1]):
        if start:
            meter.start("gpu", at(seconds), USD)
        else:
            meter.stop("gpu", at(seconds))
    first, last = min(cut, end), max(cut, end)

    whole = meter.usd("gpu", at(last))
    assert meter.usd("gpu", at(first)) + meter.usd("gpu", at(last), since=at(first)) == whole
    assert 0 <= whole <= USD * last / 3600


def test_what_ended_and_starts_again_is_billed_on() -> None:
    meter = BilledTime()
    meter.start("gpu", at(0), USD)
    meter.stop("gpu", at(100))
    assert meter.usd("gpu", at(500)) == meter.usd("gpu", at(500)) == Decimal("0.1")
    assert meter.usd("gpu", at(50)) == Decimal("0.05")
    meter.start("gpu", at(200), USD)
    assert meter.usd("gpu", at(500)) == Decimal("0.4")
    meter.stop_all(at(300))
    assert [meter.usd("gpu", at(500)) for _ in range(2)] == [Decimal("0.2")] * 2
