"""A host price change: every combination of age, rate, question and checkpoint, and the sentence of the question."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.sessions.host_price import HostPrice, PriceStep, next_step, question, set_aside_usd

APPROVED = Decimal("0.33")
ABOVE = Decimal("0.40")
END = datetime(2026, 3, 2, 14, 5, tzinfo=UTC)
RATES = st.decimals("0.000001", "500", places=6)
#: Billed, whether it was ready, the rate that a pending question covers, whether a stop may be ordered, and is saved.
EVERY = tuple(
    product(
        (None, Decimal("0.3"), APPROVED, ABOVE), (False, True), (None, APPROVED, ABOVE), (False, True), (False, True)
    )
)


def expected(billed: Decimal | None, was_ready: bool, asked: Decimal | None, may: bool, saved: bool) -> PriceStep:
    """The rule as a table: the first row that fits."""
    table = (
        (billed is None or billed <= APPROVED, PriceStep.WITHIN),
        (not was_ready, PriceStep.END),
        (asked != ABOVE, PriceStep.ASK),
        (may and saved, PriceStep.STOP),
        (True, PriceStep.RUN_ON),
    )
    return next(step for fits, step in table if fits)


@pytest.mark.parametrize(("billed", "was_ready", "asked", "may", "saved"), EVERY)
def test_every_combination(
    billed: Decimal | None, was_ready: bool, asked: Decimal | None, may: bool, saved: bool
) -> None:
    price = HostPrice(billed, APPROVED, was_ready, asked, may_stop=may, is_saved=saved)
    assert next_step(price) is expected(billed, was_ready, asked, may, saved)


@given(RATES, RATES, st.none() | RATES, st.booleans(), st.booleans())
def test_a_rate_alone_never_ends_what_was_ready_and_a_stop_needs_a_verified_checkpoint(
    billed: Decimal, approved: Decimal, asked: Decimal | None, may: bool, saved: bool
) -> None:
    step = next_step(HostPrice(billed, approved, True, asked, may_stop=may, is_saved=saved))
    assert step is not PriceStep.END
    assert step is not PriceStep.STOP or (may and saved)
    assert (step is PriceStep.WITHIN) == (billed <= approved)


@given(st.decimals(0, 50, places=6), RATES, RATES)
def test_the_hold_keeps_its_time_at_a_higher_rate(hold_usd: Decimal, billed: Decimal, cap: Decimal) -> None:
    kept = set_aside_usd(hold_usd, billed, cap)
    assert kept >= hold_usd
    assert kept == hold_usd or abs(kept / billed - hold_usd / cap) < Decimal("1e-9")
    assert set_aside_usd(hold_usd, billed, Decimal(0)) == hold_usd


def asked(**changes: bool) -> str:
    """The question about a pod."""
    may_stop, is_stopped = changes.get("may_stop", False), changes.get("is_stopped", False)
    return question(
        "vast", ABOVE, APPROVED, Decimal("1.4"), END, short="abc123", may_stop=may_stop, is_stopped=is_stopped
    )


def test_the_question_names_both_rates_the_new_end_and_what_happens_meanwhile() -> None:
    lead = "vast now bills $0.400/h, above the approved $0.330/h. The new rate needs an approval."
    runs = "The session keeps running within the approved $1.40 and now ends 2026-03-02 14:05 UTC."
    assert asked() == f"{lead} {runs} A stop at vast would not help."
    assert asked(may_stop=True) == (
        f"{lead} {runs} Once its newest checkpoint is verified, it is stopped and its disk stays. "
        "To stop it now: `gpu-shopper stop abc123`"
    )
    assert asked(is_stopped=True) == f"{lead} Until then it can't start."
