"""What a restore of an older copy took from the ledger, and which of the usual laws it changes.

The laws are held against the ledger of now, which lacks the part after its copy. What the lost part knew is kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from bot.services.audit.invariants import Violation
from bot.services.audit.invariants.announced import UNCLEAR_FOR
from bot.services.audit.invariants.graces import COST
from ledger.kernel.end_reason import EndReason
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import InstanceState
from ledger.models import Event, Instance, Orphan
from ledger.queries.audit import Books
from providers.sandbox.engine import CreateCall
from tests.scenarios.simulation.troubles.kinds import Troubles
from tests.scenarios.simulation.troubles.truth import Truth

#: An order takes so long to be carried out.
LATE = timedelta(seconds=60)
TIME_IS_OVER = (EndReason.RESERVATION_OVER, EndReason.HOURS_CAP)


class Records(StrEnum):
    """Which of the records beside the ledger are left after a restore."""

    BOTH = "its epoch and its ends are there"
    EPOCH = "its epoch alone is there"
    NONE = "no record is there"


@dataclass
class Restored:
    """The restore of one seed. `lost` is the ledger as it was right before, and `copied` how it is right after.

    Since `recorded_at` no record was written, and what nobody approved after that is in none: an end waits for no disk.
    """

    copied_at: datetime
    recorded_at: datetime
    at: datetime
    records: Records
    lost: Books
    copied: Books
    #: When the operator accepted the older ledger, and whether earlier approvals stayed in force.
    accepted_at: datetime | None = None
    keeps_approvals: bool = False
    #: The orphans that an operator ended, by cloud and id there.
    condemned: set[tuple[str, str]] = field(default_factory=set)

    @property
    def lacks_events(self) -> bool:
        """Whether the copy lacks anything that a record could know."""
        copied = {event.id for event in self.copied.events}
        return any(event.at < self.recorded_at for event in self.lost.events if event.id not in copied)

    def had(self, name: str | None) -> bool:
        """Whether the lost ledger had sent the create with this name."""
        sent = [row for row in self.lost.instances if row.sent_at is not None]
        return any((name or "").lower().endswith(row.label) for row in sent)

    def explains(
        self, violation: Violation, creates: Iterable[CreateCall], rows: Sequence[Instance], now: datetime
    ) -> bool:
        """Whether the ledger lacks only what its lost part had; `rows` are its instances.

        A create that the lost part sent has no row in the copy, or an unsent one. Another row of the same request may
        have the same number now, and so the same label: after a new approval, which is judged by itself. A row of the
        copy may send its create once more only where that of the lost part made nothing. Since the restore, each row
        sends one. What nobody knew in the copy is announced by those who start with it, as late as of a new launch.
        How a grace of the copy ended is in the lost part, too, and so is who approved what a machine had cost before a
        new approval found it.
        """
        if violation.rule == "budgets never overshoot":
            return any(row.session_id == violation.subject and self.was_adopted(row) for row in rows)
        if violation.rule == COST:
            return any(grace.id == violation.subject and grace.ended_at is None for grace in self.copied.graces)
        if violation.rule == "unknown outcomes are announced":
            is_copied = any(row.id == violation.subject for row in self.copied.instances)
            return is_copied and now - self.at <= UNCLEAR_FOR
        label = next((row.label for row in rows if row.id == violation.subject), "")
        if violation.rule == "intent before instance":
            return self.had(violation.subject) or self.had(label)
        if violation.rule == "one send per row" and self.had(label):
            named = [one for one in creates if (one.name or "").lower().endswith(label)]
            is_copied = any(row.id == violation.subject for row in self.copied.instances)
            made = sum(1 for one in named if one.ref)
            return sum(1 for one in named if one.at > self.at) < 2 and (made < 2 or not is_copied)
        return False

    @property
    def ids(self) -> frozenset[str]:
        """The rows that the lost ledger had: an adopted machine gets another one."""
        return frozenset(row.id for row in self.lost.instances)

    @property
    def ends(self) -> dict[tuple[str, str], datetime]:
        """The machines that the lost ledger had in use, each with the latest approved end that a record names.

        With both records that is the lost ledger's own end; else only the copy knows one.
        """
        books = self.lost if self.records is Records.BOTH else self.copied
        ends = {one.id: one.deadline for one in books.sessions}
        there = {(row.cloud, str(row.ref)) for row in self.lost.instances if row.state is InstanceState.LIVE}
        rows = {(row.cloud, str(row.ref)): ends.get(row.session_id) for row in books.instances if row.ref}
        return {at: end for at, end in rows.items() if end is not None and at in there}

    @property
    def forgotten(self) -> frozenset[tuple[str, str]]:
        """The machines that only the lost part of the ledger had, orphans among them, by cloud and id there.

        One whose create had no reply yet has its name in place of an id.
        """
        ids = {row.id for row in _machines(self.copied) if row.ref}
        lost = [row for row in _machines(self.lost) if row.id not in ids]
        unanswered = [row for row in self.lost.instances if row.id not in ids and row.sent_at and not row.ref]
        named = {(row.cloud, row.name) for row in unanswered}
        return frozenset({(row.cloud, row.ref) for row in lost if row.ref} | named)

    def was_adopted(self, row: Instance) -> bool:
        """Whether an instance is one that the lost part had bought, and a new approval found by its label."""
        return (row.cloud, str(row.ref)) in self.forgotten

    @property
    def bought(self) -> frozenset[str]:
        """The requests for which the lost part sent a create."""
        rows = [row for row in self.lost.instances if row.sent_at is not None and row.sent_at >= self.copied_at]
        return frozenset(row.request_id for row in rows)


def _machines(books: Books) -> list[Instance | Orphan]:
    return [*books.instances, *books.orphans]


def broken(restored: Restored | None, truth: Truth, troubles: Troubles, books: Books) -> list[str]:
    """Name everything that a restore broke. Without a restore, the ledger never counts as older."""
    older = [event for event in books.events if event.kind == EventKind.LEDGER_OLDER]
    if restored is None:
        return [f"a ledger that nobody restored is not older: {event.at:%H:%M:%S}" for event in older]
    return [
        *_noticed(restored, books, older),
        *_early(restored, truth, troubles, books),
        *_bought_again(restored, truth, books),
        *(f"no orphan is left after a restore: {ref} runs" for ref in truth.alive()),
    ]


def _noticed(restored: Restored, books: Books, older: list[Event]) -> Iterator[str]:
    """An older ledger is noticed by any record, and without one where it rents something; then it is accepted.

    A process notices it before any cloud has confirmed its clock, so the time of that event may be wrong.
    """
    rents = any(row.ended_at is None for row in restored.copied.instances)
    must = rents if restored.records is Records.NONE else restored.lacks_events
    copied = {event.id for event in restored.copied.events}
    if must and copied.issuperset(event.id for event in older):
        yield f"an older ledger is noticed: nobody noticed the restore at {restored.at:%H:%M:%S}"
    accepted = [event for event in books.events if event.kind == EventKind.LEDGER_ACCEPTED]
    for event in older[len(accepted) :]:
        yield f"back to work: the ledger found older at {event.at:%H:%M:%S} was not accepted"


def _early(restored: Restored, truth: Truth, troubles: Troubles, books: Books) -> Iterator[str]:
    """Nothing ends as over before the latest approved end that a record names.

    People may still end what they have, and clouds may fail. What an operator adopted ends when that operator said.
    Money that the lost part approved is gone, so what only money ends is no matter of a record.
    """
    befallen = troubles.disturbed | {(stretch.cloud, stretch.ref) for stretch in troubles.stretches}
    rows = {(row.cloud, str(row.ref)): row for row in books.instances if row.ref}
    for machine in truth.instances():
        at, ended_at = (machine.cloud, machine.ref), machine.ended_at
        until = restored.ends.get(at)
        if until is None or ended_at is None or not restored.at < ended_at < until - LATE or at in befallen:
            continue
        row = rows.get(at)
        if row is None and at not in restored.condemned:
            yield f"nothing ends before a recorded end: {at} ended at {ended_at:%H:%M:%S}, and nobody has ordered it"
        if row is not None and row.id in restored.ids and row.outcome_code in TIME_IS_OVER:
            yield (
                f"nothing ends before a recorded end: {row.id} {at} ended at {ended_at:%H:%M:%S} as "
                f"{row.outcome_code}, and its end is {until:%H:%M:%S}"
            )


def _bought_again(restored: Restored, truth: Truth, books: Books) -> Iterator[str]:
    """No approval from before the restore buys a machine when the lost part had bought one for it."""
    anew = {one.request_id for one in books.approvals if one.at > restored.at}
    for call in truth.engine.creates:
        if call.ref is None or call.at <= restored.at or restored.had(call.name):
            continue
        name = (call.name or "").lower()
        row = next((row for row in books.instances if name.endswith(row.label)), None)
        if row is not None and row.request_id in restored.bought and row.request_id not in anew:
            yield (
                f"nothing is bought twice: {row.id} was sent at {call.at:%H:%M:%S} for request {row.request_id}, for "
                f"which the lost part of the ledger had bought a machine"
            )
