"""What a chaos run must have kept, judged by queries of its own against what the sandboxes really rented and billed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from sqlalchemy import text

from ledger.engine.db import Database
from providers.sandbox.engine import TrueInstance
from tests.scenarios.chaos.proxy import LABEL

#: How long after its end a machine may live while its cloud can be reached and a process runs.
LATE_S = 60.0
#: A claim's life: a replica that is paused may hold one for so long.
CLAIM_S = 15.0
NEAR_USD, NEAR = Decimal("0.01"), Decimal("0.01")

INSTANCES = """
SELECT i.cloud, i.ref, i.label, i.state, i.request_id, s.state AS session_state, s.deadline
FROM instances i JOIN sessions s ON s.id = i.session_id
"""
#: Creates are sent for rows only; each needs an approval.
UNAPPROVED = """
SELECT i.label FROM instances i JOIN grants g ON g.id = i.grant_id
LEFT JOIN approvals a ON a.id = g.approval_id AND a.decision = 'approve'
WHERE i.sent_at IS NOT NULL AND a.id IS NULL
"""
BOOKED = """
SELECT i.cloud, i.ref, sum(CASE WHEN e.debit LIKE 'payable:%' THEN -e.amount_usd ELSE e.amount_usd END) AS micro_usd
FROM ledger_entries e JOIN instances i ON i.id = e.instance_id
WHERE e.kind IN ('accrue', 'true_up', 'loss') GROUP BY i.cloud, i.ref
"""
TOKENS = "SELECT token, request_id FROM tokens WHERE action = 'approve'"
#: No cloud loses a machine in such a run.
LOST = "SELECT label FROM instances WHERE outcome_code = 'lost'"
#: No machine in use breaks for good in such a run: each waits, because that costs next to nothing here.
GIVEN_UP = """
SELECT label, outcome_code FROM instances WHERE reachable_at IS NOT NULL
AND outcome_code IN ('broken', 'stopped_there', 'outbid', 'restarting', 'no_heartbeat', 'idle')
"""
REQUESTS = "SELECT count(*) FROM requests WHERE kind = 'provision'"
UNFINISHED = "SELECT count(*) FROM inbox WHERE state <> 'done'"


@dataclass(frozen=True, slots=True)
class LostPart:
    """The part of the ledger that a restore took away: from its copy to the restore, also in monotonic seconds.

    The page promises that nothing of it is bought again or ended early. It does not promise that the ledger knows it: a
    machine of it is an orphan that an operator ends, and what ended in it counts as lost.
    """

    since: datetime
    since_s: float
    until: datetime
    until_s: float

    def has(self, at: datetime | None) -> bool:
        """Whether it was then."""
        return at is not None and self.since <= at <= self.until

    def had_sent(self, at_s: float | None) -> bool:
        """Whether a create that arrived then belongs to it."""
        return at_s is not None and self.since_s <= at_s <= self.until_s


@dataclass(frozen=True)
class Evidence:
    """What the run saw from outside. `sent` counts the bot's own creates by label; outages are judged by `away_s`."""

    true: list[TrueInstance]
    sent: Mapping[str, int]
    #: Key → the words of each message that was answered as stored.
    acknowledged: Mapping[str, str]
    #: Seconds in which an end could not be carried out: cloud, from, to.
    away_s: Callable[[str, datetime, datetime], float]
    now: datetime
    replicas: int = 1
    #: When a button of an approval was first clicked, and when the first create with a label arrived, in seconds.
    clicked_s: Mapping[str, float] = field(default_factory=dict)
    sent_s: Mapping[str, float] = field(default_factory=dict)
    #: How many rentals people requested, each by one command however often it arrived; None: by other ways, too.
    commands: int | None = None
    #: What restores took from the ledger.
    lost: Sequence[LostPart] = ()

    def had_sent(self, label: str) -> int:
        """Return in how many lost parts the first create with this label may have been sent."""
        return sum(part.had_sent(self.sent_s.get(label)) for part in self.lost)

    def is_lost(self, item: TrueInstance) -> bool:
        """Whether the ledger lacks the begin or the end of a machine."""
        return any(part.has(item.created_at) or part.has(item.ended_at) for part in self.lost)


@dataclass
class Verdict:
    """Everything that is wrong, and the figures of the table."""

    broken: list[str] = field(default_factory=list)
    sessions: int = 0
    creates: int = 0
    latest_s: float = 0.0
    bills: dict[str, tuple[Decimal, Decimal]] = field(default_factory=dict)


