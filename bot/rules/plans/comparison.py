"""Compare a run's cost on every GPU: how many runs a budget buys, and what a success is worth.

    cost of a run  = price x hours x (1 + buffer), rounded half up to cents
    runs           = floor(budget / cost of a run)
    per success    = cost of a run / success rate, rounded to cents
    successes      = runs x success rate, rounded half up
    return         = (value - per success) / per success
    net            = successes x value - budget

All amounts are `Decimal` dollars, so that each of these can be checked by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal

from bot.rules.plans.environments import ENVIRONMENTS, Environment
from bot.rules.pricing.spend_limits import bad_price
from bot.rules.values.phrases import plural
from ledger.kernel import money
from providers.contract import Offer
from providers.gpus.table import GPUS

PLAIN_BUFFER = Decimal("0.10")
PLAIN_BUDGETS = (Decimal(500), Decimal(5000))


@dataclass(frozen=True, slots=True)
class PricedGpu:
    """Describe one GPU to compare, with its prices in dollars per hour for one, at the cheapest cloud that has it."""

    gpu: str
    memory_gb: int
    spot_usd_h: Decimal | None
    on_demand_usd_h: Decimal | None
    spot_where: str = ""
    on_demand_where: str = ""
    environment: Environment | None = None


@dataclass(frozen=True, slots=True)
class ComparisonQuestion:
    """Say what to compare: budgets in dollars, hours of one run, and the share kept for retries and restarts.

    `baseline_usd_h` is the price that savings are measured against. `success_rate` between 0 and 1 and `value_usd` of
    one success add the last columns.
    """

    hours: Decimal
    budgets_usd: tuple[Decimal, ...] = PLAIN_BUDGETS
    buffer: Decimal = PLAIN_BUFFER
    baseline_usd_h: Decimal | None = None
    success_rate: Decimal | None = None
    value_usd: Decimal | None = None

    def checked(self) -> ComparisonQuestion:
        """Return this question, or raise ValueError with one sentence that shows a right one."""
        numbers = (self.hours, self.buffer, *self.budgets_usd)
        if not all(number.is_finite() for number in numbers) or not 0 < self.hours <= 100_000:
            raise ValueError("The hours of a run must be above 0 and at most 100,000, for example hours=1.")
        if not self.budgets_usd or not all(0 < budget <= 10**12 for budget in self.budgets_usd):
            raise ValueError("A budget must be above $0, for example budget=500.")
        if not 0 <= self.buffer <= 10:
            raise ValueError("The buffer must lie between 0 and 10, for example 0.10 for a tenth.")
        if self.success_rate is not None and not 0 < self.success_rate <= 1:
            raise ValueError("The success rate must be above 0 and at most 1, for example 0.8.")
        if self.value_usd is not None and not (self.value_usd.is_finite() and self.value_usd >= 0):
            raise ValueError("The value of a success must not be negative, for example $1,000.")
        return self


@dataclass(frozen=True, slots=True)
class RunsPerBudget:
    """Say what one budget buys: runs, their hours and, where known, successes and the net of the whole budget."""

    budget_usd: Decimal
    runs: int
    training_hours: Decimal
    successes: int | None
    net_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class PerRun:
    """Hold the results at one price: dollars per run and what each budget buys.

    Savings against the baseline are in percent (negative: more expensive), as is the return on a success.
    """

    price_usd_h: Decimal
    cost_usd: Decimal
    budgets: tuple[RunsPerBudget, ...]
    savings_percent: Decimal | None
    per_success_usd: Decimal | None
    roi_percent: Decimal | None


@dataclass(frozen=True, slots=True)
class ComparedGpu:
    """Hold one line of the table. A side is None where that way of buying has no usable price."""

    option: PricedGpu
    spot: PerRun | None
    on_demand: PerRun | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold the whole table, cheapest run first, then what cannot be rented here; `notes` report bad data."""

    question: ComparisonQuestion
    clouds: tuple[ComparedGpu, ...]
    elsewhere: tuple[ComparedGpu, ...]
    notes: tuple[str, ...]


