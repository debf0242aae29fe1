"""Estimates: worked examples by hand, and the order of the three scenarios."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given

from bot.rules.jobs.job import JobRequest
from bot.rules.market.estimate import Component, estimate
from bot.rules.market.parts import COMPONENTS, loss_chance, reliability
from bot.rules.policy.policy import Policy
from bot.rules.pricing.spend_limits import price_cap
from providers.capabilities import BillingRule, BillingStart
from providers.contract import Offer
from tests.rules.builders import CLOUDS, HOURS, OFFERS, capabilities, job, offer

POLICY = Policy()


def component(name: str, made_of: Offer, wanted: JobRequest, cloud: str) -> tuple[str, str]:
    found = estimate(made_of, wanted, POLICY, CLOUDS[cloud]).components[COMPONENTS.index(name)]
    assert found.name == name
    return str(found.expected_usd), str(found.worst_usd)


def test_compute_is_hours_times_the_price_without_storage() -> None:
    one = offer(price_usd_h=Decimal("1.05"), storage_usd_h=Decimal("0.05"))
    assert component("compute", one, job("10"), "runpod") == ("10.000000", "11.000000")


def test_the_gpu_costs_nothing_while_booting_where_the_cloud_bills_from_the_running_machine_on() -> None:
    """Two minutes of ten hours, and at most half of three minutes: a rental always costs something."""
    one = offer(price_usd_h=Decimal("1.05"), storage_usd_h=Decimal("0.05"))
    assert component("compute", one, job("10"), "vast") == ("9.966667", "11.000000")
    assert component("compute", one, job("0.05"), "vast")[0] == "0.025000"


def test_storage_is_paid_while_booting() -> None:
    """10 h, which the boot is a part of, and in the worst case a boot of 900 s on top, at 1.1 times $0.05 an hour."""
    one = offer(price_usd_h=Decimal("1.05"), storage_usd_h=Decimal("0.05"))
    assert component("storage", one, job("10"), "vast") == ("0.500000", "0.563750")


def test_starting_is_billed_where_the_cloud_bills_from_the_create() -> None:
    one = offer(price_usd_h=Decimal(3))
    assert component("start-up", one, job("2"), "vast") == ("0.000000", "0.000000")
    # Its start is inside the approved hours, so only the worst case has it on top.
    assert component("start-up", one, job("2"), "runpod") == ("0.000000", "0.825000")


def test_a_minimum_is_paid_in_full() -> None:
    """Half an hour where an hour is the least costs an hour: the rest counts as start-up."""
    assert component("start-up", offer(price_usd_h=Decimal(2)), job("0.5"), "lambda")[0] == "1.000000"


def test_time_is_rounded_up_to_the_quantum() -> None:
    hourly = capabilities(billing=BillingRule(quantum_s=3600, starts=BillingStart.CREATE))
    found = estimate(offer(price_usd_h=Decimal(2)), job("1.5"), POLICY, hourly)
    assert found.components[2].expected_usd == Decimal(1)
    assert any("3600 seconds" in sentence for sentence in found.assumptions)
    # Of a boot of two minutes nothing is billed here: 88 minutes are rounded up.
    running = capabilities(billing=BillingRule(quantum_s=3600))
    later = estimate(offer(price_usd_h=Decimal(2)), job("1.5"), POLICY, running)
    assert later.components[0].expected_usd + later.components[2].expected_usd == Decimal(4)


@pytest.mark.parametrize(("hours", "minutes"), [("0.166667", 10), ("0.333333", 20), ("1.666667", 100), ("0.17", 11)])
def test_whole_minutes_are_billed_as_whole_minutes(hours: str, minutes: int) -> None:
    """Hours have six places, so ten minutes are a thousandth of a second more: no eleventh minute is expected."""
    by_minute = capabilities(billing=BillingRule(quantum_s=60, minimum_s=60, starts=BillingStart.CREATE))
    found = estimate(offer(price_usd_h=Decimal(6)), job(hours), POLICY, by_minute)
    assert float(found.expected_usd) == pytest.approx(0.1 * minutes, abs=1e-5)


def test_transfer_counts_both_ways() -> None:
    one = offer(egress_usd_gb=Decimal("0.02"), ingress_usd_gb=Decimal("0.01"))
    assert component("transfer", one, job(), "vast") == ("0.400000", "0.800000")


def test_a_rental_by_the_hour_is_expected_to_cost_its_hours_its_disk_and_its_transfer() -> None:
    one = offer(price_usd_h=Decimal("0.35"), reliability=Decimal("0.90"))
    # Vast bills no GPU in the two minutes of a boot.
    for cloud, usd in (("vast", "0.688333"), ("runpod", "0.70")):
        assert estimate(one, job("2"), POLICY, CLOUDS[cloud]).expected_usd == Decimal(usd)
    stored = replace(one, storage_usd_h=Decimal("0.05"), egress_usd_gb=Decimal("0.02"))
    found = estimate(stored, job("10"), POLICY, CLOUDS["vast"])
    spent = {part.name: part.expected_usd for part in found.components if part.expected_usd}
    assert spent.keys() == {"compute", "storage", "transfer"}
    assert found.expected_usd == sum(spent.values())


def test_retries_and_interruptions_are_in_the_worst_case_of_a_rental() -> None:
    one = offer(price_usd_h=Decimal(1), reliability=Decimal("0.90"))
    assert component("retries", one, job("10"), "vast") == ("0.000000", "2.000000")
    # 1 - 0.9 ^ (10 h / 24 h) is the chance of losing the host within the ten hours, 1 - 0.75 ^ (10 h / 24 h) with spot.
    assert component("interruptions", one, job("10"), "vast") == ("0.000000", "0.429505")
    spot = replace(one, spot=True)
    assert component("interruptions", spot, job("10"), "vast") == ("0.564810", "1.129621")


def test_reliability_is_assumed_where_none_is_reported() -> None:
    assert reliability(offer(reliability=None), POLICY) == Decimal("0.95")
    assert reliability(offer(reliability=None, datacenter=True), POLICY) == Decimal("0.99")
    assert reliability(offer(reliability=Decimal("NaN")), POLICY) == Decimal("0.95")
    assert reliability(offer(reliability=Decimal(7)), POLICY) == 1
    assert loss_chance(offer(reliability=Decimal(0), spot=True), POLICY) == 1


def test_the_assumptions_say_what_was_assumed() -> None:
    said = " ".join(estimate(offer(reliability=None, spot=True), job(), POLICY, CLOUDS["runpod"]).assumptions)
    assert "An assumed reliability of 95.0% repeats half of the work when the host is lost." in said
    assert "billed" in said
    assert "taken back" in said
    quiet = " ".join(estimate(offer(), job(), Policy(price_tolerance=Decimal(1)), CLOUDS["vast"]).assumptions)
    assert "with a reported reliability of 99.0%" in quiet
    assert "above the quote" not in quiet
    fetched = estimate(offer(ingress_usd_gb=Decimal("0.01")), job(), POLICY, CLOUDS["vast"]).assumptions
    assert "20 GB are fetched" in " ".join(fetched)


@pytest.mark.parametrize("price", [None, Decimal(0), Decimal(-1), Decimal("NaN")])
def test_there_is_no_estimate_without_a_price(price: Decimal | None) -> None:
    with pytest.raises(ValueError, match="vast:1 has no usable price"):
        estimate(offer(price_usd_h=price), job(), POLICY, CLOUDS["vast"])


def test_a_free_cloud_costs_nothing() -> None:
    assert estimate(offer(price_usd_h=Decimal(0)), job(), POLICY, CLOUDS["kaggle"]).worst_usd == 0


@given(one=OFFERS, hours=HOURS)
def test_the_most_is_never_below_what_is_expected(one: Offer, hours: Decimal) -> None:
    found = estimate(one, job(str(hours)), POLICY, CLOUDS[one.cloud])
    assert found.worst_usd >= found.expected_usd == found.best_usd > 0
    assert found.outlook is None
    for part in found.components:
        assert part.worst_usd >= part.expected_usd >= 0
    assert found.expected_usd == sum(part.expected_usd for part in found.components)
    assert found.expected_usd == found.expected_usd.quantize(Decimal("0.000001"))


@given(one=OFFERS, hours=HOURS)
def test_the_worst_case_pays_for_all_hours_at_the_price_cap(one: Offer, hours: Decimal) -> None:
    """The default total cap is the worst case, so it must not end a run that stays inside its price cap."""
    assert one.price_usd_h is not None
    found = estimate(one, job(str(hours)), POLICY, CLOUDS[one.cloud])
    # Six parts are rounded to micro-dollars, each by at most half of one.
    assert found.worst_usd >= price_cap(one.price_usd_h, POLICY) * hours - Decimal("0.000003")


@given(one=OFFERS, hours=HOURS)
def test_billing_from_the_create_never_costs_less_at_worst(one: Offer, hours: Decimal) -> None:
    later = estimate(one, job(str(hours)), POLICY, capabilities(billing=BillingRule(starts=BillingStart.RUNNING)))
    early = estimate(one, job(str(hours)), POLICY, capabilities(billing=BillingRule(starts=BillingStart.CREATE)))
    # Booting is inside the approved hours; where billing starts with the running machine, its GPU costs nothing then.
    assert early.expected_usd >= later.expected_usd
    assert early.worst_usd >= later.worst_usd


def test_the_worst_case_includes_the_hold_and_nothing_else_does() -> None:
    """The machine at the price that an approval covers, then its disk alone where a stop keeps it."""
    made_of = offer(price_usd_h=Decimal("0.5"), storage_usd_h=Decimal("0.01"), storage_stopped_usd_h=Decimal("0.02"))
    for able, hold_usd in ((capabilities(stop=False), Decimal("1.1")), (capabilities(), Decimal("0.571667"))):
        without, found = (
            estimate(made_of, job(checkpoint=where), Policy(), able) for where in (None, "s3://bucket/run")
        )
        assert (found.best_usd, found.expected_usd) == (without.best_usd, without.expected_usd)
        assert (found.worst_usd - without.worst_usd, found.hold_usd) == (hold_usd, hold_usd)
        assert found.components == (*without.components, Component("hold", Decimal(0), hold_usd))
