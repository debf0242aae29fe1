"""Hash the journal into a chain, and verify the chain of one request whenever it is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from bot.rules.audit.event_order import is_late
from bot.rules.audit.hash_chain import START, event_hash, first_broken
from bot.services.runtime.context import Context
from bot.services.runtime.event_content import content
from ledger.engine.db import Database
from ledger.models import Event, EventHash
from ledger.queries.event_order import number_events
from ledger.queries.hash_chain import JournalEntry, family, heads, journal_of, last_hashed_position, unhashed_events
from ledger.queries.views import resolve

BATCH = 500


@dataclass(frozen=True, slots=True)
class Audit:
    """The events of a request and of everything that followed from it. `broken` says what does not match, if anything.

    `heads` are the newest hashes by subject: who stores them can prove later whether older events were changed. `late`
    are the ids of events that were numbered more than an hour after their own time.
    """

    request_id: str
    owner: str
    events: tuple[Event, ...]
    late: tuple[str, ...]
    hashed: int
    heads: Mapping[str, str]
    broken: tuple[str, ...]


async def hash_events_due(ctx: Context) -> int:
    """Hash what was written since the last pass. Return how many events were hashed."""
    async with ctx.db.write() as tx:
        await number_events(tx, ctx.clock.now())
        events = await unhashed_events(tx, BATCH)
        last = await heads(tx, {event.subject for event in events})
        for event in events:
            before = last.get(event.subject)
            number, previous = (before.number + 1, before.hash) if before else (1, START)
            row = EventHash(
                event_id=event.id,
                subject=event.subject,
                number=number,
                hash=event_hash(previous, content(event)),
                at=event.at,
            )
            tx.add(row)
            last[event.subject] = row
    return len(events)


async def audit(db: Database, text: str, until: datetime | None = None) -> Audit:
    """Return the journal of what `text` names, all of it or `until` a moment; every hash is verified.

    LookupError with the sentence for people when it names nothing.
    """
    async with db.read() as tx:
        request, _ = await resolve(tx, text, past=True)
        rows = await journal_of(tx, await family(tx, request.parent_id or request.id))
        last = await last_hashed_position(tx)
    chains: defaultdict[str, list[tuple[int, Event, str]]] = defaultdict(list)
    for row in rows:
        if row.link is not None:
            chains[row.event.subject].append((row.link.number, row.event, row.link.hash))
    broken, newest = [], {}
    for subject, chain in chains.items():
        chain.sort(key=lambda one: one[0])
        newest[subject] = chain[-1][2]
        number = first_broken((content(event), sealed) for _, event, sealed in chain)
        if number is not None:
            broken.append(f"{subject}: event {number} of {len(chain)} does not match its hash")
    broken += [sentence for row in rows if (sentence := _put_in(row, last))]
    rows = [row for row in rows if until is None or row.event.at <= until]
    events = tuple(row.event for row in rows)
    late = tuple(row.event.id for row in rows if is_late(row.event.at, row.numbered_at))
    hashed = sum(map(len, chains.values()))
    return Audit(request.id, request.requester, events, late, hashed, newest, tuple(broken))


def _put_in(row: JournalEntry, last_hashed: int) -> str:
    """Say what shows that an event was put into the journal afterwards; empty for an ordinary one."""
    named = f"{row.event.subject}: {row.event.id} ({row.event.kind})"
    if row.position is None:
        # The database itself notes each new event as waiting for its number, in the event's own transaction.
        return "" if row.waiting else f"{named} has no position in the journal"
    if row.link is None and row.position <= last_hashed:
        return f"{named} was added after that part was hashed"
    return ""
