"""The comparison of the market: what the policy blocks is not in it, whatever it blocks it by."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.plans.comparison import ComparisonQuestion, PricedGpu
from bot.rules.policy.policy import Policy
from bot.services.plans import planner
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint
from tests.support.world import World

HOUR = ComparisonQuestion(Decimal(1))
EVERYTHING = JobRequest(GpuConstraint((), 1, 16), Decimal(1), spot=SpotPolicy.ANY)


async def compared(w: World, policy: Policy) -> dict[str, PricedGpu]:
    found = await planner.compare_market(w.ctx.catalog, w.ctx.clock, HOUR, policy)
    return {row.option.gpu: row.option for row in found.found.clouds}


async def sold(w: World, gpu: str) -> list[Offer]:
    """What is for sale of one GPU, the cheapest per GPU first; what has no usable price is left out."""
    market = await w.ctx.catalog.market(EVERYTHING, w.ctx.policy.disk_gb("", None))
    priced = [one for one in market.offers if one.gpu == gpu and one.price_usd_h and one.price_usd_h > 0]
    return sorted(priced, key=lambda one: (one.price_usd_h or Decimal(0)) / one.gpu_count)


async def test_a_blocked_gpu_is_not_compared(w: World) -> None:
    policy = replace(w.ctx.policy, blocked_gpus=("RTX4090",))
    assert "RTX4090" in await compared(w, w.ctx.policy)
    assert "RTX4090" not in await compared(w, policy)


async def test_a_blocked_country_is_not_compared(w: World) -> None:
    offers = await sold(w, "RTX4090")
    countries = {one.country for one in offers if one.country}
    assert countries
    policy = replace(w.ctx.policy, blocked_countries=tuple(sorted(countries)))
    left = [one for one in offers if not one.country and not any(c in one.region.upper() for c in countries)]
    row = (await compared(w, policy)).get("RTX4090")
    prices = {row.spot_usd_h, row.on_demand_usd_h} - {None} if row else set()
    assert prices <= {(one.price_usd_h or Decimal(0)) / one.gpu_count for one in left}
    assert row != (await compared(w, w.ctx.policy))["RTX4090"]


async def test_a_blocked_host_is_not_compared(w: World) -> None:
    before = await compared(w, w.ctx.policy)
    offers = [one for gpu in before for one in await sold(w, gpu)]
    first = next(one for one in offers if one.machine_id and _leads(one, before[one.gpu]))
    policy = replace(w.ctx.policy, blocked_hosts=(f"{first.cloud}:{first.machine_id}",))
    row = (await compared(w, policy)).get(first.gpu)
    assert row is None or not _leads(first, row)


def _leads(one: Offer, row: PricedGpu) -> bool:
    """Whether a line of the table shows this offer's price."""
    price = row.spot_usd_h if one.spot else row.on_demand_usd_h
    return price == (one.price_usd_h or Decimal(0)) / one.gpu_count
