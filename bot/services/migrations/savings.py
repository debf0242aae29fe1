"""Notify people, once a day at most, when a run of theirs would finish cheaper on another machine.

One search serves all runs: one query finds them, and runs that want the same GPUs share the clouds' listings. The
store of a run's checkpoints is read only where an offer is cheap enough. Somebody who answers for several programs
gets one message for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.outbound.checkpoint_stores import StoreUnreachable
from bot.rules.checkpoints.verification import Newest, Reported, judge
from bot.rules.instances.gpu_check import AVOIDED_FOR, FAILED_DELIVERY
from bot.rules.market.affordability import cannot_pay
from bot.rules.market.ranking import RankedOption, rank
from bot.rules.market.traffic import GB_H_PER_MBPS
from bot.rules.migrations.saving import MovableRun, MoveSaving, NewPlace, saving, suggestion
from bot.rules.nodes.checkins import NodeStatus, progress
from bot.rules.values.phrases import place_name
from bot.services.checkpoints.resume import last_verified_checkpoint
from bot.services.migrations.movable import CHEAPER, LEAST_H, agent_of, target_job, why_not
from bot.services.notifications.paging import alone
from bot.services.people import direct_messages
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import announce, lock_family, lock_requester, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import NotificationKind, SessionState
from ledger.models import Instance, Session
from ledger.queries.lookups import failed_machines
from ledger.queries.runs.migrations import notified_since, open_migration_of, sessions_to_move
from ledger.queries.views import SessionView, views_of_sessions
from providers.capabilities import BillingStart
from providers.contract import Offer

#: How often cheaper offers are searched, how many runs one search compares, and when a person may be notified again.
LOOK_S: Final = 3600.0
MOST: Final = 200
AGAIN: Final = timedelta(hours=24)
_GB: Final = 10**9


@dataclass(frozen=True, slots=True)
class Suggested:
    """Hold the saving of one run on one offer, and whom a message about it goes to."""

    view: SessionView
    to: tuple[str, ...]
    option: RankedOption
    saving: MoveSaving


async def savings_due(ctx: Context) -> int:
    """Look for cheaper offers for every run that could be moved; return how many messages were written."""
    if ctx.policy.suggest_move_usd is None or clock_problem(ctx.clock):
        return 0
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        soonest = now + timedelta(hours=float(LEAST_H))
        views = await views_of_sessions(tx, await sessions_to_move(tx, soonest, now - AGAIN, MOST))
        if not views or await recovery_mode.is_on(tx):
            return 0
        avoided = await failed_machines(tx, FAILED_DELIVERY, now - AVOIDED_FOR)
        notified = await notified_since(tx, now - AGAIN)
        people = await direct_messages.slack_users(tx, ctx.policy, {view.session.owner for view in views})
    best: dict[tuple[str, ...], Suggested] = {}
    for view in views:
        person = people[view.session.owner]
        to = direct_messages.fallback(ctx.policy, view.session) if person is None else (person,)
        if notified.issuperset(to) or why_not(view, ctx.providers, now) is not None:
            continue
        await ctx.pressure.ease()
        found = await alone(
            ctx, view.session.id, "the search for a cheaper machine", _cheaper(ctx, view, to, avoided), None
        )
        known = best.get(to)
        if found is not None and (known is None or found.saving.saves_usd > known.saving.saves_usd):
            best[to] = found
    found_new = [await _notify(ctx, one, now) for one in best.values()]
    ctx.hints.outbox.set()
    return sum(found_new)


async def _cheaper(
    ctx: Context, view: SessionView, to: tuple[str, ...], avoided: set[tuple[str, str]]
) -> Suggested | None:
    """Return the offer that `cheaper` would choose for a run, if the run would finish cheaper there by enough."""
    now, agent, row = ctx.clock.now(), agent_of(view), view.instance
    if agent is None or row is None or view.session.deadline is None or ctx.policy.suggest_move_usd is None:
        return None
    option = await _chosen(ctx, view, row, avoided, now)
    if option is None:
        return None
    place = _place(ctx, option, agent)
    forecast = progress(agent, row.price_usd_h, now)
    ends_at = min(forecast.eta, view.session.deadline) if forecast is not None else view.session.deadline
    least = (ctx.policy.suggest_move_usd, ctx.policy.suggest_move_percent)
    # With a save of no size that is as new as can be, it is as cheap as it could become.
    at_best = saving(MovableRun(row.price_usd_h, ends_at, now, Decimal(0)), place, now)
    if at_best is None or not at_best.is_worthwhile(*least):
        return None
    saved = await _saved(ctx, view, agent, now)
    found = saving(MovableRun(row.price_usd_h, ends_at, *saved), place, now) if saved is not None else None
    return Suggested(view, to, option, found) if found is not None and found.is_worthwhile(*least) else None


async def _chosen(
    ctx: Context, view: SessionView, row: Instance, avoided: set[tuple[str, str]], now: datetime
) -> RankedOption | None:
    """Return the first option of the quote that `cheaper` would get now. Runs share what the clouds answered."""
    job = target_job(view, CHEAPER, None, now)
    market = await ctx.catalog.market(job, job.disk_gb, policy=ctx.policy, to_buy=True)

    def counts(offer: Offer) -> bool:
        is_own = offer.machine_id is not None and offer.machine_id == row.machine_id
        is_avoided = (offer.cloud, offer.machine_id) in avoided
        return not is_own and not is_avoided and not cannot_pay(offer, market.balances.get(offer.cloud))

    own = await ctx.catalog.own_history()
    offers = [one for one in market.offers if counts(one)]
    options: Sequence[RankedOption] = rank(
        offers, job, ctx.policy, ctx.catalog.capabilities, proof=None, top=1, to_run=True, own=own
    ).options
    return options[0] if options else None


def _place(ctx: Context, option: RankedOption, agent: NodeStatus) -> NewPlace:
    """Describe the machine of an option. Its start-up takes as long as that of the run's own machine took."""
    offer, able = option.offer, ctx.providers[option.offer.cloud].capabilities
    steps = agent.machine.steps if agent.machine is not None else ()
    mbps = offer.download_mbps
    unsaid_gb_h = ctx.policy.checkpoint_write_gb_s * 3600
    return NewPlace(
        offer.price_usd_h or Decimal(0),
        Decimal(able.boot_expected_s) / 3600,
        able.billing.starts is BillingStart.CREATE,
        Decimal(sum(one.seconds for one in steps)) / 3600,
        mbps * GB_H_PER_MBPS if mbps is not None and mbps > 0 else unsaid_gb_h,
        able.billing,
        max(offer.ingress_usd_gb, Decimal(0)),
        sum((one.expected_usd for one in option.estimate.components if one.name == "interruptions"), Decimal(0)),
    )


