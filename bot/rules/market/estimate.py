"""Estimate what a run costs: hours x price + storage + transfer + start-up + a buffer for retries and interruptions.

Three scenarios with worst >= expected >= best in every component:

- compute: hours x (price - storage); storage: (hours + boot time) x storage price. At worst both are multiplied by the
  price tolerance, since an approval covers that.
- start-up: time that is billed before the run (from the create call on, where the cloud bills from there: none, the
  typical boot, the boot deadline), rounding up to the cloud's billing quantum and minimum, and the time in which a
  described run fetches its weights and data at the offer's bandwidth: none, once, twice.
- transfer: data in and out at the offer's prices, every checkpoint included: none, the assumed amount, twice that.
- retries: none, the policy's share of compute, twice that.
- hold: where the job names a place for its checkpoints, what holds or keeps the machine at its end (only at worst).
- interruptions: with a chance p of losing the host during the run, half of the work is repeated on average and all of
  it at worst: 0, p / 2, p of compute at the quoted price. Within `loss_window_h` the chance is 1 - reliability, plus
  the spot share; a longer run is lost more often, a shorter one less often.

A rental by the hour ends when its time is over: what is expected of it is hours x price, storage and transfer, and of a
spot offer its interruptions. Start-up, retries and the interruptions of others are only in its worst case, which is the
cap.

Where the work is known, the three scenarios have hours of their own (`sizing.run_time`), checkpoints bound what an
interruption costs (`sizing.interruptions`: none, the expected share, twice that; `market.traffic` says how long one
takes), and storage includes the store that keeps the newest two checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

from bot.rules.checkpoints.verification import CheckpointHold, reserve
from bot.rules.market.traffic import RunTraffic, traffic
from bot.rules.policy.policy import Policy
from bot.rules.pricing.spend_limits import bad_price
from bot.rules.sizing.interruptions import Loss, loss, lost_within
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.throughput import RunHours
from bot.rules.values.phrases import about_hours
from bot.rules.values.phrases import hours as say_hours
from bot.rules.viability.interconnect import slow_link
from ledger.kernel import money
from ledger.kernel.job import JobRequest
from providers.capabilities import BOOT_DEADLINE_S, BillingRule, BillingStart, Capabilities
from providers.contract import Offer

HOUR_S = Decimal(3600)
MONTH_H = Decimal(730)
KEPT_CHECKPOINTS = 2
#: A shorter time to fetch weights and data is not worth a sentence: six minutes.
_TOLD_H = Decimal("0.1")
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Component:
    """Hold one part of an estimate in dollars, in the three scenarios."""

    name: str
    best_usd: Decimal
    expected_usd: Decimal
    worst_usd: Decimal


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hold the total cost of one run in dollars, its parts, and the assumptions as sentences.

    `hours` are the expected ones. What follows from the work is None or empty where only hours are known: hours in the
    best and the worst case, tokens per second (expected, low, high), by how many hours the goal is missed, the layout
    in the GPUs' memory, whether it is tight, and what could not be known. `hold_usd` is what the worst case includes
    for a hold at the end, `hold_hours` for how long the GPU may be held, `disk_hours` for how long its disk is kept.
    """

    best_usd: Decimal
    expected_usd: Decimal
    worst_usd: Decimal
    hours: Decimal
    components: tuple[Component, ...]
    assumptions: tuple[str, ...]
    best_hours: Decimal | None = None
    worst_hours: Decimal | None = None
    tokens_per_s: tuple[Decimal, Decimal, Decimal] | None = None
    late_hours: Decimal = _ZERO
    fit: str = ""
    tight: bool = False
    unknown: tuple[str, ...] = ()
    hold_usd: Decimal = _ZERO
    hold_hours: Decimal = _ZERO
    disk_hours: Decimal = _ZERO


@dataclass(frozen=True, slots=True)
class Scenario:
    """Hold the factors by which one scenario multiplies an offer's prices; the same for all offers of a cloud.

    `times` is 0, 1 or 2: how often what is expected once happens. `interruptions` and `spot_interruptions` are shares
    of the work that a loss repeats; `tolerance` is what the price may rise by.
    """

    work_h: Decimal
    compute_h: Decimal
    storage_h: Decimal
    startup_h: Decimal
    egress_gb: Decimal
    ingress_gb: Decimal
    retries: Decimal
    interruptions: Decimal
    spot_interruptions: Decimal
    window_h: Decimal
    times: int
    tolerance: Decimal
    store_usd: Decimal = _ZERO
    traffic: RunTraffic | None = None


