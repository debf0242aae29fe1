"""Compare the ledger with its records, and begin recovery mode where it is older."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.rules.instances.ledger_age import AgeEvidence, EpochEntry, LedgerAge, age_page
from bot.rules.instances.older_facts import LaterEnd, OlderFacts, read_facts
from bot.services.instances.transitions import ends_at
from bot.services.notifications.paging import page_in
from bot.services.runtime.clock_guard import approved_now
from bot.services.runtime.context import Context
from bot.services.runtime.ends_copy import EndsCopy
from bot.services.runtime.ledger_comparison import LedgerComparison, accepted_records, compare
from bot.services.runtime.older_ledger import SUBJECT, note, record_later_end
from ledger.core import Tx, amend, lock_family
from ledger.kernel.must_end import MustEnd
from ledger.kernel.states import ENDABLE_SESSION, OPEN_INSTANCE
from ledger.kernel.volume_name import volume_of
from ledger.models import Instance, Session
from ledger.queries.ends import ALIVE, other_replicas, stopped_at
from ledger.queries.recovery.age import newest_at
from ledger.queries.recovery.older import first_request_at, older_mark, rows_of

#: The next page comes so much before its pause ends.
EARLY = timedelta(seconds=60)
#: An entry that no clock has dated yet is older than all others.
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


async def check_at_start(ctx: Context, copy: EndsCopy, me: str) -> None:
    """Compare the ledger with every record before anything else happens; begin recovery mode where it is older."""
    now, entries = ctx.clock.now(), (*ctx.epoch.entries(), *([copy.epoch] if copy.epoch else ()))
    async with ctx.db.read() as tx:
        compared = await compare(tx, entries)
        is_unproved = compared.age is None and ctx.epoch.folders and not _has_record(entries, copy)
        if is_unproved and (age := await _without_records(tx, me, now, _empty_at(entries, copy))) is not None:
            compared = replace(compared, age=age, accepted=await accepted_records(tx))
    if compared.accepted is not None:
        ctx.epoch.accept(compared.accepted)
    if compared.age is not None:
        async with ctx.db.write() as tx:
            if approved_now(ctx.clock) is None:
                # Whatever this clock shows, it is not earlier than what the ledger and its records show.
                now = max(now, seen_at(ctx, entries, compared.events), await newest_at(tx) or now)
            await begin(ctx, tx, compared, copy.records_beside(is_noted=compared.older_since is not None), now)
        return
    ctx.epoch.confirm(entries)
    ctx.epoch.note(compared.events, compared.newest, seen_at(ctx, entries, compared.events))
    await ctx.epoch.write()


def seen_at(ctx: Context, entries: Collection[EpochEntry], events: int) -> datetime:
    """Return the time that a new entry of the epoch gets: until a cloud confirms the clock, right after the newest one.

    An entry with a time to come would count as the newest until then, also once operators have accepted the ledger.
    One that names nothing can't, so it gets the time of the clock, by which its ledger's first event will be dated.
    """
    if not events:
        return ctx.clock.now()
    dated = (entry.at for entry in entries if entry.names_something)
    return approved_now(ctx.clock) or max(dated, default=NO_TIME) + timedelta.resolution


def _has_record(entries: Collection[EpochEntry], copy: EndsCopy) -> bool:
    """Whether any record names something; a copy that an older release wrote has no epoch, and counts."""
    return bool(copy.rows) or any(entry.names_something for entry in entries) or _is_of_older_release(copy)


def _is_of_older_release(copy: EndsCopy) -> bool:
    return copy.read_at is not None and copy.epoch is None


def _empty_at(entries: Collection[EpochEntry], copy: EndsCopy) -> datetime | None:
    """Return when the ledger was last seen without any event; None where no record says so."""
    times = [entry.at for entry in entries if entry.at > NO_TIME]
    return max((*times, *([copy.read_at] if copy.read_at else ())), default=None)


async def _without_records(tx: Tx, me: str, now: datetime, empty_at: datetime | None) -> LedgerAge | None:
    """Judge a ledger of which no record names anything: the first one, another replica's, or one that was put there.

    One whose first event came after it was seen empty is the same one. So is one whose last process stopped a moment
    ago: a copy from before that stop doesn't have its note.
    """
    first = await first_request_at(tx)
    if first is None or await other_replicas(tx, me, now - ALIVE) or (empty_at is not None and first >= empty_at):
        return None
    if (stopped := await stopped_at(tx)) is not None and abs(now - stopped) <= ALIVE:
        return None
    return LedgerAge(AgeEvidence.NO_RECORD)


async def begin(
    ctx: Context, tx: Tx, compared: LedgerComparison, records: Sequence[MustEnd], now: datetime
) -> OlderFacts | None:
    """Begin recovery mode, or add to it what these records know: later ends, and instances that the ledger lacks.

    The later ends are taken into the ledger at once, so that everything that ends or warns follows them, and only
    once: jobs may shorten them later. Operators are paged, and once more for each pause in which nobody accepts the
    ledger. Without an age it is on already. Returns what is noted; None where recovery mode is off.
    """
    age, mark = compared.age, await older_mark(tx)
    before = read_facts(mark.value) if mark is not None else None
    if before is None and age is not None and await _accepted_since(tx, compared):
        return None
    if before is not None:
        facts = before if age is None else before.with_age(age)
    elif age is not None:
        facts = OlderFacts(age)
    else:
        return None
    undated, is_new_time = approved_now(ctx.clock) is None, False
    if before is None or not undated:
        facts, is_new_time = replace(facts, is_undated=undated), before is not None and before.is_undated
    instances, sessions = await rows_of(tx, [record.instance_id for record in records])
    facts = facts.with_records(compared.lacking)
    facts = facts.with_unknown([record for record in records if record.instance_id not in instances])
    facts = facts.with_ends(await _take_later_ends(tx, facts.untaken(records), instances, sessions, now))
    await note(tx, facts, before, now)
    # A little early, so that the next page is there before the ends that wait for it.
    since = now - mark.at + EARLY if mark is not None and not is_new_time else timedelta()
    number = int(since.total_seconds() // ctx.timing.recovery_page_s)
    subject = f"{SUBJECT}/{number}" if number else SUBJECT
    if await page_in(ctx, tx, subject, age_page(facts.age, facts.differences), now):
        ctx.hints.outbox.set()
    return facts


async def _accepted_since(tx: Tx, compared: LedgerComparison) -> bool:
    """Whether operators have accepted the ledger after it was compared: then the next comparison decides."""
    last = await accepted_records(tx)
    return last is not None and (compared.accepted is None or last.at != compared.accepted.at)


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