def per_run(price_usd_h: Decimal, question: ComparisonQuestion) -> PerRun:
    """Compute the results at one price above zero; a run costs at least a cent, so no budget buys endless runs."""
    cost = run_cost(price_usd_h, question)
    rate, value = question.success_rate, question.value_usd
    each = None if rate is None else money.cents(cost / rate)
    roi = None if each is None or value is None else money.half_up((value - each) / each * 100, 1)
    savings = None
    if question.baseline_usd_h is not None:
        base = run_cost(question.baseline_usd_h, question)
        savings = money.half_up((base - cost) / base * 100, 1)
    lines = tuple(_line(budget, cost, question) for budget in question.budgets_usd)
    return PerRun(price_usd_h, cost, lines, savings, each, roi)


def run_cost(price_usd_h: Decimal, question: ComparisonQuestion) -> Decimal:
    """Return the dollars of one run: price x hours with the buffer, in whole cents, at least one."""
    return max(money.cents(price_usd_h * question.hours * (1 + question.buffer)), money.CENT)


def _line(budget: Decimal, cost: Decimal, question: ComparisonQuestion) -> RunsPerBudget:
    runs = int((budget / cost).to_integral_value(rounding=ROUND_FLOOR))
    rate, value = question.success_rate, question.value_usd
    successes = None if rate is None else int((runs * rate).to_integral_value(rounding=ROUND_HALF_UP))
    net = None if successes is None or value is None else successes * value - budget
    return RunsPerBudget(budget, runs, runs * question.hours, successes, net)


def compare(
    priced: Iterable[PricedGpu], question: ComparisonQuestion, environments: Sequence[Environment] = ENVIRONMENTS
) -> Comparison:
    """Compare prices for `question`. Missing, zero or negative prices are left out and counted in a note."""
    question.checked()
    rows, bad = [], 0
    for option in priced:
        row = _compared(option, question)
        bad += row is None
        rows += [] if row is None else [row]
    rows.sort(key=_order)
    elsewhere = [
        _compared(_as_priced(one), question) or ComparedGpu(_as_priced(one), None, None) for one in environments
    ]
    notes = (f"{plural(bad, 'GPU')} skipped: no valid price.",) if bad else ()
    return Comparison(question, tuple(rows), tuple(elsewhere), notes)


def _compared(option: PricedGpu, question: ComparisonQuestion) -> ComparedGpu | None:
    spot, on_demand = (
        None if bad_price(price, free=False) or price is None else per_run(price, question)
        for price in (option.spot_usd_h, option.on_demand_usd_h)
    )
    return None if spot is None and on_demand is None else ComparedGpu(option, spot, on_demand)


def _order(row: ComparedGpu) -> tuple[Decimal, Decimal, str]:
    sides = [side for side in (row.spot, row.on_demand) if side is not None]
    cheapest = min(sides, key=lambda side: side.price_usd_h)
    return cheapest.cost_usd, cheapest.price_usd_h, row.option.gpu


def _as_priced(one: Environment) -> PricedGpu:
    return PricedGpu(one.gpu, one.memory_gb, one.spot_usd_h, one.price_usd_h, one.name, one.name, one)


def cheapest(offers: Iterable[Offer], free: frozenset[str] = frozenset()) -> tuple[PricedGpu, ...]:
    """Find the cheapest spot and on-demand price per GPU of what is for sale, divided by the number of GPUs.

    Clouds in `free` are left out, since nothing is paid there; so are offers without a usable price.
    """
    best: dict[tuple[str, bool], tuple[Decimal, str, Decimal]] = {}
    for offer in offers:
        price = offer.price_usd_h
        if offer.cloud in free or price is None or bad_price(price, free=False) or offer.gpu_count < 1:
            continue
        each = price / offer.gpu_count
        key = offer.gpu, offer.spot
        if key not in best or (each, offer.cloud) < best[key][:2]:
            best[key] = each, offer.cloud, offer.memory_gb
    return tuple(
        _priced(gpu, best.get((gpu, True)), best.get((gpu, False))) for gpu in sorted({gpu for gpu, _ in best})
    )


_Found = tuple[Decimal, str, Decimal]


def _priced(gpu: str, spot: _Found | None, on_demand: _Found | None) -> PricedGpu:
    reported = max(found[2] for found in (spot, on_demand) if found is not None)
    memory = GPUS[gpu].memory_gb if gpu in GPUS else int(reported)
    return PricedGpu(
        gpu=gpu,
        memory_gb=memory,
        spot_usd_h=spot[0] if spot else None,
        on_demand_usd_h=on_demand[0] if on_demand else None,
        spot_where=spot[1] if spot else "",
        on_demand_where=on_demand[1] if on_demand else "",
    )
