"""Whose rows are whose, API keys, and answers that a retry gets."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import RequestState, SessionState
from ledger.models import ApiKey, Consumer, Mark, Share
from ledger.queries.access import (
    Whose,
    active_keys,
    answering_for,
    api_key,
    api_keys,
    consumer_of,
    consumers_owned,
    first_answer,
    forget_answers,
    keep_answer,
    keep_name,
    key_facts,
    lock_consumer,
    names_by_user,
    shared_with,
    touch_key,
)
from ledger.queries.views import request_view, session_views, sessions_page
from tests.support import rows
from tests.support.clock import START
from tests.support.databases import somebody_waits

ROOT = "operator:root"
LATER = START + timedelta(hours=1)


def key(name: str, actor: str, minute: int = 0, **values: object) -> ApiKey:
    made = {"created_at": START + timedelta(minutes=minute), "created_by": ROOT, "expires_at": LATER + timedelta(1)}
    return ApiKey(id=name, actor=actor, scopes=["requests:read"], secret_hash="0" * 64, **(made | values))


async def test_a_condition_on_a_column_names_the_same_people_as_the_check_here(db: Database) -> None:
    refs = ["slack:T1/UADA", "slack:UADA", "slack:T2/UADA", "slack:T1/UADAX", "operator:UADA", "slack:T1/UBEN"]
    async with db.write() as tx:
        for n, ref in enumerate(refs):
            tx.add(Consumer(actor=f"consumer:{n}", owner=ref, created_at=START, created_by=ROOT))
    everywhere, operator = Actor(ActorKind.SLACK, "UADA"), Actor(ActorKind.OPERATOR, "UADA")
    async with db.read() as tx:
        for whose, expected in (
            (Whose.of([rows.ADA]), [0, 1]),
            (Whose.of([everywhere]), [0, 1, 2]),
            (Whose.of([rows.BEN, operator]), [4, 5]),
            (Whose(), []),
        ):
            assert [int(program.id) for program in await consumers_owned(tx, whose)] == expected
            assert [n for n, ref in enumerate(refs) if ref in whose] == expected


async def test_keys_with_their_holders(db: Database) -> None:
    async with db.write() as tx:
        made = await lock_consumer(tx, "consumer:atlas", rows.ADA.ref, ROOT, START)
        again = await lock_consumer(tx, "consumer:atlas", rows.BEN.ref, "operator:eve", LATER)
        assert (again.owner, again.created_by, again.created_at) == (made.owner, ROOT, START)
        await lock_consumer(tx, rows.BEN.ref, rows.BEN.ref, ROOT, START)
        tx.add_all(
            [
                key("newer", "consumer:atlas", 2),
                key("older", "consumer:atlas", 1),
                key("over", "consumer:atlas", 3, expires_at=LATER),
                key("gone", "consumer:atlas", 4, revoked_at=START),
                key("of_ben", rows.BEN.ref),
            ]
        )
    async with db.write() as tx:
        await touch_key(tx, "older", LATER)
    async with db.read() as tx:
        assert [one.id for one in await active_keys(tx, "consumer:atlas", LATER)] == ["older", "newer"]
        assert len(await active_keys(tx, "consumer:atlas", LATER - timedelta(seconds=1))) == 3
        found = await api_key(tx, "older")
        assert found is not None
        assert (found[0].last_used_at, found[1].owner) == (LATER, rows.ADA.ref)
        assert await api_key(tx, "none") is None
        every = await api_keys(tx)
        assert [one.id for one, _ in every] == ["older", "newer", "over", "gone", "of_ben"]
        assert [one.last_used_at for one, _ in every[1:]] == [None] * 4
        assert [(one.id, of.actor) for one, of in await api_keys(tx, Whose.of([rows.BEN]))] == [
            ("of_ben", rows.BEN.ref)
        ]
        assert await consumer_of(tx, "consumer:none") is None
        atlas = await consumer_of(tx, "consumer:atlas")
        assert atlas is not None
        assert atlas.owner == rows.ADA.ref


async def test_keys_of_one_holder_are_counted_one_after_the_other(pg_db: Database) -> None:
    """Both holders are new: the second caller waits, and then counts the key of the first one."""

    async def add() -> int:
        async with pg_db.write() as tx:
            await lock_consumer(tx, "consumer:new", rows.BEN.ref, ROOT, START)
            return len(await active_keys(tx, "consumer:new", START))

    async with pg_db.write() as tx:
        await lock_consumer(tx, "consumer:new", rows.ADA.ref, ROOT, START)
        adding = asyncio.create_task(add())
        await somebody_waits(pg_db, adding)
        tx.add(key("first", "consumer:new"))
    assert await adding == 1


async def test_the_first_answer_of_a_call_stays_until_it_is_forgotten(db: Database) -> None:
    async with db.write() as tx:
        assert (await first_answer(tx, "ada/k1", "a" * 64, START)).status is None
        await first_answer(tx, "ada/k2", "b" * 64, LATER)
    async with db.write() as tx:
        await keep_answer(tx, "ada/k1", 201, {"id": "req_1"})
        await keep_answer(tx, "ada/k1", 500, {"id": "req_2"})
    async with db.write() as tx:
        kept = await first_answer(tx, "ada/k1", "c" * 64, LATER)
        assert (kept.body_hash, kept.status, kept.answer) == ("a" * 64, 201, {"id": "req_1"})
        other = await first_answer(tx, "ada/k2", "c" * 64, LATER)
        assert (other.body_hash, other.status, other.answer) == ("b" * 64, None, None)
        assert await forget_answers(tx, LATER) == 1
        assert await forget_answers(tx, LATER) == 0
    async with db.write() as tx:
        assert (await first_answer(tx, "ada/k1", "d" * 64, LATER)).body_hash == "d" * 64
        assert (await first_answer(tx, "ada/k2", "d" * 64, LATER)).body_hash == "b" * 64


async def test_the_newest_name_of_each_person_and_no_other_mark(db: Database) -> None:
    async with db.write() as tx:
        for name in ("person", "person0", "personal/U0BOB", "replica/person/U0BOB"):
            tx.add(Mark(name=name, value="no name", at=START))
        await keep_name(tx, "U0ALICE", "alice", START)
        await keep_name(tx, "U0BOB", "bobby", START)
        await keep_name(tx, "U0BOB", "Боб 🚀", START + timedelta(days=1))
    async with db.read() as tx:
        assert await names_by_user(tx) == {"U0ALICE": "alice", "U0BOB": "Боб 🚀"}
        kept = await tx.get_one(Mark, "person/U0BOB")
        assert kept.at == START + timedelta(days=1)


async def test_people_are_named_in_order_and_see_what_is_shared_with_them(db: Database) -> None:
    async with db.write() as tx:
        mine, other = [await rows.request(tx, RequestState.APPROVED) for _ in range(2)]
        session = await rows.session(tx, SessionState.RUNNING, of=mine)
        await rows.session(tx, SessionState.RUNNING, of=other)
        for minutes, person in ((1, rows.BEN.ref), (0, "operator:eve")):
            at = START + timedelta(minutes=minutes)
            tx.add(Share(request_id=mine.id, person=person, shared_by=rows.ADA.ref, created_at=at))
    ben = Whose.of([rows.BEN])
    async with db.read() as tx:
        assert await shared_with(tx, [mine.id, other.id]) == {mine.id: ("operator:eve", rows.BEN.ref)}
        assert (await request_view(tx, mine.id)).shared_with == ("operator:eve", rows.BEN.ref)
        assert await session_views(tx, whose=ben) == []
        (view,) = await session_views(tx, whose=ben, with_shared=True)
        assert (view.session.id, view.people) == (session.id, (rows.ADA.ref, "operator:eve", rows.BEN.ref))
        (listed,) = await sessions_page(tx, whose=ben, live=True, before=None, limit=5)
        assert listed.session.id == session.id
        assert len(await session_views(tx, whose=Whose.of([rows.ADA]), with_shared=True)) == 2


async def test_who_answers_for_people_and_programs(db: Database) -> None:
    async with db.write() as tx:
        owners = {"consumer:atlas": rows.ADA.ref, "consumer:hera": rows.BEN.ref, "operator:eve": "operator:eve"}
        for actor, owner in owners.items():
            tx.add(Consumer(actor=actor, owner=owner, created_at=START, created_by=ROOT))
    async with db.read() as tx:
        assert await answering_for(tx, ["operator:eve", "consumer:atlas", "consumer:keyless"]) == {
            "consumer:atlas": rows.ADA.ref,
            "operator:eve": "operator:eve",
        }
        assert await answering_for(tx, []) == {}


async def test_what_a_call_with_a_key_is_judged_by(db: Database) -> None:
    async with db.write() as tx:
        for actor, owner in (("consumer:atlas", rows.ADA.ref), ("consumer:hera", rows.BEN.ref)):
            tx.add(Consumer(actor=actor, owner=owner, created_at=START, created_by=ROOT))
        await tx.flush()
        tx.add_all(
            [key("first", "consumer:hera"), key("second", "consumer:atlas", revoked_at=LATER, last_used_at=START)]
        )
    async with db.read() as tx:
        facts, revoked = await key_facts(tx, "first"), await key_facts(tx, "second")
        assert facts is not None
        assert revoked is not None
        assert (facts.id, facts.actor, facts.owner) == ("first", "consumer:hera", rows.BEN.ref)
        assert (facts.scopes, facts.secret_hash) == (["requests:read"], "0" * 64)
        assert (facts.expires_at, facts.revoked_at, facts.last_used_at) == (LATER + timedelta(1), None, None)
        assert (revoked.owner, revoked.revoked_at, revoked.last_used_at) == (rows.ADA.ref, LATER, START)
        assert await key_facts(tx, "third") is None
