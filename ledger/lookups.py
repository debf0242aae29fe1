"""What services look up inside a transaction: rows by what they belong to, in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Select, case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.db import may_lock
from ledger.locks import lock_family
from ledger.models import (
    Approval,
    Consumer,
    Event,
    GrantRow,
    Inbox,
    Instance,
    LedgerEntry,
    Notification,
    Option,
    Quote,
    Request,
    Session,
    SshKey,
    Stray,
    Token,
)
from ledger.rollup import TOTAL, USED
from ledger.states import (
    OPEN_INSTANCE,
    GrantState,
    InboxState,
    InstanceState,
    NotificationKind,
    NotificationState,
    RequestState,
    StrayState,
)
from ledger.values import ActorKind

#: Kinds of requests that are about a session that runs already.
ABOUT_SESSION = ("extend", "drift_reconfirm")


async def current_quote(tx: AsyncSession, request: Request) -> Quote | None:
    """The quote of the request's current version."""
    return await tx.scalar(select(Quote).where(Quote.request_id == request.id, Quote.version == request.quote_version))


async def override_of(tx: AsyncSession, request_id: str) -> Request | None:
    """The override request that belongs to a request above the 12-hour cap: the newest, where one was withdrawn."""
    mine = select(Request).where(Request.parent_id == request_id, Request.kind == "override_12h")
    return await tx.scalar(mine.order_by(Request.created_at.desc(), Request.id.desc()).limit(1))


async def waiting_extensions(tx: AsyncSession, request_id: str) -> list[Request]:
    """Undecided requests for more time for the session of a request."""
    mine = (Request.parent_id == request_id, Request.kind == "extend", Request.state == RequestState.PENDING)
    return list(await tx.scalars(select(Request).where(*mine)))


async def open_starts(tx: AsyncSession, session_id: str) -> list[GrantRow]:
    """Authority to start a stopped session again that was not used yet."""
    mine = (GrantRow.session_id == session_id, GrantRow.kind == "start", GrantRow.state == GrantState.OPEN)
    return list(await tx.scalars(select(GrantRow).where(*mine)))


async def billed_since(tx: AsyncSession, session_id: str) -> datetime | None:
    """The first moment that a cloud may have billed a session: its first send that was not a definite no."""
    sent = select(func.min(Instance.sent_at)).where(Instance.session_id == session_id)
    return await tx.scalar(sent.where(Instance.state.not_in([InstanceState.REJECTED, InstanceState.TOMBSTONE])))


async def lives_of(tx: AsyncSession, session_id: str) -> list[tuple[str, datetime, datetime | None]]:
    """`(approval, sent, over)` of everything that a cloud may have billed for a session; what is not over has None."""
    over = func.coalesce(Instance.billing_until, Instance.ended_at)
    query: Any = select(GrantRow.approval_id, Instance.sent_at, over).join(Instance, Instance.grant_id == GrantRow.id)
    sent = (Instance.session_id == session_id, Instance.sent_at.is_not(None))
    never = Instance.state.in_([InstanceState.REJECTED, InstanceState.TOMBSTONE])
    return [(of, at, until) for of, at, until in (await tx.execute(query.where(*sent, ~never))).all()]


async def session_of(tx: AsyncSession, request_id: str) -> Session | None:
    """The session that a request led to."""
    return await tx.scalar(select(Session).where(Session.request_id == request_id))


async def count_open_requests(tx: AsyncSession, requester: str) -> int:
    """How many of a person's requests wait for a decision now."""
    return (
        await tx.scalar(
            select(func.count())
            .select_from(Request)
            .where(
                Request.requester == requester,
                Request.parent_id.is_(None),
                Request.state.in_([RequestState.QUOTING, RequestState.PENDING]),
            )
        )
    ) or 0


async def by_inbox_key(tx: AsyncSession, key: str) -> Request | None:
    """The request that an inbound message has made already."""
    return await tx.scalar(select(Request).where(Request.inbox_key == key))


async def open_grants(tx: AsyncSession, request_id: str) -> list[GrantRow]:
    """Authority of a request that was neither used nor voided."""
    return list(
        await tx.scalars(select(GrantRow).where(GrantRow.request_id == request_id, GrantRow.state == GrantState.OPEN))
    )


