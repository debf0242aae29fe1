"""Look up the subject of a decision: a request as it is now, its button, and the delegations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core import lock_family
from ledger.engine.db import may_lock
from ledger.kernel.actor import Actor
from ledger.kernel.checkpoint_step import WAITS
from ledger.kernel.request_kind import ABOUT_SESSION
from ledger.kernel.states import InstanceState, RequestState
from ledger.models import Approval, Consumer, Delegation, Instance, Option, Quote, Request, Session, Token
from ledger.queries.access import Whose
from ledger.queries.journal import noted_before
from ledger.queries.lookups import override_of, session_of
from ledger.queries.session_costs import spent_before

#: Kinds of requests that are about a session that runs already.


@dataclass(frozen=True, slots=True)
class DecisionSubject:
    """Hold the subject of a decision. In a write, the request stays locked until the transaction ends.

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
        """Return what the button does."""
        return self.token.action if self.token else "cancel"

    @property
    def version(self) -> int:
        """Return the quote version that the button belongs to."""
        return self.token.quote_version if self.token else self.request.quote_version


async def subject_by_token(tx: AsyncSession, token: str) -> DecisionSubject | None:
    """Look up the subject of a decision by a button's value; None when the value is unknown here."""
    row = await tx.get(Token, token)
    if row is None:
        return None
    option = await tx.get(Option, row.option_id) if row.option_id else None
    return await _ask(tx, row.request_id, row, option)


async def subject_of_request(tx: AsyncSession, request_id: str) -> DecisionSubject:
    """Look up the subject of a decision on this request, without a button."""
    return await _ask(tx, request_id, None, None)


async def button(tx: AsyncSession, request_id: str, action: str, version: int, offer_id: str | None) -> str | None:
    """Return the value of the button for this action on one version of a request; None when there is none."""
    of_version = (Token.request_id == request_id, Token.quote_version == version, Token.action == action)
    query = select(Token, Option).outerjoin(Option, Option.id == Token.option_id).where(*of_version)
    rows: Any = await tx.execute(query)
    return next((t.token for t, option in rows if offer_id == (None if option is None else option.offer_id)), None)


async def _ask(tx: AsyncSession, request_id: str, token: Token | None, option: Option | None) -> DecisionSubject:
    await lock_family(tx, Request, request_id)
    lock = {"key_share": True} if may_lock(tx) else None
    request = await tx.get_one(Request, request_id, with_for_update=lock, populate_existing=True)
    owner = await _behind(tx, request.requester)
    if request.state is not RequestState.PENDING:
        return DecisionSubject(
            token, request, option, None, (), None, owner
        )  # Approvals of a request that was decided change nothing any more.
    every = (await tx.scalars(select(Approval).where(Approval.request_id == request.id))).all()
    chosen = await tx.get(Option, request.chosen_option_id) if request.chosen_option_id else None
    more = await session_of(tx, request.parent_id) if request.parent_id and request.kind in ABOUT_SESSION else None
    return DecisionSubject(
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
    waits = Instance.checkpoint_step.in_(WAITS)
    return await tx.scalar(select(Instance.id).where(*mine, waits).limit(1)) is not None


async def _behind(tx: AsyncSession, ref: str) -> str:
    """Return the person who answers for a program. Only programs have one, so people's requests cost no query."""
    if not Actor.from_ref(ref).is_program:
        return ""
    program = await tx.get(Consumer, ref)
    return program.owner if program else ""


async def shown_options(tx: AsyncSession, request_ids: Collection[str]) -> dict[str, list[Option]]:
    """Return the options of the current quote of each request."""
    found: defaultdict[str, list[Option]] = defaultdict(list)
    query = (
        select(Quote.request_id, Option)
        .join(Quote, Quote.id == Option.quote_id)
        .join(Request, (Request.id == Quote.request_id) & (Request.quote_version == Quote.version))
        .where(Request.id.in_(sorted(request_ids)))
        .order_by(Option.rank)
    )
    rows: Any = await tx.execute(query)
    for request_id, option in rows:
        found[request_id].append(option)
    return found


async def opened_at(tx: AsyncSession, requests: Sequence[Request]) -> dict[str, datetime]:
    """Return since when each request waits for a decision: since its newest offers, or since it was made."""
    query = (
        select(Quote.request_id, Quote.created_at)
        .join(Request, (Request.id == Quote.request_id) & (Request.quote_version == Quote.version))
        .where(Request.id.in_(sorted(one.id for one in requests)))
    )
    rows: Any = await tx.execute(query)
    return {**{one.id: one.created_at for one in requests}, **dict(rows.all())}


async def approvals_of(tx: AsyncSession, request: Request) -> Sequence[Approval]:
    """Return who approved the current offers of a request, in the order of their decisions."""
    mine = (Approval.request_id == request.id, Approval.quote_version == request.quote_version)
    query = select(Approval).where(*mine, Approval.decision == "approve").order_by(Approval.at, Approval.id)
    return (await tx.scalars(query)).all()


async def parents_of(tx: AsyncSession, requests: Sequence[Request]) -> dict[str, Request]:
    """Return the parent requests of these requests, by their ids."""
    ids = sorted({one.parent_id for one in requests if one.parent_id})
    return {one.id: one for one in await tx.scalars(select(Request).where(Request.id.in_(ids)))} if ids else {}


async def people_behind(tx: AsyncSession, refs: Collection[str]) -> dict[str, str]:
    """Return the people who answer for programs, by the programs' references."""
    if not refs:
        return {}
    return {one.actor: one.owner for one in await tx.scalars(select(Consumer).where(Consumer.actor.in_(sorted(refs))))}


async def delegators_of(tx: AsyncSession, delegate: Whose, now: datetime) -> list[Delegation]:
    """Return the delegations to somebody that are in force, the oldest first."""
    mine = (delegate.where(Delegation.delegate), Delegation.ended_at.is_(None), Delegation.until > now)
    return list(await tx.scalars(select(Delegation).where(*mine).order_by(Delegation.created_at, Delegation.id)))


async def given_by(tx: AsyncSession, delegator: Whose, now: datetime) -> list[Delegation]:
    """Return the delegations from somebody that are in force."""
    mine = (delegator.where(Delegation.delegator), Delegation.ended_at.is_(None), Delegation.until > now)
    return list(await tx.scalars(select(Delegation).where(*mine).order_by(Delegation.created_at, Delegation.id)))


async def in_force(tx: AsyncSession, of: Whose | None, now: datetime) -> Sequence[Delegation]:
    """Return every delegation in force, or only those that one person gave or received."""
    query = select(Delegation).where(Delegation.ended_at.is_(None), Delegation.until > now)
    if of is not None:
        query = query.where(or_(of.where(Delegation.delegator), of.where(Delegation.delegate)))
    return (await tx.scalars(query.order_by(Delegation.created_at, Delegation.id))).all()


async def said_before(tx: AsyncSession, delegator: Whose, key: str, since: datetime) -> bool:
    """Whether the call that `key` names has made or ended a delegation already."""
    mine = select(Delegation.id).where(delegator.where(Delegation.delegator))
    return await noted_before(tx, mine, key, since) is not None


async def end_delegations(tx: AsyncSession, ids: Sequence[str], by: str, now: datetime) -> None:
    """End these delegations now."""
    mine = (Delegation.id.in_(list(ids)), Delegation.ended_at.is_(None))
    await tx.execute(update(Delegation).where(*mine).values(ended_at=now, ended_by=by))
