"""Money: what the budgets still allow, and what was spent."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query

from bot.api.dependencies import AtDesk, Dependencies, caller, refusals
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import done
from bot.api.schemas.base import Done
from bot.api.schemas.money import BudgetIn, BudgetOut, CostBucket, CostShare, CostsOut, FinishedOut
from bot.rules.access.scopes import Scope
from bot.rules.budgets.budget import CostView, said
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.access.api_keys import Principal
from bot.services.billing import costs
from bot.services.budgets import enforcement, limits
from bot.services.runtime.commands import Reply
from ledger.kernel.actor import Actor, ActorKind

router = APIRouter(prefix="/api/v1", tags=["money"])
Reader = Annotated[Principal, caller(Scope.SESSIONS_READ)]
Admin = Annotated[Principal, caller(Scope.ADMIN)]


@router.get("/budgets", responses=refusals())
async def get_budgets(desk: AtDesk, who: Reader) -> list[BudgetOut]:
    """The budgets that this key's spending counts against; every one that is named, for whoever sees everything."""
    everybody = authorization.sees_all(desk.ctx.policy, who)
    lines = await enforcement.overview(desk.ctx, None if everybody else who.actor)
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
    return done(await limits.put(desk.ctx, who.actor, body.scope, body.period, limit, body.reason))


@router.get("/costs", responses=refusals())
async def get_costs(
    desk: AtDesk,
    who: Reader,
    mine: Annotated[bool, Query(description="true: only one's own, where one may see more.")] = False,
    period: Annotated[CostView, Query(description="hourly, daily, monthly or total.")] = CostView.DAILY,
    consumer: Annotated[str, Query(max_length=40, description="Only this program's.", examples=["atlas"])] = "",
) -> CostsOut:
    """What was booked, by owner, consumer, cloud, GPU, label and tool; with `mine` only one's own.

    `period` is how it is cut: `hourly` (or `day`) the last 24 hours, `daily` (`month`) this month, `monthly` (`year`)
    the last twelve months, `total` everything.
    """
    everybody = authorization.sees_all(desk.ctx.policy, who) and not mine
    whose = None if everybody else who.actor
    if consumer:
        whose = await _program(desk, who, consumer)
    found = await costs.overview(desk.ctx, whose, period.period)
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


async def _program(desk: Dependencies, who: Principal, name: str) -> Actor:
    """A program whose costs the principal may see: itself, one that they answer for, or any for who sees everything."""
    actor = Actor(ActorKind.CONSUMER, name)
    async with desk.ctx.db.read() as tx:
        if not await authorization.may_see(tx, desk.ctx.policy, who, actor.ref):
            sentence = f"You do not answer for {name}; its own key, or the person behind it, sees what it cost."
            raise ProblemRaised(Reply(False, ReplyCode.NOT_YOURS, sentence))
    return actor
