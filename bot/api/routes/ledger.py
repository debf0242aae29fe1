"""The ledger that tools share: append a cost, read ours, check it, sum it up; and what is live now."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BeforeValidator

from bot.api.dependencies import AtDesk, caller, refusals
from bot.api.problems import ProblemRaised
from bot.api.schemas.ledger import CheckedOut, ExternalIn, ExternalOut, LiveManifest, SharedEntry, SummaryOut
from bot.rules.access.scopes import Scope
from bot.services.access import authorization
from bot.services.access.api_keys import Principal
from bot.services.billing import shared_ledger
from ledger.kernel.actor import Actor


def _as_written(said: object) -> object:
    if isinstance(said, str) and "T" not in said:
        raise ValueError("a time is written like 2026-03-02T09:00:00Z")
    return said


router = APIRouter(prefix="/api/v1", tags=["ledger"])
Reader = Annotated[Principal, caller(Scope.SESSIONS_READ)]
Writer = Annotated[Principal, caller(Scope.LEDGER_WRITE)]
Admin = Annotated[Principal, caller(Scope.ADMIN)]
#: A number would be read as seconds since 1970, which the description does not say.
Since = Annotated[datetime | None, BeforeValidator(_as_written), Query(description="From when on.")]


@router.post("/ledger/entries", status_code=201, responses=refusals())
async def append(desk: AtDesk, who: Writer, entry: ExternalIn) -> ExternalOut:
    """Append a cost of another tool."""
    reply = await shared_ledger.append(desk.ctx, who.actor, entry.model_dump())
    if not reply.ok:
        raise ProblemRaised(reply)
    return ExternalOut(code=reply.code, sentence=reply.sentence, entry_id=str(reply.data["entry_id"]))


@router.get("/ledger/entries", responses=refusals())
async def entries(desk: AtDesk, _who: Admin, since: Since = None) -> list[SharedEntry]:
    """Our own entries: one for each creation, instance-hour and end, of instances not over before `since`."""
    return [SharedEntry(**one) for one in await shared_ledger.exported(desk.ctx, since)]


@router.get("/ledger/verify", responses=refusals())
async def verify(desk: AtDesk, _who: Admin) -> CheckedOut:
    """Check the chain of all entries, and every sum against them."""
    found = await shared_ledger.verify(desk.ctx)
    return CheckedOut(
        ok=not found.problems,
        entries=found.entries,
        sealed=found.sealed,
        waiting=found.waiting,
        spent_usd=found.spent_usd,
        head=found.head,
        problems=list(found.problems),
    )


@router.get("/ledger/summary", responses=refusals())
async def summary(desk: AtDesk, who: Reader) -> SummaryOut:
    """Total spend per tool, provider and owner with the budgets: everybody's for whoever sees everything."""
    found = await shared_ledger.summary(desk.ctx, _of(desk, who))
    return SummaryOut(
        at=found.at,
        total_usd=found.total_usd,
        tools=dict(found.tools),
        providers=dict(found.providers),
        owners=dict(found.owners),
        budgets=list(found.budgets),
        markdown=shared_ledger.as_markdown(found),
    )


@router.get("/ledger/manifest", responses=refusals())
async def live(desk: AtDesk, who: Reader) -> LiveManifest:
    """Every live instance with its endpoint; of everybody for whoever sees everything."""
    everybody, endpoints = authorization.sees_all(desk.ctx.policy, who), Scope.ADMIN in who.scopes
    found = await shared_ledger.manifest(desk.ctx, who.actor, everybody=everybody, endpoints=endpoints)
    return LiveManifest.model_validate(found)


def _of(desk: AtDesk, who: Principal) -> Actor | None:
    return None if authorization.sees_all(desk.ctx.policy, who) else who.actor
