"""SSH ports without sockets: a number is reserved, and what answers there is known without asking the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count

from bot.services.runtime.ports import Reached
from providers.sandbox.machines import SandboxMachine
from providers.sandbox.ssh import SshPorts
from tests.support.wire import RealReach

FIRST_PORT = 20_000
BANNER = "SSH-2.0-OpenSSH_9.6 sandbox"


class NumberedPorts(SshPorts):
    """Ports that are only numbers, the same in each run."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(FIRST_PORT)
        self._reserved: dict[str, int] = {}
        self._answers: dict[str, SandboxMachine | None] = {}

    def reserve(self, key: str) -> int:
        """The port of `key`."""
        if key not in self._reserved:
            self._reserved[key] = next(self._numbers)
        return self._reserved[key]

    def answers(self, port: int) -> bool:
        """Whether something answers there."""
        return any(self._reserved[key] == port for key in self._answers)

    def machine_at(self, port: int) -> SandboxMachine | None:
        """The machine behind a port that answers."""
        return next((one for key, one in self._answers.items() if self._reserved[key] == port), None)

    def machine(self, key: str) -> SandboxMachine | None:
        """The machine behind the port of `key` while it answers."""
        return self._answers.get(key)

    async def match(self, prefix: str, wanted: Mapping[str, Callable[[], SandboxMachine | None]]) -> None:
        """Answer on exactly `wanted` among the keys that start with `prefix`."""
        for key in [key for key in self._answers if key.startswith(prefix) and key not in wanted]:
            del self._answers[key]
        for key, make in wanted.items():
            if key not in self._answers:
                self.reserve(key)
                self._answers[key] = make()

    async def close_all(self, prefix: str = "") -> None:
        """Nothing answers any more."""
        for key in [key for key in self._answers if key.startswith(prefix)]:
            del self._answers[key]


class NumberedReach(RealReach):
    """The prober: a greeting where something answers, and logins as `RealReach` has them without keys."""

    ports: NumberedPorts

    async def probe(self, host: str, port: int) -> Reached:
        """Whether the port answers."""
        await asyncio.sleep(0)
        return Reached(True, BANNER) if self.ports.answers(port) else Reached(False, "no connection")