async def _saved(ctx: Context, view: SessionView, agent: NodeStatus, now: datetime) -> tuple[datetime, Decimal] | None:
    """Return when the last verified checkpoint was saved, and its GB; None where a move would be refused."""
    try:
        found = (await last_verified_checkpoint(ctx, view.request.job.checkpoint, now)).verified
    except StoreUnreachable:
        return None
    if found is None:
        return None
    one = found.checkpoint
    reported = Reported(step=agent.checkpoint_step, at=agent.checkpoint_at)
    if not judge(Newest(one.path, one.size, one.at), reported, ctx.policy.checkpoint_max_age_s, now).allowed:
        return None
    return one.at, Decimal(one.size) / _GB


async def _notify(ctx: Context, found: Suggested, now: datetime) -> int:
    """Notify the person, unless the run ended, is moved or they were notified meanwhile; 1 when it was done."""
    view, offer = found.view, found.option.offer
    async with ctx.db.write() as tx:
        for one in sorted(found.to):  # Of a person with several runs, two replicas may have found different ones.
            await lock_requester(tx, f"cheaper/{one}")
        await lock_family(tx, Session, view.session.id)
        session = await tx.get_one(Session, view.session.id, populate_existing=True)
        if session.state is not SessionState.RUNNING or session.owner != view.session.owner:
            return 0
        notified = await notified_since(tx, now - AGAIN)
        to = [one for one in found.to if one not in notified]
        if not to or await open_migration_of(tx, session.id) is not None:
            return 0
        where = f"{offer.cloud} ({place_name(offer.region, offer.country)}{', spot' if offer.spot else ''})"
        there_usd_h = offer.price_usd_h or Decimal(0)
        text = suggestion(session.short_id, where, view.price_usd_h, there_usd_h, found.saving)
        data = {"offer_id": offer.id, "saves_usd": str(found.saving.saves_usd), "owner": session.owner, "to": to}
        record(tx, now, SYSTEM, session.id, EventKind.MIGRATION_SUGGESTED, reason=text, data=data)
        subject = f"{session.id}/cheaper/{now:%Y-%m-%dT%H}"
        for one in to:
            await announce(tx, now, NotificationKind.REPLY, subject, destination=one, body={"text": text})
    return 1
