"""Bodies and answers about approvals: explanations, delegations, and a start without an approval."""

from __future__ import annotations

from datetime import date

from pydantic import Field

from bot.api.schemas.base import In, Out, optional
from bot.api.schemas.fields import CreatedAt, OfferIdIn, ReasonText, RequestId, Until
from bot.services.market.offer_fields import Id
from ledger.kernel.states import RequestState


class WhyOut(Out):
    """Why a request needed approval: the rule, its tier and group, its approvers, and the waived rules."""

    request_id: RequestId
    state: RequestState = Field(description="Its state.")
    rule: str = Field(description="The policy rule that requires the approval, in words.")
    tier: str = Field(description="The tier of the policy that it belongs to; empty when to none.")
    group: str = Field(description="The group of approvers; empty when any approver will do.")
    required: int = Field(description="How many approvals are needed.")
    given: list[str] = Field(description="The approvals that were given, in words.")
    approvers: list[str] = Field(description="The approvers who are notified.")
    not_notified: list[str] = Field(description="Further approvers, who get no message.")
    waived: list[str] = Field(description="The rules of the policy that were waived, and why.")
    sentences: list[str] = Field(description="The sentences below the tables.")


class DelegationIn(In):
    """Who approves in your place (a Slack id or operator:ada), and the last day of it in UTC."""

    delegate: str = Field(max_length=90, description="The delegate.", examples=["U012AB3CD"])
    until: date = Field(description="Until when.", examples=["2026-12-01"])


class DelegationOut(Out):
    """One person who approves in another one's place until a moment."""

    id: Id
    delegator: str = Field(description="Who delegates.")
    delegate: str = Field(description="The delegate.")
    delegator_name: str = optional("The name of who delegates, where it is known.", "")
    delegate_name: str = optional("The name of the delegate, where it is known.", "")
    until: Until
    created_at: CreatedAt


class BreakGlassIn(In):
    """Why it cannot wait, and which option; without one, the first."""

    reason: ReasonText = ""
    offer_id: OfferIdIn = None
