"""Around a decision: why it is needed, who may make it for somebody else, and who started without one."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from bot.api.desk import AtDesk, caller, refusals
from bot.api.once import Repeat, once
from bot.api.problems import Refused
from bot.api.routes.requests import Named, done, found
from bot.api.schemas import Done, In, Out
from bot.rules.access.scopes import BadHolder, Scope, person
from bot.rules.approvals.decision import DeciderFacts
from bot.services.access import authorization, delegation
from bot.services.access.api_keys import Principal
from bot.services.approvals import explanation
from bot.services.approvals.break_glass import BreakGlass, break_glass
from bot.services.runtime.commands import Reply
from ledger.kernel.states import RequestState

router = APIRouter(prefix="/api/v1", tags=["approvals"])
Reader = Annotated[Principal, caller(Scope.REQUESTS_READ)]
Decider = Annotated[Principal, caller(Scope.APPROVALS_WRITE)]


class WhyOut(Out):
    """Why a request needed approval: the rule, its tier and group, who decides, and the rules that did not hold."""

    request_id: str
    state: RequestState
    rule: str
    tier: str
    group: str
    required: int
    given: list[str]
    may_decide: list[str]
    also: list[str]
    waived: list[str]
    sentences: list[str]


@router.get("/requests/{request}/why", responses=refusals(404))
async def why(desk: AtDesk, who: Reader, request: Named) -> WhyOut:
    """Which rule of the policy asks for the approval of a request, who may give it, and what was waived."""
    row, _ = await found(desk, who, request)
    return WhyOut.model_validate(await explanation.why(desk.ctx, row.id))


class DelegationIn(In):
    """Who decides in your place (a Slack id or operator:ada), and the last day of it in UTC."""

    delegate: Annotated[str, Field(max_length=90, examples=["U012AB3CD"])]
    until: Annotated[date, Field(examples=["2026-12-01"])]


class DelegationOut(Out):
    """One person who decides in another one's place until a moment."""

    id: str
    delegator: str
    delegate: str
    until: datetime
    created_at: datetime


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
        raise Refused(Reply(False, "bad_delegate", str(error))) from error
    command = delegation.Delegate(DeciderFacts(who.actor), to, body.until)
    return done(await delegation.delegate(desk.ctx, command))


@router.delete("/delegations", responses=refusals(409))
async def revoke(desk: AtDesk, who: Decider) -> Done:
    """Take it back: from now on nobody decides in your place."""
    return done(await delegation.revoke(desk.ctx, delegation.Delegate(DeciderFacts(who.actor))))


class BreakGlassIn(In):
    """Why it cannot wait, and which option; the first one if it is not said."""

    reason: Annotated[str, Field(max_length=4000)] = ""
    offer_id: Annotated[str, Field(max_length=256)] | None = Field(default=None, examples=["vast:30406190"])


@router.post("/requests/{request}/break-glass", response_model=Done, responses=refusals(404, 409))
async def start_without(desk: AtDesk, who: Decider, request: Named, body: BreakGlassIn, key: Repeat) -> Any:
    """Start one's own request without an approval, where the policy names you; everybody who decides is told."""
    row, _ = await found(desk, who, request)

    async def act(name: str) -> tuple[int, Done]:
        command = BreakGlass(row.id, DeciderFacts(who.actor), body.reason, body.offer_id, name)
        return 200, done(await break_glass(desk.ctx, command), url=f"/api/v1/requests/{row.id}")

    return await once(desk, who, key, f"POST /requests/{row.id}/break-glass {body.model_dump_json()}", act)