async def judge(db: Database, seen: Evidence) -> Verdict:
    """Compare the ledger with the clouds' truth after everything came to rest."""
    verdict = Verdict()
    verdict.broken += [f"orphan: {item.cloud} {item.name} still runs" for item in seen.true if item.alive]
    # One that a lost part had sent may be refused there, and sent anew with the same number after a new approval.
    doubles = {label: n for label, n in seen.sent.items() if n > 1 + seen.had_sent(label)}
    verdict.broken += [f"double: {label} was sent {n} times" for label, n in doubles.items()]
    verdict.creates = sum(seen.sent.values())
    async with db.read() as tx:
        rows = (await tx.execute(text(INSTANCES))).mappings().all()
        booked = {(row["cloud"], row["ref"]): row["micro_usd"] for row in (await tx.execute(text(BOOKED))).mappings()}
        unapproved = (await tx.scalars(text(UNAPPROVED))).all()
        keys = set((await tx.scalars(text("SELECT key FROM inbox"))).all())
        tokens = {row["token"]: row["request_id"] for row in (await tx.execute(text(TOKENS))).mappings()}
        unfinished = (await tx.scalar(text(UNFINISHED))) or 0
        lost_there = (await tx.scalars(text(LOST))).all()
        given_up = (await tx.execute(text(GIVEN_UP))).mappings().all()
        requests = (await tx.scalar(text(REQUESTS))) or 0
    verdict.sessions = len({row["request_id"] for row in rows})
    verdict.broken += [f"spent without an approval: {label}" for label in {*unapproved, *_too_early(seen, tokens)}]
    verdict.broken += [f"acknowledged and lost: {words}" for key, words in seen.acknowledged.items() if key not in keys]
    verdict.broken += [f"{unfinished} acknowledged messages were never processed"] if unfinished else []
    gone = {found[0] for item in seen.true if seen.is_lost(item) and (found := LABEL.search(str(item.name)))}
    verdict.broken += [f"ended by mistake: {label} counted as lost" for label in lost_there if label not in gone]
    verdict.broken += [
        f"given up while it could wait: {row['label']}, {row['outcome_code']}"
        for row in given_up
        if row["label"] not in gone
    ]
    if seen.commands is not None and requests > seen.commands:
        verdict.broken.append(f"double: {requests} requests from {seen.commands} commands")
    known = {row["label"]: row for row in rows}
    for item in seen.true:
        found = LABEL.search(str(item.name))
        row = known.get(found[0]) if found else None
        if row is None and any(part.has(item.created_at) for part in seen.lost):
            continue
        if row is None:
            verdict.broken.append(f"rented without a row: {item.cloud} {item.name}")
        elif row["deadline"] is not None and item.ref == row["ref"]:
            _late(verdict, seen, item, _time(row["deadline"]))
    _kept_twice(verdict, seen.true)
    _bills(verdict, [item for item in seen.true if not seen.is_lost(item)], booked)
    return verdict


def _too_early(seen: Evidence, tokens: Mapping[str, str]) -> list[str]:
    """Return the labels whose create arrived before anybody had clicked on an approval of their request."""
    approved_s: dict[str, float] = {}
    for token, at_s in seen.clicked_s.items():
        request = tokens.get(token, "").removeprefix("req_")
        approved_s[request] = min(at_s, approved_s.get(request, at_s))
    early = [label for label, at_s in seen.sent_s.items() if approved_s.get(label.split("-")[1], at_s + 1) > at_s]
    there = {request.removeprefix("req_") for request in tokens.values()}
    # A ledger that lacks a whole request does not know its buttons.
    return [label for label in early if label.split("-")[1] in there or not seen.had_sent(label)]


def _late(verdict: Verdict, seen: Evidence, item: TrueInstance, deadline: datetime) -> None:
    ended_at = item.ended_at or seen.now
    late_s = (ended_at - deadline).total_seconds() - seen.away_s(item.cloud, deadline, ended_at)
    verdict.latest_s = max(verdict.latest_s, late_s)
    if late_s > LATE_S + (CLAIM_S if seen.replicas > 1 else 0):
        verdict.broken.append(f"late: {item.cloud} {item.name} outlived its end by {late_s:.0f} s of reachable cloud")


def _kept_twice(verdict: Verdict, true: list[TrueInstance]) -> None:
    """No request has two instances that lived beside each other for longer than it takes to see and end one."""
    lives: defaultdict[str, list[TrueInstance]] = defaultdict(list)
    for item in true:
        if found := LABEL.search(str(item.name)):
            lives[found[0].split("-")[1]].append(item)
    for request, items in lives.items():
        for first in items:
            for other in items:
                if first.ref >= other.ref or first.ended_at is None or other.ended_at is None:
                    continue
                both_s = (min(first.ended_at, other.ended_at) - max(first.created_at, other.created_at)).total_seconds()
                if both_s > 2 * LATE_S:
                    verdict.broken.append(f"double: request {request} had two instances for {both_s:.0f} s")


def _bills(verdict: Verdict, true: list[TrueInstance], booked: dict[tuple[str, str], int]) -> None:
    ours: defaultdict[str, Decimal] = defaultdict(Decimal)
    theirs: defaultdict[str, Decimal] = defaultdict(Decimal)
    for item in true:
        micro_usd = booked.get((item.cloud, item.ref))
        if micro_usd is None:
            continue  # An orphan: its cost is booked without an instance row of its own.
        booked_usd = Decimal(micro_usd) / 1_000_000
        ours[item.cloud] += booked_usd
        theirs[item.cloud] += item.total_usd
        if abs(booked_usd - item.total_usd) > NEAR_USD:
            verdict.broken.append(
                f"bill: {item.cloud} {item.name} is booked at {booked_usd:.4f}, billed {item.total_usd:.4f}"
            )
    for cloud, bill in theirs.items():
        verdict.bills[cloud] = (ours[cloud], bill)
        if abs(ours[cloud] - bill) > max(NEAR * bill, NEAR_USD):
            verdict.broken.append(f"bill: {cloud} is booked at {ours[cloud]:.4f}, billed {bill:.4f}")


def _time(value: object) -> datetime:
    """Read a time as the database gives it to plain SQL."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return datetime.fromisoformat(str(value)).replace(tzinfo=UTC)
