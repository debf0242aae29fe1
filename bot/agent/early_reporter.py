"""Start the reporter's process before the watchdog loads the rest of itself.

Each of them takes about as long to load, so both load at once where the machine has two processors. The reporter waits
for its first line, so nothing is sent before the watchdog has what it needs.
"""

from __future__ import annotations

import subprocess
import sys

_begun: list[subprocess.Popen[bytes]] = []


def start() -> None:
    """Start it. Where that fails, the watchdog tries again and says why."""
    try:
        command = [sys.executable, sys.argv[0], "report"]
        _begun.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    except OSError:
        return


def take() -> subprocess.Popen[bytes] | None:
    """Return the process to the one who keeps it running from now on; None where none was started."""
    return _begun.pop() if _begun else None
