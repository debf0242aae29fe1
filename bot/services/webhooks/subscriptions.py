"""Manage webhooks: create with a secret that is shown once, test, rotate, replay and delete."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.fernet import Fernet

from bot.outbound.egress import AddressRefused, AddressUnreachable, Egress, read_url, vet
from bot.outbound.names import NAMES, ResolverBusy
from bot.rules.access.scopes import Scope
from bot.rules.policy.policy import Policy
from bot.rules.values.command_text import cli_command
from bot.rules.values.labels import LabelKey
from bot.rules.values.phrases import plural
from bot.rules.values.reply_code import ReplyCode
from bot.rules.webhooks.webhooks import SECRET_BYTES, Topic, masked, secret_text, stored_topics, unknown_topics
from bot.services.access import authorization
from bot.services.access.api_keys import Principal
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from bot.services.runtime.event_order import number_all
from ledger.core import Tx, record
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import new_id
from ledger.kernel.states import NotificationState
from ledger.models import Webhook
from ledger.queries.event_order import newest_position
from ledger.queries.webhooks import add_deliveries, again, count_webhooks, remove, webhook

MOST = 10
#: For this long after a rotation the old secret signs too.
OVERLAP = timedelta(hours=24)
TEST = "webhook.test"
_BOX = b"gpu-shopper webhook secrets, version 1"
UNKNOWN = refuse(ReplyCode.UNKNOWN_WEBHOOK, f"There is no such webhook. See {cli_command('webhooks list')}.")
NOT_YOURS = refuse(ReplyCode.NOT_YOURS, "Only the person who created this webhook, or an administrator, can change it.")


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """Request a webhook that posts these topics to `url`; none means all."""

    url: str
    topics: tuple[str, ...] = ()
    note: str = ""


def egress_of(policy: Policy) -> Egress:
    """Return the addresses that the policy allows webhooks to call."""
    return Egress(policy.webhook_networks, policy.webhook_ports)


def box(labels: LabelKey) -> Fernet:
    """Return the cipher for stored secrets; its key is derived from the label key, which is not in the database."""
    return Fernet(base64.urlsafe_b64encode(hmac.digest(labels.key, _BOX, "sha256")))


def open_secrets(labels: LabelKey, hook: Webhook, now: datetime) -> Iterator[bytes]:
    """Yield the secrets that sign now, the newest first."""
    key = box(labels)
    yield key.decrypt(hook.secret)
    if hook.old_secret is not None and hook.old_until is not None and now < hook.old_until:
        yield key.decrypt(hook.old_secret)


async def create(ctx: Context, who: Principal, command: NewWebhook) -> Reply:
    """Create a webhook. `data["secret"]` is shown this once. The address is checked now, and again at every call."""
    wrong = unknown_topics(command.topics)
    if wrong:
        return refuse(ReplyCode.BAD_TOPIC, f"{wrong[0][:40]} is not a topic. Topics are {', '.join(Topic)}.")
    egress = egress_of(ctx.policy)
    try:
        await vet(read_url(command.url, egress), egress, NAMES.for_user(who.actor.ref))
    except AddressRefused as refused:
        return refuse(ReplyCode.BAD_URL, str(refused))
    except AddressUnreachable as error:
        return refuse(ReplyCode.BAD_URL, f"The host of this URL was not found: {error}.")
    except ResolverBusy:
        return refuse(
            ReplyCode.RESOLVER_BUSY, "Too many webhooks are being created at the moment. Try again in a minute."
        )
    now, secret = ctx.clock.now(), secrets.token_bytes(SECRET_BYTES)
    hook = Webhook(
        id=new_id("whk", now),
        actor=who.actor.ref,
        url=command.url,
        topics=stored_topics(command.topics or Topic),
        note=command.note[:200],
        everything=authorization.sees_all(ctx.policy, who),
        secret=box(ctx.labels).encrypt(secret).decode(),
        created_at=now,
        created_by=who.actor.ref,
        seen_at=now,
    )
    await number_all(ctx)
    async with ctx.db.write() as tx:
        if await count_webhooks(tx, who.actor.ref) >= MOST:
            return refuse(ReplyCode.TOO_MANY_WEBHOOKS, f"You already have {MOST} webhooks. Delete one first.")
        hook.position = await newest_position(tx)
        tx.add(hook)
        _note(tx, who, hook, EventKind.WEBHOOK_CREATED, now)
    sentence = f"Webhook {hook.id} receives events from now on. Store its secret now: it is shown once."
    return Reply(True, ReplyCode.WEBHOOK_CREATED, sentence, {"webhook_id": hook.id, "secret": secret_text(secret)})


async def delete(ctx: Context, who: Principal, webhook_id: str) -> Reply:
    """Delete a webhook and drop its unsent messages."""
    async with ctx.db.write() as tx:
        hook = await _own(ctx, tx, who, webhook_id)
        if isinstance(hook, Reply):
            return hook
        await remove(tx, hook.id)
        _note(tx, who, hook, EventKind.WEBHOOK_DELETED, ctx.clock.now())
    return Reply(True, ReplyCode.WEBHOOK_DELETED, f"Webhook {webhook_id} is deleted.")


async def test(ctx: Context, who: Principal, webhook_id: str) -> Reply:
    """Send a test message through the normal delivery."""
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        hook = await _own(ctx, tx, who, webhook_id)
        if isinstance(hook, Reply):
            return hook
        if hook.off_at is not None:
            again = cli_command(f"webhooks replay {hook.id}")
            return refuse(
                ReplyCode.WEBHOOK_OFF, f"{hook.id} is switched off: {hook.off_reason} To switch it on: {again}."
            )
        delivery_id = new_id("dlv", now)
        await add_deliveries(tx, [delivery_row(hook, delivery_id, new_id("tst", now), TEST, now)])
    sentence = f"Sending test {delivery_id}. For the result, see {cli_command(f'webhooks log {webhook_id}')}."
    return Reply(True, ReplyCode.WEBHOOK_TEST, sentence, {"delivery_id": delivery_id})


def delivery_row(hook: Webhook, delivery_id: str, event_id: str, kind: str, now: datetime) -> dict[str, object]:
    """Return the row of a delivery that is due now."""
    return {
        "id": delivery_id,
        "webhook_id": hook.id,
        "event_id": event_id,
        "kind": kind,
        "state": NotificationState.PENDING,
        "tries": 0,
        "attempts": [],
        "created_at": now,
        "due_at": now,
    }


async def rotate(ctx: Context, who: Principal, webhook_id: str) -> Reply:
    """Create a new secret, shown this once; the old one signs beside it for a day."""
    now, secret = ctx.clock.now(), secrets.token_bytes(SECRET_BYTES)
    async with ctx.db.write() as tx:
        hook = await _own(ctx, tx, who, webhook_id)
        if isinstance(hook, Reply):
            return hook
        hook.old_secret, hook.old_until = hook.secret, now + OVERLAP
        hook.secret = box(ctx.labels).encrypt(secret).decode()
        _note(tx, who, hook, EventKind.WEBHOOK_ROTATED, now)
    sentence = f"Webhook {webhook_id} has a new secret, shown this once. The old one also signs for 24 hours."
    return Reply(True, ReplyCode.WEBHOOK_ROTATED, sentence, {"webhook_id": webhook_id, "secret": secret_text(secret)})


async def replay(ctx: Context, who: Principal, webhook_id: str, delivery_id: str | None = None) -> Reply:
    """Send one message again, or all that were given up, and switch the webhook on again."""
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        hook = await _own(ctx, tx, who, webhook_id)
        if isinstance(hook, Reply):
            return hook
        number = await again(tx, hook.id, delivery_id, now)
        if delivery_id is not None and not number:
            return refuse(
                ReplyCode.UNKNOWN_DELIVERY,
                f"{hook.id} has no delivery {delivery_id[:40]}. See {cli_command(f'webhooks log {hook.id}')}.",
            )
        hook.off_at, hook.off_reason = None, ""
        _note(tx, who, hook, EventKind.WEBHOOK_REPLAYED, now)
    return Reply(True, ReplyCode.WEBHOOK_REPLAYED, f"Sending {plural(number, 'message')} of {webhook_id} again.")


async def _own(ctx: Context, tx: Tx, who: Principal, webhook_id: str) -> Webhook | Reply:
    """Return the webhook for its maker and for administrators, or a refusal.

    Approvers see others' webhooks, and get no secret of theirs.
    """
    hook = await webhook(tx, webhook_id, await authorization.visible(tx, ctx.policy, who))
    if hook is None:
        return UNKNOWN
    if Scope.ADMIN not in who.scopes and hook.actor not in await authorization.mine(tx, ctx.policy, who.actor):
        return NOT_YOURS
    return hook


def _note(tx: Tx, who: Principal, hook: Webhook, kind: EventKind, now: datetime) -> None:
    """Record who named which host; approvers read this, and the rest of the address may be a secret."""
    reason = f"{hook.id}: {masked(hook.url)}"
    record(tx, now, who.actor, hook.actor, kind, reason=reason)
