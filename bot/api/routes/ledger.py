"""The ledger that tools share: append a cost, read ours, check it, sum it up; and what is live now."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, Field

from bot.api.desk import AtDesk, caller, refusals
from bot.api.problems import Refused
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
Since = Annotated[datetime | None, BeforeValidator(_as_written)]


class ExternalIn(BaseModel):
    """A cost of another tool. The same `id`, or without one the same content, is booked once."""

    skill: str = Field(examples=["training-runner"])
    provider: str = Field(examples=["s3"])
    action: str = Field(examples=["store checkpoints"])
    amount_usd: Decimal = Field(examples=["1.25"])
    timestamp: str = Field(examples=["2026-03-02T09:00:00Z"])
    notes: str = ""
    id: str = ""


class ExternalOut(BaseModel):
    """Where it is booked; `code` is `booked`, or `known` when it was there."""

    code: str
    sentence: str
    entry_id: str


class SharedEntry(BaseModel):
    """One of our entries in the shape that tools share."""

    id: str
    skill: str
    provider: str
    action: str
    amount_usd: float
    timestamp: str
    notes: str


class CheckedOut(BaseModel):
    """Whether the ledger is whole. `head` is the newest seal: whoever notes it can tell later what was changed."""

    ok: bool
    entries: int
    sealed: int
    waiting: int
    spent_usd: Decimal
    head: str
    problems: list[str]


class SummaryOut(BaseModel):
    """Everything that was ever spent; `markdown` is `cost_summary.md`."""

    at: datetime
    total_usd: Decimal
    tools: dict[str, Decimal]
    providers: dict[str, Decimal]
    owners: dict[str, Decimal]
    budgets: list[str]
    markdown: str


class LiveManifest(BaseModel):
    """`instance_manifest.json`: what is live now, with endpoints."""

    generated_at: datetime
    instances: list[dict[str, Any]]


@router.post("/ledger/entries", status_code=201, responses=refusals())
async def append(desk: AtDesk, who: Writer, entry: ExternalIn) -> ExternalOut:
    """Append a cost of another tool."""
    reply = await shared_ledger.append(desk.ctx, who.actor, entry.model_dump())
    if not reply.ok:
        raise Refused(reply)
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
