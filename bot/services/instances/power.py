"""Stop, start and restart instances: a person orders it, a job carries it out, and the cloud's listing confirms it."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import assert_never

from bot.rules.approvals.approvers import Deed
from bot.rules.instances.power import PowerAction, judge
from bot.rules.instances.recovery_mode import HOLD
from bot.rules.pricing.spend_limits import billed_rate
from bot.rules.sessions.running_time import seconds_run
from bot.rules.values.phrases import rates
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.checkpoints import hold
from bot.services.grants import starts
from bot.services.nodes import node_api
from bot.services.nodes.host_keys import forgotten
from bot.services.notifications import ready_message, request_message
from bot.services.notifications.paging import page
from bot.services.people import direct_messages, eligibility
from bot.services.runtime import recovery_mode
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.commands import Reply, Switch, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.idempotency import KEPT
from ledger.core import Claim, StaleMove, Tx, amend, claim, lock_family, move, record, release
from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import OPEN_INSTANCE, GrantState, InstanceState, SessionState
from ledger.models import GrantRow, Instance, Request, Session
from ledger.queries.journal import done_before, latest_events
from ledger.queries.lookups import instances_of_session, open_starts
from ledger.queries.metering import Billable
from ledger.queries.nodes import amend_node, open_exchange
from ledger.queries.overspend import approved_rate, open_overspend_request
from ledger.queries.runs.graces import open_grace
from ledger.queries.runs.relocations import is_moving
from ledger.queries.views import session_to_change
from providers.contract import InstanceStatus, ObservedInstance
from providers.errors import NoCapacity, ProviderError, Unsupported
from providers.profiles import model

BATCH = 16
#: An order that the cloud accepted and does not show after this time is sent again.
AGAIN = timedelta(seconds=60)
SWITCHABLE = frozenset({InstanceState.LIVE, InstanceState.STOPPED})
UP = frozenset({InstanceStatus.RUNNING, InstanceStatus.BOOTING, InstanceStatus.PENDING})


log = logging.getLogger(__name__)


async def switch(ctx: Context, command: Switch) -> Reply:
    """Order a stop, a start or a restart. Code of success: `power_action`; the cloud is called next."""
    starts = command.order is PowerAction.START  # It spends again; a stop saves, so it is never refused for this.
    if starts and (not_them := await eligibility.refused(ctx, command.decider, Deed.START)):
        return refuse(not_them.code, not_them.sentence)
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            session = await session_to_change(tx, command.session)
            if session is None:
                return refuse(ReplyCode.NO_SESSION, "That request has no session yet.")
            reply = await recovery_mode.with_recovery_notice(tx, await order(ctx, tx, session, command, now))
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
    if reply.ok:
        await ctx.epoch.cover(tx)
        ctx.hints.instances.set()
        ctx.hints.outbox.set()
    return reply


async def order(ctx: Context, tx: Tx, session: Session, command: Switch, now: datetime) -> Reply:
    """Order a stop, start or restart inside a transaction that holds the family's lock."""
    data = {"session_id": session.id}
    if not await authorization.may_act(tx, ctx.policy, session, command.decider):
        return refuse(ReplyCode.NOT_YOURS, f"Only its owner or an approver can {command.order} this session.", data)
    done = await done_before(tx, session.id, {_event(command.order)}, command.key, now - KEPT)
    if done is not None:  # The process ended before it could reply; later orders stay in force.
        return Reply(True, ReplyCode.POWER_ACTION, f"Session {session.short_id}: {done.reason}", data)
    if command.order is PowerAction.START and await open_overspend_request(tx, session.request_id) is not None:
        sentence = "Its higher cost is not approved yet. It starts by itself once it is."
        return refuse(ReplyCode.OVERSPEND_UNCONFIRMED, sentence, data)
    if command.order is not PowerAction.STOP and await is_moving(tx, session.id):
        # A job that starts again on the old machine would be a second trainer on one store.
        sentence = f"Session {session.short_id} is being moved to another machine. Wait until that has ended."
        return refuse(ReplyCode.MIGRATING, sentence, data)
    actor, key = command.decider.actor, command.key
    return await give(ctx, tx, session, command.order, actor, now, keep=command.keep, key=key)