COMPONENTS = ("compute", "storage", "start-up", "transfer", "retries", "interruptions")


def estimate(
    offer: Offer,
    job: JobRequest,
    policy: Policy,
    capabilities: Capabilities,
    run: RunTime | None = None,
    *,
    whole: bool = False,
) -> Estimate:
    """Estimate the cost of running `job` on `offer`, for the time of `run`, else for the job's hours.

    Pure Decimal arithmetic; every part is rounded to whole micro-dollars.
    ValueError for an offer without a usable price; the ranking excludes those before.
    """
    if unpriced(offer, free=capabilities.free):
        raise ValueError(f"{offer.id} has no usable price")
    three = scenarios(job, policy, capabilities, run, whole=whole)
    cases = [parts(offer, case, policy) for case in three]
    components = tuple(Component(name, *amounts) for name, *amounts in zip(COMPONENTS, *cases, strict=True))
    best, expected, worst = (sum(case, _ZERO) for case in cases)
    held = reserve(policy, job.checkpoint, capabilities)
    hold_usd = hold_amount(offer, held, policy)
    basis = () if run is None or run.throughput is None else (run.throughput.basis,)
    if hold_usd:
        components = (*components, Component("hold", _ZERO, _ZERO, hold_usd))
    return Estimate(
        best_usd=best,
        expected_usd=expected,
        worst_usd=worst + hold_usd,
        hours=three[1].work_h,
        components=components,
        hold_usd=hold_usd,
        hold_hours=held.run_h,
        disk_hours=held.disk_h,
        assumptions=(*basis, *_assumptions(offer, policy, capabilities, three[1])),
        **({} if run is None else _of_the_run(run)),
    )


def hold_amount(offer: Offer, held: CheckpointHold, policy: Policy) -> Decimal:
    """Return the dollars that a hold may cost: the machine at the covered price, then its disk alone."""
    price = offer.price_usd_h or _ZERO
    disk_usd_h = max(offer.storage_usd_h, offer.storage_stopped_usd_h, _ZERO)
    return money.worst(price * policy.price_tolerance * held.run_h + disk_usd_h * held.disk_h)


def _of_the_run(run: RunTime) -> dict[str, Any]:
    rate = run.throughput
    rates = None if rate is None else tuple(Decimal(f"{one:.6g}") for one in (rate.expected, rate.low, rate.high))
    return {
        "best_hours": run.hours.best if run.known else None,
        "worst_hours": run.hours.worst if run.known else None,
        "tokens_per_s": rates,
        "late_hours": run.late_h,
        "fit": run.fit.sentence if run.fit is not None else "",
        "tight": run.fit is not None and run.fit.tight,
        "unknown": run.unknown,
    }


def unpriced(offer: Offer, *, free: bool) -> bool:
    """Whether any price of an offer is bad data, so that it has no total."""
    bad_extra = _bad(offer.storage_usd_h) or _bad(offer.egress_usd_gb) or _bad(offer.ingress_usd_gb)
    return bad_extra or bad_price(offer.price_usd_h, free=free)


def _bad(extra: Decimal) -> bool:
    """Whether a price beside the hourly one is bad data; most of them are zero."""
    return bool(extra) and (not extra.is_finite() or extra > money.MOST_USD_H)


