"""Note that the ledger is older than a record, where a machine or a cloud shows it.

The end watchdog pages operators within seconds of such a note; they accept the ledger with `recover --accept`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bot.rules.instances.ledger_age import AgeEvidence, LedgerAge
from bot.rules.instances.older_facts import LaterEnd, OlderFacts, facts_text, read_facts
from ledger.core import Tx, record
from ledger.kernel.actor import SYSTEM
from ledger.kernel.event_kind import EventKind
from ledger.models import Session
from ledger.queries.recovery.older import note_older, older_mark

#: What operators are paged about, and what its events are about.
SUBJECT = "ledger/older"
LATER_END = "A record knows this end. The extension is in the part of the ledger that is lost."


async def note(tx: Tx, facts: OlderFacts, before: OlderFacts | None, now: datetime) -> None:
    """Store how the ledger differs from its records, and record once that it is older.

    A note from before a cloud confirmed the clock gets its time as soon as one has.
    """
    if before is None:
        record(tx, now, SYSTEM, SUBJECT, EventKind.LEDGER_OLDER, reason=facts.sentences[0])
    if facts != before:
        is_dated_anew = before is not None and before.is_undated and not facts.is_undated
        await note_older(tx, facts_text(facts), now, is_dated_anew=is_dated_anew)


async def contradicted(tx: Tx, now: datetime, ends: Sequence[LaterEnd] = ()) -> None:
    """Note that a cloud or an agent shows what the ledger lacks: recovery mode begins, or has these further ends."""
    mark = await older_mark(tx)
    before = read_facts(mark.value) if mark is not None else None
    facts = before or OlderFacts(LedgerAge(AgeEvidence.CONTRADICTED))
    await note(tx, facts.with_ends(ends), before, now)


def record_later_end(tx: Tx, session: Session, until: datetime, now: datetime) -> LaterEnd:
    """Record that a session ends when a record says, before the end is set; returns the difference."""
    if session.deadline is None:
        raise ValueError(f"{session.id} has no approved end")
    ends = {"before": session.deadline.isoformat(), "after": until.isoformat()}
    record(tx, now, SYSTEM, session.id, EventKind.SESSION_END_RECORDED, reason=LATER_END, data=ends)
    return LaterEnd(session.request_id, session.deadline, until)
