"""What the ledger of a seed says has happened, for people, and as one number."""

from __future__ import annotations

import hashlib

from ledger.queries.audit import Books, values_of


def journal(books: Books) -> list[str]:
    """Everything that the ledger says has happened, a line each."""
    return [
        f"{one.at:%d %H:%M:%S.%f} {one.kind} {one.subject} {one.before}>{one.after} {one.actor}: {one.reason}"
        for one in books.events
    ]


def digest(books: Books) -> str:
    """One number for the whole history: the journal, the entries and the instances of the ledger."""
    lines = [repr(sorted(values_of(row).items())) for row in (*books.events, *books.entries, *books.instances)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
