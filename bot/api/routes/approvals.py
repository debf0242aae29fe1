"""Around a decision: why it is needed, who may make it for somebody else, and who started without one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from bot.api.dependencies import AtDesk, caller, refusals
from bot.api.idempotency import Repeat, once
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import RequestParam, done, found
from bot.api.schemas.approvals import BreakGlassIn, DelegationIn, DelegationOut, WhyOut
from bot.api.schemas.base import Done
from bot.rules.access.scopes import BadHolder, Scope, person
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization, delegation
from bot.services.access.api_keys import Principal
from bot.services.approvals import explanation
from bot.services.approvals.break_glass import BreakGlass, break_glass
from bot.services.runtime.commands import Reply

router = APIRouter(prefix="/api/v1", tags=["approvals"])
Reader = Annotated[Principal, caller(Scope.REQUESTS_READ)]
Decider = Annotated[Principal, caller(Scope.APPROVALS_WRITE)]


@router.get("/requests/{request}/why", responses=refusals(404))
async def why(desk: AtDesk, who: Reader, request: RequestParam) -> WhyOut:
    """Which rule of the policy asks for the approval of a request, who may give it, and what was waived."""
    row, _ = await found(desk, who, request)
    return WhyOut.model_validate(await explanation.why(desk.ctx, row.id))


@router.get("/delegations", responses=refusals())
async def delegations(desk: AtDesk, who: Reader) -> list[DelegationOut]:
    """Who decides for whom now: one's own in both directions; all of them for those who decide."""
    everything = authorization.sees_all(desk.ctx.policy, who)
    rows = await delegation.listing(desk.ctx, who.actor, everything=everything)
    return [DelegationOut.model_validate(row) for row in rows]


@router.put("/delegations", responses=refusals(409))
async def delegate(desk: AtDesk, who: Decider, body: DelegationIn) -> Done:
    """Let one person decide in your place through a day, instead of whoever did. It is never passed on."""
    try:
        to = person(body.delegate)
    except BadHolder as error:
        raise ProblemRaised(Reply(False, ReplyCode.BAD_DELEGATE, str(error))) from error
    command = delegation.Delegate(DeciderFacts(who.actor), to, body.until)
    return done(await delegation.delegate(desk.ctx, command))


@router.delete("/delegations", responses=refusals(409))
async def revoke(desk: AtDesk, who: Decider) -> Done:
    """Take it back: from now on nobody decides in your place."""
    return done(await delegation.revoke(desk.ctx, delegation.Delegate(DeciderFacts(who.actor))))


@router.post("/requests/{request}/break-glass", response_model=Done, responses=refusals(404, 409))
async def start_without(desk: AtDesk, who: Decider, request: RequestParam, body: BreakGlassIn, key: Repeat) -> Any:
    """Start one's own request without an approval, where the policy names you; everybody who decides is told."""
    row, _ = await found(desk, who, request)

    async def act(name: str) -> tuple[int, Done]:
        command = BreakGlass(row.id, DeciderFacts(who.actor), body.reason, body.offer_id, name)
        return 200, done(await break_glass(desk.ctx, command), url=f"/api/v1/requests/{row.id}")

    return await once(desk, who, key, f"POST /requests/{row.id}/break-glass {body.model_dump_json()}", act)
