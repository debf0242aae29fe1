"""Money: what the budgets still allow, and what was spent."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter

from bot.api.desk import AtDesk, caller, refusals
from bot.api.routes.requests import done
from bot.api.schemas import BudgetIn, BudgetOut, CostBucket, CostShare, CostsOut, Done, FinishedOut
from bot.rules.budget import Period, said
from bot.rules.scopes import Scope
from bot.services import access, budgeting, budgets, costs
from bot.services.consumers import Principal

router = APIRouter(prefix="/api/v1", tags=["money"])
Reader = Annotated[Principal, caller(Scope.SESSIONS_READ)]
Admin = Annotated[Principal, caller(Scope.ADMIN)]


@router.get("/budgets", responses=refusals())
async def get_budgets(desk: AtDesk, who: Reader) -> list[BudgetOut]:
    """The budgets that this key's spending counts against; every one that is named, for whoever sees everything."""
    everybody = access.sees_all(desk.ctx.policy, who)
    lines = await budgets.overview(desk.ctx, None if everybody else who.actor)
    return [
        BudgetOut(
            key=line.key,
            period=line.period,
            limit_usd=line.limit_usd,
            spent_usd=line.spent_usd,
            open_usd=line.open_usd,
            since=line.since,
            sentence=said(line),
        )
        for line in lines
    ]


@router.post("/budgets", responses=refusals(404))
async def put_budget(desk: AtDesk, who: Admin, body: BudgetIn) -> Done:
    """Set a budget while the service runs, or with no limit forget it. The policy file's own can only be tightened."""
    limit = Decimal(body.limit_usd) if body.limit_usd is not None else None
    return done(await budgeting.put(desk.ctx, who.actor, body.scope, body.period, limit, body.reason))


@router.get("/costs", responses=refusals())
async def get_costs(desk: AtDesk, who: Reader, mine: bool = False, period: Period = Period.DAILY) -> CostsOut:
    """What was booked, by owner, consumer, cloud, GPU, label and tool; with `mine` only one's own.

    `period` is how it is cut: `hourly` the last 24 hours, `daily` this month, `monthly` the last twelve months, `total`
    everything.
    """
    everybody = access.sees_all(desk.ctx.policy, who) and not mine
    found = await costs.overview(desk.ctx, None if everybody else who.actor, period)
    groups = {by: [_share(name, usd) for name, usd in costs.shortened(rows)] for by, rows in found.groups.items()}
    return CostsOut(
        period=found.period,
        since=found.since,
        today_usd=found.today_usd,
        month_usd=found.month_usd,
        total_usd=found.total_usd,
        buckets=[CostBucket(since=began, usd=usd) for began, usd in found.buckets],
        groups=groups,
        finished=FinishedOut(**asdict(found.finished)),
    )


def _share(name: str, amount_usd: Decimal) -> CostShare:
    return CostShare(name=name, usd=amount_usd)
