"""Make plans and comparisons in one place, so that every client shows the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.facets.work import workload_of
from bot.rules.jobs.job import JobRequest
from bot.rules.market.alternatives import alternatives
from bot.rules.market.disk import disk_gb, disk_sentence
from bot.rules.market.filters import blocked, excluded
from bot.rules.market.model_for_budget import Sized
from bot.rules.market.own_history import OwnHistory
from bot.rules.market.ranking import Ranked, RankedOption, rank
from bot.rules.market.relaxation import Relaxation
from bot.rules.plans.comparison import Comparison, ComparisonQuestion, cheapest, compare
from bot.rules.plans.environments import ENVIRONMENTS, outdated
from bot.rules.policy.policy import Policy
from bot.rules.pricing.hours_cap import rented
from bot.rules.pricing.spend_limits import bad_price
from bot.rules.sizing import model_config
from bot.rules.sizing.unsaid import assumed, unknown
from bot.rules.sizing.workload import Workload, architecture
from bot.rules.values.reply_code import ReplyCode
from bot.services.market.answers import (
    CloudAnswer,
    absent,
    most_answered,
    nothing_found,
    refusals,
    still_reading,
    without_key,
)
from bot.services.market.catalog import USUAL_S, Catalog
from bot.services.runtime.commands import Reply, refuse
from ledger.kernel.clock import Clock
from providers.capabilities import Capabilities
from providers.contract import Offer
from providers.gpus.constraint import GpuConstraint

#: So many offers are shown of a lighter method than the one that was asked for.
METHOD_OPTIONS = 2


@dataclass(frozen=True, slots=True)
class LighterMethod:
    """A lighter method than the one that was asked for: its heading, the word that asks for it, and its best offers."""

    heading: str
    word: str
    options: tuple[RankedOption, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan: the ranked offers for a job, the assumptions, the unknowns, and the changes that would let offers fit.

    `capabilities` is what the recommended option's cloud can do, None when nothing fits. `methods` are lighter ways to
    do the run, each with a table of its own. `sized` has the models that a budget trains, where the plan chose the
    model: then the rest is the plan of the first of them.
    """

    job: JobRequest
    work: Workload | None
    ranked: Ranked
    answers: tuple[CloudAnswer, ...]
    ages: tuple[str, ...]
    relaxations: tuple[Relaxation, ...]
    capabilities: Capabilities | None
    made_at: datetime
    methods: tuple[LighterMethod, ...] = ()
    sized: Sized | None = None

    @property
    def best(self) -> RankedOption | None:
        """Return the recommended option."""
        return self.ranked.options[0] if self.ranked.options else None

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return what was assumed because the job did not say it."""
        return (*assumed(self.work), disk_sentence(self.job)) if self.work is not None else ()

    @property
    def skipped(self) -> tuple[str, ...]:
        """Return what was left out and why; a cheaper offer that cannot run it comes first."""
        cheaper = (self.ranked.refused,) if self.ranked.refused else ()
        return (*cheaper, *(one.sentence for one in self.ranked.excluded))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return what the plan cannot know about the run."""
        return unknown(self.work) if self.work is not None else ()

    @property
    def absent(self) -> tuple[str, ...]:
        """Return the sentences about the clouds whose offers are unknown."""
        return absent(self.answers)

    @property
    def nothing(self) -> str:
        """Say that no offer fits, after the clouds that did not answer; empty where one fits."""
        return "" if self.ranked.options else nothing_found(self.answers)


async def plan(
    catalog: Catalog, clock: Clock, job: JobRequest, policy: Policy, *, patience_s: float | None = USUAL_S
) -> Planned:
    """Rank the market for `job`.

    When nothing fits, the clouds are queried once more for the offers that one limit hides. A model that is not known
    here is looked up on the Hub, and its numbers become words of the job. `patience_s` as in `Catalog.market`.
    """
    job = await described(catalog, job)
    job = replace(job, disk_gb=disk_gb(job, policy))
    market = await catalog.market(job, job.disk_gb, policy=policy, patience_s=patience_s)
    able = catalog.capabilities
    own = await catalog.own_history()
    proof = market.completeness.proof
    ranked = rank(market.offers, job, policy, able, proof=proof, own=own)
    methods = []
    for one in alternatives(job, policy):
        found = rank(market.offers, one.job, policy, able, proof=proof, top=METHOD_OPTIONS, own=own)
        methods += [LighterMethod(one.heading, one.word, found.options)] if found.options else []
    advised = not ranked.options and most_answered(market.answers)
    relaxations = await catalog.openings(job, policy, own=own) if advised else ()
    now = clock.now()
    return Planned(
        job=job,
        work=workload_of(job),
        ranked=ranked,
        answers=market.answers,
        ages=tuple(one.age(now) for one in market.answers if one.ok),
        relaxations=relaxations,
        capabilities=able[ranked.options[0].offer.cloud] if ranked.options else None,
        made_at=now,
        methods=tuple(methods),
    )