async def give(
    ctx: Context,
    tx: Tx,
    session: Session,
    which: PowerAction,
    actor: Actor,
    now: datetime,
    *,
    keep: bool = False,
    key: str = "",
) -> Reply:
    """Order a power action for an authorized actor; `keep`: only if data survives, `key`: recognize a repeated call."""
    data = {"session_id": session.id}
    rows = await instances_of_session(tx, session.id)
    # After a replacement that failed, the machine before it stands for the session again.
    row = next((one for one in reversed(rows) if one.state in OPEN_INSTANCE), rows[-1] if rows else None)
    provider = ctx.providers.get(row.cloud) if row else None
    if session.nodes > 1:
        said = f"A set of {session.nodes} machines runs whole until its end, so it can't {which}."
        if session.dealt_commands:
            said = f"{session.nodes} machines share its queue until their end, so it can't {which}."
        return refuse(ReplyCode.SET_RUNS_WHOLE, said, data)
    if row is None or provider is None:
        return refuse(ReplyCode.CLOUD_GONE, "Its cloud is not set up here, so it can't be controlled.", data)
    facts = model.load(row.cloud)
    survival = facts.restarted if which is PowerAction.RESTART else facts.stopped
    able, stands, end = provider.capabilities, session.state, session.deadline
    if stands is SessionState.RUNNING and row.state is InstanceState.STOPPED:
        stands = SessionState.STOPPED  # GPU Shopper stopped it beside a replacement that has ended.
    disk_usd_h = hold.disk_rate(row)
    verdict = judge(which, row.cloud, able, stands, row.wanted, disk_usd_h, end, survival, outlives=keep)
    if not verdict.allowed:
        return refuse(verdict.code, verdict.sentence, data)
    if keep and not facts.stop_keeps_data:
        return refuse(ReplyCode.STOP_KEEPS_NOTHING, f"A stop at {row.cloud} deletes everything on the machine.", data)
    if which is PowerAction.START:
        approved = await approved_rate(tx, row)
        if not billed_rate(row.price_usd_h, approved.usd_h).allowed:
            billed, covered = rates(row.price_usd_h, approved.usd_h)
            sentence = (
                f"{row.cloud} now bills {billed}, above the approved {covered}. You can start it once that is approved."
            )
            return refuse(ReplyCode.OVERSPEND_UNCONFIRMED, sentence, data)
        await starts.authorize_start(tx, row, session, approved, now)
    elif which is PowerAction.STOP and row.wanted == PowerAction.START:
        await _void_starts(tx, session.id, actor, "It was stopped before it had started.", now)
    await amend(tx, Instance, row.id, wanted=str(which), wanted_at=now, due_at=now)
    if which is PowerAction.RESTART:
        await open_exchange(tx, row.id, now)  # Its agent loses the token that it has in memory.
    record(tx, now, actor, row.id, _event(which), reason=verdict.sentence, key=key)
    await request_message.show_again(tx, await tx.get_one(Request, session.request_id), now)
    return Reply(True, verdict.code, f"Session {session.short_id}: {verdict.sentence}", data)


def _event(which: PowerAction) -> EventKind:
    """Return the event kind of this order."""
    match which:
        case PowerAction.STOP:
            return EventKind.INSTANCE_STOP
        case PowerAction.START:
            return EventKind.INSTANCE_START
        case PowerAction.RESTART:
            return EventKind.INSTANCE_RESTART
        case _:
            assert_never(which)


