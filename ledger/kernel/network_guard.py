"""Refuse network calls while a ledger transaction is open: locks would be held for a round trip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IN_TRANSACTION: ContextVar[bool] = ContextVar("in_ledger_transaction", default=False)


class NetworkInTransaction(RuntimeError):
    """Say that a port was used while a ledger transaction was open; locks would be held for a network round trip."""


@contextmanager
def transaction_open() -> Iterator[None]:
    """Mark the current task as holding a ledger transaction, so that every port can refuse to run in it."""
    token = _IN_TRANSACTION.set(True)
    try:
        yield
    finally:
        _IN_TRANSACTION.reset(token)


def forbid_in_transaction(what: str) -> None:
    """Raise `NetworkInTransaction` when a ledger transaction is open in this task."""
    if _IN_TRANSACTION.get():
        raise NetworkInTransaction(f"{what} was called inside a ledger transaction")
