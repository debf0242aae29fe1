"""Make a live instance ready when it is usable, or end one that never gets there.

Where GPU Shopper can log in, `gpu_checks` makes it ready; elsewhere it is ready when its SSH port answers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.instances.gpu_check import other_host_key
from bot.rules.instances.power import PowerAction
from bot.rules.nodes.host_keys import KeyMatch, compare
from bot.rules.values.phrases import hours as say_hours
from bot.services.instances.transitions import end_announced
from bot.services.nodes.host_keys import note_key, reported_key
from bot.services.notifications import ready_message
from bot.services.people import direct_messages
from bot.services.runtime.context import Context
from ledger.core import StaleMove, Tx, amend, announce, lock_family, move
from ledger.kernel.actor import SYSTEM
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import GrantState, InstanceState, NotificationKind, SessionState
from ledger.models import GrantRow, Instance, Session
from ledger.queries.journal import latest_events
from ledger.queries.lookups import open_starts
from ledger.queries.nodes import node_of
from ledger.queries.runs.graces import open_grace, replaced_of_session
from ledger.queries.runs.node_sets import is_ready
from providers.contract import InstanceStatus, ObservedInstance

BROKEN = {
    InstanceStatus.ERROR: "The cloud reports that the instance failed to start.",
    InstanceStatus.OFFLINE: "The cloud lost contact with the machine.",
    # As for a bid that somebody else's beat before it ran: what was made stays, stopped, and its disk is billed.
    InstanceStatus.STOPPED: "The cloud stopped the instance before it ever ran.",
}


async def boot(ctx: Context, instance_id: str, item: ObservedInstance) -> bool:
    """Advance a boot by one step: ready, broken, too late, or not yet. True when something changed.

    A cloud without SSH is trusted when it says that the program runs, because nothing else can be checked there.
    """
    reached = item.status is InstanceStatus.RUNNING
    if reached and ctx.providers[item.cloud].capabilities.ssh:
        reached = item.ssh is not None and (await ctx.reach.probe(item.ssh.host, item.ssh.port)).ok
    key = await ctx.reach.host_key(item.ssh.host, item.ssh.port) if reached and item.ssh is not None else None
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        row = await tx.get_one(Instance, instance_id)
        if row.state is not InstanceState.LIVE or row.reachable_at is not None:
            return False
        if (in_grace := await open_grace(tx, row.id)) is not None and in_grace.replaced:
            return False  # Its replacement stands for the session.
        session = await tx.get_one(Session, row.session_id)
        # A machine of a set is of no use before the others can reach it.
        reached = reached and (row.node_rank is None or row.set_host is not None or session.dealt_commands > 0)
        # An instance that was ready before was started again: its disk is worth more than the wait, so people decide.
        # Those that share a queue become ready one by one.
        # One that was launched later replaces another one, whose disk is kept: it boots for the first time.
        again = session.ready_at is not None and row.created_at <= session.ready_at and not session.dealt_commands
        logs_in = row.login_key is not None and ctx.policy.validate_login and not again
        differs = None
        if reached:
            await note_key(ctx, tx, row, key, now)
            # Where GPU Shopper logs in, the login is judged; a machine that was ready before is only reported.
            differs = None if logs_in or again or key is None else await _differs(tx, row, key)
            if not logs_in and differs is None:
                await make_ready(ctx, tx, row, now)
                return True
        # Whether a machine that answers boots for too long is judged after a login was tried, also after a downtime.
        problem = None if again or (reached and differs is None) else _problem(ctx, row, item, now, differs)
        if problem is not None:
            await end_announced(ctx, tx, row, problem[0], problem[1], now)
            return True
    if reached:  # After the commit, so that the pass sees that the server answers.
        ctx.hints.logins.set()
    return False


async def _differs(tx: Tx, row: Instance, key: str) -> tuple[EndReason, str] | None:
    """Return code and sentence where the machine's agent reports another host key than the server shows."""
    reported = reported_key(await node_of(tx, row.id))
    if reported is None or compare(key, reported) is not KeyMatch.DIFFERENT:
        return None
    verdict = other_host_key(key, reported)
    return verdict.code, verdict.sentence


