"""Show a person's repeated request in the message of their earlier one, so that the channel gets no new one each time.

Both have one row in the outbox, whose versions are delivered in their order: the last one shows the newest request. The
buttons of the earlier request name that request, which has ended, so they never decide the new one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from bot.rules.approvals.approvers import linked
from bot.rules.policy.policy import Policy
from bot.services.notifications import request_message
from ledger.core import Tx
from ledger.core.outbox import message_of
from ledger.kernel.actor import Actor
from ledger.kernel.request_kind import RequestKind
from ledger.models import Request
from ledger.queries.access import Whose
from ledger.queries.ends import shows_first_requests
from ledger.queries.people.request_cards import Card, free_card, is_reminded

#: For how long after its first request a message shows further ones. Slack notifies nobody of an edit, so the next
#: request has a new message, which does.
SHOWS_FURTHER: Final = timedelta(minutes=15)


async def card_for(
    tx: Tx, policy: Policy, actor: Actor, channel: str, kind: RequestKind, now: datetime, parent_id: str | None = None
) -> Card:
    """Return the place of a person's new request in a message of theirs whose request ended undecided.

    Under the lock of the person, so that two requests never take one place. While a replica of the release before
    runs, there is none: it would show the earlier request, without the buttons of the new one.
    """
    if await shows_first_requests(tx, now):
        return Card()
    whose = Whose.of([actor, *linked(policy, actor)])
    return await free_card(tx, whose, channel, kind, parent_id, now - SHOWS_FURTHER)


async def notify(tx: Tx, request: Request, now: datetime) -> None:
    """Notify approvers that a message shows another request, because they may have seen the earlier one end.

    Called when a request of any kind is first shown. One reply a message does that, however often its person repeats
    the request.
    """
    if request.card_of is None or await is_reminded(tx, request.card_of):
        return
    shown = await message_of(tx, request.id, request.channel)
    if shown is not None and shown.sent_version > 0:
        await request_message.remind_again(tx, request, now)
