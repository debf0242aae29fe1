"""Share the ledger with other tools: append a cost, read the entries, verify the hash chain, sum up, list instances."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BeforeValidator

from bot.api.dependencies import Admin, Deps, LedgerWriter, SessionReader, refusals
from bot.api.problems import answered
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
#: Only a written time: pydantic would read a number as seconds since 1970, which the description does not mention.
Since = Annotated[datetime | None, BeforeValidator(_as_written), Query(description="The start of the time.")]


@router.post("/ledger/entries", status_code=201, responses=refusals())
async def append(deps: Deps, who: LedgerWriter, entry: ExternalIn) -> ExternalOut:
    """Append a cost of another tool."""
    return answered(ExternalOut, await shared_ledger.append(deps.ctx, who.actor, entry.model_dump()))


@router.get("/ledger/entries", responses=refusals())
async def entries(deps: Deps, _who: Admin, since: Since = None) -> list[SharedEntry]:
    """List all costs since `since`: one for each creation, instance-hour and end, and what other tools appended."""
    return [SharedEntry(**one) for one in await shared_ledger.exported(deps.ctx, since)]


@router.get("/ledger/verify", responses=refusals())
async def verify(deps: Deps, _who: Admin) -> CheckedOut:
    """Verify the hash chain of all entries, and every sum against them."""
    found = await shared_ledger.verify(deps.ctx)
    return CheckedOut.of(found, ok=not found.problems)


@router.get("/ledger/summary", responses=refusals())
async def summary(deps: Deps, who: SessionReader) -> SummaryOut:
    """Sum up spend per tool, provider and owner, with the budgets.

    You see your own; a key that may see everything sees everybody's.
    """
    found = await shared_ledger.summary(deps.ctx, _of(deps, who))
    return SummaryOut.of(
        found,
        tools=dict(found.tools),
        providers=dict(found.providers),
        owners=dict(found.owners),
        markdown=shared_ledger.as_markdown(found),
    )


@router.get("/ledger/manifest", responses=refusals())
async def live(deps: Deps, who: SessionReader) -> LiveManifest:
    """List every live instance with its endpoint.

    You see your own; a key that may see everything sees everybody's.
    """
    everybody, endpoints = authorization.sees_all(deps.ctx.policy, who), Scope.ADMIN in who.scopes
    found = await shared_ledger.manifest(deps.ctx, who.actor, everybody=everybody, endpoints=endpoints)
    return LiveManifest.model_validate(found)


def _of(deps: Deps, who: Principal) -> Actor | None:
    return None if authorization.sees_all(deps.ctx.policy, who) else who.actor