def _problem(
    ctx: Context, row: Instance, item: ObservedInstance, now: datetime, differs: tuple[EndReason, str] | None = None
) -> tuple[EndReason, str] | None:
    """Return `(code, sentence)` when the boot must end; `differs` is why a machine that answers is not ready."""
    broken = BROKEN.get(item.status)
    # One that a person stops, or has adopted with its disk, is not broken by being stopped.
    ours = row.wanted is None and bool(row.option_id)
    if broken is not None and (item.status is not InstanceStatus.STOPPED or ours):
        return EndReason.BROKEN, broken
    capabilities = ctx.providers[row.cloud].capabilities
    if not capabilities.terminate:
        return None  # A termination would end nothing: it stays in the cloud's queue until it runs or times out.
    if (spent := overdue(ctx, row, now)) is not None:
        return differs or (EndReason.BOOT_TIMEOUT, f"The instance was not reachable within {spent}, so it is ended.")
    return None


def overdue(ctx: Context, row: Instance, now: datetime) -> str | None:
    """Return the longest time for a boot at this cloud, in words, once it has passed; None before."""
    patience_s = ctx.providers[row.cloud].capabilities.boot_deadline_s or ctx.timing.boot_deadline_s
    if now - (row.live_at or row.created_at) <= timedelta(seconds=patience_s):
        return None
    return say_hours(Decimal(int(patience_s)) / 3600)


async def make_ready(ctx: Context, tx: Tx, row: Instance, now: datetime) -> None:
    """Record that an instance is ready: its session runs, and its GPU is billed from now at the latest.

    The session of a set runs when all of its machines are ready.
    """
    if row.node_rank is not None:  # Two machines that become ready at once must see each other.
        await lock_family(tx, Session, row.session_id)
    await amend(tx, Instance, row.id, reachable_at=now, billing_from=row.billing_from or now)
    if row.wanted == PowerAction.START:  # It runs, so nothing is left to order.
        await amend(tx, Instance, row.id, wanted=None, wanted_at=None, due_at=None)
        for grant in await open_starts(tx, row.session_id):
            await move(tx, GrantRow, grant.id, GrantState.USED, now, SYSTEM)
    session = await tx.get_one(Session, row.session_id, populate_existing=True)
    before = session.ready_at
    if not await is_ready(tx, session):
        return
    if session.state is SessionState.RUNNING and await replaced_of_session(tx, session.id) is not None:
        await ready_message.show_again(tx, session.id, now)
        await _notify_again(ctx, tx, session, row, before or now, now)
    if session.state in (SessionState.PROVISIONING, SessionState.STOPPED):
        try:
            ready = {"ready_at": now, "stopped_at": None}
            await move(tx, Session, session.id, SessionState.RUNNING, now, SYSTEM, values=ready)
        except StaleMove:
            return
        if before is not None:
            await ready_message.show_again(tx, session.id, now)
            await _notify_again(ctx, tx, session, row, before, now)
    ctx.hints.sessions.set()


async def _notify_again(ctx: Context, tx: Tx, session: Session, row: Instance, before: datetime, now: datetime) -> None:
    """Notify the owner that a machine which was ready `before` is ready again, and whether its address changed.

    It is a message of its own, because the edit of the first ready message notifies nobody.
    """
    to = await direct_messages.slack_user(tx, ctx.policy, session.owner)
    if to is None:
        return
    last = await latest_events(tx, row.id, EventKind.INSTANCE_ADDRESS_CHANGED, 1)
    changed = bool(last) and last[0].at > before
    subject = f"{session.id}/{int(now.timestamp())}"
    await announce(tx, now, NotificationKind.SESSION_READY, subject, destination=to, body={"changed": changed})
