"""Estimate what a run costs: hours x price + storage + transfer + start-up + a buffer for retries and interruptions.

Every part has two amounts: what is expected, and the most that an approval covers, which is never below it.

- compute: hours x (price - storage); storage: (hours + boot time) x storage price. The most is both at the highest
  price that the policy tolerates.
- start-up: time that is billed before the run (from the create call on, where the cloud bills from there: the typical
  boot, at most the boot deadline), rounding up to the cloud's billing quantum and minimum, and the time in which a
  described run fetches its weights and data at the offer's bandwidth: once, at most twice.
- transfer: data in and out at the offer's prices, every checkpoint included, and what the store of the data charges for
  sending them: the assumed amount, at most twice that.
- retries: the policy's share of compute, at most twice that.
- hold: where the job names a place for its checkpoints, what holds or keeps the machine at its end (only at most).
- notices: what a network volume costs in the days of notices before it is deleted unpaid (only at most).
- interruptions: with a chance p of losing the host during the run, half of the work is repeated on average and at most
  all of it: p / 2, p of compute at the quoted price. Within `loss_window_h` the chance is 1 - reliability, plus the
  spot share; a longer run is lost more often, a shorter one less often.

A rental by the hour ends when its time is over: what is expected of it is hours x price, storage and transfer, and of a
spot offer its interruptions. Its hours begin with the create; where the cloud bills from the running machine on, the
typical boot is left out of the compute. Retries and the interruptions of others are only in the most that it may cost.

Where the work is known, its hours follow from the throughput (`sizing.run_time`), checkpoints bound what an
interruption costs (`sizing.interruptions`; `market.traffic` says how long one takes), and storage includes the store
that keeps the newest two checkpoints. Ranges and chances of such a run come from one simulation (`market.outlook`),
whose mean is the expected total.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from bot.rules.checkpoints.verification import CheckpointHold, reserve
from bot.rules.jobs.job import JobRequest
from bot.rules.market.data_moved import data_said
from bot.rules.market.outlook import RunOutlook, outlook
from bot.rules.market.parts import (
    COMPONENTS,
    HOUR_S,
    Scenario,
    chance_in,
    ends_h,
    fetching_h,
    parts,
    reliability,
    scenarios,
    sent_gb,
    wall_h,
)
from bot.rules.market.traffic import RunTraffic
from bot.rules.policy import volume_checks
from bot.rules.policy.policy import Policy
from bot.rules.pricing.spend_limits import bad_price
from bot.rules.sizing.interruptions import Loss, loss
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.simulation import RunBill, RunLimits
from bot.rules.values.phrases import about_hours, plural, usd
from bot.rules.values.phrases import hours as say_hours
from bot.rules.viability.interconnect import slow_host
from ledger.kernel import money
from providers.capabilities import BillingRule, BillingStart, Capabilities
from providers.contract import Offer

#: A shorter time to fetch weights and data is not worth a sentence: six minutes.
_TOLD_H = Decimal("0.1")
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Component:
    """Hold one part of an estimate in dollars: what is expected of it, and the most that an approval covers."""

    name: str
    expected_usd: Decimal
    worst_usd: Decimal


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hold the total cost of one run in dollars, its parts, and the assumptions as sentences.

    `hours` are the expected ones of the wall clock. What follows from the work is None or empty where only hours are
    known: the range of the hours, tokens (or `rate_unit`) per second (expected, low, high), by how many hours the goal
    is missed, the layout in the GPUs' memory, whether it is tight, what could not be known, and the simulation's
    `outlook`, whose range `best_usd` begins. `worst_usd` is what an approval covers. `hold_usd` is what the worst case
    includes for a hold at the end, `hold_hours` for how long the GPU may be held, `disk_hours` for how long its disk is
    kept.
    `data` says what moving the run's data costs and takes; empty where nobody said where they lie. `notices` says what
    of `worst_usd` pays for the days of notices before a volume that is not paid for is deleted; empty for machines.
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
    rate_unit: str = "tokens"
    late_hours: Decimal = _ZERO
    fit: str = ""
    tight: bool = False
    unknown: tuple[str, ...] = ()
    hold_usd: Decimal = _ZERO
    hold_hours: Decimal = _ZERO
    disk_hours: Decimal = _ZERO
    outlook: RunOutlook | None = None
    data: str = ""
    notices: str = ""


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
    likely, most = scenarios(job, policy, capabilities, run, whole=whole)
    cases = [parts(offer, case, policy) for case in (likely, most)]
    components = tuple(Component(name, *amounts) for name, *amounts in zip(COMPONENTS, *cases, strict=True))
    expected, worst = (sum(case, _ZERO) for case in cases)
    held = reserve(policy, job.checkpoint, capabilities)
    hold_usd = hold_amount(offer, held, policy)
    basis = () if run is None or run.throughput is None else (run.throughput.basis,)
    if hold_usd:
        components = (*components, Component("hold", _ZERO, hold_usd))
    notices_usd = _ZERO
    if job.makes_volume:
        notices_usd = volume_checks.notices_usd(offer.price_usd_h or _ZERO, policy, grows=capabilities.volume_grows)
        components = (*components, Component("notices", _ZERO, notices_usd))
    found = Estimate(
        best_usd=expected,
        expected_usd=expected,
        worst_usd=worst + hold_usd + notices_usd,
        hours=likely.work_h,
        components=components,
        hold_usd=hold_usd,
        hold_hours=held.run_h,
        disk_hours=held.disk_h,
        assumptions=(*basis, *_assumptions(offer, policy, capabilities, likely)),
        **({} if run is None else _of_the_run(run)),
        data="" if run is None else data_said(offer, run, likely),
        notices=volume_checks.notices_line(job.disk_gb, usd(notices_usd), policy, grows=capabilities.volume_grows)
        if notices_usd
        else "",
    )
    if run is None or not run.known or likely.traffic is None:
        return found
    limits = RunLimits(
        float(worst), float(job.hours) if whole else None, _float(run.goal_h), _float(job.budget_cap_usd)
    )
    return _simulated(
        found, offer, policy, run, likely, likely.traffic, limits, capabilities.billing, ends_h(run, job, whole=whole)
    )


def _float(number: Decimal | None) -> float | None:
    return None if number is None else float(number)


def _simulated(
    found: Estimate,
    offer: Offer,
    policy: Policy,
    run: RunTime,
    case: Scenario,
    moved: RunTraffic,
    limits: RunLimits,
    billing: BillingRule,
    ends: Decimal | None,
) -> Estimate:
    """Add to the estimate of a run whose time is known what its simulation shows."""
    chance = chance_in(offer, case, policy)
    how = moved.checkpointing(offer)
    lost = loss(chance, how)
    wall = money.half_up(wall_h(offer, chance, case), 6)
    before_h = moved.boot_h + moved.ready_h + fetching_h(offer, case)
    seen = outlook(run, how, lost, before_h, run_bill(offer, chance, case, billing), limits)
    return replace(
        found,
        hours=wall,
        best_usd=min(seen.usd_low, found.expected_usd),
        best_hours=min(seen.hours_low, wall),
        worst_hours=max(seen.hours_high, wall),
        late_hours=_ZERO if ends is None else max(wall - ends, _ZERO),
        outlook=seen,
    )


def run_bill(offer: Offer, chance: Decimal, case: Scenario, billing: BillingRule) -> RunBill:
    """Return what `parts` sums for the expected case as a price per billed hour, per hour of work, and once."""
    price = offer.price_usd_h or _ZERO
    storage_rate = min(max(offer.storage_usd_h, _ZERO), price)
    rate = price - storage_rate
    egress = max(offer.egress_usd_gb, _ZERO)
    # The last checkpoint is written in any case; the longer the run, the more of the others.
    checkpoints_gb = sent_gb(offer, chance, case) - case.egress_gb
    once_gb = _ZERO if case.traffic is None else min(case.traffic.checkpoint_gb, checkpoints_gb)
    kept_usd = case.store_usd + egress * (checkpoints_gb - once_gb)
    kept_usd_h = kept_usd / case.work_h if case.work_h else _ZERO
    by_work = rate * case.retries + storage_rate + kept_usd_h
    fetched_usd = max(offer.ingress_usd_gb, _ZERO) * case.ingress_gb + egress * (case.egress_gb + once_gb)
    fetched_usd += case.source_usd
    boot_h = _ZERO if case.traffic is None else case.traffic.boot_h
    return RunBill(
        usd_h=float(rate),
        work_usd_h=float(by_work),
        once_usd=float(fetched_usd + storage_rate * boot_h),
        unbilled_h=0.0 if billing.starts is BillingStart.CREATE else float(boot_h),
        step_h=billing.quantum_s / 3600 if billing.quantum_s > 1 else 0.0,
        minimum_h=billing.minimum_s / 3600,
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
        "tokens_per_s": rates,
        "rate_unit": "tokens" if rate is None else rate.unit,
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


def _assumptions(offer: Offer, policy: Policy, capabilities: Capabilities, case: Scenario) -> Iterator[str]:
    start = None if case.traffic is None else case.traffic.start
    boot = say_hours(Decimal(capabilities.boot_expected_s) / HOUR_S)
    if start is not None and start.boot_s is not None:
        boot = f"{start.boot_s:.0f} s (from {plural(start.boots, 'session')} of yours)"
    if capabilities.billing.starts is BillingStart.CREATE:
        yield f"Starting takes about {boot} and is billed."
    else:
        yield f"Starting takes about {boot}; only storage is billed meanwhile."
    if capabilities.billing.quantum_s > 1:
        yield f"Time is billed in steps of {capabilities.billing.quantum_s} seconds."
    yield from () if start is None else start.sentences(spot=offer.spot)
    chance = chance_in(offer, case, policy)
    if offer.egress_usd_gb > 0 or offer.ingress_usd_gb > 0:
        sent = sent_gb(offer, chance, case)
        yield f"{case.ingress_gb:,.0f} GB are fetched and {sent:,.0f} GB sent, at worst twice as much."
    if case.traffic is not None:
        yield from slow_host(offer)
    fetching = fetching_h(offer, case)
    if fetching >= _TOLD_H:
        yield f"Fetching weights and data takes about {about_hours(fetching)} and is billed."
    if case.retries:
        yield f"{policy.retry_buffer:.0%} of the compute cost is kept for retries, at worst twice as much."
    else:
        yield f"At worst {policy.retry_buffer * 2:.0%} of the compute cost goes into retries."
    known = "a reported" if offer.reliability is not None else "an assumed"
    known += "" if offer.own is None else " and observed"
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
