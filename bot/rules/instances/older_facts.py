"""Word what the records know and an older ledger lacks, and write it as it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import TypeAdapter

from bot.rules.instances.ledger_age import AgeEvidence, EpochEntry, LedgerAge, age_text
from ledger.kernel.ids import short_id
from ledger.kernel.must_end import MustEnd
from providers.cloud_names import cloud_title


@dataclass(frozen=True, slots=True)
class LaterEnd:
    """A session whose recorded end is later than the ledger's."""

    rental_id: str
    ledger_end: datetime
    recorded_end: datetime

    @property
    def sentence(self) -> str:
        """Say what differs."""
        was, now = (f"{at:%Y-%m-%d %H:%M} UTC" for at in (self.ledger_end, self.recorded_end))
        return f"Session {short_id(self.rental_id)} ends {now}; the ledger had {was}."


@dataclass(frozen=True, slots=True)
class UnknownMachine:
    """An instance that a record has and the ledger lacks."""

    instance_id: str
    rental_id: str
    name: str
    cloud: str
    ref: str
    ends_at: datetime | None

    @property
    def sentence(self) -> str:
        """Say what is missing."""
        end = "" if self.ends_at is None else f", approved until {self.ends_at:%Y-%m-%d %H:%M} UTC"
        where = f"{cloud_title(self.cloud)} instance {self.ref or self.name}"
        return f"The ledger lacks {where} of session {short_id(self.rental_id)}{end}."


@dataclass(frozen=True, slots=True)
class OlderFacts:
    """Why the ledger counts as older, and each difference from its records.

    `is_undated`: no cloud had confirmed the clock when that was noticed, so the time of the note may be wrong.
    """

    age: LedgerAge
    ends: tuple[LaterEnd, ...] = ()
    unknown: tuple[UnknownMachine, ...] = ()
    #: The newest entry of each replica that names what the ledger lacks.
    records: Mapping[str, datetime] = field(default_factory=dict)
    is_undated: bool = False

    def with_records(self, entries: Iterable[EpochEntry]) -> OlderFacts:
        """Return the facts with further entries that name what the ledger lacks."""
        merged = dict(self.records)
        for entry in entries:
            merged[entry.replica] = max(entry.at, merged.get(entry.replica, entry.at))
        return replace(self, records=merged)

    def with_age(self, age: LedgerAge) -> OlderFacts:
        """Return the facts with the greater of two ages; a comparison counts more than the lack of any record."""
        ranked = (AgeEvidence.NO_RECORD, AgeEvidence.CONTRADICTED, AgeEvidence.RESTORED, AgeEvidence.BEHIND)
        key = max((age, self.age), key=lambda age: (ranked.index(age.evidence), age.events))
        return replace(self, age=key)

    def with_ends(self, ends: Sequence[LaterEnd]) -> OlderFacts:
        """Return the facts with further ends: of one session the ledger's first and the latest recorded one."""
        merged = {end.rental_id: end for end in self.ends}
        for end in ends:
            before = merged.get(end.rental_id)
            merged[end.rental_id] = end if before is None else replace(before, recorded_end=end.recorded_end)
        return replace(self, ends=tuple(merged.values()))

    def with_unknown(self, records: Sequence[MustEnd]) -> OlderFacts:
        """Return the facts with further instances that the ledger lacks."""
        merged = {machine.instance_id: machine for machine in self.unknown}
        for row in records:
            machine = UnknownMachine(row.instance_id, row.rental_id, row.name, row.cloud, row.ref, row.deadline)
            merged[row.instance_id] = machine
        return replace(self, unknown=tuple(merged.values()))

    def untaken(self, records: Iterable[MustEnd]) -> tuple[MustEnd, ...]:
        """Return the records without those whose ends the ledger has taken: what it decides of these later counts."""
        taken = {end.rental_id: end.recorded_end for end in self.ends}
        return tuple(record for record in records if not _is_taken(record, taken.get(record.rental_id)))

    @property
    def sentences(self) -> list[str]:
        """Say how old the ledger is, and then each difference."""
        ends = (end.sentence for end in self.ends)
        unknown = (machine.sentence for machine in self.unknown)
        return [age_text(self.age), *ends, *unknown]

    @property
    def differences(self) -> int:
        """Return how many differences there are."""
        return len(self.ends) + len(self.unknown)


def _is_taken(record: MustEnd, taken: datetime | None) -> bool:
    return taken is not None and record.deadline is not None and record.deadline <= taken


_ADAPTER: TypeAdapter[OlderFacts] = TypeAdapter(OlderFacts)


def read_facts(text: str) -> OlderFacts:
    """Read the facts as they are stored."""
    return _ADAPTER.validate_json(text)


def facts_text(facts: OlderFacts) -> str:
    """Write the facts as they are stored."""
    return _ADAPTER.dump_json(facts).decode()
