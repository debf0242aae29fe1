"""Every pair of states of every machine, and what a move writes beside the state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from ledger.core.claims import claim
from ledger.core.moves import IllegalMove, ProofMissing, StaleMove, decide, move
from ledger.core.writes import amend
from ledger.engine.db import Database
from ledger.kernel.actor import SYSTEM, Actor, ActorKind
from ledger.kernel.proof import ProofKind, ProofOfEnd
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import (
    ANNOUNCES,
    LEGAL,
    GrantState,
    InstanceState,
    NotificationKind,
    NotificationState,
    OrphanState,
    RequestState,
    SessionState,
    State,
)
from ledger.models import Event, GrantRow, Instance, Notification, Orphan, Request, Session, Share, StateAssigned
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import PostgresTemplate, copy_sqlite

ATLAS = Actor(ActorKind.CONSUMER, "atlas")
PROOF = ProofOfEnd(ProofKind.ABSENCE, "acct-1", START, (START, START + timedelta(seconds=60)))
LATER = START + timedelta(minutes=5)
MODELS: dict[type[State], Any] = {
    RequestState: Request,
    GrantState: GrantRow,
    SessionState: Session,
    InstanceState: Instance,
    OrphanState: Orphan,
}
PAIRS = [(a, b) for machine in MODELS for a in machine for b in machine]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Database]:
    """One ledger for the many small tests of this file that do not disturb one another."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        db = Database(copy_sqlite(template, tmp_path_factory.mktemp("moves")))
        yield db
        await db.close()
        return
    server: PostgresTemplate = request.getfixturevalue("pg_template")
    async with server.clone() as url:
        db = Database(url)
        yield db
        await db.close()


async def born(tx: AsyncSession, state: State) -> Any:
    """A row of the state's machine, in that state."""
    if isinstance(state, RequestState):
        return await rows.request(tx, state)
    if isinstance(state, GrantState):
        return await rows.grant(tx, await rows.request(tx, RequestState.APPROVED), state)
    if isinstance(state, SessionState):
        return await rows.session(tx, state)
    if isinstance(state, InstanceState):
        return await rows.instance(tx, state)
    return await rows.stray(tx, state)


def followers() -> dict[State, set[State]]:
    """What may follow each state in any number of moves: the closure of the table, computed the slow way."""
    after: dict[State, set[State]] = {a: set(b) for machine in LEGAL.values() for a, b in machine.items()}
    for _ in after:
        for state, known in after.items():
            after[state] = known.union(*(after[k] for k in known))
    return after


def judged(now: State, to: State) -> str:
    """What a move from `now` to `to` must be: legal, stale (a race may have led here) or illegal (a bug)."""
    table = LEGAL[type(now)]
    if to in table[now]:
        return "legal"
    entrances = [state for state, targets in table.items() if to in targets]
    lost_race = not table[now] or any(now == e or now in followers()[e] for e in entrances)
    return "stale" if lost_race else "illegal"


def proof_for(to: State) -> ProofOfEnd | None:
    return PROOF if to is InstanceState.GONE else None


async def events_of(db: Database, subject: str) -> list[Event]:
    async with db.read() as tx:
        return list(await tx.scalars(select(Event).where(Event.subject == subject).order_by(Event.id)))


def request_of(row: Any) -> str | None:
    return row.id if isinstance(row, Request) else getattr(row, "request_id", None)


async def notifications_about(db: Database, row: Any) -> set[tuple[str, str, str]]:
    """`(kind, subject, destination)` of everything announced about the row or its request."""
    about = {row.id, request_of(row)}
    async with db.read() as tx:
        return {
            (str(n.kind), n.subject, n.destination)
            for n in await tx.scalars(select(Notification))
            if n.subject.split("/")[0] in about
        }