async def grants_of_session(tx: AsyncSession, session_id: str) -> list[GrantRow]:
    """Every grant of a session in order."""
    return list(
        await tx.scalars(select(GrantRow).where(GrantRow.session_id == session_id).order_by(GrantRow.created_at))
    )


async def instances_of_session(tx: AsyncSession, session_id: str) -> list[Instance]:
    """Every row of a session in order, closed ones included."""
    return list(await tx.scalars(select(Instance).where(Instance.session_id == session_id).order_by(Instance.n)))


async def options_of(tx: AsyncSession, option_id: str) -> list[Option]:
    """All options of the quote that an option belongs to, ranked."""
    option = await tx.get_one(Option, option_id)
    return list(await tx.scalars(select(Option).where(Option.quote_id == option.quote_id).order_by(Option.rank)))


async def accrued_of_session(tx: AsyncSession, session_id: str) -> Decimal:
    """Dollars booked as used by a session."""
    total = await tx.scalar(select(TOTAL).where(LedgerEntry.session_id == session_id, LedgerEntry.kind.in_(USED)))
    return total or Decimal(0)


async def spent_before(tx: AsyncSession, request: Request) -> Decimal:
    """Dollars booked on earlier attempts of a request that is quoted (again)."""
    session = await session_of(tx, request.id) if request.quote_version > 0 else None
    return await accrued_of_session(tx, session.id) if session is not None else Decimal(0)


async def quote_failures(tx: AsyncSession, request_id: str, kind: str) -> int:
    """How many journal rows of `kind` a request has since it was asked for, or asked again."""
    since = select(func.max(Event.at)).where(Event.subject == request_id, Event.kind != kind).scalar_subquery()
    query = select(func.count()).where(Event.subject == request_id, Event.kind == kind, Event.at >= since)
    return await tx.scalar(query) or 0


async def approved_since(tx: AsyncSession, approver_prefix: str, since: datetime) -> Decimal:
    """Dollars that approvals covered since then whose approver begins so."""
    total = await tx.scalar(
        select(func.sum(Approval.total_cap_usd)).where(
            Approval.at > since, Approval.decision == "approve", Approval.approver.startswith(approver_prefix)
        )
    )
    return total or Decimal(0)


async def next_numbers(tx: AsyncSession, request_id: str, kind: str) -> tuple[int, int]:
    """`(the next seq of a grant of this kind, the next n of an instance)` of a request."""
    seq = await tx.scalar(
        select(func.max(GrantRow.seq)).where(GrantRow.request_id == request_id, GrantRow.kind == kind)
    )
    n = await tx.scalar(select(func.max(Instance.n)).where(Instance.request_id == request_id))
    return (seq or 0) + 1, (n or 0) + 1


async def open_instances_of_session(tx: AsyncSession, session_id: str) -> list[Instance]:
    """The session's rows that may exist at a cloud, or may still be sent."""
    return list(
        await tx.scalars(select(Instance).where(Instance.session_id == session_id, Instance.state.in_(OPEN_INSTANCE)))
    )


@dataclass(frozen=True, slots=True)
class Ask:
    """What a decision is about. In a write, the request stays locked until the transaction ends.

    `action`, `version` and `option` come from the button's token; without a button, from the request as it is now.
    """

    token: Token | None
    request: Request
    option: Option | None
    chosen: Option | None
    votes: tuple[Approval, ...]
    override: Request | None
    #: The person behind a requester that is a program; empty for people.
    owner: str = ""
    #: Approvals of any quote version that set a limit for all attempts.
    limits: tuple[Approval, ...] = ()
    #: Dollars booked on earlier attempts.
    spent_usd: Decimal = Decimal(0)
    #: The session that a request for more time is about.
    session: Session | None = None
    #: The person behind the owner of that session, where it is a program.
    behind_session: str = ""
    #: Whether its end, which is ordered, waits for a checkpoint.
    held: bool = False

    @property
    def action(self) -> str:
        """What the button does."""
        return self.token.action if self.token else "cancel"

    @property
    def version(self) -> int:
        """The quote version that the button belongs to."""
        return self.token.quote_version if self.token else self.request.quote_version