async def switch_due(ctx: Context) -> int:
    """Send the due orders to the clouds.

    A call that returns is not done: only a listing that shows it is.
    """
    lease = timedelta(seconds=ctx.timing.claim_ttl_s)
    held = await claim(ctx.db, Instance, now=ctx.clock.now(), states=SWITCHABLE, limit=BATCH, lease=lease)
    await asyncio.gather(*(_switch(ctx, one) for one in held))
    if held:
        ctx.hints.sweep.set()
        ctx.hints.outbox.set()
    return len(held)


async def _switch(ctx: Context, held: Claim) -> None:
    async with ctx.db.read() as tx:
        row = await tx.get_one(Instance, held.row_id)
        waits = bool(clock_problem(ctx.clock)) or await recovery_mode.is_on(tx)
    provider, now = ctx.providers.get(row.cloud), ctx.clock.now()
    if row.wanted is None:
        await _give_back(ctx, held, None)
    elif provider is None or provider.account != row.account or row.ref is None:
        await _refused(ctx, held, row, "the key of its account is not set up here")
    elif waits and row.wanted == PowerAction.START:  # A start spends; a stop saves, and a person ordered it.
        await _give_back(ctx, held, now + HOLD)
    else:
        call = {
            PowerAction.STOP: provider.stop,
            PowerAction.START: provider.start,
            PowerAction.RESTART: provider.restart,
        }
        try:
            await call[PowerAction(row.wanted)](row.ref)
        except (NoCapacity, Unsupported) as error:
            await _refused(ctx, held, row, error.message)
        except ProviderError as error:
            log.warning("the %s of %s failed: %s", row.wanted, row.id, error.code)
            await _later(ctx, held, row, error.message)
        else:
            if row.wanted == PowerAction.RESTART:
                async with ctx.db.write() as tx:
                    await release(tx, Instance, held, due_at=None, wanted=None, wanted_at=None, **forgotten(row, now))
                    await node_api.forget(tx, row)
                    await open_exchange(tx, row.id, now)
            else:
                await _later(ctx, held, row, "the cloud accepted it, but the instance has not changed")


async def _give_back(ctx: Context, held: Claim, due_at: datetime | None) -> None:
    async with ctx.db.write() as tx:
        await release(tx, Instance, held, due_at=due_at)


async def _later(ctx: Context, held: Claim, row: Instance, problem: str) -> None:
    """Schedule another attempt, and page the operators when an order is not carried out for long."""
    now = ctx.clock.now()
    await _give_back(ctx, held, now + AGAIN)
    if now - (row.wanted_at or now) > timedelta(seconds=ctx.timing.terminate_page_s):
        await page(
            ctx, f"{row.id}/{row.wanted}", f"{row.cloud} does not {row.wanted} {row.name} ({row.ref}): {problem}."
        )


async def _refused(ctx: Context, held: Claim, row: Instance, why: str) -> None:
    """Drop an order that cannot be carried out, void its grant, and notify the owner of the reason."""
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, row.id)
        if not await release(tx, Instance, held, due_at=None, wanted=None, wanted_at=None):
            return
        await _void_starts(tx, row.session_id, SYSTEM, why, now)
        if row.wanted == PowerAction.RESTART:
            await amend_node(tx, row.id, exchange_open_at=None)
        session = await tx.get_one(Session, row.session_id)
        if row.wanted == PowerAction.START and await starts.start_had_no_effect(tx, ctx.policy, row, session, why, now):
            return
        sentence = f"Session {session.short_id} could not {row.wanted}: {why}. Nothing else changed."
        record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_NOT_SWITCHED, reason=sentence)
        subject = f"{row.id}/{row.wanted}/{int(now.timestamp())}"
        await direct_messages.notify_owner(tx, ctx.policy, now, session, subject=subject, text=sentence)


async def _void_starts(tx: Tx, session_id: str, actor: Actor, why: str, now: datetime) -> None:
    for grant in await open_starts(tx, session_id):
        await move(tx, GrantRow, grant.id, GrantState.VOID, now, actor, why)


