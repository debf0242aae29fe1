"""Turn journal events into webhook deliveries: render, sign, send, and retry them for 75 hours.

A message is delivered at least once, in no promised order, with one id over all its attempts. It says what happened and
the state of its subject when it is sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from bot.outbound.egress import AddressRefused, AddressUnreachable, EgressResponse, post
from bot.outbound.names import NAMES, ResolverBusy
from bot.rules.values.command_text import cli_command
from bot.rules.webhooks.webhooks import (
    GONE,
    OLD_FIELDS,
    delivered,
    kinds_of,
    name_of_type,
    pause_s,
    sent_type,
    signature,
    topic_of_event,
    topics_of,
)
from bot.services.access import authorization
from bot.services.access.api_keys import combined_rights
from bot.services.notifications.paging import alone, page_in
from bot.services.runtime.context import Context
from bot.services.webhooks.subscriptions import delivery_row, egress_of, open_secrets
from ledger.core import Claim, Tx, claim_deliveries, release
from ledger.kernel.actor import Actor
from ledger.kernel.ids import new_id
from ledger.kernel.secret_shapes import without_signatures_in
from ledger.kernel.states import NotificationState
from ledger.models import Event, Instance, Orphan, Request, Session, Webhook, WebhookDelivery
from ledger.queries.event_order import events_after, newest_position, only
from ledger.queries.webhooks import add_deliveries, forget, listening, read_until, scopes_of_holders
from providers.http import USER_AGENT

SCANNED = 500
#: Messages that are sent at once: those of one run, and those of one webhook in all runs.
BATCH, SHARE = 4, 2
#: Runs at once.
WIDTH = 16
#: Longer than the longest call.
LEASE_S = 60.0
KEPT = timedelta(days=30)
#: How long a message waits until its holder has a working key again, and how often that is checked.
WAITS_FOR_A_KEY, ASK_AGAIN = timedelta(hours=75), timedelta(hours=1)
#: How long a message waits for a free thread that resolves its webhook's host; no attempt is counted.
RESOLVE_AGAIN = timedelta(seconds=5)
FORGET_EVERY_S = 3600.0
ATTEMPTS_SHOWN = 20
#: A message stays below 20 kB, however long a reason in it is.
TEXT_MAX = 2_000
#: What a message shows of a session.
SHOWN_OF_SESSION = (
    "id",
    "state",
    "owner",
    "deadline",
    "end_code",
    "end_reason",
    "job_state",
    "job_exit_code",
)

Send = Callable[..., Awaitable[EgressResponse]]

log = logging.getLogger(__name__)


async def fan_out(ctx: Context) -> int:
    """Create a delivery for every new event that a webhook subscribes to. Return how many are new."""
    now = ctx.clock.now()
    async with ctx.db.read() as tx:
        newest = await newest_position(tx)
        hooks = [hook for hook in await listening(tx, now) if hook.position < newest]
        actors = {hook.actor: Actor.from_ref(hook.actor) for hook in hooks}
        owners = {ref: await authorization.mine(tx, ctx.policy, actor) for ref, actor in actors.items()}
        held = await scopes_of_holders(tx, actors, now)
    # A webhook that covered everything when it was made does so only as long as its holder may see everything.
    all_of_it = {
        ref for ref, actor in actors.items() if authorization.sees_all(ctx.policy, combined_rights(actor, held[ref]))
    }
    whose = [None if hook.everything and hook.actor in all_of_it else owners[hook.actor] for hook in hooks]
    looks = [(hook, _fan_out(ctx, hook, names, newest)) for hook, names in zip(hooks, whose, strict=True)]
    return sum([await alone(ctx, hook.id, "the check of the audit log", look, 0) for hook, look in looks])


async def _fan_out(ctx: Context, hook: Webhook, whose: Any, newest: int) -> int:
    """Make the deliveries of one webhook up to the position `newest`, and store how far that is with them."""
    made, position, now = 0, hook.position, ctx.clock.now()
    topics = topics_of(hook.topics)
    while position < newest:
        async with ctx.db.read() as tx:
            position, found = await events_after(tx, position, SCANNED, *only(whose, kinds_of(topics)))
        rows = []
        for event in found:
            what = topic_of_event(event.kind, event.before, event.after)
            if what is not None and what[0] in topics:
                rows.append(delivery_row(hook, new_id("dlv", now), event.id, sent_type(what[1]), now))
        # Positions without a delivery are noted now and then only: reading them again costs less than a write.
        if rows or position - hook.position >= SCANNED:
            async with ctx.db.write() as tx:
                made += await add_deliveries(tx, rows)
                await read_until(tx, hook.id, position)
    return made


async def deliver_due(ctx: Context, send: Send = post) -> int:
    """Send due messages, a few of each webhook. A failed one is retried for 75 hours; then its webhook is switched off.

    A receiver that never answers keeps this run until its call is given up, so there are more runs at once (`WIDTH`)
    than one person may have webhooks.
    """
    held = await claim_deliveries(
        ctx.db, now=ctx.clock.now(), share=SHARE, limit=BATCH, lease=timedelta(seconds=LEASE_S)
    )
    await asyncio.gather(*(_deliver(ctx, one, send) for one in held))
    return len(held)


async def _deliver(ctx: Context, held: Claim, send: Send) -> None:
    """Deliver one message. An unforeseen failure counts as one failed attempt of it, and stops no other."""
    try:
        await _attempt(ctx, held, send)
    except Exception:
        log.exception("the delivery of %s failed", held.row_id)
        async with ctx.db.read() as tx:
            row = await tx.get(WebhookDelivery, held.row_id)
            hook = await tx.get(Webhook, row.webhook_id) if row is not None else None
        if row is not None and hook is not None:
            await _failed(ctx, held, row, hook, "the service failed to send it; see its log", 0)


async def _attempt(ctx: Context, held: Claim, send: Send) -> None:
    await ctx.pressure.ease()
    await ctx.names.refresh(ctx.db, ctx.clock)
    async with ctx.db.read() as tx:
        row = await tx.get_one(WebhookDelivery, held.row_id)
        hook = await tx.get_one(Webhook, row.webhook_id)
        listens = hook.id in {one.id for one in await listening(tx, ctx.clock.now(), hook.actor)}
        body = await _rendered(ctx, tx, row)
    now, began = ctx.clock.now(), ctx.clock.monotonic()
    if hook.off_at is not None:
        await _note(ctx, held, row, "it is switched off", state=NotificationState.DEAD)
        return
    if not listens:
        # A key may be rotated late; a message that waits as long as messages are retried is given up.
        over = now - row.created_at > WAITS_FOR_A_KEY
        dead = {"state": NotificationState.DEAD} if over else {"due_at": now + ASK_AGAIN}
        await _note(ctx, held, row, "its owner has no valid API key", **dead)
        return
    try:
        headers, resolve = _headers(ctx, hook, row, body, now), NAMES.for_user(hook.actor)
        answer = await send(hook.url, body, headers, egress_of(ctx.policy), resolve=resolve)
    except ResolverBusy:
        await _note(ctx, held, row, "too many hosts are being looked up", due_at=now + RESOLVE_AGAIN)
        return
    except (AddressRefused, AddressUnreachable) as error:
        await _failed(ctx, held, row, hook, str(error), _ms(ctx, began))
        return
    if delivered(answer.status):
        await _note(ctx, held, row, str(answer.status), _ms(ctx, began), state=NotificationState.SENT)
    else:
        await _failed(ctx, held, row, hook, str(answer.status), _ms(ctx, began), answer)


def _ms(ctx: Context, began: float) -> int:
    return int((ctx.clock.monotonic() - began) * 1000)


def _headers(ctx: Context, hook: Webhook, row: WebhookDelivery, body: bytes, now: datetime) -> dict[str, str]:
    at_s = int(now.timestamp())
    return {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "webhook-id": row.id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": signature(open_secrets(ctx.labels, hook, now), row.id, at_s, body),
    }


async def _failed(
    ctx: Context,
    held: Claim,
    row: WebhookDelivery,
    hook: Webhook,
    what: str,
    took_ms: int,
    answer: EgressResponse | None = None,
) -> None:
    tries = row.tries + 1
    gone = answer is not None and answer.status == GONE
    pause = None if gone else pause_s(tries, row.id)
    if pause is not None:
        asked = answer.retry_after_s if answer and answer.retry_after_s else 0.0
        due_at = ctx.clock.now() + timedelta(seconds=max(pause, min(asked, KEPT.total_seconds())))
        await _note(ctx, held, row, what, took_ms, tries=tries, due_at=due_at)
        return
    why = "it answered 410 Gone." if gone else f"{tries} attempts over 75 hours failed, the last with: {what}."
    await _note(ctx, held, row, what, took_ms, tries=tries, state=NotificationState.DEAD, off=(hook, why))


async def _note(
    ctx: Context,
    held: Claim,
    row: WebhookDelivery,
    what: str,
    took_ms: int = 0,
    *,
    state: NotificationState = NotificationState.PENDING,
    tries: int | None = None,
    due_at: datetime | None = None,
    off: tuple[Webhook, str] | None = None,
) -> None:
    """Store the outcome of an attempt; `off` switches the webhook off and pages the operators with the reason."""
    now = ctx.clock.now()
    attempts = [*row.attempts, {"at": now.isoformat(), "outcome": what, "ms": took_ms}][-ATTEMPTS_SHOWN:]
    sent = {"sent_at": now} if state is NotificationState.SENT else {}
    async with ctx.db.write() as tx:
        mine = await release(
            tx,
            WebhookDelivery,
            held,
            due_at=due_at,
            state=state,
            tries=row.tries if tries is None else tries,
            attempts=attempts,
            **sent,
        )
        if mine and off is not None:
            hook = await tx.get_one(Webhook, off[0].id)
            if hook.off_at is None:
                hook.off_at, hook.off_reason = now, off[1]
                again = cli_command(f"webhooks replay {hook.id}")
                sentence = f"Webhook {hook.id} of {hook.actor} is switched off: {off[1]} To switch it on: {again}."
                await page_in(ctx, tx, f"{hook.id}/off", sentence, now)
                ctx.hints.outbox.set()


async def _rendered(ctx: Context, tx: Tx, row: WebhookDelivery) -> bytes:
    """Render the message: what happened, and the state of its subject now."""
    event = await tx.get(Event, row.event_id)
    head = {"type": row.kind, "name": name_of_type(row.kind)}
    if event is None:
        content = {**head, "timestamp": row.created_at.isoformat(), "data": {"note": "A test."}}
        return json.dumps(content).encode()
    data: dict[str, Any] = {
        "event_id": event.id,
        "subject": event.subject,
        "before": event.before,
        "after": event.after,
        "actor": event.actor,
        "reason": event.reason[:TEXT_MAX],
        **await _subject(tx, event.subject),
    }
    content = {**head, "timestamp": event.at.isoformat(), "data": data}
    return json.dumps(without_signatures_in(ctx.names.in_answer(ctx.policy, content))).encode()


async def _subject(tx: Tx, subject: str) -> dict[str, Any]:
    """Return what an event is about, in its state now: the request, session, instance or orphan, and its owner."""
    instance = await tx.get(Instance, subject)
    orphan = await tx.get(Orphan, subject)
    if orphan is not None and orphan.instance_id is not None:
        instance = await tx.get(Instance, orphan.instance_id)
    session = await tx.get(Session, instance.session_id if instance else subject)
    request = await tx.get(Request, session.request_id if session else subject)
    content: dict[str, Any] = {}
    for name, one, columns in (
        ("request", request, ("id", "kind", "state", "requester", "outcome", "decided_by")),
        ("session", session, SHOWN_OF_SESSION),
        ("instance", instance, ("id", "cloud", "ref", "state", "price_usd_h")),
        ("orphan", orphan, ("id", "cloud", "ref", "state", "price_usd_h", "reason")),
    ):
        if one is not None:
            content[name] = {column: _plain(getattr(one, column)) for column in columns}
    return content | {old: content[name] for name, old in OLD_FIELDS.items() if name in content}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, int) else str(value)[:TEXT_MAX]


async def forget_due(ctx: Context) -> int:
    """Delete old deliveries that are finished; return how many."""
    async with ctx.db.write() as tx:
        return await forget(tx, ctx.clock.now() - KEPT)
