"""Compare the ledger with its records, and begin recovery mode where it is older."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bot.rules.instances.ledger_age import AgeEvidence, EpochEntry, LedgerAge, NamedEvent, age_of, age_page
from bot.rules.instances.older_facts import LaterEnd, OlderFacts, read_facts
from bot.services.instances.transitions import ends_at
from bot.services.notifications.paging import page_in
from bot.services.runtime.clock_guard import approved_now
from bot.services.runtime.context import Context
from bot.services.runtime.ends_copy import EndsCopy
from bot.services.runtime.event_content import named_event
from bot.services.runtime.older_ledger import SUBJECT, note, record_later_end
from ledger.core import Tx, amend, lock_family
from ledger.kernel.job import volume_of
from ledger.kernel.must_end import MustEnd
from ledger.kernel.states import ENDABLE_SESSION, OPEN_INSTANCE
from ledger.models import Instance, Session
from ledger.queries.ends import ALIVE, other_replicas
from ledger.queries.recovery.age import journal_age
from ledger.queries.recovery.older import accepted, older_mark, rents_anything, rows_of

#: The next page comes so much before its pause ends.
EARLY = timedelta(seconds=60)
#: An entry that no clock has dated yet is older than all others.
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LedgerComparison:
    """The ledger beside its epoch: its `age` (None: it has everything), and how far its journal goes.

    `older_since` is when an older ledger was noticed here or by another replica, and `accepted_at` when operators last
    accepted one; entries from before then count no more.
    """

    age: LedgerAge | None
    events: int
    newest: NamedEvent | None
    older_since: datetime | None
    accepted_at: datetime | None = None
    newest_at: datetime | None = None

    @property
    def is_older(self) -> bool:
        """Whether the ledger is older than a record, and nobody has accepted it."""
        return self.age is not None or self.older_since is not None


async def compare(tx: Tx, entries: Collection[EpochEntry]) -> LedgerComparison:
    """Compare the journal with the entries of its epoch: one statement while it has all that they name."""
    journal = await journal_age(tx, {event.id for entry in entries for event in entry.events})
    hashes = {event_id: named_event(event).hash for event_id, event in journal.by_id.items()}
    newest = named_event(journal.newest) if journal.newest is not None else None
    age, last = age_of(entries, hashes, journal.events), None
    if age is not None and (last := await accepted(tx)) is not None:
        since = [entry for entry in entries if entry.at > last.at]
        age = age_of(since, hashes, journal.events)
    newest_at = journal.newest.at if journal.newest is not None else None
    return LedgerComparison(age, journal.events, newest, journal.older_since, last.at if last else None, newest_at)


async def check_at_start(ctx: Context, copy: EndsCopy, me: str) -> None:
    """Compare the ledger with every record before anything else happens; begin recovery mode where it is older."""
    now, entries = ctx.clock.now(), (*ctx.epoch.entries(), *([copy.epoch] if copy.epoch else ()))
    async with ctx.db.read() as tx:
        compared = await compare(tx, entries)
        age = compared.age
        if age is None and ctx.epoch.folders and not ctx.epoch.before and copy.read_at is None:
            age = await _without_records(tx, me, now)
    if compared.accepted_at is not None:
        ctx.epoch.accept(compared.accepted_at)
    if age is not None:
        if approved_now(ctx.clock) is None:
            # Whatever this clock shows, it is not earlier than what the ledger and its records show.
            now = max([now, seen_at(ctx, entries), *([compared.newest_at] if compared.newest_at else [])])
        async with ctx.db.write() as tx:
            await begin(ctx, tx, age, copy.rows, now)
        return
    ctx.epoch.confirm(entries)
    ctx.epoch.note(compared.events, compared.newest, seen_at(ctx, entries))
    await asyncio.to_thread(ctx.epoch.save)


def seen_at(ctx: Context, entries: Collection[EpochEntry]) -> datetime:
    """Return the time that a new entry of the epoch gets: until a cloud confirms the clock, right after the newest one.

    An entry with a time to come would count as the newest until then, also once operators have accepted the ledger.
    """
    return approved_now(ctx.clock) or max((entry.at for entry in entries), default=NO_TIME) + timedelta.resolution


async def _without_records(tx: Tx, me: str, now: datetime) -> LedgerAge | None:
    """Judge a ledger beside which no record is: the first one, another replica's, or one that was put there alone."""
    if await other_replicas(tx, me, now - ALIVE) or not await rents_anything(tx):
        return None
    return LedgerAge(AgeEvidence.NO_RECORD)


async def begin(ctx: Context, tx: Tx, age: LedgerAge | None, records: Sequence[MustEnd], now: datetime) -> None:
    """Begin recovery mode, or add to it what these records know: later ends, and instances that the ledger lacks.

    The later ends are taken into the ledger at once, so that everything that ends or warns follows them. Operators are
    paged, and once more for each pause in which nobody accepts the ledger. Without an `age` it is on already.
    """
    mark = await older_mark(tx)
    before = read_facts(mark.value) if mark is not None else None
    if before is not None:
        facts = before if age is None else before.with_age(age)
    elif age is not None:
        facts = OlderFacts(age)
    else:
        return
    undated, is_new_time = approved_now(ctx.clock) is None, False
    if before is None or not undated:
        facts, is_new_time = replace(facts, is_undated=undated), before is not None and before.is_undated
    instances, sessions = await rows_of(tx, [record.instance_id for record in records])
    facts = facts.with_unknown([record for record in records if record.instance_id not in instances])
    facts = facts.with_ends(await _take_later_ends(tx, records, instances, sessions, now))
    await note(tx, facts, before, now)
    # A little early, so that the next page is there before the ends that wait for it.
    since = now - mark.at + EARLY if mark is not None and not is_new_time else timedelta()
    number = int(since.total_seconds() // ctx.timing.recovery_page_s)
    subject = f"{SUBJECT}/{number}" if number else SUBJECT
    if await page_in(ctx, tx, subject, age_page(facts.age, facts.differences), now):
        ctx.hints.outbox.set()


async def _take_later_ends(
    tx: Tx,
    records: Sequence[MustEnd],
    instances: dict[str, Instance],
    sessions: dict[str, Session],
    now: datetime,
) -> list[LaterEnd]:
    later = []
    for record in records:
        row, until = instances.get(record.instance_id), record.deadline
        session = sessions.get(row.session_id) if row is not None and row.state in OPEN_INSTANCE else None
        if session is None or session.deadline is None or until is None or until <= session.deadline:
            continue
        await lock_family(tx, Session, session.id)
        session = await tx.get_one(Session, session.id, populate_existing=True)
        if session.state not in ENDABLE_SESSION or session.deadline is None or until <= session.deadline:
            continue
        later.append(record_later_end(tx, session, until, now))
        await ends_at(tx, session, until, now)
        if volume_of(session.gpu):
            await amend(tx, Session, session.id, volume_ends_at=until)
    return later
