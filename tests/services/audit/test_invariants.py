"""The audit itself: silent on a good walk at every step, and loud about each kind of wrong that it knows."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bot.rules.jobs.stored import job_of, stored_job
from bot.services.audit import invariants
from bot.services.audit.invariants import announced, history, money, settled, spending, world
from bot.services.runtime.commands import Terminate
from bot.services.sessions import service
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import (
    GrantState,
    InboxState,
    InstanceState,
    NotificationKind,
    NotificationState,
    OrphanState,
    RequestState,
    SessionState,
)
from ledger.models import Event, Inbox, LedgerEntry, Notification, Orphan
from ledger.queries.audit import Books, read_books, values_of
from providers.sandbox.engine import truth
from tests.support.clock import START, SteppedClock
from tests.support.databases import copy_sqlite
from tests.support.world import ALICE, BOB, World, facts
from tests.support.world import world as build_world

Made = tuple[Books, dict[str, Any]]


async def audit(w: World, *, is_settled: bool = False) -> list[str]:
    secrets, real = [cloud.API_KEY for cloud in w.clouds.values()], truth(w.engine, w.clouds.values())
    found = await invariants.check(w.ctx.db, w.clock, real, is_settled=is_settled, secrets=secrets)
    return [str(one) for one in found]


async def test_a_good_walk_breaks_nothing_at_any_step(w: World) -> None:
    request_id = str((await w.ask()).data["request_id"])
    assert await audit(w) == []
    await w.settle()
    assert await audit(w) == []
    await w.decide(request_id, BOB)
    assert await audit(w) == []
    await w.settle()
    assert await audit(w) == []
    await w.run(300)
    assert await audit(w, is_settled=True) == []
    session = (await w.view(request_id)).session
    assert session is not None
    await service.terminate(w.ctx, Terminate(session.id, facts(ALICE)))
    assert await audit(w) == []
    await w.run(180)
    await w.settle()
    assert await audit(w, is_settled=True) == []


@pytest.fixture(scope="module")
def walked(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The ledger and the truth after one session that still runs. The checks are pure, so one database will do."""
    url = copy_sqlite(sqlite_template, tmp_path_factory.mktemp("walked"))

    async def walk() -> Made:
        db = Database(url)
        try:
            async with build_world(db, SteppedClock()) as w:
                await w.ready()
                return await read_books(db), dict(truth(w.engine, w.clouds.values()))
        finally:
            await db.close()

    return asyncio.run(walk())


@pytest.fixture
def books(walked: Made) -> Made:
    """A copy for one test to spoil: rows of no database, so that any column may be set."""
    rows, real = walked
    tables = {
        item.name: tuple(type(row)(**values_of(row)) for row in getattr(rows, item.name))
        for item in dataclasses.fields(rows)
    }
    return Books(**tables), copy.deepcopy(real)


def _rules(found: Iterable[world.Violation]) -> set[str]:
    return {one.rule for one in found}


def test_a_second_create_for_one_row_is_found(books: Made) -> None:
    rows, real = books
    real["creates"].append(dict(real["creates"][0]))
    assert _rules(world.check(rows, real)) == {"one send per row"}


def test_a_create_without_a_row_is_found(books: Made) -> None:
    rows, real = books
    real["creates"].append({**real["creates"][0], "name": "gpu-prd1-0000000000000000-00-0000000000"})
    assert _rules(world.check(rows, real)) == {"intent before instance"}
    rows.instances[0].sent_at = None
    real["creates"].pop()
    assert _rules(world.check(rows, real)) == {"intent before instance"}


def test_a_closed_row_with_a_living_instance_is_found(books: Made) -> None:
    rows, real = books
    gone = type(rows.instances[0])(**{**values_of(rows.instances[0]), "state": InstanceState.GONE})
    rows = dataclasses.replace(rows, instances=(gone,))
    assert _rules(world.check(rows, real)) == {"closed means gone"}
    assert "no orphan" in _rules(settled.no_orphans(rows, real))


