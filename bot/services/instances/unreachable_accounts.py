"""Write off instances in accounts that no configured key can read, at an operator's request.

A rotated key is recognised by what the new one lists (`key_rotation`). Where it lists nothing of ours, because all of
it is gone or the account is closed, no listing will ever prove an end. A write-off is accepted only where nothing
contradicts it, with a reason. An instance that a cloud lists later is terminated like every one that counted as gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import plural
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.state_text import state_words
from bot.services.billing.metering import accrue_orphan
from bot.services.instances import key_rotation
from bot.services.instances.termination import end_session
from bot.services.instances.transitions import end_instance, gone, settle
from bot.services.notifications.interruption import notify_ended_by
from bot.services.runtime.clock_guard import clock_problem
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import StaleMove, Tx, lock_families, lock_orphan, move
from ledger.kernel.actor import Actor
from ledger.kernel.end_reason import EndReason
from ledger.kernel.proof import ProofOfEnd
from ledger.kernel.states import ENDABLE_SESSION, InstanceState, OrphanState
from ledger.models import Instance, Orphan, Session
from ledger.queries.cloud_accounts import accounts_in_use, open_there, rows_named
from ledger.queries.lookups import open_instances_of_session
from ledger.queries.nodes import nodes_of
from providers.contract import InstanceStatus
from providers.errors import ProviderError

#: An instance with a heartbeat this recent is not gone, whatever an operator says.
SILENT = timedelta(minutes=10)
#: What the operator reads.
CLOSED = (
    "closed, and its cost is booked until now. One that its cloud lists again is terminated, or operators are notified."
)
#: What an owner reads, followed by the operator's reason.
WRITTEN_OFF = "An operator reported its instance as gone. No key that is set up here can check that."
LIST = cli_command("unreachable list")
#: The most that one write-off closes.
MOST = 200
_I = InstanceState
CLOSABLE = frozenset({_I.UNKNOWN, _I.LIVE, _I.STOPPED, _I.TERMINATING})


@dataclass(frozen=True, slots=True)
class UnreachableInstance:
    """An open instance, or an orphan, of an account whose key is not set up here. An orphan's `owner` is ""."""

    id: str
    cloud: str
    account: str
    ref: str | None
    state: str
    price_usd_h: Decimal
    since: datetime
    session_id: str | None
    owner: str


async def unreachable(ctx: Context) -> list[UnreachableInstance]:
    """List all open instances and orphans in accounts without a configured key, instances first, oldest first."""
    async with ctx.db.read() as tx:
        lost = key_rotation.unreachable(await accounts_in_use(tx), ctx.providers)
        rows = await open_there(tx, [(one.cloud, one.account) for one, _ in lost])
    return [_shown(row, owner) for row, owner in rows]


def _shown(row: Instance | Orphan, owner: str) -> UnreachableInstance:
    orphan = isinstance(row, Orphan)
    since = row.first_seen_at if isinstance(row, Orphan) else row.created_at
    session_id = None if isinstance(row, Orphan) else row.session_id
    state = f"orphan, {row.state}" if orphan else str(row.state)
    return UnreachableInstance(
        row.id, row.cloud, row.account, row.ref, state, row.price_usd_h, since, session_id, owner
    )


async def write_off(ctx: Context, ids: Collection[str], actor: Actor, reason: str) -> Reply:
    """Close these instances and orphans as gone, all or none, after checking them with every configured key."""
    wanted = sorted(set(ids))
    if not reason.strip():
        return refuse(ReplyCode.REASON_NEEDED, "Say why, for the audit log: --reason 'the account is closed'.")
    async with ctx.db.read() as tx:
        rows = await rows_named(tx, wanted)
        refusal = await _open(ctx, tx, wanted, rows)
    refusal = refusal or await _still_shown(ctx, rows)
    if refusal is not None:
        return refusal
    if doubt := clock_problem(ctx.clock):
        return refuse(ReplyCode.CLOCK_WRONG, f"Nothing can be closed while the clock is wrong: {doubt}.")
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            await lock_families(tx, wanted)
            for orphan_id in [row.id for row in rows if isinstance(row, Orphan)]:
                await lock_orphan(tx, orphan_id)
            fresh = await rows_named(tx, wanted)
            refusal = await _open(ctx, tx, wanted, fresh)  # Somebody may have acted while the clouds were queried.
            if refusal is not None:
                return refusal
            for row in fresh:
                await _close(ctx, tx, row, actor, reason, now)
    except StaleMove as error:
        return refuse(ReplyCode.STALE, f"{error.row_id} changed meanwhile. See {LIST}.")
    for hint in (ctx.hints.outbox, ctx.hints.sessions, ctx.hints.requests):
        hint.set()
    return Reply(True, ReplyCode.WRITTEN_OFF, f"{plural(len(fresh), 'instance')} {CLOSED}")


