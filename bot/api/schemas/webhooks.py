"""Webhooks, and the messages that were sent to them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from bot.api.schemas.base import CommandOut, In, Out, optional
from bot.api.schemas.fields import Actor, CreatedAt, Kind, State
from bot.rules.webhooks.webhooks import Topic
from bot.services.market.offer_fields import Id


class WebhookIn(In):
    """An address, and the topics that it receives; no topics means all."""

    url: str = Field(max_length=1000, description="The address.", examples=["https://example.com/hooks/gpu"])
    topics: list[str] = Field(
        default=[],
        max_length=10,
        description="The topics that it receives; none means all.",
        examples=[[str(Topic.SESSION)]],
    )
    note: str = Field(default="", max_length=200, description="A note that distinguishes it from others.")


class WebhookOut(Out):
    """A webhook without its secret. `off_at` says when it was disabled, and `off_reason` why."""

    id: Id
    actor: Actor
    actor_name: str = optional("The name of that person, where it is known.", "")
    url: str = Field(description="The address; of other people's webhooks only the host.")
    topics: list[str] = Field(description="The topics that it receives, with their old names; none means all.")
    note: str = Field(description="A note that distinguishes it from others.")
    everything: bool = Field(description="Whether it receives everybody's events.")
    created_at: CreatedAt
    old_until: datetime | None = Field(description="Until when the previous secret also signs.")
    off_at: datetime | None = Field(description="When it was disabled; null while it works.")
    off_reason: str = Field(description="Why it was disabled.")


class WebhookDone(CommandOut):
    """A command about a webhook that was carried out. `secret` is shown this once."""

    webhook_id: str | None = optional("The id of the webhook.")
    delivery_id: str | None = optional("The id of one message to a webhook.")
    secret: str | None = optional("The secret with which messages are signed; shown this once.")


class ReplayIn(In):
    """Which message to send again; without one, all that failed finally."""

    delivery_id: Annotated[str, Field(pattern=r"^dlv_[0-9a-z]{16}$")] | None = optional(
        "The id of one message to a webhook."
    )


class DeliveryOut(Out):
    """One message: its state (pending, sent, dead) and the result of each attempt."""

    id: Id
    event_id: str = Field(description="The id of its event.")
    kind: Kind
    state: State
    tries: int = Field(description="How often it was tried.")
    attempts: list[dict[str, Any]] = Field(description="The result of each delivery attempt.")
    created_at: CreatedAt
    sent_at: datetime | None = Field(description="When the receiver accepted it; null before.")
    due_at: datetime | None = Field(description="When the next attempt is due.")