def scenarios(
    job: JobRequest,
    policy: Policy,
    capabilities: Capabilities,
    run: RunTime | None = None,
    *,
    whole: bool = False,
) -> tuple[Scenario, Scenario, Scenario]:
    """Return the three cases of a job on one cloud; `whole` lets the worst one last all of the job's hours."""
    time = run.hours if run is not None else RunHours(job.hours, job.hours, job.hours)
    hours = (time.best, time.expected, max(time.worst, job.hours) if whole else time.worst)
    boot_s = capabilities.boot_expected_s
    boots_s = (Decimal(0), Decimal(boot_s), Decimal(max(capabilities.boot_deadline_s or BOOT_DEADLINE_S, boot_s)))
    found: list[Scenario] = []
    for n, (work_h, before_s) in enumerate(zip(hours, boots_s, strict=True)):
        by_the_hour = run is None and n == 1
        # Where a cloud bills from the create on, booting is part of the hours; elsewhere only the disk is billed then.
        inside = by_the_hour and capabilities.billing.starts is BillingStart.CREATE
        case = _scenario(work_h, policy, capabilities.billing, n, _ZERO if inside else before_s)
        case = replace(case, retries=_ZERO, interruptions=_ZERO) if by_the_hour else case
        # Rounding up to a quantum can shrink with more hours; no part of a worse case may be below a better one's.
        case = replace(case, startup_h=max(case.startup_h, found[-1].startup_h if found else _ZERO))
        found.append(case if run is None else _with_work(case, run, n, capabilities, policy))
    best, expected, worst = found
    return best, expected, worst


def _with_work(case: Scenario, run: RunTime, n: int, capabilities: Capabilities, policy: Policy) -> Scenario:
    """Add what only the work determines: data, checkpoints and the store that keeps them."""
    kept_gb = run.checkpoint_gb * KEPT_CHECKPOINTS
    return replace(
        case,
        ingress_gb=case.ingress_gb + run.fetched_gb * n,
        store_usd=kept_gb * policy.store_usd_gb_month * case.work_h / MONTH_H,
        traffic=traffic(run, capabilities.boot_expected_s, policy),
    )


def _scenario(work_h: Decimal, policy: Policy, billing: BillingRule, n: int, boot_s: Decimal) -> Scenario:
    run_s = work_h * HOUR_S
    billed_before_s = boot_s if billing.starts is BillingStart.CREATE else Decimal(0)
    extra_s = _billed(run_s + billed_before_s, billing) - run_s
    # At worst the price is what the approval covers.
    tolerance = policy.price_tolerance if n == 2 else Decimal(1)
    return Scenario(
        work_h=work_h,
        compute_h=work_h * tolerance,
        storage_h=(work_h + boot_s / HOUR_S) * tolerance,
        startup_h=extra_s / HOUR_S * tolerance,
        egress_gb=policy.egress_gb * n,
        ingress_gb=policy.ingress_gb * n,
        retries=policy.retry_buffer * n,
        interruptions=Decimal(n) / 2,
        spot_interruptions=Decimal(n) / 2,
        window_h=policy.loss_window_h,
        times=n,
        tolerance=tolerance,
    )


def _billed(seconds: Decimal, billing: BillingRule) -> Decimal:
    """Return the seconds on the bill for `seconds` of use: rounded up to the quantum, at least the minimum."""
    quantum = Decimal(max(billing.quantum_s, 1))
    rounded = (seconds / quantum).to_integral_value(rounding=ROUND_CEILING) * quantum
    return max(rounded, Decimal(billing.minimum_s))


def parts(offer: Offer, case: Scenario, policy: Policy) -> tuple[Decimal, ...]:
    """Return the amounts of `COMPONENTS` in dollars for one scenario. The offer's price must be usable."""
    price = offer.price_usd_h or _ZERO
    storage_rate = min(max(offer.storage_usd_h, _ZERO), price)
    rate = price - storage_rate
    # The buffers repeat work at the quoted price, so the tolerance of the worst case does not multiply them again.
    work = rate * case.work_h
    chance = loss_chance(offer, policy)
    sent = max(offer.egress_usd_gb, _ZERO) * sent_gb(offer, chance, case)
    fetched = max(offer.ingress_usd_gb, _ZERO) * case.ingress_gb
    amounts = (
        rate * case.compute_h,
        storage_rate * case.storage_h + case.store_usd,
        rate * (case.startup_h + fetching_h(offer, case)),
        sent + fetched,
        work * case.retries,
        work * lost_share(offer, chance, case),
    )
    return tuple(map(money.amount, amounts))


def reliability(offer: Offer, policy: Policy) -> Decimal:
    """Return the offer's reliability between 0 and 1, or what the policy assumes where its cloud reports none."""
    if offer.reliability is not None and offer.reliability.is_finite():
        return min(max(offer.reliability, Decimal(0)), Decimal(1))
    return policy.assumed_datacenter_reliability if offer.datacenter else policy.assumed_reliability


