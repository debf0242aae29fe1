"""Where the month's people read: it keeps who was told what and when, and may be down for hours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from bot.services.runtime.ports import Delivered, DeliveryFailed, Messenger
from ledger.kernel.clock import Clock
from ledger.models import Notification
from tests.scenarios.month.slack import StandIn


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
    #: A workspace to show it in as well, and the door to it of the life that runs.
    slack: StandIn | None = None
    door: Messenger | None = None

    def switch(self, *, down: bool) -> None:
        """From now on nothing is shown, or everything again."""
        self.down = down
        if self.slack is not None:
            self.slack.switch(down=down)

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
            arrived=False,
        )
        try:
            there = await self._show(notification)
        except DeliveryFailed:
            self.attempts.append(shown)
            raise
        shown = replace(shown, arrived=True)
        self.attempts.append(shown)
        self.on_shown(shown)
        return there

    async def _show(self, notification: Notification) -> Delivered:
        if self.door is not None and self.slack is not None:
            there = await self.door.deliver(notification)
            self.slack.look()
            return there
        if self.down:
            raise DeliveryFailed("the board is down")
        return Delivered(notification.destination, notification.ts or f"{len(self.attempts) + 1}.0")
