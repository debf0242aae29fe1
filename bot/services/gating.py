"""The checkpoint gate: before a machine is ended by itself, its newest checkpoint is looked for where its job keeps it.

What is not there is waited for, a bounded time, while the agent is asked to save and upload; then the policy decides.
A machine that is kept is stopped with its disk where that is possible, and paid from what was approved: the gate never
spends more than that. An end that a person ordered is that person's answer, and is not held.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules import checkpoints as rules
from bot.rules.checkpoints import Newest, Place, Reported, Unverified
from bot.rules.nodes import Work
from bot.rules.wording import Verdict
from bot.services.checkins import heard_of
from bot.services.context import Context
from bot.services.metering import cost_now
from bot.services.paging import page_in
from ledger.events import announce, record
from ledger.locks import lock_family
from ledger.lookups import extension_caps
from ledger.models import GrantRow, Instance, Node, Request, Session
from ledger.nodes import node_of
from ledger.reads import session_view
from ledger.states import InstanceState, NotificationKind
from ledger.values import SYSTEM, Actor, ActorKind, short_id
from ledger.writes import Tx, amend
from providers import profile
from providers.errors import ProviderError
from providers.stores import StoreUnreachable

#: Between two looks at the store while an end waits.
LOOK = timedelta(seconds=30)
#: Longest hold that anything approved can pay for.
LONGEST = timedelta(days=7)
#: Ends that a person ordered, knowing that the disk goes.
ANSWERED = frozenset({"asked"})
SAVING, HELD = "saving", "held"
#: The gate is behind it: verified, released by somebody, or given up as the policy or the money says.
PASSED, RELEASED, DESTROYED = "passed", "released", "destroyed"
WAITS = frozenset({SAVING, HELD})

log = logging.getLogger(__name__)


async def held_until(ctx: Context, row: Instance, now: datetime) -> datetime | None:
    """When to look again before an end that waits; None when nothing holds it."""
    if ctx.checkpoints is None or row.gate in (PASSED, RELEASED, DESTROYED) or row.outcome_code in ANSWERED:
        return None
    async with ctx.db.read() as tx:
        request = await tx.get_one(Request, row.request_id)
        node = await node_of(tx, row.id)
    where = rules.place(request.job.get("checkpoint"))
    if where is None:
        return None
    verdict = await _look(ctx, where, node, now)
    stops = _stops(ctx, row)
    async with ctx.db.write() as tx:
        await lock_family(tx, Instance, row.id)
        fresh = await tx.get_one(Instance, row.id, populate_existing=True)
        if fresh.state is not InstanceState.TERMINATING or (fresh.gate is not None and fresh.gate not in WAITS):
            return None
        waits = await _decide(ctx, tx, fresh, verdict, now, stops=stops)
        gate = (await tx.get_one(Instance, row.id, populate_existing=True)).gate
    ctx.hints.outbox.set()
    if gate == HELD and stops and row.ref is not None:
        try:
            await ctx.providers[row.cloud].stop(row.ref)
        except ProviderError as error:
            log.warning("%s cannot be stopped while it is held: %s", row.id, error.code)
    return now + LOOK if waits else None


async def _look(ctx: Context, where: Place, node: Node | None, now: datetime) -> Verdict:
    reported = Reported()
    if node is not None and node.at is not None:
        heard = heard_of(node)
        over = heard.work_over_at if heard.work is not Work.RUNNING else heard.idle_since
        reported = Reported(over or heard.at, heard.checkpoint_step, heard.checkpoint_at)
    assert ctx.checkpoints is not None  # noqa: S101 # Its caller has asked.
    try:
        found = await ctx.checkpoints.newest(where.scheme, where.root, where.path)
    except StoreUnreachable as error:
        return Verdict(False, "unreachable", f"Its checkpoints cannot be looked at: {error}.")
    newest = Newest(found.path, found.size, found.at) if found else None
    return rules.judge(newest, reported, ctx.policy.checkpoint_max_age_s, now)


async def _decide(ctx: Context, tx: Tx, row: Instance, verdict: Verdict, now: datetime, *, stops: bool) -> bool:
    """Write down what the gate does now. True when the end waits."""
    short = short_id(row.session_id)
    if verdict.allowed:
        await _note(tx, row, PASSED, verdict.sentence, now)
        return False
    if row.gate is None:
        until = now + timedelta(seconds=ctx.policy.checkpoint_save_s)
        said = f"{verdict.sentence} Its end waits until {until:%H:%M} UTC for its agent to save and upload"
        await _note(tx, row, SAVING, verdict.sentence, now, until)
        await _tell(tx, row, SAVING, f"Session {short}: {said}. /gpu terminate {short} ends it now.", now)
        return True
    if row.gate == SAVING and now < (row.gate_until or now):
        return True
    if ctx.policy.checkpoint_unverified == Unverified.DESTROY:
        said = f"{verdict.sentence} It is ended without a verified checkpoint, as the policy allows."
        await _note(tx, row, DESTROYED, said, now)
        await _tell(tx, row, DESTROYED, f"Session {short}: {said}", now)
        return False
    if row.gate == SAVING:
        until = await _paid_until(ctx, tx, row, now, stops=stops)
        how = "is stopped and its disk kept" if stops else "runs on, because a stop there keeps nothing,"
        said = f"{verdict.sentence} It {how} until {until:%Y-%m-%d %H:%M} UTC, as what was approved pays for it"
        await _note(tx, row, HELD, said, now, until)
        await _tell(tx, row, HELD, f"Session {short}: {said}. /gpu terminate {short} ends it with its disk.", now)
        return now < until
    if now >= (row.gate_until or now):
        said = f"{verdict.sentence} What was approved is used up, so it is ended without a verified checkpoint."
        await _note(tx, row, DESTROYED, said, now)
        await _tell(tx, row, DESTROYED, f"Session {short}: {said}", now)
        await page_in(ctx, tx, f"{row.id}/unverified", f"{row.name}: {said}", now)
        return False
    if now - (row.terminate_asked_at or now) >= timedelta(seconds=ctx.policy.checkpoint_hold_s):
        said = f"{row.name} is held with an unverified checkpoint; its owner does not answer. It goes when it is ended."
        await page_in(ctx, tx, f"{row.id}/unverified", said, now)
    return True


async def _note(tx: Tx, row: Instance, gate: str, said: str, now: datetime, until: datetime | None = None) -> None:
    await amend(tx, Instance, row.id, gate=gate, gate_until=until, gate_note=said)
    record(tx, at=now, actor=SYSTEM, subject=row.session_id, kind=f"checkpoint.{gate}", reason=said)


async def _paid_until(ctx: Context, tx: Tx, row: Instance, now: datetime, *, stops: bool) -> datetime:
    """Until when what was approved and not spent pays for the machine, stopped or not."""
    view = await session_view(tx, row.session_id)
    grant = await tx.get_one(GrantRow, row.grant_id)
    left_usd = grant.total_cap_usd + await extension_caps(tx, row.session_id) - cost_now(ctx, view, now)
    # What a disk costs while stopped is known for few offers; the running disk's rate is never below it by much.
    rate = max(row.storage_usd_h, Decimal(str(row.offer.get("storage_stopped_usd_h") or 0)))
    return rules.hold_ends(now, left_usd, rate if stops else row.price_usd_h, LONGEST)


def _stops(ctx: Context, row: Instance) -> bool:
    able = ctx.providers[row.cloud].capabilities if row.cloud in ctx.providers else None
    if able is None or not able.stop or able.billing.gpu_while_stopped:
        return False
    return profile.load(row.cloud).stop_keeps_data


async def release(tx: Tx, rows: list[Instance], actor: Actor, now: datetime) -> bool:
    """Somebody ends what the gate holds, with its disk. False when it holds nothing of these."""
    waiting = [row for row in rows if row.state is InstanceState.TERMINATING and row.gate in WAITS]
    for row in waiting:
        await amend(tx, Instance, row.id, gate=RELEASED, gate_until=None, due_at=now)
        said = "Ended on request without a verified checkpoint."
        record(tx, at=now, actor=actor, subject=row.session_id, kind="checkpoint.released", reason=said)
    return bool(waiting)


async def _tell(tx: Tx, row: Instance, step: str, said: str, now: datetime) -> None:
    """The owner, or the place where it was asked for."""
    session = await tx.get_one(Session, row.session_id)
    owner = Actor.from_ref(session.owner)
    to = owner.id if owner.kind is ActorKind.SLACK else session.channel
    kind, body = NotificationKind.REPLY, {"text": said}
    await announce(tx, at=now, kind=kind, subject=f"{row.id}/gate-{step}", destination=to, body=body)
