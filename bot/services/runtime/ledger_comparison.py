"""Compare the ledger with the records of what it had, in one statement."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from bot.rules.instances.ledger_age import AcceptedRecords, EpochEntry, LedgerAge, NamedEvent, age_of, lacking
from bot.services.runtime.event_content import named_event
from ledger.core import Tx
from ledger.queries.recovery.age import journal_age
from ledger.queries.recovery.older import accepted


@dataclass(frozen=True, slots=True)
class LedgerComparison:
    """The ledger beside its epoch: its `age` (None: it has everything), and how far its journal goes.

    `older_since` is when an older ledger was noticed here or by another replica. `accepted` is what operators last
    accepted a ledger without, which counts no more. `lacking` are the entries that name what the ledger lacks, and
    `orphan_since` is when the first unknown instance that waits was seen.
    """

    age: LedgerAge | None
    events: int
    newest: NamedEvent | None
    older_since: datetime | None
    accepted: AcceptedRecords | None = None
    lacking: tuple[EpochEntry, ...] = ()
    orphan_since: datetime | None = None

    @property
    def is_older(self) -> bool:
        """Whether the ledger is older than a record, and nobody has accepted it."""
        return self.age is not None or self.older_since is not None

    @property
    def stops_launches(self) -> bool:
        """Whether nothing may be bought: the ledger is older, or recovery mode is on for an unknown instance."""
        return self.is_older or self.orphan_since is not None


async def compare(tx: Tx, entries: Collection[EpochEntry]) -> LedgerComparison:
    """Compare the journal with the entries of its epoch: one statement while it has all that they name."""
    journal = await journal_age(tx, {event.id for entry in entries for event in entry.events})
    hashes = {event_id: named_event(event).hash for event_id, event in journal.by_id.items()}
    newest = named_event(journal.newest) if journal.newest is not None else None
    behind, last = lacking(entries, hashes, journal.events), None
    if behind and (last := await accepted_records(tx)) is not None:
        behind = [entry for entry in behind if not last.has(entry)]
    age = age_of(behind, hashes, journal.events)
    return LedgerComparison(age, journal.events, newest, journal.older_since, last, tuple(behind), journal.orphan_since)


async def accepted_records(tx: Tx) -> AcceptedRecords | None:
    """Return what operators last accepted a ledger without; None where they never had to."""
    last = await accepted(tx)
    return None if last is None else AcceptedRecords(last.at, last.records)
