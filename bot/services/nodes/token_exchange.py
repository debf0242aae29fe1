"""Exchange an agent's boot token for a check-in token, open one more exchange after a restart, and notify of misuse.

The check-in token follows from the deployment's label key and the agent's nonce, so an agent that lost the reply asks
again with the same nonce and gets the same token; only hashes are stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from bot.rules.nodes.tokens import ShownToken, StoredTokens, TokenKind, restarted_since
from bot.rules.policy.policy import Policy
from bot.rules.values.labels import LabelKey
from bot.rules.values.reply_code import ReplyCode
from bot.services.nodes import enrollment
from bot.services.notifications.paging import page_with_owner
from bot.services.runtime.commands import refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import bare_id
from ledger.models import Instance, Node, Session
from ledger.queries.lookups import Open
from ledger.queries.nodes import nodes_of, open_exchange
from providers.contract import InstanceStatus, ObservedInstance

REPLACED = refuse(
    ReplyCode.UNAUTHENTICATED,
    "This token was replaced. Check in with the token that the last exchange returned; a restart of the instance opens "
    "one more exchange.",
)


class Presented(NamedTuple):
    """Hold the token of a check-in: of which instance, as the rules judge it, and what its nonce leads to."""

    instance_id: str
    shown: ShownToken
    next_token: str


def presented(labels: LabelKey, token: str, nonce: str | None) -> Presented | None:
    """Read a token and the nonce beside it; None for what is no token of an agent."""
    shape = enrollment.SHAPE.fullmatch(token)
    if shape is None:
        return None
    kind, instance_id = TokenKind(shape[1]), f"ins_{shape[2]}"
    hashed = enrollment.hashed(labels, shape[3], kind)
    if nonce is None or kind is TokenKind.CHECKIN:
        return Presented(instance_id, ShownToken(kind, hashed), "")
    digest = hmac.digest(enrollment.exchange_key(labels), f"{instance_id} {nonce}".encode(), "sha256")
    secret = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    following = enrollment.hashed(labels, secret, TokenKind.CHECKIN)
    shown = ShownToken(kind, hashed, hashlib.sha256(nonce.encode()).hexdigest(), following)
    return Presented(instance_id, shown, f"{TokenKind.CHECKIN}_{bare_id(instance_id)}_{secret}")


def stored_tokens(node: Node) -> StoredTokens:
    """Return what is stored of an agent's tokens, as the rules read it."""
    return StoredTokens(
        boot=node.token_hash,
        checkin=node.checkin_hash,
        previous=node.previous_hash,
        nonce=node.nonce_hash,
        exchanged_at=node.exchanged_at,
        open_since=node.exchange_open_at,
        notified_at=node.token_notified_at,
    )


def columns(found: StoredTokens) -> dict[str, Any]:
    """Return the columns of an agent's row: the inverse of `stored_tokens`, without the boot token."""
    return {
        "checkin_hash": found.checkin,
        "previous_hash": found.previous,
        "nonce_hash": found.nonce,
        "exchanged_at": found.exchanged_at,
        "exchange_open_at": found.open_since,
        "token_notified_at": found.notified_at,
    }


def note_exchange(tx: Tx, instance_id: str, again: bool, now: datetime) -> None:
    """Record that an agent exchanged its boot token; `again` after a restart."""
    said = "Its agent exchanged its boot token" + (" once more, after a restart." if again else ".")
    record(tx, now, SYSTEM, instance_id, EventKind.INSTANCE_AGENT_TOKEN_EXCHANGED, reason=said)


async def notify_replaced(tx: Tx, policy: Policy, instance_id: str, kind: TokenKind, now: datetime) -> None:
    """Record a token that was refused because another one replaced it, and notify the owner and the operators."""
    row = await tx.get_one(Instance, instance_id)
    session = await tx.get_one(Session, row.session_id)
    which = "boot token" if kind is TokenKind.BOOT else "earlier check-in token"
    sentence = (
        f"Somebody checked in with the {which} of session {session.short_id} ({row.cloud}, {row.name}), which its "
        "agent had exchanged. The check-in was refused. If you started a second agent there, restart the instance; "
        "its agent can then exchange the token once more. If you did not, somebody may have read the token on the "
        "instance. Nothing was ended."
    )
    record(tx, now, SYSTEM, row.id, EventKind.INSTANCE_AGENT_TOKEN_REFUSED, reason=sentence, data={"token": str(kind)})
    await page_with_owner(tx, policy, session, f"{row.id}/agent_token", sentence, now)


async def note_reported_restarts(
    ctx: Context, rows: Sequence[Open], seen: Mapping[str, ObservedInstance], now: datetime
) -> None:
    """Open one more exchange on each listed instance that its cloud says was started after its last exchange."""
    started = {
        row.id: item.started_at
        for row in rows
        if (item := seen.get(row.id)) is not None
        and item.status is InstanceStatus.RUNNING
        and item.started_at is not None
        and row.reachable_at is not None
        and item.started_at > row.reachable_at
    }
    if not started:
        return
    async with ctx.db.read() as tx:
        nodes = await nodes_of(tx, started)
    again = [key for key, node in nodes.items() if restarted_since(stored_tokens(node), started[key])]
    if again:
        async with ctx.db.write() as tx:
            for instance_id in again:
                await open_exchange(tx, instance_id, now)
