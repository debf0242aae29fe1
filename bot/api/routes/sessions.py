"""Sessions: what runs, how to connect, what it has cost, and its end."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from bot.api.desk import AtDesk, caller, refusals
from bot.api.problems import Refused
from bot.api.routes.requests import Cursor, Limit, Named, done, found
from bot.api.schemas import Done, Page, SessionOut
from bot.api.views import session_out
from bot.rules.approval import DeciderFacts
from bot.rules.scopes import Scope
from bot.services import access
from bot.services import sessions as service
from bot.services.commands import Reply, Terminate
from bot.services.consumers import Principal
from ledger.reads import session_view, sessions_page

router = APIRouter(prefix="/api/v1", tags=["sessions"])
Reader = Annotated[Principal, caller(Scope.SESSIONS_READ)]
Ender = Annotated[Principal, caller(Scope.SESSIONS_END)]
NO_SESSION = Reply(False, "no_session", "That request has no session yet; look at the request for what it waits for.")


@router.get("/sessions", responses=refusals())
async def sessions(
    desk: AtDesk, who: Reader, live: bool = True, cursor: Cursor = None, limit: Limit = 50
) -> Page[SessionOut]:
    """Sessions that this key may see, the newest first; `live=false` shows those that are over too."""
    ctx = desk.ctx
    async with ctx.db.read() as tx:
        names = await access.visible(tx, ctx.policy, who)
        own = await access.mine(tx, ctx.policy, who.actor)
        views = await sessions_page(tx, whose=names, live=live, before=cursor, limit=limit + 1)
    now = ctx.clock.now()
    items = [session_out(ctx, view, now, mine=view.session.owner in own) for view in views[:limit]]
    return Page[SessionOut](items=items, next_cursor=items[-1].id if len(views) > limit else None)


@router.get("/sessions/{session}", responses=refusals(404, 409))
async def session(desk: AtDesk, who: Reader, session: Named) -> SessionOut:
    """One session, by its id or by its request's."""
    ctx = desk.ctx
    _, row = await found(desk, who, session)
    if row is None:
        raise Refused(NO_SESSION)
    async with ctx.db.read() as tx:
        own = await access.mine(tx, ctx.policy, who.actor)
        view = await session_view(tx, row.id)
    return session_out(ctx, view, ctx.clock.now(), mine=row.owner in own)


@router.delete("/sessions/{session}", status_code=202, responses=refusals(404, 409))
async def end(desk: AtDesk, who: Ender, session: Named) -> Done:
    """End a session now. 202: the end is ordered, and confirmed when the cloud no longer lists it."""
    _, row = await found(desk, who, session)
    if row is None:
        raise Refused(NO_SESSION)
    reply = await service.terminate(desk.ctx, Terminate(row.id, DeciderFacts(who.actor)))
    return done(reply, url=f"/api/v1/sessions/{row.id}")