def _stray(rows: Books, state: OrphanState) -> Orphan:
    row = rows.instances[0]
    at = row.created_at
    return Orphan(
        id="str_0000000000000001", cloud=row.cloud, account=row.account, ref=row.ref, label=row.label, state=state,
        price_usd_h=Decimal(1), first_seen_at=at, last_seen_at=at, absent_at=[], reason="",
    )  # fmt: skip


def test_a_stray_that_is_the_kept_instance_is_found(books: Made) -> None:
    rows, real = books
    wrong = dataclasses.replace(rows, orphans=(_stray(rows, OrphanState.CONDEMNED),))
    assert _rules(world.check(wrong, real)) == {"healthy instances are not killed"}
    gone = dataclasses.replace(rows, orphans=(_stray(rows, OrphanState.GONE),))
    assert _rules(world.check(gone, real)) == {"closed means gone"}


def _ordered(rows: Books, of: str, after: str) -> Books:
    """The journal says that the service itself moved `of` there."""
    event = copy.copy(values_of(rows.events[-1])) | {"id": f"evt_{after}", "subject": of, "after": after}
    kind = "stray.moved" if after == OrphanState.CONDEMNED else "instance.moved"
    return dataclasses.replace(rows, events=(*rows.events, Event(**{**event, "kind": kind, "actor": SYSTEM.ref})))


def test_what_was_lost_and_came_back_and_is_ended_by_nobodys_word_is_found(books: Made) -> None:
    rows, _ = books
    row = rows.instances[0]
    row.state, row.outcome_code = InstanceState.GONE, "lost"
    stray = _stray(rows, OrphanState.CONDEMNED)
    stray.instance_id = row.id
    rows = dataclasses.replace(_ordered(rows, stray.id, OrphanState.CONDEMNED), orphans=(stray,))
    assert _rules(announced.check(rows, START)) == {"healthy instances are not killed", "nothing ends unannounced"}
    rows.sessions[0].state, rows.sessions[0].end_code = SessionState.TERMINATED, "asked"
    assert _rules(announced.check(rows, START)) == {"nothing ends unannounced"}


def test_an_end_that_nobody_was_told_of_is_found(books: Made) -> None:
    rows, _ = books
    row = rows.instances[0]
    rows = _ordered(rows, row.id, InstanceState.TERMINATING)
    assert _rules(announced.check(rows, START)) == {"nothing ends unannounced"}
    # What its session's own end took with it was told with that.
    rows.sessions[0].state, rows.sessions[0].end_code, row.outcome_code = SessionState.TERMINATING, "asked", "asked"
    assert announced.check(rows, START) == []


def test_an_early_end_that_its_owner_was_not_told_of_before_is_found(books: Made) -> None:
    rows, _ = books
    session = rows.sessions[0]
    session.state, session.end_code = SessionState.TERMINATING, "idle"
    ordered = _ordered(rows, session.id, SessionState.TERMINATING)
    ordered.events[-1].kind, ordered.events[-1].actor = "session.moved", "system:scheduler"
    assert _rules(announced.check(ordered, START)) == {"nothing ends unannounced"}
    at = ordered.events[-1].at - timedelta(minutes=5)
    note = Notification(kind=NotificationKind.SESSION_IDLE, subject=f"{session.id}/1", destination="U")
    note.created_at = at
    assert announced.check(dataclasses.replace(ordered, notifications=(note,)), START) == []


def test_a_create_that_stays_unclear_and_is_told_to_nobody_is_found(books: Made) -> None:
    rows, _ = books
    rows.instances[0].state = InstanceState.UNKNOWN
    later = START + timedelta(hours=1)
    assert _rules(announced.check(rows, later)) == {"unknown outcomes are announced"}


