"""Show and set budgets, and show what was spent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from bot.api.dependencies import Admin, Dependencies, Deps, SessionReader, refusals
from bot.api.problems import ProblemRaised
from bot.api.routes.requests import done
from bot.api.schemas.base import Done
from bot.api.schemas.money import BudgetIn, BudgetOut, CostBucket, CostShare, CostsOut, FinishedOut, StatementOut
from bot.rules.budgets.budget import CostView, said
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import authorization
from bot.services.access.api_keys import Principal
from bot.services.billing import costs, focus
from bot.services.budgets import enforcement, setting
from bot.services.runtime.commands import Reply
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.calendar_spans import after, begin
from ledger.kernel.states import RollupTier

router = APIRouter(prefix="/api/v1", tags=["money"])
CSV = {"text/csv": {"schema": {"type": "string"}}}
MonthParam = Annotated[
    str,
    Query(
        pattern=r"^(20[0-9]{2}-(0[1-9]|1[0-2]))?$",
        description="A month in UTC; this month without one.",
        examples=["2026-03"],
    ),
]


@router.get("/budgets", responses=refusals())
async def get_budgets(deps: Deps, who: SessionReader) -> list[BudgetOut]:
    """List the budgets that this key's spending counts against.

    A key that may see everything gets every budget.
    """
    everybody = authorization.sees_all(deps.ctx.policy, who)
    lines = await enforcement.overview(deps.ctx, None if everybody else who.actor)
    names, policy = deps.ctx.names, deps.ctx.policy
    return [BudgetOut.of(line, sentence=said(line), whose=names.in_text(policy, line.key)) for line in lines]


@router.post("/budgets", responses=refusals(404))
async def put_budget(deps: Deps, who: Admin, body: BudgetIn) -> Done:
    """Set a budget while the service runs; without a limit, delete it.

    You can only tighten the budgets of the policy file.
    """
    limit = Decimal(body.limit_usd) if body.limit_usd is not None else None
    shares = None if body.thresholds is None else [Decimal(share) for share in body.thresholds]
    return done(await setting.put(deps.ctx, who.actor, body.scope, body.period, limit, body.reason, shares))


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
    groups = {by: _shares(deps, costs.shortened(rows)) for by, rows in found.groups.items()}
    return CostsOut.of(
        found,
        everybody=whose is None,
        buckets=[CostBucket(since=began, usd=usd) for began, usd in found.buckets],
        groups=groups,
        finished=FinishedOut.of(found.finished),
    )


def _shares(deps: Dependencies, rows: Sequence[tuple[str, Decimal]]) -> list[CostShare]:
    names, policy = deps.ctx.names, deps.ctx.policy
    return [
        CostShare(name=name, usd=usd, person_name=names.of(policy, name) if ":" in name else "") for name, usd in rows
    ]


async def _program(deps: Dependencies, who: Principal, name: str) -> Actor:
    """Return the program whose costs were asked for, if the principal may see them; raises `ProblemRaised` if not."""
    try:
        actor = Actor(ActorKind.CONSUMER, name)
    except ValueError as error:
        raise ProblemRaised(Reply(False, ReplyCode.BAD_CONSUMER, f"No program is called {name}.")) from error
    async with deps.ctx.db.read() as tx:
        if not await authorization.may_see(tx, deps.ctx.policy, who, actor.ref):
            sentence = f"You don't own {name}; its own key, or the person behind it, sees what it cost."
            raise ProblemRaised(Reply(False, ReplyCode.NOT_YOURS, sentence))
    return actor


@router.get(
    "/costs/focus",
    response_class=StreamingResponse,
    responses={
        **refusals(),
        200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The file."},
    },
)
async def get_focus(deps: Deps, who: SessionReader, month: MonthParam = "") -> StreamingResponse:
    """Write a month's costs as a CSV file of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

    Each row has the team, owner and project. You see your own; a key that may see everything sees everybody's.
    """
    since = _month(deps, month)
    whose = None if authorization.sees_all(deps.ctx.policy, who) else who.actor
    lines = focus.focus_csv(deps.ctx, whose, since, after(RollupTier.MONTH, since))
    named = {"Content-Disposition": f'attachment; filename="focus-{since:%Y-%m}.csv"'}
    return StreamingResponse(lines, media_type="text/csv", headers=named)


@router.get("/costs/statement", responses=refusals(404))
async def get_statement(
    deps: Deps,
    _who: Admin,
    team: Annotated[str, Query(max_length=40, description="A team of the policy.", examples=["ml"])] = "",
    month: MonthParam = "",
) -> StatementOut:
    """State what a team spent in a month, by owner, project, cloud and GPU."""
    found = await focus.statement(deps.ctx, team, _month(deps, month))
    if isinstance(found, Reply):
        raise ProblemRaised(found)
    groups = {by: _shares(deps, rows) for by, rows in found.groups.items()}
    return StatementOut.of(found, groups=groups, markdown=focus.as_markdown(found))


def _month(deps: Dependencies, month: str) -> datetime:
    """Return when a month (UTC) began; this month without a name."""
    return datetime.fromisoformat(f"{month}-01T00:00:00Z") if month else begin(RollupTier.MONTH, deps.ctx.clock.now())
