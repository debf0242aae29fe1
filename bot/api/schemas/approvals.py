"""Around a decision: why it is needed, who decides for somebody else, and a start without one."""

from __future__ import annotations

from datetime import date

from pydantic import Field

from bot.api.schemas.base import In, Out
from bot.api.schemas.fields import CreatedAt, OfferIdIn, ReasonText, RequestId, Until
from bot.services.market.offer_fields import Id
from ledger.kernel.states import RequestState


class WhyOut(Out):
    """Why a request needed approval: the rule, its tier and group, who decides, and the rules that did not hold."""

    request_id: RequestId
    state: RequestState = Field(description="Its state.")
    rule: str = Field(description="The rule of the policy that asked for a decision, in words.")
    tier: str = Field(description="The tier of the policy that it belongs to; empty when to none.")
    group: str = Field(description="The group of approvers that decides; empty when any of them does.")
    required: int = Field(description="How many approvals are needed.")
    given: list[str] = Field(description="The approvals that were given, in words.")
    may_decide: list[str] = Field(description="Who may decide.")
    also: list[str] = Field(description="What else belongs to the answer, in words.")
    waived: list[str] = Field(description="The rules of the policy that did not hold, and why.")
    sentences: list[str] = Field(description="What is said below the tables.")


class DelegationIn(In):
    """Who decides in your place (a Slack id or operator:ada), and the last day of it in UTC."""

    delegate: str = Field(max_length=90, description="Who decides instead.", examples=["U012AB3CD"])
    until: date = Field(description="Until when.", examples=["2026-12-01"])


class DelegationOut(Out):
    """One person who decides in another one's place until a moment."""

    id: Id
    delegator: str = Field(description="In whose place.")
    delegate: str = Field(description="Who decides instead.")
    until: Until
    created_at: CreatedAt


class BreakGlassIn(In):
    """Why it cannot wait, and which option; the first one if it is not said."""

    reason: ReasonText = ""
    offer_id: OfferIdIn = None
