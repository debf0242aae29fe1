"""An audit hook that catches what no assertion in a port can: any connect while a ledger transaction is open."""

from __future__ import annotations

import socket
import sys
from typing import Any

from ledger.kernel.network_guard import forbid_in_transaction


def _refuse_connect(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect":
        return
    connecting, address = arguments[0], arguments[1]
    if connecting.family == socket.AF_UNIX:
        return  # The test PostgreSQL listens on a file; nothing else that we use does.
    forbid_in_transaction(f"connect to {address!r}")


def install() -> None:
    """Watch this process from now on. An audit hook cannot be removed, so call it once."""
    sys.addaudithook(_refuse_connect)
