"""Make rows due now that a process with a wrong clock made due, or claimed, until long after the right time.

A claim that is ended here is like one that ran out. Its token stays: the next claim says that it took the row over, and
the late result of the first one is discarded.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, false, literal, or_, select, true, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.kernel.states import InstanceState, NotificationState, RequestState
from ledger.models import (
    Claimable,
    Inbox,
    Instance,
    MachineKey,
    Migration,
    Notification,
    Request,
    Session,
    WebhookDelivery,
)

#: Every table with a due time, and what else its row must be so that no pause makes it due so late. A request that
#: waits for a person or for its start is due days later, and so are a session, for its end, and a failed delivery.
PUT_OFF: Mapping[type[Any], tuple[ColumnElement[bool], ...]] = {
    Request: (Request.state == RequestState.QUOTING,),
    Session: (or_(Session.deadline.is_(None), Session.due_at > Session.deadline),),
    Instance: (),
    Notification: (Notification.state == NotificationState.PENDING,),
    Inbox: (),
    WebhookDelivery: (WebhookDelivery.tries == 0,),
    Migration: (),
    MachineKey: (),
}
#: What else waits for a time: the turn to log in, and an end for its messages since it was asked for.
_ALSO: Mapping[type[Any], tuple[Any, ...]] = {Instance: (Instance.login_until, Instance.terminate_asked_at)}
_HELD = (InstanceState.LIVE, InstanceState.TERMINATING)


async def put_off(tx: AsyncSession, latest: datetime) -> list[type[Any]]:
    """List the tables with a row that is due or claimed until after `latest`, where no pause and no lease is so long.

    One statement, because there is hardly ever one.
    """
    named = {model.__tablename__: model for model in PUT_OFF}
    ways = [select(literal(name)).where(exists().where(_is_late(model, latest))) for name, model in named.items()]
    return [named[name] for name in await tx.scalars(union_all(*ways))]


async def bring_forward(tx: AsyncSession, model: type[Any], now: datetime, latest: datetime) -> int:
    """Make the rows of a table due now that `put_off` finds. Return how many there were."""
    late, claimed = _late(model, latest), _claimed(model, latest)
    values: dict[str, Any] = {"due_at": case((late, now), else_=model.due_at)}
    if issubclass(model, Claimable):
        values["claim_until"] = case((claimed, now), else_=model.claim_until)
    for column in _ALSO.get(model, ()):
        values[column.key] = case((column > latest, now), else_=column)
    change = update(model).where(_is_late(model, latest)).values(values)
    done: Any = await tx.execute(change.execution_options(synchronize_session=False))
    return int(done.rowcount)


def _claimed(model: type[Any], latest: datetime) -> ColumnElement[bool]:
    # A claimed row may have been made due earlier meanwhile; it waits for the end of the claim all the same.
    return and_(model.due_at.is_not(None), model.claim_until > latest) if issubclass(model, Claimable) else false()


def _late(model: type[Any], latest: datetime) -> ColumnElement[bool]:
    return and_(model.due_at > latest, or_(_claimed(model, latest), and_(true(), *PUT_OFF[model])))


def _is_late(model: type[Any], latest: datetime) -> ColumnElement[bool]:
    also = [and_(Instance.state.in_(_HELD), column > latest) for column in _ALSO.get(model, ())]
    return or_(_late(model, latest), _claimed(model, latest), *also)
