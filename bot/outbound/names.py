"""Resolve names that users chose, in a few threads of their own.

Clouds and Slack resolve their names in the event loop's threads. A name server that never answers keeps a thread until
the system gives up, so a user's name is never resolved there. The caller gives up after three seconds; the thread
counts as busy until it returns.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import Final

THREADS: Final = 4
#: At most this many of them work for the same user, so that one user's names do not keep the others' waiting.
PER_USER: Final = 2
WAIT_S: Final = 3.0

#: A name and a port → the addresses behind it, as text.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class ResolverBusy(Exception):
    """No thread is free for this user; nothing is wrong with the name."""


class Names:
    """Resolve users' names with the system's resolver."""

    def __init__(self, *, threads: int = THREADS, per_user: int = PER_USER, wait_s: float = WAIT_S) -> None:
        self._threads = threads
        self._per_user = per_user
        self._wait_s = wait_s
        self._busy: Counter[str] = Counter()
        self._lock = Lock()

    def for_user(self, user: str) -> Resolve:
        """Return a resolver that counts its work for `user`.

        It raises `ResolverBusy` at once when no thread is free, `TimeoutError` after three seconds, and `OSError` when
        the name does not resolve.
        """

        async def resolve(host: str, port: int) -> Sequence[str]:
            async with asyncio.timeout(self._wait_s):
                return await self._start(user, host, port)

        return resolve

    def _start(self, user: str, host: str, port: int) -> asyncio.Future[Sequence[str]]:
        with self._lock:
            if self._busy.total() >= self._threads or self._busy[user] >= self._per_user:
                raise ResolverBusy
            self._busy[user] += 1
        found: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
        # A daemon: a name server that does not answer must not keep the process from ending.
        Thread(target=self._work, args=(user, host, port, found), name="users-names", daemon=True).start()
        return found

    def _work(self, user: str, host: str, port: int, found: asyncio.Future[Sequence[str]]) -> None:
        addresses: Sequence[str] = ()
        failed: Exception | None = None
        try:
            records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(address[0]) for *_, address in records))
        except Exception as error:  # noqa: BLE001 # It is raised again where the caller waits.
            failed = error
        with self._lock:
            self._busy[user] -= 1
        with suppress(RuntimeError):  # The event loop has ended meanwhile.
            found.get_loop().call_soon_threadsafe(_tell, found, addresses, failed)


def _tell(found: asyncio.Future[Sequence[str]], addresses: Sequence[str], failed: Exception | None) -> None:
    if found.done():
        return
    if failed is None:
        found.set_result(addresses)
    else:
        found.set_exception(failed)


#: The threads of this process.
NAMES: Final = Names()
