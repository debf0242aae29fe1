"""Wait for the next check-in, or for the notice that this machine is being stopped."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from types import FrameType


class _NoticeError(BaseException):
    """The notice came during a wait."""


@dataclass
class StopNotice:
    """The signal with which the watchdog passes on that the container's first process got a SIGTERM."""

    has_come: bool = False
    _waits: bool = False

    def listen(self) -> None:
        """Take the signal from now on."""
        signal.signal(signal.SIGUSR1, self._receive)

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until a notice comes; whether one came since the last wait. It ends no other work."""
        try:
            self._waits = True
            if not self.has_come:
                time.sleep(seconds)
        except _NoticeError:
            pass
        finally:
            self._waits = False
        came, self.has_come = self.has_come, False
        return came

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        self.has_come = True
        if self._waits:
            self._waits = False
            raise _NoticeError
