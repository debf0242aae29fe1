"""Requests: their offers, approvals and state, and the body of an approval."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field, StrictBool

from bot.api.schemas import fields
from bot.api.schemas.base import In, Out, optional
from bot.services.market import offer_fields
from ledger.kernel.states import RequestState, SessionState
from providers.completeness import Completeness


class OptionOut(Out, offer_fields.RankedFields):
    """One offer of a request's quote. Approving it covers its price times the policy's tolerance."""

    country: offer_fields.Country = None
    nodes: int = optional("How many machines it is, each with so many GPUs. Its amounts are those of all.", 1)
    spot: offer_fields.Spot
    price_usd_h: offer_fields.PricePerHour
    best_usd: offer_fields.BestUsd
    expected_usd: offer_fields.ExpectedUsd
    worst_usd: offer_fields.WorstUsd
    marks: list[str] = Field(description="What it is best at: cost-efficiency, stability, or speed within the budget.")
    why: offer_fields.Why
    parts: offer_fields.Parts = ""
    outlook: offer_fields.OutlookFields | None = Field(
        default=None, description="Ranges and chances of a described run; null where only hours are known."
    )
    checkpoint_hold: str = optional("The part of the worst case for a checkpoint hold at the end.", "")


class ApprovalOut(Out):
    """One recorded decision and what it covers."""

    approver: str = Field(description="Who decided.")
    decision: str = Field(description="approve or reject.")
    quote_version: int = Field(description="The version of the offers that the decision is about.")
    price_cap_usd_h: fields.PriceCap
    total_cap_usd: fields.TotalCap
    hours: str | None = Field(description="The hours that it covers.")
    reason: fields.Reason
    at: fields.At
    on_behalf_of: str | None = Field(
        description="For whom the delegate approved or rejected; null without a delegation."
    )
    digest: str | None = Field(
        description="A digest of the terms that were read; it differs as soon as somebody changes them."
    )


class Waiting(Out):
    """Who must approve a request, since when and until when it waits."""

    rule: str = Field(description="The policy rule that requires the approval, in words.")
    approvers: list[str] = Field(description="The approvers.")
    approver_names: list[str] = optional("The approvers by name where the policy knows it, else as above.", [])
    approver_groups: list[str] = Field(description="Groups whose members are approvers.")
    approvals: int = Field(description="How many approvals there are already.")
    required: int = Field(description="How many approvals are needed.")
    digest: str = Field(
        description="A digest of the terms that were read; it differs as soon as somebody changes them."
    )
    hours: Decimal = Field(description="The hours now; an approver may have shortened them.")
    since: fields.Since
    until: fields.Until


class RequestSummary(Out):
    """A request in a list."""

    id: offer_fields.Id
    kind: fields.Kind
    requested: str = Field(description="What is requested, in words.", examples=["4× A100-80GB for 6 hours"])
    parent_id: str | None = Field(
        description="The request that this one belongs to, such as the one whose hours it extends."
    )
    state: RequestState = Field(description="Its state.")
    requester: str = Field(description="The requester.")
    reason: fields.Reason
    outcome: str = Field(description="The outcome, in words.")
    created_at: fields.CreatedAt
    expires_at: fields.ExpiresAt
    decided_at: datetime | None = Field(description="When it was approved or closed; null while it is open.")
    decided_by: str | None = Field(description="Who approved or closed it; null while it is open.")
    session_state: SessionState | None = optional("The state of its session; null without one.")
    requester_name: str = optional("The requester's name, where the policy knows it.", "")
    decided_by_name: str = optional("The name of who approved or closed it, where the policy knows it.", "")


class AdvanceOut(Out):
    """An approval in advance that is neither used nor revoked."""

    approver: str = Field(description="Who approved the limits in advance.")
    price_cap_usd_h: Decimal = Field(description="The highest price per hour that it covers, in dollars.")
    total_cap_usd: Decimal = Field(description="The highest total that it covers, in dollars.")
    until: fields.Until
    at: fields.At


class WaitOut(Out):
    """For what a request waits or waited."""

    sentence: str = Field(description="For what it waits and until when, in words.")
    from_at: datetime = Field(description="From when on it looks for offers.")
    until: datetime = Field(description="When it expires without an offer.")
    price_cap_usd_h: Decimal | None = Field(description="The highest price per hour; null: any.")
    total_cap_usd: Decimal | None = Field(description="The highest total; null: any.")
    in_advance: list[AdvanceOut] = Field(description="The approvals in advance that are neither used nor revoked.")


class RequestOut(RequestSummary):
    """A request in full. `waiting` is null once it is closed; `override_id` names the override of `max_hours`."""

    job: dict[str, Any] = Field(description="The job as it was requested.")
    shared_with: list[str] = optional("The people with whom its machine is shared: their keys go onto it.", [])
    shared_with_names: list[str] = optional("Their names; a reference where none is known.", [])
    quote_version: int = Field(description="The version of the offers that the decision is about.")
    options: list[OptionOut] = Field(description="The ranked offers, the best first.")
    approvals: list[ApprovalOut] = Field(description="The decisions that were made, the oldest first.")
    excluded: list[str] = Field(description="Offers that were skipped and why, in words.")
    looking_at: list[str] = optional(
        "The clouds whose offers are still being read. Until that is done, nothing can be approved.", []
    )
    completeness: Completeness | None = optional(
        "How complete the market behind the offers is: complete, partial (and why), stale or unknown; null: no offers."
    )
    wait: WaitOut | None = optional("For what it waits or waited; null: it never did.")
    waiting: Waiting | None = Field(description="The approvers it waits for; null once it is closed.")
    override_id: str | None = Field(
        description="The override of `max_hours`; an approval of this request approves it, too."
    )
    override_state: str | None = Field(
        description="The state of that override: pending, approved, rejected, expired or cancelled."
    )
    max_hours_without_override: Decimal = optional(
        "The policy's limit, above which hours need that override.", Decimal(12)
    )
    session_id: str | None = Field(description="The id of the session.")
    paused: fields.Held = ""
    hint: str = optional("What to know before you approve it, such as that its owner has no SSH key.", "")


class ApproveIn(In):
    """Which option is approved, at which version of the quote, and the typed amount where the policy requires it.

    A 12-hour override has no option.
    """

    offer_id: fields.OfferIdIn = None
    quote_version: Annotated[int, Field(ge=1, le=1_000_000)] | None = optional(
        "The version whose offers you read; refused when there is a newer one."
    )
    amount: Annotated[str, Field(max_length=40)] | None = optional(
        "The expected total, typed where the policy wants it confirmed.", examples=["123.45"]
    )
    cap_usd: Annotated[str, Field(pattern=r"^[0-9]{1,7}(\.[0-9]{1,6})?$")] | None = optional(
        "A total below the worst case, in dollars.", examples=["12.50"]
    )
    reason: fields.ReasonText = ""
    hours: fields.Time | None = optional("A shorter time than was requested.", examples=["4h"])
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")] | None = optional(
        "The digest of the terms that you read; needed once another approver has changed them."
    )


class AgainIn(In):
    """Which request is repeated."""

    request: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{4,64}$")] | None = optional(
        "A request by its id, or by the end of one; without it, your newest.", examples=["4k7m2p"]
    )


class ShareIn(In):
    """With whom a request's machine is shared, or no longer."""

    person: str = Field(max_length=90, description="A Slack id, or operator:ada.", examples=["U012AB3CD"])
    off: StrictBool = optional("true: it is shared with them no longer.", False)