def wanted_notifications(row: Any, to: State) -> set[tuple[str, str, str]]:
    """What the table announces for this move of a person in Slack, who reads of a session directly."""
    where = {
        NotificationKind.REQUEST_MESSAGE: (request_of(row), rows.CHANNEL),
        NotificationKind.REQUEST_RESULT: (f"{request_of(row)}/{to}", rows.CHANNEL),
        NotificationKind.SESSION_READY: (row.id, rows.ADA.id),
        NotificationKind.SESSION_ENDED: (row.id, rows.ADA.id),
        NotificationKind.ORPHAN_FOUND: (row.id, "channel:operators"),
    }
    direct = {NotificationKind.REQUEST_RESULT} if isinstance(to, SessionState) else set()
    return {(str(kind), *where[kind]) for kind in ANNOUNCES[type(to)].get(to, ()) if kind not in direct}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_claim_ends_with_a_move_and_what_is_over_is_not_due(shared: Database) -> None:
    create_or_deadline: dict[type[State], set[str]] = {
        InstanceState: {"sending"},
        SessionState: {"queued", "provisioning", "running", "stopped"},
    }
    over: dict[type[State], set[str]] = {
        RequestState: {"approved", "rejected", "cancelled", "expired", "unavailable"},
        SessionState: {"terminating", "terminated", "failed"},
        InstanceState: {"gone", "rejected", "tombstone"},
    }
    for now, to in [(now, to) for machine in over for now, after in LEGAL[machine].items() for to in after]:
        until = LATER + timedelta(minutes=1)
        async with shared.write() as tx:
            row = await born(tx, now)
            await amend(tx, MODELS[type(now)], row.id, claim_token="t", claim_until=until, due_at=until)
        async with shared.write() as tx:
            moved = await move(tx, MODELS[type(now)], row.id, to, at=LATER, actor=rows.BEN, proof=proof_for(to))
        held = str(to) in create_or_deadline.get(type(to), ())
        assert (moved.claim_token, moved.claim_until) == (("t", until) if held else (None, None)), (now, to)
        assert moved.due_at == (None if str(to) in over[type(to)] else until), (now, to)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("now", "to"), PAIRS, ids=[f"{type(a).__name__[:-5]}:{a}-{b}" for a, b in PAIRS])
async def test_every_pair(shared: Database, now: State, to: State) -> None:
    model = MODELS[type(now)]
    async with shared.write() as tx:
        row = await born(tx, now)
    verdict = judged(now, to)
    refusal = {"legal": None, "stale": StaleMove, "illegal": IllegalMove}[verdict]
    if refusal is None:
        async with shared.write() as tx:
            moved = await move(tx, model, row.id, to, at=LATER, actor=rows.BEN, reason="because", proof=proof_for(to))
        assert (moved.state, moved.version) == (to, 2)
    else:
        with pytest.raises(refusal) as caught:
            async with shared.write() as tx:
                await move(tx, model, row.id, to, at=LATER, actor=rows.BEN, proof=proof_for(to))
        assert (caught.value.row_id, caught.value.now, caught.value.to) == (row.id, str(now), str(to))

    async with shared.read() as tx:
        kept = await tx.get_one(model, row.id)
    assert (kept.state, kept.version) == ((to, 2) if refusal is None else (now, 1))
    events = await events_of(shared, row.id)
    told = await notifications_about(shared, row)
    if refusal is not None:
        assert events == []
        assert told == set()
        return
    (event,) = events
    # Events are never rewritten, so the kinds of an orphan's keep the word that old ones have.
    noun = "stray" if model is Orphan else model.__tablename__.removesuffix("s")
    assert (event.kind, event.before, event.after) == (f"{noun}.moved", str(now), str(to))
    assert (event.actor, event.reason, event.at) == (rows.BEN.ref, "because", LATER)
    assert bool(event.data) is (to is InstanceState.GONE)
    assert told == wanted_notifications(row, to)


@pytest.mark.parametrize(
    ("now", "to", "verdict"),
    [
        (InstanceState.READY, InstanceState.LIVE, "illegal"),
        (InstanceState.READY, InstanceState.UNKNOWN, "illegal"),
        (InstanceState.LIVE, InstanceState.SENDING, "stale"),
        (InstanceState.SENDING, InstanceState.GONE, "illegal"),
        (InstanceState.TOMBSTONE, InstanceState.LIVE, "stale"),
        (RequestState.QUOTING, RequestState.APPROVED, "stale"),
        (RequestState.APPROVED, RequestState.APPROVED, "stale"),
        (RequestState.REJECTED, RequestState.APPROVED, "stale"),
        (SessionState.QUEUED, SessionState.TERMINATED, "legal"),
        (SessionState.STOPPED, SessionState.FAILED, "stale"),
        (GrantState.USED, GrantState.VOID, "stale"),
        (GrantState.OPEN, GrantState.OPEN, "illegal"),
    ],
)
def test_the_yardstick_itself(now: State, to: State, verdict: str) -> None:
    assert judged(now, to) == verdict


