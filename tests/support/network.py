"""What every test process does to its network: it watches each connect, and reads the trusted certificates once."""

from __future__ import annotations

import socket
import sys
from functools import cache
from typing import Any

from httpx._transports import default

from ledger.kernel.network_guard import forbid_in_transaction


def _refuse_connect(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect":
        return
    connecting, address = arguments[0], arguments[1]
    if connecting.family == socket.AF_UNIX:
        return  # The test PostgreSQL listens on a file; nothing else that we use does.
    forbid_in_transaction(f"connect to {address!r}")


def install() -> None:
    """Catch any connect while a ledger transaction is open. An audit hook cannot be removed, so call it once."""
    sys.addaudithook(_refuse_connect)


def share_certificates() -> None:
    """Let all HTTP clients share one TLS context: each would read the certificates anew, which takes 16 ms."""
    names = vars(default)
    names["create_ssl_context"] = cache(names["create_ssl_context"])