def loss_chance(offer: Offer, policy: Policy) -> Decimal:
    """Return the chance between 0 and 1 that the host is lost within the policy's `loss_window_h`."""
    chance = 1 - reliability(offer, policy)
    return min(chance + policy.spot_interruption, Decimal(1)) if offer.spot else chance


def sent_gb(offer: Offer, chance: Decimal, case: Scenario) -> Decimal:
    """Return the GB that leave the machine in this scenario: what the policy assumes, and every checkpoint."""
    if case.traffic is None:
        return case.egress_gb
    return case.egress_gb + case.times * case.traffic.sent_gb(offer, chance, case.work_h)


def fetching_h(offer: Offer, case: Scenario) -> Decimal:
    """Return the billed hours in which weights and data are fetched in this scenario."""
    return _ZERO if case.traffic is None else case.times * case.tolerance * case.traffic.fetch_h(offer)


def lost_share(offer: Offer, chance: Decimal, case: Scenario) -> Decimal:
    """Return the share of the work that losing the host costs in this scenario; `chance` is that within the window."""
    interruptions = case.spot_interruptions if offer.spot else case.interruptions
    if case.traffic is None or not case.traffic.known:
        return interruptions * lost_within(chance, case.window_h, case.work_h)
    return interruptions * 2 * loss(chance, case.traffic.checkpointing(offer)).share


def _assumptions(offer: Offer, policy: Policy, capabilities: Capabilities, case: Scenario) -> Iterator[str]:
    boot = say_hours(Decimal(capabilities.boot_expected_s) / HOUR_S)
    if capabilities.billing.starts is BillingStart.CREATE:
        yield f"Starting takes about {boot} and is billed."
    else:
        yield f"Starting takes about {boot}; only storage is billed meanwhile."
    if capabilities.billing.quantum_s > 1:
        yield f"Time is billed in steps of {capabilities.billing.quantum_s} seconds."
    chance = loss_chance(offer, policy)
    if offer.egress_usd_gb > 0 or offer.ingress_usd_gb > 0:
        sent = sent_gb(offer, chance, case)
        yield f"{case.ingress_gb:,.0f} GB are fetched and {sent:,.0f} GB sent, at worst twice as much."
    if case.traffic is not None and (link := slow_link(offer)):
        yield link
    fetching = fetching_h(offer, case)
    if fetching >= _TOLD_H:
        yield f"Fetching weights and data takes about {about_hours(fetching)} and is billed."
    if case.retries:
        yield f"{policy.retry_buffer:.0%} of the compute cost is kept for retries, at worst twice as much."
    else:
        yield f"At worst {policy.retry_buffer * 2:.0%} of the compute cost goes into retries."
    known = "a reported" if offer.reliability is not None else "an assumed"
    trusted = f"{known} reliability of {reliability(offer, policy):.1%}"
    if not (case.spot_interruptions if offer.spot else case.interruptions):
        yield f"At worst, with {trusted}, all work is repeated when the host is lost."
    elif case.traffic is None or not case.traffic.known:
        yield f"A{trusted[1:]} repeats half of the work when the host is lost."
    else:
        trusted += f" within {say_hours(policy.loss_window_h)}"
        yield _lost(trusted, loss(chance, case.traffic.checkpointing(offer)), case)
    if offer.spot:
        window = say_hours(policy.loss_window_h)
        yield f"A spot instance is taken back within {window} with a chance of {policy.spot_interruption:.0%}."
    if policy.price_tolerance > 1:
        yield f"At worst the price is {policy.price_tolerance - 1:.0%} above the quote, as an approval covers."


def _lost(trusted: str, found: Loss, case: Scenario) -> str:
    """Say how often the host of a run with checkpoints is expected to be lost, and what that costs."""
    often = f"{found.rate_h * case.work_h:.2f} interruptions expected from {trusted}"
    if found.interval_h is None:
        return f"{often}; each costs a restart."
    return f"{often}; a checkpoint every {about_hours(found.interval_h)}, {found.share:.1%} of the work in all."
