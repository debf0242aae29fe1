"""What operators look at and decide: the journal, the clouds' accounts, instances, strays, and runs."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from bot.api.schemas.base import In, Out
from bot.api.schemas.fields import (
    Actor,
    At,
    CreatedAt,
    EndedAt,
    Held,
    HoursIn,
    Kind,
    Name,
    Owner,
    Reason,
    RequestId,
    SessionId,
    ShortReasonText,
    Since,
    State,
)
from bot.rules.grammar.job_document import JobDocument
from bot.services.instances import unreachable_accounts
from bot.services.market.offer_fields import Cloud, Code, Id, PricePerHour
from ledger.kernel.states import InstanceState, OrphanState

#: The id of a row here.
RowId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{4,64}$")]


class EventOut(Out):
    """One thing that happened."""

    id: Id
    at: At
    actor: Actor
    subject: str = Field(description="The id of what it is about.")
    kind: Kind
    before: str = Field(description="The state before it, or empty.")
    after: str = Field(description="The state after it, or empty.")
    reason: Reason
    data: dict[str, Any] = Field(description="Further facts, by name.")


class AuditOut(Out):
    """The journal of a request with all that came of it, its newest seals, and in words what does not fit them."""

    request_id: RequestId
    events: list[EventOut] = Field(description="What happened, the oldest first.")
    sealed: int = Field(description="How many of them are sealed against change.")
    heads: dict[str, str] = Field(description="The newest seal of each subject.")
    broken: list[str] = Field(description="What does not fit the seals, in words; empty when nothing was changed.")


class PreflightOut(Out):
    """Whether a cloud can be bought from now; `problem`, `missing` and `where` say what to do about it."""

    cloud: Cloud
    ok: bool = Field(description="Whether all is well.")
    code: Code
    problem: str = Field(description="What is wrong, in words; empty when nothing is.")
    missing: list[str] = Field(description="The settings that are missing.")
    where: str = Field(description="Where to set what is missing.")
    credit_usd: Decimal | None = Field(description="Told to administrators only.")


class InstanceOut(Out):
    """One instance and whose it is."""

    id: Id
    session_id: SessionId
    cloud: Cloud
    ref: str | None = Field(description="The id at the cloud.")
    name: Name
    state: InstanceState = Field(description="Its state.")
    status: str = Field(description="Its state in words.")
    price_usd_h: PricePerHour
    created_at: CreatedAt
    ended_at: EndedAt


class StrayOut(Out):
    """An instance of ours without a row of its own; `quarantined` ones wait for an operator's word."""

    id: Id
    cloud: Cloud
    ref: str = Field(description="The id at the cloud.")
    label: str = Field(description="The label by which it is known as ours.")
    state: OrphanState = Field(description="Its state.")
    price_usd_h: PricePerHour
    first_seen_at: datetime = Field(description="When it was seen first.")
    last_seen_at: datetime = Field(description="When it was seen last.")
    ended_at: EndedAt
    reason: Reason


class UnreachableOut(Out):
    """An open instance, or a stray, of an account that no key which is set up here opens."""

    id: Id
    cloud: Cloud
    account: str = Field(
        description="The account at the cloud, by the fingerprint of the key that its instances were made with."
    )
    ref: str | None = Field(description="The id at the cloud.")
    state: State
    price_usd_h: PricePerHour
    since: Since
    session_id: str | None = Field(description="The session that it belongs to; null for a stray.")
    owner: Owner


class GoneIn(In):
    """Which instances and strays no longer exist, and why that is known."""

    ids: list[RowId] = Field(
        min_length=1,
        max_length=unreachable_accounts.MOST,
        description="Ids of instances and strays, as the list of unreachable ones shows them.",
    )
    reason: ShortReasonText = ""


class RunIn(In):
    """The rate of a finished run in tokens per second over all GPUs: of a session, or of a machine and its words."""

    tokens_s: Decimal = Field(gt=0, max_digits=20, allow_inf_nan=False, description="Tokens per second as measured.")
    session: RowId | None = Field(default=None, description="The session, by its id.")
    job: JobDocument | None = Field(default=None, description="The job as it was asked for.")


class AdoptIn(In):
    """For how long a waiting instance is kept, whose it becomes (a Slack id or operator:ada; oneself), and why."""

    hours: HoursIn
    owner: str = Field(default="", max_length=90, description="Whose it is.")
    reason: ShortReasonText = ""
    amount: Annotated[str, Field(max_length=40)] | None = Field(
        default=None, description="The expected total in dollars, typed where the policy wants it.", examples=["123.45"]
    )


class LookedOut(Out):
    """How the look at one cloud went."""

    cloud: Cloud
    listed: int = Field(description="How many instances the cloud lists.")
    problem: str = Field(description="What is wrong, in words; empty when nothing is.")


class RecoveredOut(Out):
    """What the clouds show of this deployment that its ledger does not know; each waits for an operator's word."""

    clouds: list[LookedOut] = Field(description="How each cloud answered.")
    waiting: list[StrayOut] = Field(description="What waits for an operator's word.")
    held: Held = ""
