"""Compute the parts of one offer's cost, and what they are made of: the hours, the hazard, what is moved.

`market.estimate` says what each part holds. The functions take one scenario: what is expected, or the most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from bot.rules.jobs.job import JobRequest
from bot.rules.market.own_sessions import blended
from bot.rules.market.traffic import RunTraffic, traffic
from bot.rules.policy.policy import Policy
from bot.rules.sizing.interruptions import loss, lost_within
from bot.rules.sizing.run_time import RunTime
from bot.rules.sizing.throughput import RunHours
from ledger.kernel import money
from providers.capabilities import BOOT_DEADLINE_S, BillingRule, BillingStart, Capabilities
from providers.contract import Offer

HOUR_S = Decimal(3600)
MONTH_H = Decimal(730)
KEPT_CHECKPOINTS = 2
_ZERO = Decimal(0)
COMPONENTS = ("compute", "storage", "start-up", "transfer", "retries", "interruptions")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Hold the factors by which one scenario multiplies an offer's prices; the same for all offers of a cloud.

    `times` is 1 or 2: how often what is expected once happens. `interruptions` and `spot_interruptions` are shares
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
    source_usd: Decimal = _ZERO
    traffic: RunTraffic | None = None


def scenarios(
    job: JobRequest,
    policy: Policy,
    capabilities: Capabilities,
    run: RunTime | None = None,
    *,
    whole: bool = False,
) -> tuple[Scenario, Scenario]:
    """Return what is expected of a job on one cloud and the most; `whole` lets the latter last all of its hours."""
    time = run.hours if run is not None else RunHours(job.hours, job.hours, job.hours)
    hours = (time.expected, max(time.worst, job.hours) if whole else time.worst)
    boot_s = capabilities.boot_expected_s if run is None else boot_of(run, capabilities)
    boots_s = (Decimal(boot_s), Decimal(max(capabilities.boot_deadline_s or BOOT_DEADLINE_S, boot_s)))
    found: list[Scenario] = []
    for n, (work_h, before_s) in enumerate(zip(hours, boots_s, strict=True), 1):
        if run is None and n == 1:
            case = _by_the_hour(work_h, policy, capabilities.billing, before_s)
        else:
            case = _scenario(work_h, policy, capabilities.billing, n, before_s)
        # Rounding up to a quantum can shrink with more hours; no part of a worse case may be below a better one's.
        case = replace(case, startup_h=max(case.startup_h, found[-1].startup_h if found else _ZERO))
        found.append(case if run is None else _with_work(case, run, n, capabilities, policy))
    expected, most = found
    return expected, most


def ends_h(run: RunTime, job: JobRequest, *, whole: bool) -> Decimal | None:
    """Return the hours in which a run should be done: its goal and, with `whole`, what is rented; None without any."""
    if not run.known:
        return None
    return min((one for one in (run.goal_h, job.hours if whole else None) if one is not None), default=None)


def wall_h(offer: Offer, chance: Decimal, case: Scenario) -> Decimal:
    """Return the expected hours from the launch to the end of a run whose time is known."""
    if case.traffic is None or not case.traffic.known:
        return case.work_h
    before_h = case.traffic.boot_h + case.traffic.ready_h + fetching_h(offer, case)
    return case.work_h * (1 + lost_share(offer, chance, case)) + before_h


def _with_work(case: Scenario, run: RunTime, n: int, capabilities: Capabilities, policy: Policy) -> Scenario:
    """Add what only the work determines: data, checkpoints and the store that keeps them.

    At worst, data that should be read in place are copied after all.
    """
    if run.beside and n > 1:
        run = replace(run, fetched_gb=run.fetched_gb + run.data_gb)
    kept_gb = run.checkpoint_gb * KEPT_CHECKPOINTS
    return replace(
        case,
        ingress_gb=case.ingress_gb + run.fetched_gb * n,
        store_usd=kept_gb * policy.store_usd_gb_month * case.work_h / MONTH_H,
        source_usd=run.source_usd * n,
        startup_h=case.startup_h + n * case.tolerance * run.start.ready_s / HOUR_S,
        traffic=traffic(run, boot_of(run, capabilities), policy),
    )


def _scenario(work_h: Decimal, policy: Policy, billing: BillingRule, n: int, boot_s: Decimal) -> Scenario:
    # Hours have six places, so ten minutes are a thousandth of a second more, and no eleventh minute.
    run_s = money.half_up(work_h * HOUR_S, 2)
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


def _by_the_hour(work_h: Decimal, policy: Policy, billing: BillingRule, boot_s: Decimal) -> Scenario:
    """Return what is expected of a rental by the hour: its bill from the create to the end of its hours.

    Booting is part of the hours. Where a cloud bills from the running machine on, only the disk is billed meanwhile;
    of a very short rental booting is counted as half at most.
    """
    case = _scenario(work_h, policy, billing, 1, _ZERO)
    if billing.starts is BillingStart.RUNNING:
        gpu_h = work_h - min(boot_s / HOUR_S, work_h / 2)
        case = replace(case, compute_h=gpu_h, startup_h=_scenario(gpu_h, policy, billing, 1, _ZERO).startup_h)
    return replace(case, retries=_ZERO, interruptions=_ZERO)


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
    chance = chance_in(offer, case, policy)
    sent = max(offer.egress_usd_gb, _ZERO) * sent_gb(offer, chance, case)
    fetched = max(offer.ingress_usd_gb, _ZERO) * case.ingress_gb
    amounts = (
        rate * case.compute_h,
        storage_rate * case.storage_h + case.store_usd,
        rate * (case.startup_h + fetching_h(offer, case)),
        sent + fetched + case.source_usd,
        work * case.retries,
        work * lost_share(offer, chance, case),
    )
    return tuple(map(money.amount, amounts))


def reliability(offer: Offer, policy: Policy) -> Decimal:
    """Return the offer's reliability between 0 and 1, or what the policy assumes where its cloud reports none.

    What own sessions on its host showed is blended with it.
    """
    if offer.reliability is not None and offer.reliability.is_finite():
        said = min(max(offer.reliability, Decimal(0)), Decimal(1))
    else:
        said = policy.assumed_datacenter_reliability if offer.datacenter else policy.assumed_reliability
    return said if offer.own is None else blended(said, offer.own, policy.loss_window_h)


def loss_chance(offer: Offer, policy: Policy) -> Decimal:
    """Return the chance between 0 and 1 that the host is lost within the policy's `loss_window_h`."""
    chance = 1 - reliability(offer, policy)
    return min(chance + policy.spot_interruption, Decimal(1)) if offer.spot else chance


def chance_in(offer: Offer, case: Scenario, policy: Policy) -> Decimal:
    """Return the same chance, pooled with the losses that own sessions at the cloud had, for a described run."""
    chance = loss_chance(offer, policy)
    if case.traffic is None:
        return chance
    return case.traffic.start.lost(spot=offer.spot).chance(chance, case.window_h)


def boot_of(run: RunTime, capabilities: Capabilities) -> Decimal:
    """Return the seconds that a machine boots: the cloud's typical ones, pooled with own sessions."""
    return Decimal(capabilities.boot_expected_s) if run.start.boot_s is None else run.start.boot_s


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
