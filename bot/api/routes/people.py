"""Say who may log in to the machine of a session, change it, and transfer a session to another owner."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from bot.api.dependencies import Dependencies, Deps, SessionOwner, SessionReader, refusals
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import done
from bot.api.routes.sessions import SessionParam, session_named
from bot.api.schemas.base import Done
from bot.api.schemas.people import PersonIn, SharerOut
from bot.rules.access.scopes import BadHolder, Scope, known_person
from bot.rules.access.sight import Sight
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import sharing
from bot.services.access.api_keys import Principal
from bot.services.runtime.commands import Reply
from bot.services.sessions import transfer
from ledger.kernel.actor import Actor

router = APIRouter(prefix="/api/v1", tags=["sessions"])
PersonParam = Annotated[
    str,
    Query(max_length=90, description="A Slack id, operator:ada, or a name that the policy links.", examples=["ada"]),
]


@router.get("/sessions/{session}/shares", responses=refusals(404, 409))
async def shares(deps: Deps, who: SessionReader, session: SessionParam) -> list[SharerOut]:
    """List the people who may log in to the machine of a session, and whether their SSH keys are on it."""
    row = await session_named(deps, who, session)
    ctx = deps.ctx
    return [
        SharerOut.of(one, person_name=ctx.names.of(ctx.policy, one.person) or one.person)
        for one in await sharing.people(ctx, row.id)
    ]


@router.post("/sessions/{session}/shares", responses=refusals(404, 409))
async def share(deps: Deps, who: SessionOwner, session: SessionParam, body: PersonIn) -> Done:
    """Share a session with one person more. Their SSH keys go onto its machine, also while it runs."""
    return await _change(deps, who, session, body.person, off=False)


@router.delete("/sessions/{session}/shares", responses=refusals(404, 409))
async def unshare(deps: Deps, who: SessionOwner, session: SessionParam, person: PersonParam) -> Done:
    """Share a session with one person less. Their SSH keys are removed; connections that are open stay open."""
    return await _change(deps, who, session, person, off=True)


@router.post("/sessions/{session}/transfer", responses=refusals(404, 409))
async def offer_transfer(deps: Deps, who: SessionOwner, session: SessionParam, body: PersonIn) -> Done:
    """Offer a session to somebody. When they accept, they are its owner, and costs from then on are theirs."""
    row = await session_named(deps, who, session)
    to = person_named(body.person, deps.ctx.policy.same_person)
    command = transfer.OfferSession(row.id, who.actor, to, admin=administers(who))
    return done(await transfer.offer(deps.ctx, command), url=f"/api/v1/sessions/{row.id}")


@router.post("/sessions/{session}/transfer/accept", responses=refusals(404, 409))
async def accept_transfer(deps: Deps, who: SessionOwner, session: SessionParam) -> Done:
    """Accept the session that somebody offers you. A second call changes nothing."""
    row = await session_named(deps, who, session, Sight.FACTS)
    command = transfer.AnswerOffer(row.id, who.actor, accept=True)
    return done(await transfer.answer(deps.ctx, command), url=f"/api/v1/sessions/{row.id}")


@router.post("/sessions/{session}/transfer/decline", responses=refusals(404, 409))
async def decline_transfer(deps: Deps, who: SessionOwner, session: SessionParam) -> Done:
    """Decline the session that somebody offers you; or withdraw your own offer."""
    row = await session_named(deps, who, session, Sight.FACTS)
    command = transfer.AnswerOffer(row.id, who.actor, accept=False, admin=administers(who))
    return done(await transfer.answer(deps.ctx, command), url=f"/api/v1/sessions/{row.id}")


async def _change(deps: Dependencies, who: Principal, session: str, person: str, *, off: bool) -> Done:
    row, policy = await session_named(deps, who, session), deps.ctx.policy
    named = person_named(person, policy.same_person)
    command = sharing.ShareWith(row.id, who.actor, named, off=off, admin=administers(who))
    return done(await sharing.change(deps.ctx, command), url=f"/api/v1/sessions/{row.id}")


def administers(who: Principal) -> bool:
    """Whether a principal administers GPU Shopper: a person's key with the scope `admin`, or the server's operator."""
    return Scope.ADMIN in who.scopes and not who.actor.is_program


def person_named(text: str, same_person: tuple[tuple[str, ...], ...]) -> Actor:
    """Return the person whom a text names; raises `ProblemRaised` for nobody."""
    try:
        return known_person(text, same_person)
    except BadHolder as error:
        sentence = "Name a person: a Slack id such as U012AB3CD, or operator:ada."
        raise ProblemRaised(Reply(False, ReplyCode.BAD_SHARE, sentence)) from error
