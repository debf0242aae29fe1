"""Verify the journal in a copy of a ledger: each chain of hashes, and that nobody added an event below the last one."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from bot.rules.audit.hash_chain import first_broken
from bot.rules.values.phrases import plural
from ledger.engine.copied_journal import CopiedJournal, NewestHash

#: So many broken chains are named.
NAMED = 3


class JournalFacts(NamedTuple):
    """What the journal of a copy says: its schema, how far it is hashed, and what does not match."""

    revision: str
    readable_from: str
    newest: NewestHash
    broken: tuple[str, ...]


def read(journal: CopiedJournal) -> JournalFacts:
    """Read a copy's journal and verify it."""
    broken = []
    for subject, chain in groupby(journal.chains(), key=lambda event: event.subject):
        # A missing event has no content, whose hash no event has.
        number = first_broken((event.content or {}, event.hash) for event in chain)
        if number is not None:
            broken.append(f"event {number} of {subject} does not match its hash")
    if added := journal.put_in():
        broken.append(f"{plural(added, 'event')} below the last hash have none")
    more = [f"{len(broken) - NAMED} more"] if len(broken) > NAMED else []
    return JournalFacts(*journal.schema(), journal.newest(), tuple(broken[:NAMED] + more))
