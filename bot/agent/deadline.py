"""Decide when the machine must be gone: ten minutes after the newest signed approved end.

The time left is counted on a clock that nobody can set and that runs on while the machine sleeps.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from bot.agent import ed25519

#: The service ends the machine at the approved end. If it does not, the machine is gone this much later.
GRACE_S = 600.0
#: The machine begins to end itself this much before, so that a failed call can be repeated.
TRIES_S = 60.0


def boot_s() -> float:
    """Return the seconds since the machine started, its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Signed:
    """A signed message as it came, and when it came on the boot clock."""

    message: str
    signature: str
    at_boot_s: float


@dataclass
class Deadline:
    """The newest signed message of one instance, `newest`, and what follows from it.

    `due_at_boot_s` is when the machine begins to end itself; None: no approved end is known.
    """

    instance: str
    public_key: bytes
    clock: Callable[[], float] = boot_s
    number: int = -1
    due_at_boot_s: float | None = None
    newest: Signed | None = None

    def accept(self, found: Signed) -> bool:
        """Take over a message that is signed, for this instance, and newer than the last one; else change nothing."""
        try:
            signature = base64.b64decode(found.signature, validate=True)
            content = found.message.encode()
            said = json.loads(content) if ed25519.is_valid(self.public_key, signature, content) else None
        except (binascii.Error, ValueError):
            return False
        if not isinstance(said, dict) or said.get("instance") != self.instance:
            return False
        number, end_s, now_s = said.get("n"), said.get("deadline_s"), said.get("now_s")
        if not isinstance(number, int) or number <= self.number or math.isnan(found.at_boot_s):
            return False
        if isinstance(end_s, int) and isinstance(now_s, int):
            # Both times are the service's own, so this machine's calendar clock may be wrong.
            self.due_at_boot_s = min(found.at_boot_s, self.clock()) + (end_s - now_s) + GRACE_S - TRIES_S
        elif end_s is not None:
            return False
        # While no end is approved yet, a message has none, and the end that is known stays.
        self.number, self.newest = number, found
        return True

    def left_s(self) -> float | None:
        """Return the seconds until the machine begins to end itself; None while no end is known."""
        return None if self.due_at_boot_s is None else self.due_at_boot_s - self.clock()