async def follow(ctx: Context, row: Instance, item: ObservedInstance, at: datetime, version: int) -> bool:
    """Apply what a listing at time `at` shows: an ordered stop is done, or a stopped instance runs again.

    Two listings may be under way at once, so one that is older than what it would change is ignored. `row` is the
    instance before this listing, and `version` its version since. True: changed.
    """
    ordered_at = row.wanted_at or at
    ordered = row.wanted is not None and at >= ordered_at
    # The listing that showed the stop is the last one that showed its GPU unbilled.
    later = row.unbilled_at is None or at > row.unbilled_at
    stopped = (
        item.status is InstanceStatus.STOPPED and row.wanted == PowerAction.STOP and ordered and row.state in SWITCHABLE
    )
    started = item.status in UP and row.state is InstanceState.STOPPED
    started = started and (later or (row.wanted == PowerAction.START and ordered))
    if not stopped and not started:
        return False
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            await (_stopped(ctx, tx, row, version, now) if stopped else _started(tx, row, version, now))
    except StaleMove:
        return True
    return True


_DONE = {"wanted": None, "wanted_at": None, "due_at": None}
_KEPT_CLAIM = {"claim_token": Instance.claim_token, "claim_until": Instance.claim_until}


async def _stopped(ctx: Context, tx: Tx, row: Instance, version: int, now: datetime) -> None:
    """Record an ordered stop that is done, for the instance and its session.

    The session is still stopped when the instance was started and stopped again before it was ready. An overspend that
    was confirmed while its pause was under way has no open request any more, so the instance starts again.
    """
    if row.state is InstanceState.STOPPED:
        await amend(tx, Instance, row.id, version=version, claim_token=None, claim_until=None, **_DONE)
        return
    await move(tx, Instance, row.id, InstanceState.STOPPED, now, SYSTEM, version=version, values=_DONE)
    session = await tx.get_one(Session, row.session_id, populate_existing=True)
    if (in_grace := await open_grace(tx, row.id)) is not None and in_grace.replaced:
        return  # Only its disk is kept, and its replacement stands for the session.
    if session.state is not SessionState.STOPPED:
        over = {"ran_s": seconds_run(session, now), "stopped_at": now}
        session = await move(tx, Session, row.session_id, SessionState.STOPPED, now, SYSTEM, values=over)
        await ready_message.show_again(tx, session.id, now)
    (ordered,) = await latest_events(tx, row.id, EventKind.INSTANCE_STOP, 1) or (None,)
    paused = ordered is not None and ordered.actor.startswith(f"{ActorKind.SYSTEM}:") and not session.preserve
    if paused and await open_overspend_request(tx, session.request_id) is None:
        await give(ctx, tx, session, PowerAction.START, SYSTEM, now)


async def _started(tx: Tx, row: Instance, version: int, now: datetime) -> None:
    """Record a start by anybody: the instance is billed from now, and ready when it can be reached again.

    A stop that has replaced the start meanwhile stays ordered. So does the claim of the job whose start may still be
    under way: it is the reason why that stop is not sent before the start is answered.
    """
    done = _KEPT_CLAIM if row.wanted == PowerAction.STOP else _DONE
    again = {**done, "live_at": now, "reachable_at": None, **forgotten(row, now)}
    await move(tx, Instance, row.id, InstanceState.LIVE, now, SYSTEM, version=version, values=again)
    await node_api.forget(tx, row)
    for grant in await open_starts(tx, row.session_id):
        await move(tx, GrantRow, grant.id, GrantState.USED, now, SYSTEM)


def cannot_pause(ctx: Context, row: Billable) -> str:
    """Return why a stop would not help at that cloud; empty where it does."""
    if row.node_rank is not None:
        return "a set of machines runs whole"
    provider = ctx.providers.get(row.cloud)
    if provider is None:
        return "its cloud is not set up here"
    able = provider.capabilities
    if not able.stop or able.billing.gpu_while_stopped:
        return "a stop there saves nothing"
    return "" if model.load(row.cloud).stop_keeps_data else "a stop there keeps nothing"
