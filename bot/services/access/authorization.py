"""Decide whose requests and sessions somebody may see, act on and end.

Every route of every client asks here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from bot.rules.access.scopes import Scope
from bot.rules.access.sight import Sight
from bot.rules.approvals.decision import DeciderFacts, is_approver, linked
from bot.rules.policy.policy import Policy
from bot.rules.sessions.extension import may_act as rule
from bot.rules.values.command_text import cli_command
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import delegation
from bot.services.access.api_keys import Principal
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import Tx
from ledger.kernel.actor import Actor
from ledger.kernel.ids import short_id
from ledger.models import Request, Session
from ledger.queries.access import Whose, consumers_owned, shared_with
from ledger.queries.people.transfers import is_offered, left_at
from ledger.queries.views import nothing_ends_in, resolve, session_to_change


async def mine(tx: Tx, policy: Policy, actor: Actor) -> Whose:
    """Return the names whose things belong to `actor`: their own, their linked names, and the programs they own.

    A program has only its own name: what its owner requested is not the program's.
    """
    names = [actor, *linked(policy, actor)]
    if actor.is_program:
        return Whose.of([actor])
    return Whose.of([*names, *await consumers_owned(tx, Whose.of(names))])


def sees_all(policy: Policy, who: Principal) -> bool:
    """Whether a principal sees everything: an administrator's key, or an approver with `approvals:write`.

    A key without `approvals:write` has no approver rights.
    """
    if who.actor.is_program:
        return False
    return Scope.ADMIN in who.scopes or (decides(who) and is_approver(policy, DeciderFacts(who.actor)))


def decides(who: Principal) -> bool:
    """Whether a principal may use a person's approver rights: its key has `approvals:write`."""
    return Scope.APPROVALS_WRITE in who.scopes


async def looked_up(ctx: Context, who: Principal) -> DeciderFacts:
    """Look up in Slack the approvers who delegated to a principal, user groups included, for `visible`.

    Slack is called outside of transactions, and only for a principal whose view depends on it.
    """
    facts = DeciderFacts(who.actor)
    if sees_all(ctx.policy, who) or not _may_stand_in(who):
        return facts
    return await delegation.looked_up(ctx, facts)


def _may_stand_in(who: Principal) -> bool:
    return decides(who) and not who.actor.is_program


async def visible(
    tx: Tx, policy: Policy, who: Principal, now: datetime | None = None, facts: DeciderFacts | None = None
) -> Whose | None:
    """Return the names whose things a principal may see; None when there is no limit.

    A delegate sees at the moment `now` what the approver sees. `facts` is what `looked_up` found about the approvers;
    without it, somebody who approves through a Slack user group does not count as an approver.
    """
    if sees_all(policy, who):
        return None
    if now is not None and _may_stand_in(who):
        decider = await delegation.with_behalf(tx, policy, facts or DeciderFacts(who.actor), now)
        if any(is_approver(policy, one) for one in decider.behalf):
            return None
    return await mine(tx, policy, who.actor)


async def may_see(tx: Tx, policy: Policy, who: Principal, belongs_to: str) -> bool:
    """Whether a principal may see what belongs to `belongs_to`, an actor's reference."""
    names = await visible(tx, policy, who)
    return names is None or belongs_to in names


class Found(NamedTuple):
    """A request, its session where it has one, and how much of them somebody sees."""

    request: Request
    session: Session | None
    sight: Sight


class OnlyOffered(LookupError):
    """Somebody asks for more than the facts of a session that is only offered to them."""


async def sight(tx: Tx, request: Request, session: Session | None, own: Whose, *, everything: bool) -> Sight | None:
    """Return how much of a request and its session the person with the names `own` sees; None: nothing.

    `everything`: they see everybody's. Only the people of the session itself read how to connect.
    """
    shared = await shared_with(tx, [request.parent_id or request.id])
    owner = session.owner if session is not None else request.requester
    if any(person in own for person in (owner, *(one for people in shared.values() for one in people))):
        return Sight.OWN
    if everything or request.requester in own:
        return Sight.ALL
    # Who is offered a session reads its facts before accepting it.
    return Sight.FACTS if session is not None and await is_offered(tx, session.id, own) else None


async def member_sight(
    tx: Tx, policy: Policy, facts: DeciderFacts, request: Request, session: Session | None, text: str
) -> Sight:
    """Return how much of a request a member of the Slack workspace sees: its facts, also where it is offered to them.

    So declining an offer never shows more. A guest reads what is their own or shared with them; LookupError for
    anything else that the id `text` names.
    """
    own = await mine(tx, policy, facts.actor)
    seen = await sight(tx, request, session, own, everything=facts.known and is_approver(policy, facts))
    if facts.is_guest and seen is not Sight.OWN and request.requester not in own:
        raise LookupError(nothing_ends_in(text))
    return seen or Sight.FACTS


