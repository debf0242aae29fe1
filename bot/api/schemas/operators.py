"""Answers for operators: the audit log, the clouds' accounts, instances, orphans and runs."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from bot.api.schemas import fields
from bot.api.schemas.base import In, Out, optional
from bot.rules.jobs.document import JobDocument
from bot.services.instances import unreachable_accounts
from bot.services.market.offer_fields import Cloud, Code, Id, PricePerHour
from ledger.kernel.states import InstanceState, OrphanState

#: The id of a row here.
RowId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{4,64}$")]


class EventOut(Out):
    """One event."""

    id: Id
    at: fields.At
    actor: fields.Actor
    actor_name: str = optional("The name of that person, where it is known.", "")
    subject: str = Field(description="The id of what it is about.")
    kind: fields.Kind
    before: str = Field(description="The state before it, or empty.")
    after: str = Field(description="The state after it, or empty.")
    reason: fields.Reason
    data: dict[str, Any] = Field(description="Further facts, by name.")


class AuditOut(Out):
    """The events of a request and its session, the newest hashes, and in words every event that does not match them."""

    request_id: fields.RequestId
    events: list[EventOut] = Field(description="What happened, the oldest first.")
    late: list[str] = Field(
        description="The ids of events that were recorded more than an hour after the time that they name."
    )
    hashed: int = Field(description="How many of them are in the hash chain.")
    heads: dict[str, str] = Field(description="The newest hash of each subject.")
    broken: list[str] = Field(
        description="Events that do not match their hash, in words; empty when nothing was changed."
    )


class PreflightOut(Out):
    """Whether a cloud can be bought from now; `problem`, `missing` and `where` say what to do about it."""

    cloud: Cloud
    configured: bool = Field(description="Whether the key of the cloud is set here.")
    ok: bool = Field(description="Whether all is well.")
    code: Code
    problem: str = Field(description="What is wrong, in words; empty when nothing is.")
    missing: list[str] = Field(description="The settings that are missing.")
    where: str = Field(description="Where to set what is missing.")
    credit_usd: Decimal | None = Field(description="The credit left; only administrators see it.")


class InstanceOut(Out):
    """One instance and its owner."""

    id: Id
    session_id: fields.SessionId
    request_id: fields.RequestId
    cloud: Cloud
    ref: str | None = Field(description="The id at the cloud.")
    name: fields.Name
    state: InstanceState = Field(description="Its state.")
    status: str = Field(description="Its state in words.")
    price_usd_h: PricePerHour
    created_at: fields.CreatedAt
    ended_at: fields.EndedAt


class OrphanOut(Out):
    """An instance with our label and no open session; `quarantined` ones wait for an operator."""

    id: Id
    cloud: Cloud
    ref: str = Field(description="The id at the cloud.")
    label: str = Field(description="The label that marks it as ours.")
    state: OrphanState = Field(description="Its state.")
    price_usd_h: PricePerHour
    first_seen_at: datetime = Field(description="When it was seen first.")
    last_seen_at: datetime = Field(description="When it was seen last.")
    ended_at: fields.EndedAt
    reason: fields.Reason


class UnreachableOut(Out):
    """An open instance or an orphan in an account for which no key is set up here."""

    id: Id
    cloud: Cloud
    account: str = Field(
        description="The account at the cloud, by the fingerprint of the key that its instances were made with."
    )
    ref: str | None = Field(description="The id at the cloud.")
    state: fields.State
    price_usd_h: PricePerHour
    since: fields.Since
    session_id: str | None = Field(description="The session that it belongs to; null for an orphan.")
    owner: fields.Owner
    owner_name: str = optional("The owner's name, where it is known.", "")


class GoneIn(In):
    """Which instances and orphans no longer exist, and how that is known."""

    ids: list[RowId] = Field(
        min_length=1,
        max_length=unreachable_accounts.MOST,
        description="Ids of instances and orphans, as the list of unreachable ones shows them.",
    )
    reason: fields.ShortReasonText = ""


class UnconfirmedBillOut(Out):
    """A bill above the hours that its instance existed at the approved rate. It is booked only when you confirm it."""

    id: Id = Field(description="The id of the ended instance or orphan.")
    cloud: Cloud
    ref: str = Field(description="The id at the cloud.")
    session_id: str | None = Field(description="The session that it belongs to; null for an orphan.")
    billed_usd: Decimal = Field(description="What the cloud's bill says.")
    booked_usd: Decimal = Field(description="What the ledger says.")
    most_usd: Decimal = Field(description="Its hours at the approved rate.")


class ConfirmBillIn(In):
    """The amount of the bill that you checked at the cloud, and how you know."""

    amount: Decimal = Field(gt=0, max_digits=20, allow_inf_nan=False, description="Dollars, as the list shows them.")
    reason: fields.ShortReasonText = ""


class RunIn(In):
    """The rate of a finished run in tokens per second over all GPUs: of a session, or of a machine and its words."""

    tokens_s: Decimal = Field(gt=0, max_digits=20, allow_inf_nan=False, description="Tokens per second as measured.")
    session: RowId | None = optional("The session, by its id.")
    job: JobDocument | None = optional("The job as it was requested.")


class AdoptIn(In):
    """How long to keep a quarantined orphan, who owns it (a Slack id or operator:ada; by default you), and why."""

    hours: fields.HoursIn
    owner: str = Field(default="", max_length=90, description="Whose it is.")
    reason: fields.ShortReasonText = ""
    amount: Annotated[str, Field(max_length=40)] | None = optional(
        "The expected total in dollars, typed where the policy wants it.", examples=["123.45"]
    )


class ListingOut(Out):
    """The result of listing the instances at one cloud."""

    cloud: Cloud
    listed: int = Field(description="How many instances the cloud lists.")
    problem: str = Field(description="What is wrong, in words; empty when nothing is.")


class AcceptIn(In):
    """What to do with approvals from before an older ledger was noticed."""

    keep_approvals: bool = Field(
        default=False, description="Let earlier approvals buy. Only if nothing can have been launched since the copy."
    )


class RecoveredOut(Out):
    """The instances that the clouds list and the ledger does not know; each waits for an operator."""

    clouds: list[ListingOut] = Field(description="The result of each cloud.")
    waiting: list[OrphanOut] = Field(description="The quarantined orphans.")
    older: list[str] = Field(
        default=[], description="How old the ledger is, and each difference from its records; empty where it is none."
    )
    paused: fields.Held = ""
