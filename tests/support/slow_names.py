"""Names whose name server does not answer, at the place where the program asks the machine's resolver."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

#: A name that ends so is never answered.
SLOW = ".slow.example"


@contextmanager
def slow_names() -> Iterator[list[str]]:
    """Let names under `SLOW` wait until the block ends; the list says which were looked up."""
    asked: list[str] = []
    over = Event()
    real = socket.getaddrinfo

    def look_up(host: Any, *more: Any, **named: Any) -> Any:
        if str(host).endswith(SLOW):
            asked.append(str(host))
            over.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return real(host, *more, **named)

    socket.getaddrinfo = look_up
    try:
        yield asked
    finally:
        socket.getaddrinfo = real
        over.set()
