"""What is tried next after a definite no."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.instances.failover import (
    CLOUD_WIDE,
    PATIENCE,
    Failure,
    LimitWait,
    Placement,
    next_option,
    wait_for_limit,
)
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from providers.contract import Offer
from providers.errors import OutcomeUnknown, ProviderError
from tests.providers.read_offers import WHOLE
from tests.rules.builders import CLOUDS, job, offer
from tests.support.clock import START

A = offer("a", machine_id="m1", host_id="h1")
B = offer("b", price_usd_h=Decimal("0.42"), machine_id="m1", host_id="h2")
C = offer("c", price_usd_h=Decimal("0.43"), machine_id="m2", host_id="h1")
D = offer("d", price_usd_h=Decimal("0.435"), machine_id="m3", host_id="h3")
R = offer("r", cloud="runpod", price_usd_h=Decimal("0.44"))


def place(
    *failures: Failure,
    offers: tuple[Offer, ...] = (A, B, C, D, R),
    chosen: str = "vast:a",
    cap: str = "0.44",
    total: str = "1000",
    clouds: tuple[str, ...] = (),
    **policy: Any,
) -> Placement:
    found = rank(offers, job(spot=SpotPolicy.ANY), Policy(options_shown=9), CLOUDS, proof=WHOLE)
    return next_option(found.options, chosen, failures, Decimal(cap), Decimal(total), Policy(**policy), clouds)


def key(found: Placement) -> str:
    assert found.option is not None
    assert found.code == "ok"
    assert found.option.offer.id in found.sentence
    return found.option.offer.key


def test_the_approved_offer_comes_first() -> None:
    assert key(place()) == "a"
    assert key(place(chosen="vast:c")) == "c"


def test_then_what_ranks_below_it_and_then_what_ranks_above_it() -> None:
    gone = [Failure(offer(name), "no_capacity") for name in ("c", "d")]
    assert key(place(gone[0], chosen="vast:c")) == "d"
    assert key(place(*gone, chosen="vast:c", offers=(A, B, C, D))) == "a"


def test_named_clouds_are_a_fallback_in_their_order() -> None:
    offers = (A, D, R)
    assert key(place(Failure(A, "no_capacity"), offers=offers)) == "d"
    for clouds, then in ((("vast", "runpod"), "d"), (("runpod", "vast"), "r"), (("lambda", "runpod"), "r")):
        assert key(place(Failure(A, "no_capacity"), offers=offers, clouds=clouds)) == then
    assert key(place(offers=offers, clouds=("runpod", "vast"))) == "a"  # What was approved comes first.


def test_the_machine_and_the_host_that_failed_are_left_out() -> None:
    """b is on a's machine and c on a's host, so d is next."""
    assert key(place(Failure(A, "no_capacity"))) == "d"


def test_unknown_machines_are_not_the_same_machine() -> None:
    pair = (offer("x"), offer("y", price_usd_h=Decimal("0.41")))
    assert key(place(Failure(pair[0], "no_capacity"), offers=pair, chosen="vast:x")) == "y"


@pytest.mark.parametrize("code", sorted(CLOUD_WIDE))
def test_trouble_with_the_account_rules_out_the_whole_cloud(code: str) -> None:
    assert key(place(Failure(A, code))) == "r"


def test_the_codes_are_those_of_the_providers() -> None:
    codes = {kind.code for kind in ProviderError.__subclasses__() if kind.definite_no}
    assert codes >= CLOUD_WIDE
    assert OutcomeUnknown.code not in codes


@pytest.mark.parametrize("failure", [Failure(A, "outcome_unknown"), Failure(A, "unavailable", definite_no=False)])
def test_nothing_is_tried_after_an_unknown_outcome(failure: Failure) -> None:
    found = place(failure)
    assert (found.option, found.code) == (None, "outcome_unknown")


def test_the_policy_can_forbid_other_offers() -> None:
    assert key(place(failover=False)) == "a"
    assert place(Failure(A, "no_capacity"), failover=False).code == "failover_off"


@pytest.mark.parametrize("code", ["no_capacity", "auth_failed", "outcome_unknown"])
@pytest.mark.parametrize("policy", [{}, {"failover": False}])
def test_other_options_are_mentioned_only_where_others_were_shown(code: str, policy: dict[str, Any]) -> None:
    assert "other" not in place(Failure(A, code), offers=(A,), **policy).sentence
    assert "other" in place(Failure(A, code), offers=(A, B, C), **policy).sentence


def test_an_offer_that_its_cloud_calls_invalid_drops_out_alone() -> None:
    assert key(place(Failure(A, "invalid_spec"))) == "d"


LATER = START + timedelta(hours=1)


def test_a_rate_limit_is_waited_out_as_long_as_a_launch_waits() -> None:
    now = START + timedelta(seconds=20)
    before = LimitWait(START, now)
    assert wait_for_limit(before, now, 7, LATER) == LimitWait(START, now + timedelta(seconds=7))
    assert wait_for_limit(before, now, 40, LATER) == LimitWait(START, now + timedelta(seconds=40))
    assert wait_for_limit(before, now, 41, LATER) is None
    assert wait_for_limit(None, now, 41, LATER) == LimitWait(now, now + timedelta(seconds=41))
    assert wait_for_limit(before, now, 0, LATER) == LimitWait(START, now + timedelta(seconds=1))


def test_a_rate_limit_long_after_the_one_before_begins_a_new_wait() -> None:
    before = LimitWait(START, START + timedelta(seconds=7))
    late = before.until + PATIENCE
    assert wait_for_limit(before, late, 7, LATER) is None
    late += timedelta(seconds=1)
    assert wait_for_limit(before, late, 7, LATER) == LimitWait(late, late + timedelta(seconds=7))


def test_a_rate_limit_is_not_waited_out_beyond_the_approval() -> None:
    assert wait_for_limit(None, START, 7, START + timedelta(seconds=7)) is None
    assert wait_for_limit(None, START, 7, START + timedelta(seconds=8)) is not None


def test_an_offer_that_was_not_shown_is_never_tried() -> None:
    assert place(chosen="vast:elsewhere").code == "not_shown"


def test_the_price_cap_holds_for_every_option() -> None:
    assert place(Failure(A, "no_capacity"), cap="0.43").code == "none_left"
    assert place(cap="0.39", offers=(A,)).code == "none_left"


def test_an_option_whose_price_was_lost_is_not_tried() -> None:
    (option,) = rank([A], job(), Policy(), CLOUDS, proof=WHOLE).options
    lost = replace(option, offer=replace(A, price_usd_h=None))
    assert next_option([lost], "vast:a", [], Decimal(1), Decimal(9), Policy()).code == "none_left"


def test_the_total_cap_holds_for_others_but_not_against_what_was_approved() -> None:
    assert key(place(total="0.01")) == "a"
    assert place(Failure(A, "no_capacity"), total="0.01").code == "none_left"


def test_a_spot_offer_is_no_substitute_for_on_demand() -> None:
    spot = offer("s", spot=True, price_usd_h=Decimal("0.41"))
    assert place(Failure(A, "no_capacity"), offers=(A, spot)).code == "none_left"
    assert key(place(offers=(A, spot), chosen="vast:s")) == "s"
