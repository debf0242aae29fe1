"""What a restore of an older copy took from the ledger, and which of the usual laws it changes.

The laws are held against the ledger of now, which lacks the part after its copy. What the lost part knew is kept here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from bot.services.audit.invariants import Violation
from ledger.kernel.states import InstanceState
from ledger.queries.audit import Books
from providers.sandbox.engine import CreateCall


class Records(StrEnum):
    """Which of the records beside the ledger are left after a restore."""

    BOTH = "its epoch and its ends are there"
    EPOCH = "its epoch alone is there"
    NONE = "no record is there"


@dataclass
class Restored:
    """The restore of one seed. `lost` is the ledger as it was right before, and `copied` how it is right after."""

    copied_at: datetime
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
        """Whether the copy lacks anything."""
        return len(self.lost.events) > len(self.copied.events)

    def had(self, name: str | None) -> bool:
        """Whether the lost ledger had sent the create with this name."""
        sent = [row for row in self.lost.instances if row.sent_at is not None]
        return any((name or "").lower().endswith(row.label) for row in sent)

    def explains(self, violation: Violation, creates: Iterable[CreateCall]) -> bool:
        """Whether the ledger lacks only what its lost part had.

        A create that the lost part sent has no row in the copy, or an unsent one. A row whose create was refused in the
        lost part may send another one; two creates of one row that both made something are never explained.
        """
        mine = [row for row in (*self.lost.instances, *self.copied.instances) if row.id == violation.subject]
        labels = {row.label for row in mine}
        if violation.rule == "intent before instance":
            return self.had(violation.subject) or any(self.had(label) for label in labels)
        if violation.rule == "one send per row":
            named = [one for one in creates if any((one.name or "").lower().endswith(label) for label in labels)]
            return bool(labels) and any(one.at < self.at for one in named) and sum(1 for one in named if one.ref) < 2
        return False

    def rows_in_use(self) -> dict[tuple[str, str], datetime]:
        """The machines that the lost ledger had in use, each with the latest approved end that a record names.

        With both records that is the lost ledger's own end; else only the copy knows one.
        """
        books = self.lost if self.records is Records.BOTH else self.copied
        ends = {one.id: one.deadline for one in books.sessions}
        there = {(row.cloud, str(row.ref)) for row in self.lost.instances if row.state is InstanceState.LIVE}
        rows = {(row.cloud, str(row.ref)): ends.get(row.session_id) for row in books.instances if row.ref}
        return {at: end for at, end in rows.items() if end is not None and at in there}

    def requests_bought(self) -> Counter[str]:
        """How many creates the lost part sent for each request, after the copy."""
        rows = [row for row in self.lost.instances if row.sent_at is not None and row.sent_at >= self.copied_at]
        return Counter(row.request_id for row in rows)
