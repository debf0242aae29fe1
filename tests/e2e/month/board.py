"""Where the month's people read: it keeps who was told what and when, and may be down for hours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from bot.services.ports import Delivered, DeliveryFailed
from ledger.models import Notification
from ledger.values import Clock


@dataclass(frozen=True, slots=True)
class Shown:
    """One attempt to show one version of a message. `text` is what a page says, and empty for all others."""

    at: datetime
    id: str
    kind: str
    subject: str
    destination: str
    version: int
    text: str
    arrived: bool


@dataclass
class Board:
    """The messenger of all lives of the service: what was shown stays shown when the process dies."""

    clock: Clock
    #: Called with what people just read.
    on_shown: Callable[[Shown], None]
    down: bool = False
    attempts: list[Shown] = field(default_factory=list)

    async def deliver(self, notification: Notification) -> Delivered:
        """Show it, or fail while the board is down. One that was shown in this version already is found again."""
        shown = Shown(
            self.clock.now(),
            notification.id,
            str(notification.kind),
            notification.subject,
            notification.destination,
            notification.version,
            str((notification.body or {}).get("text", "")),
            arrived=not self.down,
        )
        self.attempts.append(shown)
        if self.down:
            raise DeliveryFailed("the board is down")
        self.on_shown(shown)
        return Delivered(notification.destination, notification.ts or f"{len(self.attempts)}.0")
