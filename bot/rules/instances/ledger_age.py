"""Judge whether the ledger is older than its records, and say so in words.

A record is what else remembers the ledger's past: the epoch, which names the newest events of the journal; the copy of
what must end; and the ends that agents hold. Whatever a record knows and the ledger lacks happened after it was copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from bot.rules.values.command_text import cli_command
from bot.rules.values.phrases import plural
from ledger.kernel.must_end import MustEnd

#: How many events an entry names: more than can be written at once.
NAMED = 32
#: Replicas that ran at one time have written their newest entries within this time.
SAME_TIME = timedelta(seconds=60)
ACCEPT = cli_command("recover --accept")


@dataclass(frozen=True, slots=True)
class NamedEvent:
    """One event that the ledger must have, and the hash of its content."""

    id: str
    hash: str


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """What one replica has seen in the journal: how many events, when, and the newest ones by name, newest last.

    `is_restored`: a restore has put a copy in place, so its ledger counts as older whatever it has.
    """

    replica: str
    position: int
    at: datetime
    events: tuple[NamedEvent, ...] = ()
    is_restored: bool = False

    @property
    def names_something(self) -> bool:
        """Whether there is anything that a ledger must have; one of a ledger without events names nothing."""
        return bool(self.position or self.events or self.is_restored)

    def is_newer_than(self, other: EpochEntry) -> bool:
        """Whether it replaces another entry of its replica: one that names something counts more, whatever its time."""
        return (self.names_something, self.at) >= (other.names_something, other.at)

    def with_event(self, event: NamedEvent, at: datetime) -> EpochEntry:
        """Return the entry with one more event, which its ledger has from now on."""
        others = [earlier for earlier in self.events if earlier.id != event.id]
        at = max(self.at, at) if self.names_something else at
        return replace(self, at=at, events=tuple([*others, event][-NAMED:]))


class AgeEvidence(StrEnum):
    """Why the ledger counts as older."""

    BEHIND = "behind"
    RESTORED = "restored"
    NO_RECORD = "no_record"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class LedgerAge:
    """How much older the ledger is than a record: at least so many events, and the time of the record."""

    evidence: AgeEvidence
    events: int = 0
    record_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AcceptedRecords:
    """What operators accepted a ledger without: the entries that it lacked something of, by replica, and when."""

    at: datetime
    entries: Mapping[str, datetime]

    def has(self, entry: EpochEntry) -> bool:
        """Whether an entry is from before the acceptance.

        An entry that nobody had compared then counts by its time, but never by the time of the acceptance alone: the
        clock that it was read from may have been ahead.
        """
        newest = self.entries.get(entry.replica)
        if newest is not None and entry.at <= newest:
            return True
        last = max(self.entries.values(), default=None)
        return last is not None and entry.at <= min(self.at, last + SAME_TIME)


def lacking(entries: Collection[EpochEntry], hashes: Mapping[str, str], events: int) -> list[EpochEntry]:
    """Return the entries that name something which the ledger lacks, or that a restore wrote; see `age_of`."""
    return [one for one in entries if _missing(one, hashes) or one.position > events or one.is_restored]


def _missing(entry: EpochEntry, hashes: Mapping[str, str]) -> int:
    return sum(hashes.get(event.id) != event.hash for event in entry.events)


def age_of(entries: Collection[EpochEntry], hashes: Mapping[str, str], events: int) -> LedgerAge | None:
    """Return how much older than its epoch the ledger is; None when it has all that every entry names.

    `hashes` are those of those named events that the ledger has, and `events` is how many it has in all. Positions
    are compared by their number alone: a copy may hold events that had no position yet.
    """
    behind = lacking(entries, hashes, events)
    if not behind:
        return None
    newest = max(behind, key=lambda entry: (entry.at, entry.position))
    gap = max(max(entry.position - events, _missing(entry, hashes)) for entry in behind)
    evidence = AgeEvidence.RESTORED if gap <= 0 else AgeEvidence.BEHIND
    return LedgerAge(evidence, max(gap, 0), newest.at)


def still_lacking(rows: Iterable[MustEnd], records: Iterable[MustEnd]) -> tuple[MustEnd, ...]:
    """Return the records of instances that the ledger lacks, or of later ends than it has."""
    ends = {row.instance_id: row.deadline for row in rows}
    return tuple(one for one in records if not _has_end(one.deadline, ends.get(one.instance_id)))


def _has_end(recorded: datetime | None, end: datetime | None) -> bool:
    return end is not None and recorded is not None and end >= recorded


def with_latest_ends(rows: Iterable[MustEnd], records: Iterable[MustEnd], since: datetime) -> tuple[MustEnd, ...]:
    """Return an older ledger's rows in recovery mode, each with the latest approved end that it or a record knows."""
    ends = {record.instance_id: record.deadline for record in records if record.deadline is not None}
    return tuple(_latest(row, ends.get(row.instance_id), row.recovery_since or since) for row in rows)


def _latest(row: MustEnd, end: datetime | None, since: datetime) -> MustEnd:
    deadline = row.deadline if end is None or row.deadline is None else max(end, row.deadline)
    return replace(row, deadline=deadline, recovery_since=since)


def age_text(age: LedgerAge) -> str:
    """Say how old the ledger is, in one sentence."""
    at = "" if age.record_at is None else f" of {age.record_at:%H:%M} UTC on {age.record_at:%Y-%m-%d}"
    if age.evidence is AgeEvidence.BEHIND:
        return f"The ledger is {plural(age.events, 'event')} older than its epoch{at}."
    if age.evidence is AgeEvidence.RESTORED:
        return f"The ledger was restored from a copy{at}."
    if age.evidence is AgeEvidence.CONTRADICTED:
        return "The ledger is an older copy: it lacks what a cloud or an agent shows."
    return "Nothing shows how old the ledger is: its epoch and its copy of what must end are missing."


def age_page(age: LedgerAge, differences: int) -> str:
    """Return what operators are paged."""
    differ = f" Its records differ from it in {plural(differences, 'place')}." if differences else ""
    return (
        f"{age_text(age)}{differ} Nothing is bought or replaced, and no session ends before the latest end that is "
        f"recorded. Check it with {cli_command('recover')}, then continue with {ACCEPT}."
    )
