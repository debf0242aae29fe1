"""Store webhooks of consumers, and every delivery that was made for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ForeignKey, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from ledger.kernel.columns import EnumText, Json, SafeString, SafeText, UtcDateTime
from ledger.kernel.states import NotificationState
from ledger.models.base import Base, Claimable


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
    #: The journal was read for it until then.
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    off_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    off_reason: Mapped[str] = mapped_column(SafeText, default="")


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
