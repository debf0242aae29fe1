"""The one place where plans and comparisons are made, so that every door shows the same numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bot.rules.comparison import Comparison, Question, cheapest, compare
from bot.rules.policy import Policy
from bot.rules.spend import bad_price
from bot.rules.wording import plural
from bot.services.catalog import Catalog, CloudAnswer
from ledger.values import Clock, GpuConstraint, JobRequest, SpotPolicy


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison with what is behind it: how each cloud answered, and how old the prices are."""

    found: Comparison
    answers: tuple[CloudAnswer, ...]
    ages: tuple[str, ...]

    @property
    def absent(self) -> tuple[str, ...]:
        """What is said about the clouds that did not answer."""
        return tuple(one.sentence for one in self.answers if not one.ok)


async def compare_market(catalog: Catalog, clock: Clock, question: Question, policy: Policy) -> Compared:
    """Every GPU for sale now, at the cheapest place that has it, beside what cannot be rented here."""
    everything = JobRequest(GpuConstraint((), 1, policy.max_gpus), question.hours, spot=SpotPolicy.ANY)
    market = await catalog.market(everything, policy.disk_gb("", None))
    free = frozenset(cloud for cloud, able in catalog.capabilities.items() if able.free)
    wanted = [one for one in market.offers if one.gpu not in policy.blocked_gpus]
    found = compare(cheapest(wanted, free), question)
    unusable = sum(bad_price(one.price_usd_h, free=False) for one in wanted if one.cloud not in free)
    if unusable:
        note = f"{plural(unusable, 'offer')} left out: no usable price (missing, zero or negative)."
        found = replace(found, notes=(*found.notes, note))
    ages = tuple(one.age(clock.now()) for one in market.answers if one.ok)
    return Compared(found, market.answers, ages)
