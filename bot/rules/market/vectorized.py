"""Compare all offers that fit a job at once: sums in floating point, each with a bound of its rounding.

The exact order is `market.scoring`'s. Here every offer gets an interval that its exact total with the penalty lies in.
Offers whose intervals do not touch are in the same order when they are exact; the others are scored exactly, so that no
result depends on floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from bot.rules.market.columns import Flags, Floats, Indices, Prices, column, examples, flags
from bot.rules.market.host_speeds import by_host
from bot.rules.market.parts import reliability
from bot.rules.market.scoring import (
    LATE,
    TIERS,
    Case,
    Cases,
    Scored,
    expected_losses,
    needed_s,
    score,
    stock_rank,
    unsuited,
)
from bot.rules.market.traffic import GB_H_PER_MBPS, RunTraffic
from bot.rules.policy.policy import Policy
from bot.rules.sizing.interruptions import ManyLosses, many_losses, rates_per_h
from bot.rules.sizing.start_times import LOSS_PRIOR_H, Losses
from providers.contract import Offer

#: More than exact parts can differ from unrounded ones: six parts and the penalty, each rounded to a micro-dollar.
_ROUNDING_USD = 8e-6
#: More than a sum of these few products can be off in floating point, as a share of the greatest product.
_FLOAT_SHARE = 1e-12
#: More than a share of lost work, a chance, or a number of losses or checkpoints an hour can be off: each is rounded to
#: nine places.
_LOSS_SHARE = 2e-9


@dataclass(frozen=True, slots=True)
class _Totals:
    """Hold per offer the expected totals without and with the penalty, and a bound of their rounding, in dollars.

    Beside them are the losses that are expected during the run and its wall-clock hours, each with a bound of its
    rounding, and whether it is a spot offer.
    """

    expected: Floats
    total: Floats
    off: Floats
    losses: Floats
    losses_off: Floats
    wall: Floats
    wall_off: Floats
    spot: Flags

    def only(self, kept: Flags) -> _Totals:
        """Keep only the totals of some offers."""
        names = ("expected", "total", "off", "losses", "losses_off", "wall", "wall_off", "spot")
        return _Totals(*(getattr(self, name)[kept] for name in names))


class Field:
    """Hold the offers that fit a job, and look them up by their place in the market that was given.

    `left_out` holds the reason for those that only their time or their total left out.
    """

    def __init__(self, market: Sequence[Offer], prices: Prices, places: Indices, kinds: Indices, cases: Cases) -> None:
        self._market = market
        self._cases = cases
        self._exact: dict[int, Scored] = {}
        self.left_out: dict[int, str] = {}
        first, kind = examples(by_host(market, kinds) if cases.by_host else kinds, places)
        every = [cases.of(market[place]) for place in first]
        kept = self._suited(places, every, kind)
        self._places, kind = places[kept], kind[kept]
        self._totals = _totals(market, prices, self._places, every, kind, cases.policy)
        if cases.job.budget_cap_usd is not None:
            kept = self._affordable(cases.job.budget_cap_usd)
            self._places, kind = self._places[kept], kind[kept]
            self._totals = self._totals.only(kept)
        self._every, self._kind = every, kind
        self._prices = prices.price.floats[self._places]
        self._tiers = self._with_late(np.array([case.tier for case in every], dtype=np.intp)[kind])
        self._low = self._totals.total - self._totals.off
        self._high = self._totals.total + self._totals.off

    def __len__(self) -> int:
        """Count the offers that fit."""
        return len(self._places)

    def _suited(self, places: Indices, every: Sequence[Case], kind: Indices) -> Flags:
        """Flag the offers whose time and memory suit the work."""
        if all(case.run is None for case in every):
            return np.ones(len(places), dtype=np.bool_)
        needed = np.array([0.0 if case.run is None else float(needed_s(case.run)) for case in every])
        wrong = flags(case.run is not None and not case.run.fits for case in every)
        offers = [self._market[place] for place in places.tolist()]
        available, memory = column(offers, "available_for_s"), column(offers, "ram_gb")
        doubtful = wrong[kind] | ~(np.isnan(available.floats) | available.at_least(needed[kind]))
        host = np.array([float(case.host_gb) for case in every])
        unsaid = np.isnan(memory.floats) & ~flags(case.offloads for case in every)[kind]
        doubtful |= ~(unsaid | memory.at_least(host[kind]))
        judged = {at: unsuited(self._market[places[at]], every[kind[at]]) for at in np.flatnonzero(doubtful).tolist()}
        doubtful[[*judged]] = [code is not None for code in judged.values()]
        self.left_out |= {int(places[at]): code for at, code in judged.items() if code is not None}
        return ~doubtful

    def _with_late(self, tiers: Indices) -> Indices:
        """Move the offers to the tier of late ones on which the run is expected to miss its time, exactly."""
        if all(case.ends_h is None for case in self._every):
            return tiers
        ends = np.array([math.inf if case.ends_h is None else float(case.ends_h) for case in self._every])[self._kind]
        wall, off = self._totals.wall, self._totals.wall_off
        late = wall > ends
        for at in np.flatnonzero(np.abs(wall - ends) <= off).tolist():
            late[at] = self._score(at).order[0] % TIERS == LATE
        return np.where(late, tiers - tiers % TIERS + LATE, tiers)

    def _affordable(self, budget_usd: Decimal) -> Flags:
        """Flag the offers whose exact expected totals are inside the budget."""
        limit = float(budget_usd)
        expected, off = self._totals.expected, self._totals.off + _FLOAT_SHARE * limit
        inside = expected + off <= limit
        for at in np.flatnonzero(np.abs(expected - limit) < off).tolist():
            inside[at] = self._score(at).expected_usd <= budget_usd
        for at in np.flatnonzero(~inside).tolist():
            self.left_out[int(self._places[at])] = "budget"
        self._exact.clear()
        return inside

    def _score(self, at: int) -> Scored:
        found = self._exact.get(at)
        if found is None:
            found = self._exact[at] = score(self._market[self._places[at]], self._cases)
        return found

    def cheapest(self, count: int) -> list[Scored]:
        """Return the first `count` in the exact order."""
        first: list[Scored] = []
        for tier in np.unique(self._tiers):
            first += self._least(np.flatnonzero(self._tiers == tier), count - len(first))
            if len(first) == count:
                break
        return first

    def _least(self, among: Indices, count: int) -> list[Scored]:
        """Return the first `count` of some offers of one tier, in the exact order."""
        if len(among) > count:
            last = np.partition(self._high[among], count - 1)[count - 1]
            among = among[self._low[among] <= last]
        return sorted((self._score(at) for at in among.tolist()), key=by_order)[:count]

    def cheapest_kind(self, *, spot: bool, free: frozenset[str]) -> Scored | None:
        """Return the first of the spot offers, or of the others, in the exact order, without those of `free` clouds."""
        among = np.flatnonzero(self._totals.spot == spot)
        among = np.compress(flags(one.cloud not in free for one in self._offers(among)), among)
        if not len(among):
            return None
        (best,) = self._least(among[self._tiers[among] == self._tiers[among].min()], 1)
        return best

    def ordered(self) -> tuple[list[Offer], Floats]:
        """Return all of them in the exact order, and their prices per hour; only those that may tie are scored."""
        found = [self._in_order(np.flatnonzero(self._tiers == tier)) for tier in np.unique(self._tiers)]
        places = np.concatenate(found) if found else np.zeros(0, dtype=np.intp)
        return self._offers(places), self._prices[places]

    def _in_order(self, among: Indices) -> Indices:
        """Sort some offers of one tier exactly: those whose intervals touch are scored, the others are apart."""
        among = among[np.argsort(self._low[among], kind="stable")]
        reached = np.maximum.accumulate(self._high[among])
        apart = np.flatnonzero(self._low[among][1:] > reached[:-1]) + 1
        bounds = np.concatenate(([0], apart, [len(among)]))
        for at in np.flatnonzero(np.diff(bounds) > 1).tolist():
            touching = slice(bounds[at], bounds[at + 1])
            among[touching] = sorted(among[touching].tolist(), key=lambda one: self._score(one).order)
        return among

    def stable(self) -> tuple[int, Scored]:
        """Return the cheapest of the most stable offers of the first tier, and its place in the exact order, from 0.

        The most stable ones are those whose host is least likely lost during this run.
        """
        tier = self._tiers.min()
        among = np.flatnonzero(self._tiers == tier)
        spot = self._totals.spot[among]
        among = self._trusted(among if spot.all() else among[~spot])
        known = np.fromiter(map(_stability, self._offers(among)), np.intp)
        (best,) = self._least(among[known == known.max()], 1)
        return self._place(best, tier), best

    def _trusted(self, among: Indices) -> Indices:
        """Keep those of some offers that expect the fewest losses during the run, exactly."""
        about, off = self._totals.losses[among], self._totals.losses_off[among]
        near = among[about - off <= (about + off).min()]
        said = [expected_losses(one, self._cases) for one in self._offers(near)]
        least = min(said)
        return np.compress(flags(one == least for one in said), near)

    def _offers(self, among: Indices) -> list[Offer]:
        return [self._market[place] for place in self._places[among].tolist()]

    def fastest(self) -> tuple[int, Scored] | None:
        """Return the cheapest of the offers that are done first, and its place; None where no time is known.

        Where the memory is tight, the run may not be done at all.
        """
        times = [
            case.run.hours.expected if case.run is not None and case.run.known and not case.tight else None
            for case in self._every
        ]
        present = [(time, n) for n in np.unique(self._kind) if (time := times[n]) is not None]
        if not present:
            return None
        least = min(time for time, _ in present)
        among = np.flatnonzero(np.isin(self._kind, [n for time, n in present if time == least]))
        tier = self._tiers[among].min()
        (best,) = self._least(among[self._tiers[among] == tier], 1)
        return self._place(best, tier), best

    def _place(self, found: Scored, tier: np.intp) -> int:
        total = float(found.total_usd)
        before = int(np.count_nonzero(self._tiers < tier))
        same = np.flatnonzero(self._tiers == tier)
        margin = _FLOAT_SHARE * abs(total)
        below = self._high[same] < total - margin
        near = same[~below & (self._low[same] <= total + margin)]
        return before + int(below.sum()) + sum(self._score(at).order < found.order for at in near.tolist())


def by_order(one: Scored) -> tuple[Decimal | int | str, ...]:
    """Return the key to sort scored offers by."""
    return one.order


def _stability(offer: Offer) -> int:
    """Rank the stability of equally reliable offers: by their datacenter, then a check, then their stock."""
    return 100 * int(offer.datacenter or 0) + 10 * int(offer.verified or 0) + stock_rank(offer.stock)


def _trust(offers: Sequence[Offer], said: Floats, policy: Policy) -> Floats:
    """Compute `market.parts.reliability` of all offers; those on hosts that own sessions used are few."""
    centre, other = float(policy.assumed_datacenter_reliability), float(policy.assumed_reliability)
    assumed = np.fromiter((centre if one.datacenter else other for one in offers), np.float64)
    trust = np.where(np.isfinite(said), np.clip(said, 0.0, 1.0), assumed)
    for at in [at for at, one in enumerate(offers) if one.own is not None]:
        trust[at] = float(reliability(offers[at], policy))
    return trust


def _totals(
    market: Sequence[Offer], prices: Prices, places: Indices, every: Sequence[Case], kind: Indices, policy: Policy
) -> _Totals:
    """Sum `estimate.parts` and the penalty of `scoring` for all offers, without rounding."""

    def of(number: Callable[[Case], Decimal | float]) -> Floats:
        return np.array([float(number(case)) for case in every], dtype=np.float64)[kind]

    offers = [market[place] for place in places.tolist()]
    price = prices.price.floats[places]
    stored = np.clip(prices.storage.floats[places], 0.0, price)
    hourly = price - stored
    said = prices.reliability.floats[places]
    spot = flags(one.spot for one in offers)
    chance = 1 - _trust(offers, said, policy)
    chance = np.where(spot, np.minimum(chance + float(policy.spot_interruption), 1.0), chance)
    rates = _pooled(rates_per_h(chance, policy.loss_window_h), spot, every, kind, policy)
    work = of(lambda case: case.scenario.work_h)
    during = -np.expm1(-rates * work)
    moved = _moved(offers, rates, every, kind)
    shares = of(lambda case: case.scenario.interruptions), of(lambda case: case.scenario.spot_interruptions)
    repeated = np.where(spot, shares[1], shares[0]) * work
    lost = repeated * np.where(moved.known, 2 * moved.lost.share, during)
    hours = of(lambda case: case.scenario.compute_h + case.scenario.startup_h) + moved.fetch_h + lost
    hours += work * of(lambda case: case.scenario.retries)
    before_h = of(_before_h) + moved.fetch_h
    storing = of(lambda case: case.scenario.storage_h)
    risk = np.where(spot, of(lambda case: case.spot_risk_h), of(lambda case: case.risk_h))
    egress = np.maximum(prices.egress.floats[places], 0.0)
    checkpoints = np.where(moved.known, np.maximum(moved.lost.written_per_h * work, 1.0), 1.0) * moved.checkpoint_gb
    rest = of(lambda case: case.scenario.store_usd + case.scenario.source_usd)
    rest += egress * (of(lambda case: case.scenario.egress_gb) + checkpoints)
    rest += np.maximum(prices.ingress.floats[places], 0.0) * of(lambda case: case.scenario.ingress_gb)
    expected = hourly * hours + stored * storing + rest
    off = _ROUNDING_USD + _FLOAT_SHARE * (price * (hours + storing + risk + work) + rest)
    off += _LOSS_SHARE * (2 * repeated * hourly + risk * hourly + egress * moved.checkpoint_gb * work)
    losses = rates * work
    losses_off = _LOSS_SHARE * work + _FLOAT_SHARE * losses
    wall = work + before_h + np.where(moved.known, repeated * 2 * moved.lost.share, 0.0)
    wall_off = _LOSS_SHARE * 2 * work + _FLOAT_SHARE * wall
    return _Totals(expected, expected + risk * during * hourly, off, losses, losses_off, wall, wall_off, spot)


def _before_h(case: Case) -> Decimal:
    """Return the hours from the launch to the first step, without those in which weights and data are fetched."""
    run = case.scenario.traffic
    return Decimal(0) if run is None else run.boot_h + run.ready_h


def _pooled(rates: Floats, spot: Flags, every: Sequence[Case], kind: Indices, policy: Policy) -> Floats:
    """Compute `parts.chance_in` as losses an hour for all offers: pooled with the losses that own sessions had."""
    starts = [None if case.scenario.traffic is None else case.scenario.traffic.start for case in every]
    if not any(start is not None and (start.losses.known or start.spot_losses.known) for start in starts):
        return rates
    lost = [[Losses() if one is None else one.lost(spot=is_spot) for one in starts] for is_spot in (False, True)]
    count, hours = (
        np.where(spot, *(np.array([float(getattr(one, name)) for one in lost[is_spot]])[kind] for is_spot in (1, 0)))
        for name in ("count", "hours")
    )
    pooled = (rates * LOSS_PRIOR_H + count) / (LOSS_PRIOR_H + hours)
    # As with any other chance, what is more than the bound of the arithmetic counts as it.
    most = float(rates_per_h(np.ones(1), policy.loss_window_h)[0])
    return np.where((count > 0) | (hours > 0), np.minimum(pooled, most), rates)


@dataclass(frozen=True, slots=True)
class _Moved:
    """Hold per offer what its run moves: hours to fetch, GB of a checkpoint, and what losses cost where that is known.

    This is `market.traffic` for all offers at once.
    """

    fetch_h: Floats
    checkpoint_gb: Floats
    lost: ManyLosses
    known: Flags


def _moved(offers: Sequence[Offer], rates: Floats, every: Sequence[Case], kind: Indices) -> _Moved:
    runs = [case.scenario.traffic for case in every]
    if all(run is None for run in runs):
        none = np.zeros(len(offers))
        return _Moved(none, none, ManyLosses(none, none), np.zeros(len(offers), dtype=np.bool_))

    def of(number: Callable[[RunTraffic], Decimal | None]) -> Floats:
        read = (None if run is None else number(run) for run in runs)
        return np.array([math.nan if one is None else float(one) for one in read])[kind]

    unsaid = of(lambda run: run.unsaid_gb_h)
    up, down = (_rate(column(offers, name).floats, unsaid) for name in ("upload_mbps", "download_mbps"))
    size = of(lambda run: run.checkpoint_gb)
    write = size / up
    pause = np.maximum(of(lambda run: run.every_h), write)
    times = np.array([float(case.scenario.times * case.scenario.tolerance) for case in every])[kind]
    return _Moved(
        fetch_h=times * of(lambda run: run.fetched_gb) / down,
        checkpoint_gb=size,
        lost=many_losses(rates, write, of(lambda run: run.restart_h) + size / down, pause),
        known=flags(run is not None and run.known for run in runs)[kind],
    )


def _rate(mbps: Floats, unsaid: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(mbps) & (mbps > 0), mbps * float(GB_H_PER_MBPS), unsaid)
