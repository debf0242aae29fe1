"""Explain why a request needs approval, delegate approvals, and start a request without one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from bot.api.dependencies import Decider, Deps, RequestReader, refusals
from bot.api.idempotency import Repeat, once
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import RequestParam, done, found
from bot.api.schemas.approvals import BreakGlassIn, DelegationIn, DelegationOut, WhyOut
from bot.api.schemas.base import Done
from bot.rules.access.scopes import BadHolder, person
from bot.rules.access.sight import Sight
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization, delegation
from bot.services.approvals import explanation
from bot.services.approvals.break_glass import BreakGlass, break_glass
from bot.services.runtime.commands import Reply

router = APIRouter(prefix="/api/v1", tags=["approvals"])


@router.get("/requests/{request}/why", responses=refusals(404))
async def why(deps: Deps, who: RequestReader, request: RequestParam) -> WhyOut:
    """Explain which policy rule requires the approval of a request, who may approve it, and what was waived."""
    row, *_ = await found(deps, who, request, Sight.FACTS)
    return WhyOut.model_validate(await explanation.why(deps.ctx, row.id))


@router.get("/delegations", responses=refusals())
async def delegations(deps: Deps, who: RequestReader) -> list[DelegationOut]:
    """List the delegations in force: yours in both directions, and everybody's for approvers."""
    everything = authorization.sees_all(deps.ctx.policy, who)
    rows = await delegation.listing(deps.ctx, who.actor, everything=everything)
    names, policy = deps.ctx.names, deps.ctx.policy
    return [
        DelegationOut.of(
            row, delegator_name=names.of(policy, row.delegator), delegate_name=names.of(policy, row.delegate)
        )
        for row in rows
    ]


@router.put("/delegations", responses=refusals(409))
async def delegate(deps: Deps, who: Decider, body: DelegationIn) -> Done:
    """Let one person approve in your place until the end of a day.

    A new delegation replaces the one before. The delegate cannot pass it on.
    """
    try:
        to = person(body.delegate)
    except BadHolder as error:
        raise ProblemRaised(Reply(False, ReplyCode.BAD_DELEGATE, str(error))) from error
    command = delegation.Delegate(DeciderFacts(who.actor), to, body.until)
    return done(await delegation.delegate(deps.ctx, command))


@router.delete("/delegations", responses=refusals(409))
async def revoke(deps: Deps, who: Decider) -> Done:
    """End your delegation: from now on nobody approves in your place."""
    return done(await delegation.revoke(deps.ctx, delegation.Delegate(DeciderFacts(who.actor))))


@router.post("/requests/{request}/break-glass", response_model=Done, responses=refusals(404, 409))
async def start_without(deps: Deps, who: Decider, request: RequestParam, body: BreakGlassIn, key: Repeat) -> Any:
    """Start your own request without an approval, where the policy names you.

    Every approver receives a notification.
    """
    row, *_ = await found(deps, who, request)

    async def act(name: str) -> tuple[int, Done]:
        command = BreakGlass(row.id, DeciderFacts(who.actor), body.reason, body.offer_id, name)
        return 200, done(await break_glass(deps.ctx, command), url=f"/api/v1/requests/{row.id}")

    return await once(deps, who, key, f"POST /requests/{row.id}/break-glass {body.model_dump_json()}", act)