async def described(catalog: Catalog, job: JobRequest) -> JobRequest:
    """Return the job with the shape of its model as words, where only the Hub knows the model."""
    work = workload_of(job)
    if work is None or work.model is None or architecture(work) is not None:
        return job
    config = await catalog.read_model(work.model)
    found = model_config.shape(work.model, config) if config is not None else None
    return job if found is None else replace(job, work=(*job.work, *model_config.words(found)))


async def rented_hours(catalog: Catalog, clock: Clock, job: JobRequest, policy: Policy) -> JobRequest | Reply:
    """Return `job` with the hours that its work may take on the recommended option, or why there are none.

    An approval covers a time, so a described run is rented for its worst case there.
    """
    planned = await plan(catalog, clock, job, policy)
    if planned.best is None and still_reading(planned.answers):
        planned = await plan(catalog, clock, job, policy, patience_s=None)  # Only the whole market refuses a run.
    best = planned.best
    if best is None:
        reasons = [one.sentence for one in planned.relaxations[:1]]
        reasons += planned.skipped
        lead = nothing_found(planned.answers, "No offer fits this run now.", "No offer that was read fits this run.")
        return refuse(ReplyCode.NOTHING_FITS, " ".join([lead, *reasons, *refusals(planned.answers)]))
    worst_h = best.estimate.worst_hours
    if worst_h is None:
        return refuse(ReplyCode.TIME_UNKNOWN, f"Say for how long, such as 6h. {' '.join(best.estimate.unknown)}")
    return replace(planned.job, hours=rented(worst_h))


def rented_on(
    offers: Iterable[Offer], job: JobRequest, policy: Policy, able: Mapping[str, Capabilities], own: OwnHistory
) -> JobRequest:
    """Return a described job with the hours that its work may take on the option that is recommended of these offers.

    Its own hours stay where nothing fits.
    """
    options = rank(offers, job, policy, able, proof=None, top=1, own=own).options
    worst_h = options[0].estimate.worst_hours if options else None
    return job if worst_h is None else replace(job, hours=rented(worst_h))


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison with how each cloud answered and how old the prices are."""

    found: Comparison
    answers: tuple[CloudAnswer, ...]
    ages: tuple[str, ...]

    @property
    def absent(self) -> tuple[str, ...]:
        """Return the sentences about the clouds whose offers are unknown."""
        return absent(self.answers)


async def compare_market(catalog: Catalog, clock: Clock, question: ComparisonQuestion, policy: Policy) -> Compared:
    """Compare every GPU for sale now, at its cheapest cloud, with what cannot be rented here."""
    everything = JobRequest(GpuConstraint((), 1, policy.max_gpus), question.hours, spot=SpotPolicy.ANY)
    market = await catalog.market(everything, policy.disk_gb("", None), observed=False)
    free = frozenset(cloud for cloud, able in catalog.capabilities.items() if able.free)
    wanted = [one for one in market.offers if blocked(one, policy) is None]
    found = compare(cheapest(wanted, free), question)
    found = replace(found, notes=(*without_key(market.answers), *found.notes))
    if old := outdated(ENVIRONMENTS, clock.now().date()):
        found = replace(found, notes=(*found.notes, old))
    unusable = [one.id for one in wanted if one.cloud not in free and bad_price(one.price_usd_h, free=False)]
    if unusable:
        found = replace(found, notes=(*found.notes, excluded("price_missing", unusable).sentence))
    ages = tuple(one.age(clock.now()) for one in market.answers if one.ok)
    return Compared(found, market.answers, ages)
