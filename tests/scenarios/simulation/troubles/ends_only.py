"""What a release that may not use the ledger did while it ran, and what it must have done.

It serves ends only: whatever is due ends from its copy, and nothing ends earlier, is bought, or is extended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.rules.policy.timing import Timing
from bot.services.audit.invariants import Violation
from bot.services.audit.invariants.announced import UNCLEAR_FOR
from bot.services.audit.invariants.graces import COST
from bot.services.runtime.ends_copy import Sent
from ledger.kernel.must_end import MustEnd
from ledger.models import Event
from ledger.queries.audit import Books
from providers.sandbox.engine import TrueInstance
from tests.scenarios.simulation.troubles.kinds import Troubles
from tests.scenarios.simulation.troubles.truth import Truth

#: An end is sent again after a minute, and with the faults of a seed it may take several times.
LATE = timedelta(seconds=600)
#: Writes that fail so long are paged.
PAGED = timedelta(seconds=120)


@dataclass
class EndsOnly:
    """One such time. `others` says whether another replica worked beside it."""

    stopped_at: datetime
    others: bool
    #: What must end as of the stop, and the rows that were there at all.
    rows: tuple[MustEnd, ...]
    #: The graces that were open at the stop. Their machines wait until their approved ends, whatever that costs.
    graces: frozenset[str]
    #: When its process began to work, again after each kill; empty before that.
    began: list[datetime] = field(default_factory=list)
    over_at: datetime | None = None
    #: What it sent, by instance and order.
    sent: dict[tuple[str, str], Sent] = field(default_factory=dict)
    #: What it paged, and when.
    pages: list[tuple[datetime, str]] = field(default_factory=list)
    #: Whether a cloud could not be reached meanwhile.
    was_dark: bool = False
    #: Whether the other replicas of then wrote to the ledger a moment before.
    may_doubt: bool = False
    #: What it did against the rules, as it was seen at once.
    wrong: list[str] = field(default_factory=list)

    @property
    def doubts(self) -> int:
        """How often it has paged that its copy may be out of date."""
        return sum("the ledger may have changed since the copy" in text for _, text in self.pages)

    def explains(self, violation: Violation, now: datetime) -> bool:
        """Whether nobody could do what is missing: who announces an outcome, or ends a grace, needs the ledger."""
        is_recent = self.over_at is None or now - self.over_at <= UNCLEAR_FOR
        is_unannounced = violation.rule == "unknown outcomes are announced" and is_recent
        is_dear = violation.rule == COST and violation.subject in self.graces
        return not self.others and (is_unannounced or is_dear)

    def befalls(self, troubles: Troubles) -> None:
        """Leave to other rules what troubles did while nobody could decide about them."""
        for stretch in troubles.stretches:
            over_at = troubles.over_at.get(stretch)
            if not self.others and (over_at is None or over_at > self.stopped_at):
                troubles.disturbed.add((stretch.cloud, stretch.ref))


def broken(
    time: EndsOnly | None, truth: Truth, troubles: Troubles, books: Books, *, is_restored: bool = False
) -> list[str]:
    """Name everything that a time of ends only broke. A copy that `is_restored` may lack what was recorded of it."""
    if time is None or not time.began:
        return []
    return [
        *time.wrong,
        *_bought(time, books),
        *_late(time, truth, troubles),
        *_paged(time),
        *(() if is_restored else _recorded(time, books.events)),
    ]


def _bought(time: EndsOnly, books: Books) -> Iterator[str]:
    until = time.over_at or datetime.max.replace(tzinfo=time.stopped_at.tzinfo)
    for row in books.instances:
        if not time.others and row.sent_at is not None and time.began[0] < row.sent_at < until:
            yield f"ends only: {row.id} was sent at {row.sent_at:%H:%M:%S}"
    for grant in books.grants:
        if not time.others and time.began[0] < grant.created_at < until:
            yield f"ends only: {grant.id} was granted at {grant.created_at:%H:%M:%S}"


def _late(time: EndsOnly, truth: Truth, troubles: Troubles) -> Iterator[str]:
    """What is due ends, without the ledger. Beside others it is for them to end it."""
    if time.others or time.over_at is None or time.was_dark:
        return
    timing, doubted = Timing(), time.doubts > 0
    if doubted and not time.may_doubt:
        yield "ends only: nobody else works on the ledger, and its copy was doubted"
    true = {(one.cloud, one.ref): one for one in truth.instances()}
    befallen = troubles.disturbed | {(stretch.cloud, stretch.ref) for stretch in troubles.stretches}
    # Two pages come first where the copy may be out of date, also of a process that starts again.
    begins_at = time.began[-1] + timedelta(seconds=timing.recovery_page_s if doubted else 0)
    for row in time.rows:
        machine = true.get((row.cloud, row.ref))
        if machine is None or machine.cloud not in truth.clouds or (row.cloud, row.ref) in befallen:
            continue
        if _must_have_ended(row, machine, begins_at, time.over_at, timing):
            yield f"ends only: {row.instance_id} {row.cloud} {row.ref} outlived its end, {row.deadline:%H:%M:%S}"


def _must_have_ended(row: MustEnd, machine: TrueInstance, begins_at: datetime, until: datetime, timing: Timing) -> bool:
    base = row.ordered_at if row.ending else row.deadline
    if base is None or row.recovery_since is not None or row.step is not None or row.keep_disk:
        return False
    by = max(base + timedelta(seconds=timing.end_overdue_s), begins_at) + LATE
    return by < until and (machine.ended_at is None or machine.ended_at > by)


def _paged(time: EndsOnly) -> Iterator[str]:
    """Operators know that the service can't work, and what it ended."""
    is_long = time.over_at is not None and time.over_at - time.began[-1] > PAGED
    if is_long and not any("has not been able to write" in text for _, text in time.pages):
        yield "ends only: nobody was paged"
    ended = [one for one in time.rows if (one.instance_id, "terminate") in time.sent]
    for row in ended:
        if not any(row.name in text for _, text in time.pages):
            yield f"ends only: {row.instance_id} ended, and nobody was paged"


def _recorded(time: EndsOnly, events: Sequence[Event]) -> Iterator[str]:
    for instance_id, order in time.sent:
        if not any(
            event.subject == instance_id and f"sent a {order} from the copy" in event.reason for event in events
        ):
            yield f"ends only: the {order} of {instance_id} is not recorded"
