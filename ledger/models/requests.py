"""Store requests, quotes, the tokens on buttons, approvals, delegations and grants."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, ForeignKey, Index, Integer, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import EnumText, JobJson, Json, MicroUsd, SafeString, SafeText, UtcDateTime
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import GrantState, RequestState
from ledger.kernel.stored_job import StoredJob
from ledger.models.base import Base, Claimable


class Request(Claimable, Base):
    """Store one request and its decision."""

    __tablename__ = "requests"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    kind: Mapped[RequestKind] = mapped_column(EnumText(RequestKind))
    state: Mapped[RequestState] = mapped_column(EnumText(RequestState))
    version: Mapped[int] = mapped_column(Integer, default=1)
    quote_version: Mapped[int] = mapped_column(Integer, default=0)
    #: The inbound message that asked; unique, so that the same message processed twice asks once.
    inbox_key: Mapped[str] = mapped_column(SafeString(128), unique=True)
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("requests.id"))
    requester: Mapped[str] = mapped_column(SafeString(96))
    #: The JSON of what it asks for. `bot.rules.jobs` knows its fields.
    job: Mapped[StoredJob] = mapped_column(JobJson)
    reason: Mapped[str] = mapped_column(SafeText, default="")
    channel: Mapped[str] = mapped_column(SafeString(64))
    #: The sentence that says which rule asks for approval, and how many approvers it wants.
    rule: Mapped[str] = mapped_column(SafeText, default="")
    required_approvals: Mapped[int] = mapped_column(Integer, default=1)
    #: The option that the first approver fixed.
    chosen_option_id: Mapped[str | None] = mapped_column(SafeString(24))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    decided_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    decided_by: Mapped[str | None] = mapped_column(SafeString(96))
    #: The sentence people read about how it ended: a rejection's reason, why nothing is on offer, why it asks again.
    outcome: Mapped[str] = mapped_column(SafeText, default="")
    #: Machines that failed for this request and are not tried again for it.
    failed_machines: Mapped[list[str]] = mapped_column(Json, default=list)
    #: While clouds are still being read: which, since when, and what was found so far. It can't be approved until then.
    looking: Mapped[dict[str, Any] | None] = mapped_column(Json)
    #: The first request of the run that this one continues: by a move, or from its checkpoint. None: it begins a run.
    run_id: Mapped[str | None] = mapped_column(SafeString(24))
    #: An AI agent asked with a person's rights. None in rows of older releases.
    by_agent: Mapped[bool | None] = mapped_column(Boolean)
    #: The request whose message in the channel shows this one instead, and which one in a row this is there, from 1 on.
    #: None: it has a message of its own.
    card_of: Mapped[str | None] = mapped_column(SafeString(24))
    card_turn: Mapped[int | None] = mapped_column(Integer)

    __table_args__ = (
        Index("uq_requests_card_of_card_turn", "card_of", "card_turn", unique=True),
        Index("ix_requests_run_id", "run_id"),
        Index("ix_requests_state_created_at", "state", "created_at"),
        Index("ix_requests_parent_id_created_at", "parent_id", "created_at"),
    )

    @property
    def card_id(self) -> str:
        """Return the request under whose id the outbox has the message that shows this one."""
        return self.card_of or self.id


class CountedRequest(Base):
    """Count a request among those that one person or program made. Rows stay, whatever becomes of the request."""

    __tablename__ = "counted_requests"

    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    #: The kind and the id of the person or program, without a team: `slack:U012AB3CD`, `consumer:atlas`.
    person: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    #: What it is counted among: empty for a request for machines, else the kind and the session that it is about.
    counted_as: Mapped[str] = mapped_column(SafeString(96))
    at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index("ix_counted_requests_person_counted_as_at", "person", "counted_as", "at"),)


class Quote(Base):
    """Store one ranked list of offers for a request. A newer version replaces it; the row stays."""

    __tablename__ = "quotes"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"))
    version: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: [{"code", "sentence", "count"}]: what was left out and why, and which clouds did not answer.
    excluded: Mapped[list[dict[str, Any]]] = mapped_column(Json, default=list)
    clouds: Mapped[list[dict[str, Any]]] = mapped_column(Json, default=list)

    __table_args__ = (UniqueConstraint("request_id", "version"),)


class Option(Base):
    """Store one offer of a quote with its cost estimate. `offer` and `estimate` are the JSON of those values."""

    __tablename__ = "options"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    quote_id: Mapped[str] = mapped_column(ForeignKey("quotes.id"), index=True)
    rank: Mapped[int] = mapped_column(Integer)
    cloud: Mapped[str] = mapped_column(SafeString(24))
    offer_key: Mapped[str] = mapped_column(SafeString(128))
    price_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)
    best_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    expected_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    worst_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    marks: Mapped[list[str]] = mapped_column(Json, default=list)
    why: Mapped[str] = mapped_column(SafeText, default="")
    offer: Mapped[dict[str, Any]] = mapped_column(Json)
    estimate: Mapped[dict[str, Any]] = mapped_column(Json)
    #: How many approvals it needed when it was shown; None in rows of older releases.
    required_approvals: Mapped[int | None] = mapped_column(Integer)

    @property
    def offer_id(self) -> str:
        """Return the offer's id as Slack, the CLI and the API show and take it: `vast:30406190`."""
        return f"{self.cloud}:{self.offer_key}"


