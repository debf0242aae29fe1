"""What a run costs in all: hours x price + storage + transfer + start-up + a buffer for retries and interruptions.

Three scenarios with worst >= expected >= best in every component:

- compute: hours x (price - storage); storage: (hours + boot time) x storage price. At worst both are multiplied by the
  price tolerance, since an approval covers that.
- start-up: time that is billed before the run (from the create call on, where the cloud bills from there: none, the
  typical boot, the boot deadline), and rounding up to the cloud's billing quantum and minimum.
- transfer: data in and out at the offer's prices: none, the assumed amount, twice that.
- retries: none, the policy's share of compute, twice that.
- interruptions: with a chance p of losing the host (1 - reliability, plus the spot share), half of the work is
  repeated on average and all of it at worst: 0, p / 2, p of compute at the quoted price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal

from bot.rules.policy import Policy
from bot.rules.spend import MICRO_USD, MOST_USD_H, bad_price
from bot.rules.wording import hours as say_hours
from ledger.values import JobRequest
from providers.base import BillingRule, BillingStart, Capabilities, Offer

HOUR_S = Decimal(3600)
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Component:
    """One part of an estimate in dollars, in the three scenarios."""

    name: str
    best_usd: Decimal
    expected_usd: Decimal
    worst_usd: Decimal


@dataclass(frozen=True, slots=True)
class Estimate:
    """The total cost of one run in dollars, its parts, and the assumptions as sentences."""

    best_usd: Decimal
    expected_usd: Decimal
    worst_usd: Decimal
    hours: Decimal
    components: tuple[Component, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one scenario multiplies an offer's prices with; the same for all offers of a cloud."""

    work_h: Decimal
    compute_h: Decimal
    storage_h: Decimal
    startup_h: Decimal
    egress_gb: Decimal
    ingress_gb: Decimal
    retries: Decimal
    interruptions: Decimal


COMPONENTS = ("compute", "storage", "start-up", "transfer", "retries", "interruptions")


def estimate(offer: Offer, job: JobRequest, policy: Policy, capabilities: Capabilities) -> Estimate:
    """The cost of running `job` on `offer`. Pure Decimal arithmetic; every part is rounded to whole micro-dollars.

    ValueError for an offer without a usable price; the ranking excludes those before.
    """
    if unpriced(offer, free=capabilities.free):
        raise ValueError(f"{offer.id} has no usable price")
    cases = [parts(offer, case, policy) for case in scenarios(job, policy, capabilities)]
    components = tuple(Component(name, *amounts) for name, *amounts in zip(COMPONENTS, *cases, strict=True))
    best, expected, worst = (sum(case, _ZERO) for case in cases)
    return Estimate(
        best_usd=best,
        expected_usd=expected,
        worst_usd=worst,
        hours=job.hours,
        components=components,
        assumptions=tuple(_assumptions(offer, policy, capabilities)),
    )


def unpriced(offer: Offer, *, free: bool) -> bool:
    """Whether any price of an offer is bad data, so that no total can be told."""
    extras = (offer.storage_usd_h, offer.egress_usd_gb, offer.ingress_usd_gb)
    bad_extra = any(not extra.is_finite() or extra > MOST_USD_H for extra in extras)
    return bad_extra or bad_price(offer.price_usd_h, free=free)


def scenarios(job: JobRequest, policy: Policy, capabilities: Capabilities) -> tuple[Scenario, Scenario, Scenario]:
    """The best, expected and worst case of a job on one cloud."""
    boots_s = (Decimal(0), Decimal(capabilities.boot_expected_s), Decimal(_boot_worst_s(capabilities)))
    best, expected, worst = (_scenario(job, policy, capabilities.billing, n, boot) for n, boot in enumerate(boots_s))
    return best, expected, worst


