"""Notify people, once a day at most, when a run of theirs would finish cheaper on another machine.

One search serves all runs: one query finds them, and runs that want the same GPUs share the clouds' listings. The
store of a run's checkpoints is read only where an offer is cheap enough. Somebody who answers for several programs
gets one message for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from bot.rules.instances.gpu_check import AVOIDED_FOR, FAILED_DELIVERY
from bot.rules.market.ranking import RankedOption
from bot.rules.relocation.saving import MovableRun, MoveSaving, saving, suggestion
from bot.rules.values.phrases import place_name
from bot.services.notifications.paging import alone
from bot.services.people import direct_messages
from bot.services.relocation.cheaper import ends_at_of, options_of, place_of, saved_of
from bot.services.relocation.movable import LEAST_H, agent_of, why_not
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.context import Context
from ledger.core import announce, lock_family, lock_requester, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import NotificationKind, SessionState
from ledger.models import Session
from ledger.queries.lookups import failed_machines
from ledger.queries.runs.relocations import notified_since, open_migration_of, sessions_to_move
from ledger.queries.views import SessionView, views_of_sessions

#: How often cheaper offers are searched, how many runs one search compares, and when a person may be notified again.
LOOK_S: Final = 3600.0
MOST: Final = 200
AGAIN: Final = timedelta(hours=24)


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
    options, _ = await options_of(ctx, view, row, avoided, now, top=1)
    option = next(iter(options), None)
    if option is None:
        return None
    place, ends_at = place_of(ctx, option, agent), ends_at_of(agent, row, view.session.deadline, now)
    least = (ctx.policy.suggest_move_usd, ctx.policy.suggest_move_percent)
    # With a save of no size that is as new as can be, it is as cheap as it could become.
    at_best = saving(MovableRun(row.price_usd_h, ends_at, now, Decimal(0)), place, now)
    if at_best is None or not at_best.is_worthwhile(*least):
        return None
    saved = await saved_of(ctx, view, agent, now)
    found = saving(MovableRun(row.price_usd_h, ends_at, *saved), place, now) if saved is not None else None
    return Suggested(view, to, option, found) if found is not None and found.is_worthwhile(*least) else None


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