async def _open(ctx: Context, tx: Tx, wanted: Sequence[str], rows: Sequence[Instance | Orphan]) -> Reply | None:
    """Return a refusal when one has no row, has ended, is unsettled, can be listed, or sent a heartbeat just now."""
    missing = set(wanted) - {row.id for row in rows}
    if missing or not rows:
        named = min(missing, default="")[:40]
        return refuse(ReplyCode.UNKNOWN_ID, f"There is no instance or orphan {named}. See {LIST}.")
    nodes = await nodes_of(tx, wanted)
    for row in rows:
        provider = ctx.providers.get(row.cloud)
        if row.state is OrphanState.GONE if isinstance(row, Orphan) else row.state not in CLOSABLE:
            return refuse(ReplyCode.STALE, f"{row.id} is {state_words(row.state)}, so it needs no closing.")
        if provider is not None and provider.account == row.account:
            how = cli_command(f"orphans condemn {row.id}" if isinstance(row, Orphan) else f"shutdown {row.id}")
            return refuse(
                ReplyCode.REACHABLE,
                f"The key of {row.cloud} can read the account of {row.id}, so this is not needed. To end it: {how}.",
            )
        node = nodes.get(row.id)
        at = node.at if node else None
        if at is not None and ctx.clock.now() - at < SILENT:
            return refuse(
                ReplyCode.STILL_REPORTS, f"The agent of {row.id} reported at {at:%H:%M} UTC, so it still runs."
            )
    return None


async def _still_shown(ctx: Context, rows: Sequence[Instance | Orphan]) -> Reply | None:
    """Return a refusal when a configured key of one of the clouds lists one of them, or cannot list."""
    for cloud in sorted({row.cloud for row in rows} & ctx.providers.keys()):
        try:
            listing = await ctx.providers[cloud].list()
        except ProviderError as error:
            return refuse(ReplyCode.CLOUD_FAILED, f"{cloud} could not be checked: {error.message}. Try again later.")
        there = [item for item in listing.items if item.status is not InstanceStatus.TERMINATED]
        refs, labels = {item.ref for item in there}, {ctx.labels.read(item.name).label for item in there if item.name}
        for row in rows:
            if row.cloud == cloud and (row.ref in refs or row.label in labels):
                return refuse(
                    ReplyCode.STILL_SHOWN,
                    f"{cloud} still lists {row.id} ({row.ref or row.label}), so it is not gone.",
                )
    return None


async def _close(ctx: Context, tx: Tx, row: Instance | Orphan, actor: Actor, reason: str, now: datetime) -> None:
    """Close one row: book its cost until now, and end its session where nothing else of it is open."""
    if isinstance(row, Orphan):
        await accrue_orphan(ctx, tx, row, now)
        values = {"ended_at": now}
        await move(tx, Orphan, row.id, OrphanState.GONE, now, actor, reason, version=row.version, values=values)
        return
    code, sentence = EndReason.WRITTEN_OFF, f"{WRITTEN_OFF} {reason}"
    session = await tx.get_one(Session, row.session_id, populate_existing=True)
    alone = [one.id for one in await open_instances_of_session(tx, session.id)] == [row.id]
    if alone and session.state in ENDABLE_SESSION:
        await end_session(ctx, tx, session.id, code, sentence, actor, now)
        await notify_ended_by(tx, ctx.policy, session, actor, sentence, now)
    row = await tx.get_one(Instance, row.id, populate_existing=True)
    if row.state is InstanceState.UNKNOWN:
        over = {"outcome": sentence, "outcome_code": code, "ended_at": now}
        to = InstanceState.TOMBSTONE
        await move(tx, Instance, row.id, to, now, actor, reason, values=over)
        await settle(ctx, tx, session.id, now)
        return
    if row.state is not InstanceState.TERMINATING:  # Another instance of the session continues.
        await end_instance(tx, row, code, sentence, now, actor)
        row = await tx.get_one(Instance, row.id, populate_existing=True)
    proof = ProofOfEnd.from_write_off(row.account, now)
    ended_at = min(row.terminate_acked_at or now, now)
    await gone(ctx, tx, row, proof, ended_at, now, outcome=(code, sentence), actor=actor)