class Token(Base):
    """Store a button's value: opaque, bound to a request, its quote version and, for Approve, an option."""

    __tablename__ = "tokens"

    token: Mapped[str] = mapped_column(SafeString(40), primary_key=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    quote_version: Mapped[int] = mapped_column(Integer)
    action: Mapped[str] = mapped_column(SafeString(16))  # approve | reject | cancel
    option_id: Mapped[str | None] = mapped_column(SafeString(24))


class Approval(Base):
    """Store one decision by one approver. Append-only (by trigger)."""

    __tablename__ = "approvals"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"))
    quote_version: Mapped[int] = mapped_column(Integer)
    approver: Mapped[str] = mapped_column(SafeString(96))
    decision: Mapped[str] = mapped_column(SafeString(16))  # approve | reject
    option_id: Mapped[str | None] = mapped_column(SafeString(24))
    price_cap_usd_h: Mapped[Decimal | None] = mapped_column(MicroUsd)
    total_cap_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    #: The total that the approver set for all attempts of the request; None when they set none.
    limit_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    hours: Mapped[str | None] = mapped_column(SafeString(24))
    replacements: Mapped[int] = mapped_column(Integer, default=0)
    confirmed_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    #: In whose place the approver decided; None: in their own right.
    on_behalf_of: Mapped[str | None] = mapped_column(SafeString(96))
    #: What exactly was approved: request, quote, offer, caps and hours.
    digest: Mapped[str | None] = mapped_column(SafeString(64))
    reason: Mapped[str] = mapped_column(SafeText, default="")
    rule: Mapped[str] = mapped_column(SafeText, default="")
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: The approval in advance that this one was made of.
    source_approval_id: Mapped[str | None] = mapped_column(SafeString(24))
    #: Above how many dollars for the whole run the policy asked for two people at that moment; None: never.
    two_above_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    #: The policy's limit on hours and its approval tiers at that moment; None in rows of older releases.
    policy_limits: Mapped[dict[str, Any] | None] = mapped_column(Json)

    __table_args__ = (
        UniqueConstraint("request_id", "quote_version", "approver"),
        Index("uq_approvals_source_approval_id", "source_approval_id", unique=True),
    )


class WaitLimits(Base):
    """Store for what a request waits, from when on and until when, and what it may cost then."""

    __tablename__ = "wait_limits"

    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    from_at: Mapped[datetime] = mapped_column(UtcDateTime)
    until: Mapped[datetime] = mapped_column(UtcDateTime)
    #: The GPU constraint, as the job has it.
    gpu: Mapped[dict[str, Any]] = mapped_column(Json)
    hours: Mapped[str] = mapped_column(SafeString(24))
    price_cap_usd_h: Mapped[Decimal | None] = mapped_column(MicroUsd)
    total_cap_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    #: How often an offer that seemed to fit was gone when it was quoted; the pauses grow with it.
    misses: Mapped[int] = mapped_column(Integer, default=0)

    __table_args__ = (
        CheckConstraint("until > from_at", name="ck_wait_limits_until_after_from"),
        CheckConstraint("price_cap_usd_h IS NULL OR price_cap_usd_h > 0", name="ck_wait_limits_price_positive"),
        CheckConstraint("total_cap_usd IS NULL OR total_cap_usd > 0", name="ck_wait_limits_total_positive"),
        CheckConstraint("CAST(hours AS NUMERIC) > 0", name="ck_wait_limits_hours_positive"),
    )


class AdvanceApproval(Base):
    """Store that an approver approved the limits of a waiting request before there was an offer. Single use."""

    __tablename__ = "advance_approvals"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    state: Mapped[GrantState] = mapped_column(EnumText(GrantState))
    version: Mapped[int] = mapped_column(Integer, default=1)
    approver: Mapped[str] = mapped_column(SafeString(96))
    on_behalf_of: Mapped[str | None] = mapped_column(SafeString(96))
    #: Whose budget and which project's it reserves.
    owner: Mapped[str] = mapped_column(SafeString(96))
    label: Mapped[str] = mapped_column(SafeString(40))
    gpu: Mapped[dict[str, Any]] = mapped_column(Json)
    hours: Mapped[str] = mapped_column(SafeString(24))
    price_cap_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)
    total_cap_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    until: Mapped[datetime] = mapped_column(UtcDateTime)
    #: The policy's tier at that moment; empty for none.
    tier: Mapped[str] = mapped_column(SafeString(96), default="")
    confirmed_usd: Mapped[Decimal | None] = mapped_column(MicroUsd)
    rule: Mapped[str] = mapped_column(SafeText, default="")
    at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        CheckConstraint("until > at", name="ck_advance_approvals_until_after_at"),
        CheckConstraint("price_cap_usd_h > 0", name="ck_advance_approvals_price_positive"),
        CheckConstraint("total_cap_usd > 0", name="ck_advance_approvals_total_positive"),
        CheckConstraint("CAST(hours AS NUMERIC) > 0", name="ck_advance_approvals_hours_positive"),
        Index(
            "uq_advance_approvals_open",
            "request_id",
            "approver",
            unique=True,
            sqlite_where=text("state = 'open'"),
            postgresql_where=text("state = 'open'"),
        ),
    )


