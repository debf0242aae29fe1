"""Find offers on which a run would finish cheaper, counting what the move itself costs at both rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from bot.outbound.checkpoint_stores import StoreUnreachable
from bot.rules.checkpoints.verification import Newest, Reported, judge
from bot.rules.instances.gpu_check import AVOIDED_FOR, FAILED_DELIVERY
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.market.affordability import cannot_pay
from bot.rules.market.ranking import RankedOption, rank
from bot.rules.market.traffic import GB_H_PER_MBPS
from bot.rules.nodes.checkins import NodeStatus, progress
from bot.rules.relocation.saving import MovableRun, NewPlace, nothing_cheaper, price_cap, saving
from bot.services.access.credentials import with_secrets
from bot.services.checkpoints.resume import last_verified_checkpoint
from bot.services.relocation.movable import CHEAPER, agent_of, target_job
from bot.services.runtime.context import Context
from ledger.models import Instance
from ledger.queries.lookups import failed_machines
from ledger.queries.views import SessionView
from providers.capabilities import BillingStart
from providers.completeness import Completeness
from providers.contract import Offer

#: Offers that are compared with the run's own machine: more than any market has of one kind of GPU at a lower price.
MOST: Final = 500
_GB: Final = 10**9


@dataclass(frozen=True, slots=True)
class CheaperPrice:
    """Say up to which price each offer saves money; without one, `why` says that nothing is cheaper."""

    max_price_usd_h: Decimal | None = None
    why: str = ""
    #: The one offer that saves, where one that costs less per hour doesn't.
    only: Offer | None = None

    def narrows(self, job: JobRequest) -> JobRequest:
        """Return the job for the target, so that it is only shown offers on which its run finishes cheaper."""
        job = replace(job, max_price_usd_h=self.max_price_usd_h)
        return job if self.only is None else replace(job, candidates=(self.only.cloud,), offer_id=self.only.id)


async def cheaper_price(ctx: Context, view: SessionView, now: datetime) -> CheaperPrice:
    """Return the highest price at or below which every offer of now lets the run finish cheaper, with its move.

    An offer above it may cost less per hour, and more in all.
    """
    agent, row, session = agent_of(view), view.instance, view.session
    if agent is None or row is None or session.deadline is None:
        return CheaperPrice(why=f"Session {session.short_id} can't be compared: no agent reports from it.")
    async with ctx.db.read() as tx:
        avoided = await failed_machines(tx, FAILED_DELIVERY, now - AVOIDED_FOR)
    options, read = await options_of(ctx, view, row, avoided, now, top=MOST)
    saved = await saved_of(ctx, view, agent, now) if options else None
    run = MovableRun(row.price_usd_h, ends_at_of(agent, row, session.deadline, now), *(saved or (now, Decimal(0))))
    compared = [(option.offer, saving(run, place_of(ctx, option, agent), now)) for option in options]
    offers = [(offer.price_usd_h or Decimal(0), comparison) for offer, comparison in compared]
    if (cap := price_cap(offers)) is not None:
        return CheaperPrice(cap)
    saves = [(comparison.saves_usd, offer) for offer, comparison in compared if comparison and comparison.saves_usd > 0]
    if saves:
        _, only = max(saves, key=lambda pair: pair[0])
        return CheaperPrice(only.price_usd_h, only=only)
    return CheaperPrice(why=nothing_cheaper(session.short_id, row.price_usd_h, offers, read))


async def options_of(
    ctx: Context, view: SessionView, row: Instance, avoided: set[tuple[str, str]], now: datetime, *, top: int
) -> tuple[Sequence[RankedOption], Completeness]:
    """Return the first options of the quote that `cheaper` would get now, and how much of the market was read.

    Runs share what the clouds answered.
    """
    job = target_job(view, CHEAPER, None, now)
    async with ctx.db.read() as tx:
        job = await with_secrets(tx, view.request.id, job)
    market = await ctx.catalog.market(job, job.disk_gb, policy=ctx.policy, to_buy=True)

    def counts(offer: Offer) -> bool:
        is_own = offer.machine_id is not None and offer.machine_id == row.machine_id
        is_avoided = (offer.cloud, offer.machine_id) in avoided
        return not is_own and not is_avoided and not cannot_pay(offer, market.balances.get(offer.cloud))

    own = await ctx.catalog.own_history()
    offers = [offer for offer in market.offers if counts(offer)]
    able = ctx.catalog.capabilities
    options = rank(offers, job, ctx.policy, able, proof=None, top=top, to_run=True, own=own).options
    return options, market.completeness


def ends_at_of(agent: NodeStatus, row: Instance, deadline: datetime, now: datetime) -> datetime:
    """Return when the work of a run ends: at its own speed, or at its approved end."""
    forecast = progress(agent, row.price_usd_h, now)
    return min(forecast.eta, deadline) if forecast is not None else deadline


def place_of(ctx: Context, option: RankedOption, agent: NodeStatus) -> NewPlace:
    """Describe the machine of an option. Its start-up takes as long as that of the run's own machine took."""
    offer, able = option.offer, ctx.providers[option.offer.cloud].capabilities
    steps = agent.machine.steps if agent.machine is not None else ()
    mbps = offer.download_mbps
    unsaid_gb_h = ctx.policy.checkpoint_write_gb_s * 3600
    return NewPlace(
        offer.price_usd_h or Decimal(0),
        Decimal(able.boot_expected_s) / 3600,
        able.billing.starts is BillingStart.CREATE,
        Decimal(sum(step.seconds for step in steps)) / 3600,
        mbps * GB_H_PER_MBPS if mbps is not None and mbps > 0 else unsaid_gb_h,
        able.billing,
        max(offer.ingress_usd_gb, Decimal(0)),
        sum((part.expected_usd for part in option.estimate.components if part.name == "interruptions"), Decimal(0)),
    )


async def saved_of(
    ctx: Context, view: SessionView, agent: NodeStatus, now: datetime
) -> tuple[datetime, Decimal] | None:
    """Return when the last verified checkpoint was saved, and its GB; None where a move would be refused."""
    try:
        found = (await last_verified_checkpoint(ctx, job_of(view.request.job).checkpoint, now)).verified
    except StoreUnreachable:
        return None
    if found is None:
        return None
    saved = found.checkpoint
    reported = Reported(step=agent.checkpoint_step, at=agent.checkpoint_at)
    newest = Newest(saved.path, saved.size, saved.at)
    if not judge(newest, reported, ctx.policy.checkpoint_max_age_s, now).allowed:
        return None
    return saved.at, Decimal(saved.size) / _GB