async def ask_by_token(tx: AsyncSession, token: str) -> Ask | None:
    """Look up a button's value; None when it belongs to nothing here."""
    row = await tx.get(Token, token)
    if row is None:
        return None
    option = await tx.get(Option, row.option_id) if row.option_id else None
    return await _ask(tx, row.request_id, row, option)


async def button(tx: AsyncSession, request_id: str, action: str, version: int, offer_id: str | None) -> str | None:
    """The value of the button that does this to one version of a request; None when there is no such button."""
    of_version = (Token.request_id == request_id, Token.quote_version == version, Token.action == action)
    query = select(Token, Option).outerjoin(Option, Option.id == Token.option_id).where(*of_version)
    rows: Any = await tx.execute(query)
    return next((t.token for t, option in rows if offer_id == (None if option is None else option.offer_id)), None)


async def ask_of_request(tx: AsyncSession, request_id: str) -> Ask:
    """The same for a request that is named by its id."""
    return await _ask(tx, request_id, None, None)


async def _ask(tx: AsyncSession, request_id: str, token: Token | None, option: Option | None) -> Ask:
    await lock_family(tx, Request, request_id)
    lock = {"key_share": True} if may_lock(tx) else None
    request = await tx.get_one(Request, request_id, with_for_update=lock, populate_existing=True)
    owner = await _behind(tx, request.requester)
    if request.state is not RequestState.PENDING:
        return Ask(token, request, option, None, (), None, owner)  # Who voted for what matters to nobody any more.
    every = (await tx.scalars(select(Approval).where(Approval.request_id == request.id))).all()
    chosen = await tx.get(Option, request.chosen_option_id) if request.chosen_option_id else None
    more = await session_of(tx, request.parent_id) if request.parent_id and request.kind in ABOUT_SESSION else None
    return Ask(
        token,
        request,
        option,
        chosen,
        tuple(vote for vote in every if vote.quote_version == request.quote_version),
        await override_of(tx, request.id),
        owner,
        tuple(vote for vote in every if vote.limit_usd is not None),
        await spent_before(tx, request),
        more,
        await _behind(tx, more.owner) if more else "",
        await _waits(tx, more) if more else False,
    )


async def _waits(tx: AsyncSession, session: Session) -> bool:
    mine = (Instance.session_id == session.id, Instance.state == InstanceState.TERMINATING)
    waits = Instance.gate.in_(("saving", "stopping", "held"))
    return await tx.scalar(select(Instance.id).where(*mine, waits).limit(1)) is not None


async def _behind(tx: AsyncSession, ref: str) -> str:
    """The person behind a program. Only a program has somebody behind it, so what people ask costs no query."""
    if not ref.startswith(f"{ActorKind.CONSUMER}:"):
        return ""
    program = await tx.get(Consumer, ref)
    return program.owner if program else ""


async def open_instances(tx: AsyncSession, cloud: str) -> list[Instance]:
    """Rows of every account at one cloud that may exist there and were already sent."""
    states = OPEN_INSTANCE - {InstanceState.READY}
    return list(await tx.scalars(select(Instance).where(Instance.cloud == cloud, Instance.state.in_(states))))


async def instances_by_label(tx: AsyncSession, labels: Collection[str]) -> dict[str, Instance]:
    """Instance rows of any state by their machine label."""
    if not labels:
        return {}
    rows = await tx.scalars(select(Instance).where(Instance.label.in_(list(labels))))
    return {row.label: row for row in rows}


async def open_strays(tx: AsyncSession, cloud: str) -> list[Stray]:
    """Strays of every account at one cloud that are not yet gone."""
    return list(await tx.scalars(select(Stray).where(Stray.cloud == cloud, Stray.state != StrayState.GONE)))


async def waiting_strays(tx: AsyncSession) -> list[Stray]:
    """Strays of any account that have no row and wait for an operator: the ledger has lost something."""
    waits = (Stray.state == StrayState.QUARANTINED, Stray.instance_id.is_(None))
    return list(await tx.scalars(select(Stray).where(*waits)))


