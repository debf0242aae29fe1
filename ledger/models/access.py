"""Store API keys, the people and programs that hold them, answers for retries, and webhooks with their deliveries."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Boolean, ForeignKey, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import EnumText, Json, MicroUsd, SafeString, SafeText, UtcDateTime
from ledger.kernel.states import NotificationState
from ledger.models.base import Base, Claimable


class Consumer(Base):
    """Store a program, or a person, that holds API keys. `owner` is the person who answers for what it does."""

    __tablename__ = "consumers"

    #: The reference of the actor whose requests and sessions these are: `consumer:atlas`, or `operator:ada`.
    actor: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    owner: Mapped[str] = mapped_column(SafeString(96), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(SafeString(96))


class Share(Base):
    """Store that a request's machine is shared with a person: their keys go onto it, and they see the session."""

    __tablename__ = "shares"

    request_id: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    #: The reference of the person: `slack:U012AB3CD`, or `operator:ada`.
    person: Mapped[str] = mapped_column(SafeString(96), primary_key=True, index=True)
    shared_by: Mapped[str] = mapped_column(SafeString(96))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ApiKey(Base):
    """Store one key of a consumer: its secret only as a keyed hash, shown once when the key was made."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    actor: Mapped[str] = mapped_column(SafeString(96), index=True)
    scopes: Mapped[list[str]] = mapped_column(Json)
    #: HMAC-SHA256 of the secret under the deployment's pepper, hexadecimal.
    secret_hash: Mapped[str] = mapped_column(SafeString(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(SafeString(96))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_by: Mapped[str | None] = mapped_column(SafeString(96))
    #: To the minute: a write for every call would cost more than the call.
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ApiAnswer(Base):
    """Store the answer of a call with an Idempotency-Key, so that the same call again gets the same answer."""

    __tablename__ = "api_answers"

    #: The actor and the hash of the key that it sent.
    key: Mapped[str] = mapped_column(SafeString(180), primary_key=True)
    #: SHA-256 of the method, the path and the body.
    body_hash: Mapped[str] = mapped_column(SafeString(64))
    #: None while the call is worked on, and after one that was refused: it changed nothing, so it is judged anew.
    status: Mapped[int | None] = mapped_column(Integer)
    answer: Mapped[dict[str, Any] | None] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class BudgetLimit(Base):
    """Store a budget that an administrator set while the service runs; those of the policy file are not here."""

    __tablename__ = "budget_limits"

    scope: Mapped[str] = mapped_column(SafeString(96), primary_key=True)
    period: Mapped[str] = mapped_column(SafeString(16), primary_key=True)
    limit_usd: Mapped[Decimal] = mapped_column(MicroUsd)
    #: The shares at which people are notified, as decimals in text; None: those of the policy.
    thresholds: Mapped[list[str] | None] = mapped_column(Json)
    set_by: Mapped[str] = mapped_column(SafeString(96))
    set_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Webhook(Base):
    """Store one webhook's address. Its secrets are encrypted under a key that is not in the database."""

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    actor: Mapped[str] = mapped_column(SafeString(96), index=True)
    url: Mapped[str] = mapped_column(SafeText)
    topics: Mapped[list[str]] = mapped_column(Json)
    note: Mapped[str] = mapped_column(SafeText, default="")
    #: Receives events about everybody, because its creator may see them all.
    everything: Mapped[bool] = mapped_column(Boolean, default=False)
    secret: Mapped[str] = mapped_column(SafeText)
    #: The secret before this one signs too until then, so that a consumer can change over.
    old_secret: Mapped[str | None] = mapped_column(SafeText)
    old_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(SafeString(96))
    #: When reading the journal for it began. An earlier version moves it on; this one counts positions instead.
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    off_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    off_reason: Mapped[str] = mapped_column(SafeText, default="")
    #: The events up to this position of the journal have their deliveries.
    position: Mapped[int] = mapped_column(Integer, server_default="0")


class WebhookDelivery(Claimable, Base):
    """Store one delivery to one webhook: rendered when it is sent, kept with the outcome of each attempt."""

    __tablename__ = "webhook_deliveries"

    id: Mapped[str] = mapped_column(SafeString(24), primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    #: The journal row that it reports; of a test, an id of its own.
    event_id: Mapped[str] = mapped_column(SafeString(24))
    kind: Mapped[str] = mapped_column(SafeString(48))
    state: Mapped[NotificationState] = mapped_column(EnumText(NotificationState))
    tries: Mapped[int] = mapped_column(Integer, default=0)
    #: Every attempt: when, the status or what went wrong, and how many milliseconds it took.
    attempts: Mapped[list[dict[str, Any]]] = mapped_column(Json, default=list)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    __table_args__ = (UniqueConstraint("webhook_id", "event_id"),)
