"""What services need from outside, as protocols. The composition root supplies the real things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bot.outbound.checkpoint_stores import StoredFile
from bot.rules.approvals.approvers import DeciderFacts
from ledger.kernel.actor import Actor
from ledger.models import Notification


@dataclass(frozen=True, slots=True)
class Reached:
    """The answer of a probe: `ok` when a TCP connect succeeded and the peer spoke an SSH banner."""

    ok: bool
    detail: str


class Reach(Protocol):
    """Tries an SSH endpoint for real."""

    async def probe(self, host: str, port: int) -> Reached:
        """Connect, read the banner, close. Never raises for a network failure; takes at most a few seconds."""
        ...

    async def host_key(self, host: str, port: int) -> str | None:
        """The host's SSH key as one OpenSSH line, kind and base64, or None. Never raises; takes a few seconds."""
        ...


class CheckpointStores(Protocol):
    """Looks at checkpoints that are kept outside of the machines."""

    async def newest(self, scheme: str, root: str, path: str) -> StoredFile | None:
        """The newest file at a place, None where there is none. `StoreUnreachable` when nobody could say."""
        ...


class People(Protocol):
    """Says who people are in Slack now, for the doors that are not Slack."""

    async def looked_up(self, actor: Actor) -> DeciderFacts:
        """What a decision is judged by. Never raises for a network failure: `known` is false then, which refuses."""
        ...


@dataclass(frozen=True, slots=True)
class Delivered:
    """Where a notification is shown now."""

    channel: str
    ts: str | None


#: The error of a notification whose sender ended before it could note what became of it: it may be shown already.
SENDER_DIED = "the process that was showing it ended before it noted the outcome"


class DeliveryFailed(Exception):
    """The message could not be shown now. `retry_after_s` None: this attempt failed, try later with back-off.

    `permanent` means that no later attempt can succeed (the channel is gone, the message was deleted).
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None, permanent: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.permanent = permanent


class Messenger(Protocol):
    """Renders a notification from state and shows it: a new message, or an edit of the one that is there."""

    async def deliver(self, notification: Notification) -> Delivered:
        """Show it. Raises `DeliveryFailed`. `notification.error` is what came of the last attempt."""
        ...