async def test_ten_movers_one_winner(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.request(tx, RequestState.PENDING)
    targets = [RequestState.APPROVED, RequestState.REJECTED, RequestState.CANCELLED, RequestState.EXPIRED]

    async def try_to(number: int) -> RequestState | None:
        to = targets[number % len(targets)]
        try:
            async with db.write() as tx:
                moved = await move(tx, Request, row.id, to, at=LATER, actor=Actor(ActorKind.OPERATOR, f"op{number}"))
        except StaleMove:
            return None
        return moved.state

    ends = [end for end in await asyncio.gather(*(try_to(n) for n in range(10))) if end]
    assert len(ends) == 1
    async with db.read() as tx:
        kept = await tx.get_one(Request, row.id)
    assert (kept.state, kept.version) == (ends[0], 2)
    assert len(await events_of(db, row.id)) == 1


async def test_a_move_that_is_rolled_back_leaves_nothing(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.request(tx, RequestState.PENDING)

    async def move_and_fail() -> None:
        async with db.write() as tx:
            await move(tx, Request, row.id, RequestState.APPROVED, at=LATER, actor=SYSTEM)
            raise OSError("the rest of the transaction failed")

    with pytest.raises(OSError, match="the rest"):
        await move_and_fail()
    async with db.read() as tx:
        assert (await tx.get_one(Request, row.id)).state is RequestState.PENDING
    assert await events_of(db, row.id) == []
    assert await notifications_about(db, row) == set()


async def test_guards_narrow_a_move(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.LIVE)
    (held,) = await claim(db, Instance, now=LATER, states={InstanceState.LIVE}, limit=1, lease=timedelta(seconds=30))

    async def end(**guards: Any) -> Instance:
        async with db.write() as tx:
            return await move(tx, Instance, row.id, InstanceState.TERMINATING, at=LATER, actor=SYSTEM, **guards)

    for guards in ({"claim": "another"}, {"version": 7}, {"only_from": frozenset({InstanceState.STOPPED})}):
        with pytest.raises(StaleMove, match="is live and did not become terminating"):
            await end(**guards)
    moved = await end(
        claim=held.token,
        version=1,
        only_from=frozenset({InstanceState.LIVE, InstanceState.GONE}),
        values={"terminate_asked_at": LATER, "price_usd_h": Decimal("0.5")},
    )
    assert (moved.state, moved.version) == (InstanceState.TERMINATING, 2)
    assert (moved.terminate_asked_at, moved.price_usd_h) == (LATER, Decimal("0.5"))


async def test_a_row_in_hand_shows_the_move(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.request(tx, RequestState.PENDING)
        moved = await move(tx, Request, row.id, RequestState.APPROVED, at=LATER, actor=SYSTEM)
        assert moved is row
        assert (row.state, row.version) == (RequestState.APPROVED, 2)


async def test_gone_needs_a_proof(db: Database) -> None:
    async with db.write() as tx:
        row = await rows.instance(tx, InstanceState.TERMINATING)
    with pytest.raises(ProofMissing, match="ProofOfEnd"):
        async with db.write() as tx:
            await move(tx, Instance, row.id, InstanceState.GONE, at=LATER, actor=SYSTEM)
    async with db.write() as tx:
        await move(tx, Instance, row.id, InstanceState.GONE, at=LATER, actor=SYSTEM, proof=PROOF)
    (event,) = await events_of(db, row.id)
    assert event.data == {"proof": "absence", "evidence": [t.isoformat() for t in PROOF.evidence]}


async def test_an_unknown_row_is_said(db: Database) -> None:
    with pytest.raises(LookupError, match="there is no requests row req_none"):
        async with db.write() as tx:
            await move(tx, Request, "req_none", RequestState.APPROVED, at=LATER, actor=SYSTEM)


async def test_misuse_is_a_type_error(db: Database) -> None:
    async with db.write() as tx:
        stray = await rows.stray(tx)
        session = await rows.session(tx, SessionState.RUNNING)
    with pytest.raises(TypeError, match="another machine"):
        async with db.write() as tx:
            await move(tx, Session, session.id, InstanceState.TERMINATING, at=LATER, actor=SYSTEM)
    with pytest.raises(TypeError, match="are not claimed"):
        async with db.write() as tx:
            await move(tx, Orphan, stray.id, OrphanState.CONDEMNED, at=LATER, actor=SYSTEM, claim="token")
    for column in ("id", "state", "version"):
        with pytest.raises(TypeError, match="sets id, state and version itself"):
            async with db.write() as tx:
                await move(
                    tx, Orphan, stray.id, OrphanState.CONDEMNED, at=LATER, actor=SYSTEM, values={column: "anything"}
                )


@pytest.mark.parametrize("to", [InstanceState.LIVE, RequestState.APPROVED, SessionState.RUNNING, GrantState.USED])
async def test_assigning_a_state_is_refused(sqlite_db: Database, to: State) -> None:
    starts: dict[type[State], State] = {
        InstanceState: InstanceState.UNKNOWN,
        RequestState: RequestState.PENDING,
        SessionState: SessionState.QUEUED,
        GrantState: GrantState.OPEN,
    }
    async with sqlite_db.write() as tx:
        row = await born(tx, starts[type(to)])
        with pytest.raises(StateAssigned, match=r"only by ledger\.core\.moves\.move"):
            row.state = to
    with pytest.raises(StateAssigned):
        row.state = to  # Detached rows too.


async def test_the_direct_messages_name_an_owner_outside_slack_and_who_shares(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED, requester=ATLAS.ref)
        for person in ("slack:T1/UBEN", "operator:eve"):
            tx.add(Share(request_id=request.id, person=person, shared_by=ATLAS.ref, created_at=LATER))
        row = await rows.session(tx, SessionState.PROVISIONING, of=request)
        await move(tx, Session, row.id, SessionState.RUNNING, at=LATER, actor=SYSTEM)
    found = {(kind, to) for kind, _, to in await notifications_about(db, row)}
    assert found == {
        ("request.message", rows.CHANNEL),
        ("request.result", rows.CHANNEL),
        *(("session.ready", to) for to in (ATLAS.ref, "UBEN", "operator:eve")),
    }


async def test_an_override_is_announced_on_the_card_of_its_request_alone(db: Database) -> None:
    async with db.write() as tx:
        parent = await rows.request(tx, RequestState.PENDING)
        kind = RequestKind.OVERRIDE_12H
        override = await rows.request(tx, RequestState.PENDING, kind=kind, parent_id=parent.id)
        await move(tx, Request, override.id, RequestState.REJECTED, at=LATER, actor=SYSTEM)
    assert await notifications_about(db, override) == set()
    assert await notifications_about(db, parent) == {("request.message", parent.id, rows.CHANNEL)}


async def test_announcing_again_raises_the_version_and_each_outcome_is_a_reply_of_its_own(db: Database) -> None:
    async with db.write() as tx:
        request = await rows.request(tx, RequestState.APPROVED, requester=Actor(ActorKind.CONSUMER, "K1").ref)
        row = await rows.session(tx, SessionState.QUEUED, of=request)
        for to in (SessionState.PROVISIONING, SessionState.RUNNING, SessionState.TERMINATING, SessionState.TERMINATED):
            await move(tx, Session, row.id, to, at=LATER, actor=SYSTEM)
    async with db.read() as tx:
        shown = {(n.kind, n.subject): n for n in await tx.scalars(select(Notification))}
    assert shown[NotificationKind.REQUEST_MESSAGE, row.request_id].version == 4
    assert {subject for kind, subject in shown if kind is NotificationKind.REQUEST_RESULT} == {
        f"{row.request_id}/running",
        f"{row.request_id}/terminated",
    }
    assert all(n.state is NotificationState.PENDING and n.due_at == LATER for n in shown.values())
    assert [e.after for e in await events_of(db, row.id)] == ["provisioning", "running", "terminating", "terminated"]


@pytest.mark.parametrize(("outcome", "sentence"), [(None, "Too expensive."), ("Ask again.", "Ask again."), ("", "")])
async def test_a_decision_is_stored_with_who_made_it_and_why(db: Database, outcome: str | None, sentence: str) -> None:
    async with db.write() as tx:
        request = await rows.request(tx)
    async with db.write() as tx:
        decided = await decide(
            tx, request.id, RequestState.REJECTED, LATER, rows.BEN, "Too expensive.",
            outcome=outcome, noted={"by": "card"}, values={"chosen_option_id": "opt_1"},
        )  # fmt: skip
        assert (decided.id, decided.state, decided.outcome) == (request.id, RequestState.REJECTED, sentence)
        assert (decided.decided_at, decided.decided_by) == (LATER, rows.BEN.ref)
        assert decided.chosen_option_id == "opt_1"
    (event,) = await events_of(db, request.id)
    assert (event.actor, event.reason, event.after) == (rows.BEN.ref, "Too expensive.", "rejected")
    assert event.data == {"by": "card"}
    pending = frozenset({RequestState.PENDING})
    with pytest.raises(StaleMove):
        async with db.write() as tx:
            await decide(tx, request.id, RequestState.APPROVED, LATER, rows.ADA, "Fine.", only_from=pending)