class Delegation(Base):
    """Store that one person approves in another one's place until a moment, or until it is revoked."""

    __tablename__ = "delegations"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    delegator: Mapped[str] = mapped_column(SafeString(96), index=True)
    delegate: Mapped[str] = mapped_column(SafeString(96), index=True)
    until: Mapped[datetime] = mapped_column(UtcDateTime)
    made_by: Mapped[str] = mapped_column(SafeString(96))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_by: Mapped[str | None] = mapped_column(SafeString(96))


class GrantRow(Base):
    """Store spend authority. Single use: one instance row takes it; a replacement needs the next seq."""

    __tablename__ = "grants"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"))
    approval_id: Mapped[str] = mapped_column(ForeignKey("approvals.id"))
    session_id: Mapped[str | None] = mapped_column(SafeString(24), index=True)
    kind: Mapped[str] = mapped_column(SafeString(16))
    seq: Mapped[int] = mapped_column(Integer)
    state: Mapped[GrantState] = mapped_column(EnumText(GrantState))
    version: Mapped[int] = mapped_column(Integer, default=1)
    price_cap_usd_h: Mapped[Decimal] = mapped_column(MicroUsd)
    total_cap_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    hours: Mapped[str] = mapped_column(SafeString(24))
    until: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (UniqueConstraint("request_id", "kind", "seq"),)