async def sight_to_repeat(
    tx: Tx, policy: Policy, facts: DeciderFacts, request: Request, session: Session | None, text: str
) -> Sight:
    """Return how much of a request a member of the Slack workspace may repeat.

    Raises like `member_sight`, and `OnlyOffered` for a session that they must accept first.
    """
    seen = await member_sight(tx, policy, facts, request, session, text)
    own = await mine(tx, policy, facts.actor)
    if not seen.shows_work and session is not None and await is_offered(tx, session.id, own):
        raise only_offered(request)
    return seen


def listed(own: Whose, people: Iterable[str]) -> Sight:
    """Return how much somebody sees of a session in a list, which has only what `visible` allows them."""
    return Sight.OWN if any(person in own for person in people) else Sight.ALL


async def find(
    tx: Tx, policy: Policy, who: Principal, text: str, now: datetime, facts: DeciderFacts, least: Sight = Sight.ALL
) -> Found:
    """Return the request (and its session) that an id names, and how much of it the principal sees.

    `facts` is what `looked_up` found. LookupError, with the same sentence, for what does not exist and for what is
    somebody else's, so that ids are never confirmed. `OnlyOffered` for a session that is offered to them, unless the
    caller shows or needs only its facts, and says so with `least`.
    """
    request, session = await resolve(tx, text)
    names = await visible(tx, policy, who, now, facts)
    own = names if names is not None else await mine(tx, policy, who.actor)
    seen = await sight(tx, request, session, own, everything=names is None)
    if seen is None:
        raise LookupError(nothing_ends_in(text))
    if seen is Sight.FACTS and least is not Sight.FACTS:
        raise only_offered(request)
    return Found(request, session, seen)


def only_offered(request: Request) -> OnlyOffered:
    """Return the refusal for somebody who must accept a session before they see or do this."""
    short = short_id(request.parent_id or request.id)
    accept = cli_command(f"transfer accept {short}")
    return OnlyOffered(f"Session {short} is only offered to you. Accept it first: {accept}")


def refusal(error: LookupError) -> Reply:
    """Return the reply for what `find` raised."""
    code = ReplyCode.NOT_YOURS if isinstance(error, OnlyOffered) else ReplyCode.UNKNOWN_ID
    return refuse(code, f"{error}.")


async def find_journal(
    tx: Tx, policy: Policy, who: Principal, text: str, now: datetime, facts: DeciderFacts
) -> tuple[Request, datetime | None]:
    """Return the request whose journal a principal may read, and until when; None: all of it.

    Who gave a session to another owner still reads what happened until then. LookupError as for `find`.
    """
    try:
        return (await find(tx, policy, who, text, now, facts)).request, None
    except LookupError:
        request, _ = await resolve(tx, text)
        until = await left_at(tx, request.id, await mine(tx, policy, who.actor))
        if until is None:
            raise
        return request, until


async def may_cancel(tx: Tx, policy: Policy, who: Principal, request: Request) -> bool:
    """Whether a key's scopes allow it to withdraw a request: withdrawing another's needs `approvals:write`."""
    return decides(who) or request.requester in await mine(tx, policy, who.actor)


async def may_act(tx: Tx, policy: Policy, session: Session, who: DeciderFacts) -> bool:
    """Whether somebody may end, extend, stop, start or restart a session."""
    return rule(policy, who, own=session.owner in await mine(tx, policy, who.actor))


async def acted(
    ctx: Context,
    text: str,
    decider: DeciderFacts,
    refusals: tuple[str, str],
    act: Callable[[Tx, Session, datetime], Awaitable[Reply]],
) -> Reply:
    """Run `act` on the session that `text` names, in one transaction under its lock, and return its reply.

    `refusals` are the sentences for a request without a session, and for somebody who may not act on it.
    """
    now = ctx.clock.now()
    try:
        async with ctx.db.write() as tx:
            session = await session_to_change(tx, text)
            if session is None:
                return refuse(ReplyCode.NO_SESSION, refusals[0])
            if not await may_act(tx, ctx.policy, session, decider):
                return refuse(ReplyCode.NOT_YOURS, refusals[1], {"session_id": session.id})
            return await act(tx, session, now)
    except LookupError as error:
        return refuse(ReplyCode.UNKNOWN_ID, f"{error}.")
