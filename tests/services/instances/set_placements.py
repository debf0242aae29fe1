"""Place sets of machines while their cloud lacks capacity, loses replies or delivers broken machines."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from bot.rules.policy.timing import Timing
from bot.services.instances.unknown_outcome import quarantine
from ledger.kernel.end_reason import EndReason
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance
from ledger.queries.audit import Books
from tests.support.world import World

#: One sweep of these tests: everything that the ticker does runs once per step.
SWEEP_S = 15.0
CLOUDS = ("lambda", "tensordock", "runpod")
#: What befalls one of a set's creates → how often. Capacity is what sets lack most.
FAULTS = {
    "create_stale_offer": 40,
    "create_lost_reply": 12,
    "create_lands_late": 10,
    "create_lost_request": 10,
    "create_no_credit": 6,
    "machine_wrong_gpu": 6,
    "never_boots": 2,
    "": 10,
}
#: Definite failures of one machine of a set.
FAILED = frozenset({InstanceState.REJECTED, InstanceState.TOMBSTONE, InstanceState.TERMINATING, InstanceState.GONE})
LONGEST_S = 3_000.0


@dataclass
class Placements:
    """Count what became of sets, and the longest times that passed."""

    placed: int = 0
    machines: int = 0
    whole: int = 0
    ended: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    #: Sets of which machines ran already when another one failed.
    undone: int = 0
    #: Sets that ended with the quarantine of an unknown outcome.
    after_quarantine: int = 0
    longest_s: float = 0.0
    spent_usd: Decimal = Decimal(0)
    covered_usd: Decimal = Decimal(0)

    def __str__(self) -> str:
        named = ", ".join(f"{name or 'none'} {count}" for name, count in self.faults.most_common())
        return (
            f"{self.placed} placements of {self.machines} machines: {self.whole} whole, {self.ended} ended "
            f"({self.undone} with machines that ran, {self.after_quarantine} after a quarantine). "
            f"Ordered at most {self.longest_s:g} s after the first definite failure. "
            f"${self.spent_usd:.2f} of ${self.covered_usd:.2f} approved. Faults: {named}."
        )


async def place(w: World, chance: random.Random, found: Placements) -> None:
    """Place one set with one or two faults, look at it until it runs or is over, and end it."""
    cloud, nodes = chance.choice(CLOUDS), chance.randint(2, 4)
    request_id = await w.approved(candidates=(cloud,), nodes=nodes)
    names = chance.choices(list(FAULTS), list(FAULTS.values()), k=chance.choice((1, 1, 2)))
    for name in filter(None, names):
        times = chance.randint(1, nodes)
        after = {"after_s": chance.choice((60, 200, 400))} if name == "create_lands_late" else {}
        fault = "create_503_after" if (cloud, name) == ("runpod", "create_lost_request") else name
        w.arm(fault, cloud, times, skip=chance.randint(0, nodes - times), **after)
    found.faults.update(names)
    await w.settle()
    await until_over(w, request_id, {SessionState.RUNNING, SessionState.TERMINATED})
    w.engine.faults.disarm()
    session = (await w.view(request_id)).session
    assert session is not None
    found.placed += 1
    found.machines += nodes
    if session.state is SessionState.RUNNING:
        found.whole += 1
        assert len(w.alive()) == nodes
        assert (await w.end(request_id)).ok
        await until_over(w, request_id, {SessionState.TERMINATED})
    else:
        found.ended += 1
        judge(w, await w.books(), session.id, found)
    assert w.alive() == []
    count_cost(await w.books(), session.id, found)


async def until_over(w: World, request_id: str, states: set[SessionState]) -> None:
    """Let sweep after sweep pass until the session is in one of these states and nothing else of it runs."""
    for _ in range(int(LONGEST_S / SWEEP_S)):
        session = (await w.view(request_id)).session
        assert session is not None
        if session.state in states and (session.state is SessionState.RUNNING or not w.alive()):
            return
        w.clock.advance(SWEEP_S)
        await w.settle(4)
    raise AssertionError(f"{request_id} is not over after {LONGEST_S:g} s")


def judge(w: World, books: Books, session_id: str, found: Placements) -> None:
    """Check that a set that lacks a machine was ordered to end in time, and each machine of it."""
    rows = [row for row in books.instances if row.session_id == session_id]
    (ordered_at,) = [e.at for e in books.events if e.subject == session_id and e.after == SessionState.TERMINATING]
    failed_at, failed = min(
        ((at, row) for row in rows if (at := _failed_at(books, row)) is not None), key=lambda one: one[0]
    )
    late_s = (ordered_at - failed_at).total_seconds()
    assert 0 <= late_s <= SWEEP_S, (session_id, late_s)
    found.longest_s = max(found.longest_s, late_s)
    if failed.state is InstanceState.TOMBSTONE:
        able = w.ctx.providers[failed.cloud].capabilities
        waited = failed_at - (failed.sent_at or failed.created_at)
        limit_s = w.ctx.timing.label_search_s + SWEEP_S
        assert waited <= quarantine(able, Timing()) + timedelta(seconds=limit_s), (failed.id, waited)
        found.after_quarantine += 1
    lived = [row for row in rows if row.live_at is not None]
    found.undone += bool(lived)
    for row in lived:
        assert row.terminate_asked_at is not None or row.state is InstanceState.GONE
        since = max(failed_at, row.live_at or failed_at)
        assert (row.terminate_asked_at or since) - since <= timedelta(seconds=SWEEP_S), row.id
    assert all(row.state in FAILED for row in rows)


def _failed_at(books: Books, row: Instance) -> datetime | None:
    """Return when a machine failed, unless it ended with its set."""
    if row.outcome_code == EndReason.SET_BROKEN or (row.state is InstanceState.REJECTED and not row.outcome_code):
        return None
    return min((e.at for e in books.events if e.subject == row.id and e.after in FAILED), default=None)


def count_cost(books: Books, session_id: str, found: Placements) -> None:
    """Check that what a set cost, all machines together, is inside its approval."""
    (session,) = [one for one in books.sessions if one.id == session_id]
    kinds = (EntryKind.ACCRUE, EntryKind.LOSS)
    spent = sum((e.amount_usd for e in books.entries if e.session_id == session_id and e.kind in kinds), Decimal(0))
    covered = sum(
        (one.total_cap_usd or Decimal(0) for one in books.approvals if one.request_id == session.request_id), Decimal(0)
    )
    assert spent <= covered, (session_id, spent, covered)
    found.spent_usd += spent
    found.covered_usd += covered
