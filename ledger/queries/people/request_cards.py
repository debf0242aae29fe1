"""Read which request a message in a channel shows now, and which message of a person is free for their next one."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import and_, exists, func, or_, select, union_all
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from ledger.kernel.ids import first_id
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import NotificationKind, NotificationState, RequestState
from ledger.models import AdvanceApproval, Approval, Notification, Request
from ledger.queries.access import Whose

#: How a request ended of which nobody else decided anything.
_BY_ITSELF = (RequestState.EXPIRED, RequestState.UNAVAILABLE)
#: How Slack's ids of a person, and of the direct messages with them, begin.
_DIRECT = ("D", "U", "W")


class Card(NamedTuple):
    """Say in whose message a request is shown, and which one in a row it is there."""

    card_of: str | None = None
    card_turn: int | None = None


async def free_card(
    tx: AsyncSession, whose: Whose, channel: str, kind: RequestKind, parent_id: str | None, since: datetime
) -> Card:
    """Return the place of a person's next request in a message of theirs, posted after `since`; empty for none.

    That message shows a request of the same kind which has ended, and which nobody approved or rejected. It is where
    approvers read it, or not sent yet: one that the channel didn't take is a direct message to its person.
    """
    later, part = aliased(Request), aliased(Request)
    first = func.coalesce(Request.card_of, Request.id)
    withdrawn = and_(Request.state == RequestState.CANCELLED, whose.where(Request.decided_by))
    votes = select(Approval.id).join(part, part.id == Approval.request_id)
    mine = (
        Request.id >= first_id("req", since),
        first >= first_id("req", since),
        whose.where(Request.requester),
        Request.channel == channel,
        Request.kind == kind,
        Request.parent_id.is_(None) if parent_id is None else Request.parent_id == parent_id,
        or_(Request.state.in_(_BY_ITSELF), withdrawn),
        ~exists(votes.where(or_(part.id == Request.id, part.parent_id == Request.id))),
        ~exists(select(AdvanceApproval.id).where(AdvanceApproval.request_id == Request.id)),
        ~exists(select(Notification.id).where(*_shown_elsewhere(first))),
        ~exists(select(later.id).where(later.card_of == first, later.card_turn > func.coalesce(Request.card_turn, 0))),
    )
    query: Any = select(first, Request.card_turn).where(*mine).order_by(Request.id.desc()).limit(1)
    row = (await tx.execute(query)).first()
    return Card() if row is None else Card(row[0], (row[1] or 0) + 1)


def _shown_elsewhere(first: Any) -> tuple[Any, ...]:
    """Match the message of a request that is not in its channel, or on its way, so that this is not known yet."""
    direct = and_(
        Notification.channel != Notification.destination, func.substr(Notification.channel, 1, 1).in_(_DIRECT)
    )
    on_its_way = and_(Notification.channel.is_(None), Notification.claim_token.is_not(None))
    mine = (Notification.subject == first, Notification.destination == Request.channel)
    return (Notification.kind == NotificationKind.REQUEST_MESSAGE, *mine, or_(direct, on_its_way))


async def shown_in(tx: AsyncSession, card_id: str) -> str:
    """Return the request that the message of `card_id` shows now: the last one in its row."""
    mine = select(Request.id).where(Request.card_of == card_id).order_by(Request.card_turn.desc())
    return await tx.scalar(mine.limit(1)) or card_id


async def shown_before(tx: AsyncSession, request: Request) -> str | None:
    """Return the request that the message of this one showed before it."""
    if request.card_of is None or request.card_turn is None:
        return None
    mine = (Request.card_of == request.card_of, Request.card_turn == request.card_turn - 1)
    return await tx.scalar(select(Request.id).where(*mine)) or request.card_of


async def is_reminded(tx: AsyncSession, card_of: str) -> bool:
    """Whether a reply under a message notified, or will notify, people that it shows another request now."""
    shown = Request.card_of == card_of
    # Before there are offers, and with the first ones.
    firsts = union_all(*(select(Request.id.concat(end)).where(shown) for end in ("/0.0", "/1.0")))
    mine = (Notification.kind == NotificationKind.REQUEST_REMINDER, Notification.subject.in_(firsts))
    return bool(await tx.scalar(select(exists().where(*mine, Notification.state != NotificationState.DEAD))))
