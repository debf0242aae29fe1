"""Around a decision: why it is needed, who may make it for somebody else, and who started without one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from bot.api.desk import AtDesk, caller, refusals
from bot.api.routes.requests import Named, found
from bot.api.schemas import Out
from bot.rules.scopes import Scope
from bot.services import explaining
from bot.services.consumers import Principal
from ledger.states import RequestState

router = APIRouter(prefix="/api/v1", tags=["approvals"])
Reader = Annotated[Principal, caller(Scope.REQUESTS_READ)]


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
    return WhyOut.model_validate(await explaining.why(desk.ctx, row.id))
