"""Issue tokens for an instance's own API, and notify people when its certificate changes.

A token is made for the owner of the session, shown once, and known to the instance by its hash only, in the signed part
of the reply to a check-in. Nothing is ended for a certificate that changed.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from bot.rules.nodes.node_api import StoredNodeApi
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.nodes.connection import api_url
from bot.services.notifications.paging import page_with_owner
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx, record
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.event_kind import EventKind
from ledger.kernel.ids import bare_id
from ledger.kernel.states import InstanceState
from ledger.models import Instance, Node, Session
from ledger.queries.nodes import amend_node
from ledger.queries.views import session_view
from providers.profiles import model


@dataclass(frozen=True, slots=True)
class Opened:
    """A new token, which is stored nowhere else, with the URL and the certificate of its API."""

    token: str
    url: str
    certificate: str


def stored_node_api(node: Node) -> StoredNodeApi:
    """Return what is stored about an agent's API, as the rules read it."""
    return StoredNodeApi(node.api_port, node.api_certificate, node.api_other, node.api_other_at)


def columns(found: StoredNodeApi) -> dict[str, object]:
    """Return the columns of an agent's row: the inverse of `stored_node_api`."""
    return {
        "api_port": found.port,
        "api_certificate": found.certificate,
        "api_other": found.other,
        "api_other_at": found.other_at,
    }


async def make_token(ctx: Context, session_id: str, actor: Actor) -> Reply:
    """Make a new token for the API of a session's instance, replacing the old one. For the session's owner only.

    Success (`token_made`) has the `Opened` in its data. The instance accepts it from its next check-in on.
    """
    now = ctx.clock.now()
    async with ctx.db.write() as tx:
        view = await session_view(tx, session_id)
        session, row, node = view.session, view.instance, view.node
        short = session.short_id
        if session.owner not in await authorization.mine(tx, ctx.policy, actor):
            sentence = f"Only the owner of session {short} can get a token for its machine's API."
            return refuse(ReplyCode.NOT_YOURS, sentence, {"session_id": session.id})
        url = api_url(row, node) if row is not None and row.state is InstanceState.LIVE else None
        if row is None or node is None or url is None:
            none = f"The machine of session {short} offers no API yet. Try again once its agent has reported."
            return refuse(ReplyCode.NO_NODE_API, none, {"session_id": session.id})
        token = f"gpua_{bare_id(row.id)}_{secrets.token_urlsafe(32)}"
        await amend_node(tx, row.id, api_token_hash=hashlib.sha256(token.encode()).hexdigest(), api_token_at=now)
        said = "A new token for the API of its machine. The earlier one no longer works."
        record(tx, now, actor, row.id, EventKind.INSTANCE_API_TOKEN_MADE, reason=said)
        opened = Opened(token, url, node.api_certificate or "")
    sentence = (
        f"The token opens the API of session {short} within a minute, and is shown this once. "
        "The earlier one no longer works. Trust only the certificate with this SHA-256."
    )
    return Reply(True, ReplyCode.TOKEN_MADE, sentence, {"session_id": session.id, "opened": opened})


async def notify_changed_certificate(
    tx: Tx, policy: Policy, instance_id: str, before: StoredNodeApi, after: StoredNodeApi, now: datetime
) -> None:
    """Record that an agent named another certificate, and notify the session's owner and the operators."""
    row = await tx.get_one(Instance, instance_id)
    session = await tx.get_one(Session, row.session_id)
    sentence = (
        f"The certificate of the machine's API in session {session.short_id} ({row.cloud}, {row.name}) changed "
        f"from {before.certificate} to {after.other}. Did you change it yourself? If not, don't send it the token. "
        "The session keeps running."
    )
    data = {"before": before.certificate, "after": after.other}
    kind = EventKind.INSTANCE_API_CERTIFICATE_CHANGED
    record(tx, now, SYSTEM, row.id, kind, reason=sentence, data=data)
    await page_with_owner(tx, policy, session, f"{row.id}/api", sentence, now)


async def forget(tx: Tx, row: Instance) -> None:
    """Clear the stored API of an instance whose disk a restart wipes.

    It makes another certificate, and nobody is notified of that.
    """
    if model.load(row.cloud).restarted:
        await amend_node(tx, row.id, **columns(StoredNodeApi()))
