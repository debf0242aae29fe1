"""Show and set budgets, and show what was spent."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query

from bot.api.dependencies import Admin, Dependencies, Deps, SessionReader, refusals
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import done
from bot.api.schemas.base import Done
from bot.api.schemas.money import BudgetIn, BudgetOut, CostBucket, CostShare, CostsOut, FinishedOut
from bot.rules.budgets.budget import CostView, said
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.access.api_keys import Principal
from bot.services.billing import costs
from bot.services.budgets import enforcement, limits
from bot.services.runtime.commands import Reply
from ledger.kernel.actor import Actor, ActorKind

router = APIRouter(prefix="/api/v1", tags=["money"])


@router.get("/budgets", responses=refusals())
async def get_budgets(deps: Deps, who: SessionReader) -> list[BudgetOut]:
    """List the budgets that this key's spending counts against.

    A key that may see everything gets every budget.
    """
    everybody = authorization.sees_all(deps.ctx.policy, who)
    lines = await enforcement.overview(deps.ctx, None if everybody else who.actor)
    return [BudgetOut.of(line, sentence=said(line)) for line in lines]


@router.post("/budgets", responses=refusals(404))
async def put_budget(deps: Deps, who: Admin, body: BudgetIn) -> Done:
    """Set a budget while the service runs; without a limit, delete it.

    You can only tighten the budgets of the policy file.
    """
    limit = Decimal(body.limit_usd) if body.limit_usd is not None else None
    return done(await limits.put(deps.ctx, who.actor, body.scope, body.period, limit, body.reason))


@router.get("/costs", responses=refusals())
async def get_costs(
    deps: Deps,
    who: SessionReader,
    mine: Annotated[bool, Query(description="true: only your own, even where you may see more.")] = False,
    period: Annotated[CostView, Query(description="hourly, daily, monthly or total.")] = CostView.DAILY,
    consumer: Annotated[str, Query(max_length=40, description="Only this program's.", examples=["atlas"])] = "",
) -> CostsOut:
    """Show what was spent, by owner, consumer, cloud, GPU, label and tool; with `mine` only your own.

    `period` selects the time and its steps: `hourly` (or `day`) the last 24 hours, `daily` (`month`) this month,
    `monthly` (`year`) the last twelve months, `total` everything.
    """
    everybody = authorization.sees_all(deps.ctx.policy, who) and not mine
    whose = None if everybody else who.actor
    if consumer:
        whose = await _program(deps, who, consumer)
    found = await costs.overview(deps.ctx, whose, period.period)
    groups = {
        by: [CostShare(name=name, usd=usd) for name, usd in costs.shortened(rows)] for by, rows in found.groups.items()
    }
    return CostsOut.of(
        found,
        buckets=[CostBucket(since=began, usd=usd) for began, usd in found.buckets],
        groups=groups,
        finished=FinishedOut.of(found.finished),
    )


async def _program(deps: Dependencies, who: Principal, name: str) -> Actor:
    """Return the program whose costs were asked for, if the principal may see them; raises `ProblemRaised` if not."""
    actor = Actor(ActorKind.CONSUMER, name)
    async with deps.ctx.db.read() as tx:
        if not await authorization.may_see(tx, deps.ctx.policy, who, actor.ref):
            sentence = f"You don't own {name}; its own key, or the person behind it, sees what it cost."
            raise ProblemRaised(Reply(False, ReplyCode.NOT_YOURS, sentence))
    return actor