def test_a_machine_that_was_ready_and_ended_for_its_rate_without_an_answer_is_found(books: Made) -> None:
    rows, _ = books
    row = rows.instances[0]
    row.outcome_code, row.terminate_asked_at = "billed_above_cap", row.created_at + timedelta(minutes=30)
    rule = "no running instance is ended by price alone below its approved total"
    assert rule in _rules(spending.check(rows))
    said = {"id": "req_rate", "kind": RequestKind.OVERSPEND, "parent_id": row.request_id, "inbox_key": "rate"}
    asked = type(rows.requests[0])(**{**values_of(rows.requests[0]), **said, "state": RequestState.REJECTED})
    asked.created_at, asked.decided_at = row.created_at, row.terminate_asked_at
    answered = dataclasses.replace(rows, requests=(*rows.requests, asked))
    assert rule not in _rules(spending.check(answered))
    asked.decided_at = row.terminate_asked_at + timedelta(seconds=1)
    assert rule in _rules(spending.check(answered))
    row.reachable_at = None
    never_ready = dataclasses.replace(answered, events=())
    assert rule not in _rules(spending.check(never_ready))


def test_a_rate_above_the_approved_one_is_paid_by_an_earlier_end(books: Made) -> None:
    rows, _ = books
    row, session, grant = rows.instances[0], rows.sessions[0], rows.grants[0]
    row.state, row.price_usd_h = InstanceState.LIVE, grant.price_cap_usd_h * 2
    row.sent_at = row.sent_at or row.created_at
    paid = timedelta(hours=float(grant.total_cap_usd / row.price_usd_h))
    rows = dataclasses.replace(rows, entries=tuple(e for e in rows.entries if e.kind not in ("accrue", "true_up")))
    session.deadline = row.sent_at + paid
    assert "never above the cap" not in _rules(spending.check(rows))
    session.deadline += timedelta(minutes=1)
    assert "never above the cap" in _rules(spending.check(rows))


def test_an_end_without_a_reason_is_found(books: Made) -> None:
    rows, real = books
    rows.instances[0].terminate_asked_at = rows.instances[0].created_at
    rows.instances[0].outcome = ""
    assert _rules(world.check(rows, real)) == {"healthy instances are not killed"}


def test_an_instance_that_vanished_is_a_ghost(books: Made) -> None:
    rows, real = books
    real["instances"] = []
    assert _rules(settled.no_orphans(rows, real)) == {"no ghost"}


def test_secrets_and_lost_messages_are_found(books: Made) -> None:
    rows, _ = books
    rows.events[0].reason = "the key is hunter2-and-more"
    assert _rules(world.no_secrets(rows, ["hunter2-and-more", ""])) == {"no secret is stored"}
    assert _rules(world.nothing_lost(rows, ["a-key"])) == {"acknowledged is kept"}


def test_a_move_without_its_event_or_outbox_row_is_found(books: Made) -> None:
    rows, _ = books
    last = [e for e in rows.events if e.subject == rows.instances[0].id and e.kind == "instance.moved"]
    fewer = dataclasses.replace(rows, events=tuple(e for e in rows.events if e is not last[-1]))
    assert "every move has its event" in _rules(history.check(fewer))
    silent = dataclasses.replace(rows, notifications=())
    assert _rules(history.check(silent)) == {"every move has its outbox row"}


def test_a_move_out_of_a_terminal_state_is_found(books: Made) -> None:
    rows, _ = books
    wrong = Event(**{**values_of(rows.events[0]), "id": "evt_x"})
    wrong.subject, wrong.kind = rows.requests[0].id, "request.moved"
    wrong.before, wrong.after = "cancelled", "approved"
    bad = dataclasses.replace(rows, events=(*rows.events, wrong))
    assert "terminal is terminal" in _rules(history.check(bad))


