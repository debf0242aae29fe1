"""What a move saves: the arithmetic, checked against a bill that is added up minute by minute."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.relocation.saving import (
    HANDOVER_H,
    PROOF_H,
    MovableRun,
    MoveSaving,
    NewPlace,
    billed_h,
    nothing_cheaper,
    price_cap,
    saving,
    suggestion,
)
from providers.capabilities import BillingRule
from providers.completeness import COMPLETE, Completeness

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
#: Rounding to whole minutes in the added bill, at the highest price: five times that are rounded.
ERROR_USD = Decimal(30) * 5 / 60


def dec(least: str, most: str) -> st.SearchStrategy[Decimal]:
    return st.decimals(least, most, places=3, allow_nan=False, allow_infinity=False)


PLACES = st.builds(
    NewPlace,
    price_usd_h=dec("0.1", "30"),
    boot_h=dec("0", "0.5"),
    is_boot_billed=st.booleans(),
    startup_h=dec("0", "0.5"),
    copy_gb_h=dec("50", "5000"),
    billing=st.builds(BillingRule, quantum_s=st.sampled_from([1, 60, 3600]), minimum_s=st.sampled_from([0, 600, 7200])),
    ingress_usd_gb=dec("0", "0.1"),
    losses_usd=dec("0", "5"),
)
RUNS = st.builds(
    lambda price, left_h, age_h, gb: MovableRun(
        price, NOW + timedelta(hours=float(left_h)), NOW - timedelta(hours=float(age_h)), gb
    ),
    price=dec("0.1", "30"),
    left_h=dec("0", "200"),
    age_h=dec("0", "2"),
    gb=dec("0", "500"),
)


@given(RUNS, PLACES)
def test_it_is_the_difference_of_two_bills(run: MovableRun, place: NewPlace) -> None:
    found = saving(run, place, NOW)
    ready_h, rest_h = place.boot_h + place.startup_h, HANDOVER_H + 2 * run.saved_gb / place.copy_gb_h
    left_h = Decimal(str((run.ends_at - NOW) / timedelta(hours=1)))
    if found is None:
        assert left_h <= ready_h + rest_h + PROOF_H
        return
    minute = Decimal(1) / 60
    done_h, at_h, here_usd, there_h = Decimal(0), Decimal(0), Decimal(0), Decimal(0)
    work_h = left_h + Decimal(str((NOW - run.saved_at) / timedelta(hours=1)))
    while done_h < work_h:
        boots, starts = at_h < place.boot_h, at_h < ready_h
        rests = not starts and at_h < ready_h + rest_h
        done_h += minute if not rests else 0
        here_usd += run.price_usd_h * minute if at_h < ready_h + rest_h + PROOF_H else 0
        there_h += minute if not boots or place.is_boot_billed else 0
        at_h += minute
    there_usd = billed_h(there_h, place.billing) * place.price_usd_h
    quantum_usd = place.price_usd_h * place.billing.quantum_s / 3600
    move_usd = here_usd + there_usd + run.saved_gb * place.ingress_usd_gb + place.losses_usd
    assert abs(found.move_usd - move_usd) <= ERROR_USD + quantum_usd
    assert found.stay_usd == left_h * run.price_usd_h
    assert found.saves_usd == found.stay_usd - found.move_usd
    gross_usd = left_h * (run.price_usd_h - place.price_usd_h)
    assert abs(gross_usd - found.cost_usd - found.saves_usd) < Decimal("0.000001")


@given(RUNS, PLACES)
def test_a_place_that_is_not_cheaper_saves_nothing(run: MovableRun, place: NewPlace) -> None:
    found = saving(run, replace(place, price_usd_h=max(place.price_usd_h, run.price_usd_h)), NOW)
    assert found is None or found.saves_usd < 0
    assert found is None or not found.is_worthwhile(Decimal(0), Decimal(0))


@given(RUNS, PLACES, dec("0", "1"))
def test_whatever_makes_a_move_dearer_saves_less(run: MovableRun, place: NewPlace, more: Decimal) -> None:
    found = saving(run, place, NOW)
    dearer = (
        (run, replace(place, price_usd_h=place.price_usd_h + more)),
        (run, replace(place, ingress_usd_gb=place.ingress_usd_gb + more)),
        (run, replace(place, losses_usd=place.losses_usd + more)),
        (replace(run, saved_gb=run.saved_gb + more), place),
        (replace(run, saved_at=run.saved_at - timedelta(hours=float(more))), place),
    )
    for changed in dearer:
        other = saving(*changed, NOW)
        assert found is None or other is None or other.saves_usd <= found.saves_usd
        assert found is not None or other is None


@given(dec("0", "100"), st.sampled_from([1, 60, 3600]), st.sampled_from([0, 600, 7200]))
def test_billed_time_is_never_less_and_at_most_one_unit_more(hours: Decimal, quantum_s: int, minimum_s: int) -> None:
    billed = billed_h(hours, BillingRule(quantum_s=quantum_s, minimum_s=minimum_s))
    assert billed * 3600 >= max(hours * 3600, Decimal(minimum_s)) - Decimal("0.001")
    assert billed * 3600 < max(hours * 3600, Decimal(minimum_s)) + quantum_s + Decimal("0.001")


@pytest.mark.parametrize(
    ("move_usd", "least_usd", "least_percent", "worthwhile"),
    [
        ("69", "5", "10", True),
        ("95", "5", "5", True),
        ("95.01", "5", "5", False),
        ("90", "5", "10", True),
        ("90.01", "5", "10", False),
        ("100", "0", "0", False),
        ("120", "0", "0", False),
    ],
)
def test_it_is_told_from_an_amount_and_a_share_on(
    move_usd: str, least_usd: str, least_percent: str, *, worthwhile: bool
) -> None:
    found = MoveSaving(Decimal(100), Decimal(move_usd), Decimal(1), Decimal(10))
    assert found.is_worthwhile(Decimal(least_usd), Decimal(least_percent)) == worthwhile


def test_the_message_says_how_much_where_and_how() -> None:
    run = MovableRun(Decimal("2.40"), NOW + timedelta(hours=30), NOW - timedelta(minutes=12), Decimal(9))
    place = NewPlace(Decimal("1.20"), Decimal("0.1"), True, Decimal("0.1"), Decimal(900), BillingRule())
    found = saving(run, place, NOW)
    assert found is not None
    assert suggestion("4k7m2p", "vast (US)", run.price_usd_h, place.price_usd_h, found) == (
        "Session 4k7m2p would finish about $34.95 cheaper on vast (US): $1.20/h instead of $2.40/h for the 30 h that "
        "are left. This includes about $1.05 for the move itself. To ask for the move: "
        "`gpu-shopper migrate 4k7m2p to cheaper`."
    )


def test_cheaper_asks_only_for_prices_at_which_every_offer_saves() -> None:
    saves, costs = (MoveSaving(stay, Decimal(10), Decimal(1), Decimal(5)) for stay in (Decimal(12), Decimal(9)))
    offers = [(Decimal("0.5"), costs), (Decimal("0.4"), saves), (Decimal("0.3"), saves)]
    assert price_cap(offers) == Decimal("0.4")
    assert price_cap([(Decimal("0.3"), None), *offers[1:2]]) is None
    assert price_cap([(Decimal("0.3"), costs)]) is None
    assert price_cap([]) is None


def test_nothing_is_cheaper_in_words() -> None:
    costs = MoveSaving(Decimal(9), Decimal("10.5"), Decimal(1), Decimal(5))
    price = Decimal("0.5")
    part = Completeness.partial("vast did not answer.")
    assert nothing_cheaper("abc123", price, [], part) == (
        "No offer that was read is cheaper for session abc123. vast did not answer. Try again."
    )
    assert nothing_cheaper("abc123", price, [], COMPLETE) == (
        "Nothing is cheaper for session abc123. No offer with the same GPUs costs less than $0.500/h."
    )
    assert nothing_cheaper("abc123", price, [(price, None)], COMPLETE).endswith(
        "The run would end before it could move."
    )
    assert nothing_cheaper("abc123", price, [(price, costs), (price, None)], COMPLETE) == (
        "Nothing is cheaper for session abc123. The run has 5 h left. With the move itself, "
        "the best offer would cost about $1.50 more."
    )
