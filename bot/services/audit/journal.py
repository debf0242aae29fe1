"""Hash the journal into a chain, and verify the chain of one request whenever it is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bot.rules.audit.hash_chain import START, event_hash, first_broken
from bot.services.runtime.context import Context
from ledger.engine.db import Database
from ledger.models import Event, EventHash
from ledger.queries.hash_chain import MARGIN, family, hashed_events, heads, last_hashed_at, unsealed
from ledger.queries.views import resolve

#: A transaction that is under way may still write an event of a little earlier.
SETTLED = timedelta(seconds=10)
BATCH = 500


@dataclass(frozen=True, slots=True)
class Audit:
    """The events of a request and of everything that followed from it. `broken` says what does not match, if anything.

    `heads` are the newest hashes by subject: who stores them can prove later whether older events were changed.
    """

    request_id: str
    owner: str
    events: tuple[Event, ...]
    sealed: int
    heads: Mapping[str, str]
    broken: tuple[str, ...]


def content(event: Event) -> dict[str, Any]:
    """Return an event as plain JSON: what is hashed, and what an export has on each line."""
    return {
        "id": event.id,
        "at": event.at.isoformat(),
        "actor": event.actor,
        "subject": event.subject,
        "kind": event.kind,
        "before": event.before,
        "after": event.after,
        "reason": event.reason,
        "data": event.data,
    }


async def hash_events_due(ctx: Context) -> int:
    """Hash what was written since the last pass. Return how many events were hashed."""
    async with ctx.db.write() as tx:
        events = await unsealed(tx, ctx.clock.now() - SETTLED, BATCH)
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


async def audit(db: Database, text: str) -> Audit:
    """Return the journal of what `text` names. LookupError with the sentence for people when it names nothing."""
    async with db.read() as tx:
        request, _ = await resolve(tx, text, past=True)
        rows = await hashed_events(tx, await family(tx, request.parent_id or request.id))
        newest_at = await last_hashed_at(tx)
    chains: defaultdict[str, list[tuple[int, Event, str]]] = defaultdict(list)
    for event, sealed in rows:
        if sealed is not None:
            chains[event.subject].append((sealed.number, event, sealed.hash))
    broken, newest = [], {}
    for subject, chain in chains.items():
        chain.sort(key=lambda one: one[0])
        newest[subject] = chain[-1][2]
        number = first_broken((content(event), sealed) for _, event, sealed in chain)
        if number is not None:
            broken.append(f"{subject}: event {number} of {len(chain)} is not what was sealed")
    # An event is hashed soon after it was written; one that was inserted later has no hash.
    broken += [
        f"{event.subject}: {event.id} ({event.kind}) was not there when that time was sealed"
        for event, sealed in rows
        if sealed is None and newest_at is not None and event.at < newest_at - MARGIN
    ]
    events = tuple(event for event, _ in rows)
    return Audit(request.id, request.requester, events, sum(map(len, chains.values())), newest, tuple(broken))