@pytest.mark.parametrize(
    ("table", "change", "rule"),
    [
        ("approvals", {"decision": "reject"}, "no spend without approval"),
        ("approvals", {"price_cap_usd_h": Decimal("0.01")}, "a grant stays inside its approval"),
        ("grants", {"state": GrantState.OPEN}, "a grant is used once"),
        ("grants", {"request_id": "req_other"}, "no spend without approval"),
        ("instances", {"price_usd_h": Decimal(1000)}, "never above the cap"),
        ("instances", {"offer": {"price_usd_h": "1000"}}, "never above the cap"),
        ("instances", {"offer": {}}, "never above the cap"),
        ("approvals", {"at": START + timedelta(days=1)}, "no spend without approval"),
        ("instances", {"grant_id": "grt_other"}, "no spend without approval"),
    ],
)
def test_spending_beyond_what_was_approved_is_found(books: Made, table: str, change: dict[str, Any], rule: str) -> None:
    rows, _ = books
    if "request_id" in change:
        assert rule in _rules(spending.check(dataclasses.replace(rows, approvals=())))
        return
    for name, value in change.items():
        if name == "state":
            copy = type(rows.grants[0])(**{**values_of(rows.grants[0]), name: value})
            rows = dataclasses.replace(rows, grants=(copy,))
        else:
            setattr(getattr(rows, table)[0], name, value)
    assert rule in _rules(spending.check(rows))


def test_a_grant_above_a_limit_for_all_attempts_is_found(books: Made) -> None:
    rows, _ = books
    rule = "limits hold over all attempts"
    request, approval, grant = rows.requests[0], rows.approvals[0], rows.grants[0]
    stored, job = request.job, job_of(request.job)
    cent = Decimal("0.01")
    for limited in (dataclasses.replace(job, budget_cap_usd=cent), dataclasses.replace(job, max_price_usd_h=cent)):
        request.job = stored_job(limited)
        assert rule in _rules(spending.check(rows))
    request.job = stored
    approval.limit_usd = grant.total_cap_usd
    assert rule not in _rules(spending.check(rows))
    approval.limit_usd = grant.total_cap_usd - Decimal("0.01")
    assert rule in _rules(spending.check(rows))
    approval.limit_usd = grant.total_cap_usd
    spent = LedgerEntry(kind="accrue", session_id=grant.session_id, amount_usd=Decimal("0.01"), at=grant.created_at)
    assert rule in _rules(spending.check(dataclasses.replace(rows, entries=(*rows.entries, spent))))


def test_a_send_after_the_grant_ran_out_is_found(books: Made) -> None:
    rows, _ = books
    rows.instances[0].sent_at = rows.grants[0].until
    assert _rules(spending.check(rows)) == {"no spend without approval"}


def test_two_rows_on_one_grant_are_found(books: Made) -> None:
    rows, _ = books
    twice = dataclasses.replace(rows, instances=rows.instances * 2)
    assert _rules(spending.check(twice)) == {"one open row per grant", "one kept per grant", "a grant is used once"}


def _entry(rows: Books, **changes: Any) -> LedgerEntry:
    return LedgerEntry(**{**values_of(rows.entries[0]), "id": "led_x", **changes})


def _of_money(rows: Books, **changes: Any) -> set[str]:
    return _rules(money.check(dataclasses.replace(rows, **changes), {}))


def test_bad_bookings_are_found(books: Made) -> None:
    rows, _ = books
    same_key = dataclasses.replace(rows, entries=(*rows.entries, _entry(rows)))
    assert "a fact is booked once" in _rules(money.check(same_key, {}))
    circle = _entry(rows, key="k", debit="a", credit="a")
    assert _of_money(rows, entries=(*rows.entries, circle)) == {"every entry balances"}
    assert _of_money(rows, entries=()) == {"budgets never overshoot"}
    wrong = _entry(rows, key=f"release/{rows.grants[0].id}", amount_usd=Decimal(1))
    assert _of_money(rows, entries=(*rows.entries, wrong)) == {"every entry balances"}
    void = type(rows.grants[0])(**{**values_of(rows.grants[0]), "state": GrantState.VOID})
    assert _of_money(rows, grants=(void,)) == {"budgets never overshoot"}