def _scenario(job: JobRequest, policy: Policy, billing: BillingRule, n: int, boot_s: Decimal) -> Scenario:
    run_s = job.hours * HOUR_S
    billed_before_s = boot_s if billing.starts is BillingStart.CREATE else Decimal(0)
    extra_s = _billed(run_s + billed_before_s, billing) - run_s
    # At worst the price is what the approval covers.
    tolerance = policy.price_tolerance if n == 2 else Decimal(1)
    return Scenario(
        work_h=job.hours,
        compute_h=job.hours * tolerance,
        storage_h=(job.hours + boot_s / HOUR_S) * tolerance,
        startup_h=extra_s / HOUR_S * tolerance,
        egress_gb=policy.egress_gb * n,
        ingress_gb=policy.ingress_gb * n,
        retries=policy.retry_buffer * n,
        interruptions=Decimal(n) / 2,
    )


def _boot_worst_s(capabilities: Capabilities) -> int:
    return max(capabilities.boot_deadline_s, capabilities.boot_expected_s)


def _billed(seconds: Decimal, billing: BillingRule) -> Decimal:
    """Seconds on the bill for `seconds` of use: rounded up to the quantum, at least the minimum."""
    quantum = Decimal(max(billing.quantum_s, 1))
    rounded = (seconds / quantum).to_integral_value(rounding=ROUND_CEILING) * quantum
    return max(rounded, Decimal(billing.minimum_s))


def parts(offer: Offer, case: Scenario, policy: Policy) -> tuple[Decimal, ...]:
    """The amounts of `COMPONENTS` in dollars for one scenario. The offer's price must be usable."""
    price = offer.price_usd_h or _ZERO
    storage_rate = min(max(offer.storage_usd_h, _ZERO), price)
    rate = price - storage_rate
    # The buffers repeat work at the quoted price, so the tolerance of the worst case does not multiply them again.
    work = rate * case.work_h
    sent = max(offer.egress_usd_gb, _ZERO) * case.egress_gb
    fetched = max(offer.ingress_usd_gb, _ZERO) * case.ingress_gb
    amounts = (
        rate * case.compute_h,
        storage_rate * case.storage_h,
        rate * case.startup_h,
        sent + fetched,
        work * case.retries,
        work * case.interruptions * loss_chance(offer, policy),
    )
    return tuple(amount.quantize(MICRO_USD, rounding=ROUND_HALF_UP) for amount in amounts)


def reliability(offer: Offer, policy: Policy) -> Decimal:
    """The offer's reliability between 0 and 1, or what the policy assumes where its cloud reports none."""
    if offer.reliability is not None and offer.reliability.is_finite():
        return min(max(offer.reliability, Decimal(0)), Decimal(1))
    return policy.assumed_datacenter_reliability if offer.datacenter else policy.assumed_reliability


def loss_chance(offer: Offer, policy: Policy) -> Decimal:
    """The chance between 0 and 1 that the host is lost during the run."""
    chance = 1 - reliability(offer, policy)
    return min(chance + policy.spot_interruption, Decimal(1)) if offer.spot else chance


def _assumptions(offer: Offer, policy: Policy, capabilities: Capabilities) -> Iterator[str]:
    boot = say_hours(Decimal(capabilities.boot_expected_s) / HOUR_S)
    if capabilities.billing.starts is BillingStart.CREATE:
        yield f"Starting takes about {boot} and is billed."
    else:
        yield f"Starting takes about {boot}; only storage is billed meanwhile."
    if capabilities.billing.quantum_s > 1:
        yield f"Time is billed in steps of {capabilities.billing.quantum_s} seconds."
    if offer.egress_usd_gb > 0 or offer.ingress_usd_gb > 0:
        yield f"{policy.ingress_gb} GB are fetched and {policy.egress_gb} GB sent, at worst twice as much."
    yield f"{policy.retry_buffer:.0%} of the compute cost is kept for retries, at worst twice as much."
    known = "reported" if offer.reliability is not None else "assumed"
    yield f"A {known} reliability of {reliability(offer, policy):.1%} repeats half of the work when the host is lost."
    if offer.spot:
        yield f"A spot instance is taken back with a chance of {policy.spot_interruption:.0%}."
    if policy.price_tolerance > 1:
        yield f"At worst the price is {policy.price_tolerance - 1:.0%} above the quote, as an approval covers."