async def quarantined(tx: AsyncSession) -> list[Stray]:
    """Strays of any account that wait for an operator, oldest first."""
    waits = select(Stray).where(Stray.state == StrayState.QUARANTINED)
    return list(await tx.scalars(waits.order_by(Stray.first_seen_at, Stray.id)))


async def every_stray(tx: AsyncSession) -> list[Stray]:
    """All strays, those that wait for an operator first, then the newest."""
    waits = case((Stray.state == StrayState.QUARANTINED, 0), else_=1)
    return list(await tx.scalars(select(Stray).order_by(waits, Stray.first_seen_at.desc(), Stray.id)))


async def stray_by_id(tx: AsyncSession, stray_id: str) -> Stray | None:
    """One stray."""
    return await tx.get(Stray, stray_id)


async def message_of(tx: AsyncSession, subject: str, destination: str) -> Notification | None:
    """The request's own message in a channel: where thread replies go."""
    return await tx.scalar(
        select(Notification).where(
            Notification.kind == NotificationKind.REQUEST_MESSAGE,
            Notification.subject == subject,
            Notification.destination == destination,
        )
    )


async def notification_of(
    tx: AsyncSession, kind: NotificationKind, subject: str, destination: str
) -> Notification | None:
    """One row of the outbox by what makes it unique."""
    return await tx.scalar(
        select(Notification).where(
            Notification.kind == kind, Notification.subject == subject, Notification.destination == destination
        )
    )


async def notifications_of(tx: AsyncSession, kind: NotificationKind, subject: str) -> list[Notification]:
    """Everywhere that one thing is told."""
    told = select(Notification).where(Notification.kind == kind, Notification.subject == subject)
    return list(await tx.scalars(told.order_by(Notification.id)))


async def public_key(tx: AsyncSession, owner: str) -> SshKey | None:
    """The one public key of a user."""
    return await tx.get(SshKey, owner)


async def latest_events(tx: AsyncSession, subject: str, kind: str, limit: int) -> list[Event]:
    """The newest events of one kind about one subject, newest first."""
    query = select(Event).where(Event.subject == subject, Event.kind == kind)
    return list(await tx.scalars(query.order_by(Event.at.desc(), Event.id.desc()).limit(limit)))


async def done_before(
    tx: AsyncSession, subject: str, kinds: Collection[str], key: str, since: datetime
) -> Event | None:
    """The journal row of what the call that `key` names has done to a subject, or ordered for a session's instances."""
    if not key:
        return None
    mine = [subject, *await tx.scalars(select(Instance.id).where(Instance.session_id == subject))]
    return await noted_before(tx, mine, key, since, kinds)


async def noted_before(
    tx: AsyncSession, subjects: Collection[str] | Select[Any], key: str, since: datetime, kinds: Collection[str] = ()
) -> Event | None:
    """The journal row, of these kinds or any, in which the call that `key` names noted what it did to a subject."""
    if not key:
        return None
    noted = select(Event).where(Event.subject.in_(subjects), Event.at > since)
    rows = await tx.scalars(noted.where(Event.kind.in_(list(kinds))) if kinds else noted)
    return next((one for one in rows if one.data.get("key") == key), None)


async def balance_of(tx: AsyncSession, account: str) -> Decimal:
    """Debits minus credits of one ledger account, in dollars."""
    debit = await tx.scalar(select(func.sum(LedgerEntry.amount_usd)).where(LedgerEntry.debit == account))
    credit = await tx.scalar(select(func.sum(LedgerEntry.amount_usd)).where(LedgerEntry.credit == account))
    return (debit or Decimal(0)) - (credit or Decimal(0))


async def waiting_rows(tx: AsyncSession) -> dict[str, int]:
    """How many rows of each kind still wait for their work."""
    waiting = {
        "inbox": select(func.count()).where(Inbox.state == InboxState.NEW),
        "quotes": select(func.count()).where(Request.state == RequestState.QUOTING),
        "creates": select(func.count()).where(Instance.state == InstanceState.READY),
        "outbox": select(func.count()).where(Notification.state == NotificationState.PENDING),
    }
    return {name: await tx.scalar(query) or 0 for name, query in waiting.items()}