def test_a_reservation_that_outlives_its_session_is_found(books: Made) -> None:
    rows, _ = books
    over = type(rows.sessions[0])(**{**values_of(rows.sessions[0]), "state": SessionState.FAILED})
    assert _of_money(rows, sessions=(over,)) == {"budgets never overshoot"}


def test_spending_above_the_approved_total_is_found(books: Made) -> None:
    rows, _ = books
    spent = _entry(rows, key="k", kind="accrue", amount_usd=Decimal(10_000), session_id=rows.sessions[0].id)
    assert _of_money(rows, entries=(*rows.entries, spent)) == {"budgets never overshoot"}


def test_a_ledger_that_disagrees_with_the_bill_is_found(books: Made) -> None:
    rows, real = books
    gone = type(rows.instances[0])(**{**values_of(rows.instances[0]), "state": InstanceState.GONE})
    real["instances"][0]["total_usd"] = "5.00"
    found = money.against_the_bill(dataclasses.replace(rows, instances=(gone,)), real)
    assert _rules(found) == {"the ledger agrees with the bill"}


@pytest.mark.parametrize(("bill", "agrees"), [("0.0367", False), ("0.0295", False), ("0.0264", True), ("0.0180", True)])
def test_a_small_bill_that_the_ledger_is_below_is_found(books: Made, bill: str, agrees: bool) -> None:
    """An orphan that lived 84 s where whole minutes are billed, booked by the second at $1.10 an hour."""
    rows, real = books
    orphan = Orphan(
        id="str_1", cloud="lambda", account="a", ref="r1", label="x", state=OrphanState.GONE,
        price_usd_h=Decimal("1.1"),
        first_seen_at=START, last_seen_at=START, ended_at=START + timedelta(seconds=84),
    )  # fmt: skip
    loss = _entry(rows, key="str_1/final", kind="loss", amount_usd=Decimal("0.025667"), debit="loss:str_1", credit="p")
    real["instances"] = [{"cloud": "lambda", "ref": "r1", "total_usd": bill}]
    small = dataclasses.replace(rows, instances=(), orphans=(orphan,), entries=(loss,))
    assert (_rules(money.against_the_bill(small, real)) == set()) is agrees


def test_what_is_stuck_expired_or_untold_is_found(books: Made) -> None:
    rows, _ = books
    now = max(event.at for event in rows.events)
    assert settled.check(rows, now) == []
    assert _rules(settled.check(rows, now + timedelta(days=2))) == {"expired sessions are closed"}
    request = type(rows.requests[0])(**{**values_of(rows.requests[0]), "state": RequestState.PENDING})
    waiting = dataclasses.replace(rows, requests=(request,), sessions=())
    assert _rules(settled.check(waiting, now + timedelta(days=2))) == {"expired requests are closed"}
    request = type(request)(**{**values_of(request), "state": RequestState.QUOTING})
    assert _rules(settled.check(dataclasses.replace(rows, requests=(request,)), now)) == {"nothing is stuck"}
    grant = type(rows.grants[0])(**{**values_of(rows.grants[0]), "state": GrantState.OPEN})
    idle = dataclasses.replace(rows, grants=(grant,), instances=())
    assert _rules(settled.check(idle, grant.until + timedelta(seconds=1))) == {"nothing is stuck"}
    note = type(rows.notifications[0])(**{**values_of(rows.notifications[0]), "state": NotificationState.PENDING})
    assert _rules(settled.check(dataclasses.replace(rows, notifications=(note,)), now)) == {"the outbox is drained"}


def test_an_unprocessed_message_is_found(books: Made) -> None:
    rows, _ = books
    row = {"key": "k", "kind": "slack.command", "body": {}, "answer": {}, "received_at": START, "version": 1}
    waiting = dataclasses.replace(rows, inbox=(Inbox(**row, state=InboxState.NEW),))
    assert _rules(settled.check(waiting, rows.events[0].at)) == {"the inbox is worked off"}
    assert world.nothing_lost(waiting, ["k"]) == []
