"""The rate of requests: how many one person or program makes in an hour, whatever became of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from sqlalchemy import text

from bot.services.requests import again, submit
from bot.services.requests.again import Again
from bot.services.runtime.commands import Provision
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import NotificationKind, RequestState
from ledger.models import Consumer
from ledger.queries.people.request_rate import latest_requests
from tests.services.relocation.run import running
from tests.services.requests.test_submit import provision
from tests.support.world import ALICE, BOB, CHANNEL, World

ATLAS = Actor(ActorKind.CONSUMER, "atlas")
HELPER = Actor(ActorKind.AGENT, "helper")
PAIRS = 125


def sent(key: str, actor: Actor = ALICE, sent_by: Actor | None = None) -> Provision:
    return replace(provision(key), actor=actor, sent_by=sent_by)


async def codes(w: World, *asks: Provision) -> list[str]:
    return [str((await submit.submit(w.ctx, one)).code) for one in asks]


async def test_pairs_of_request_and_cancel_are_refused_and_leave_a_handful_of_messages(w: World) -> None:
    replies = []
    for number in range(PAIRS):
        reply = await w.ask()
        replies.append(reply)
        w.clock.advance(0.06)
        if number % 8 == 0:
            await w.tick()
        if reply.ok:
            await w.cancel(str(reply.data["request_id"]))
        w.clock.advance(0.06)
    await w.settle()
    assert Counter(reply.code for reply in replies) == {"submitted": 60, "too_many_requests": PAIRS - 60}
    sentence = "You made 60 requests within an hour, and the policy allows no more (max_requests_per_hour)."
    assert {reply.sentence for reply in replies if not reply.ok} == {
        f"{sentence} The next one is possible in 1 hour."
    }  # The whole burst took seconds.
    kinds = Counter(row.kind for row in (await w.books()).notifications)
    assert kinds[NotificationKind.REQUEST_MESSAGE] == 1
    assert sum(kinds.values()) <= 12


@pytest.mark.both_databases
async def test_the_rate_holds_however_many_ask_at_once_at_two_replicas(w: World) -> None:
    w.tune(max_requests_per_hour=5, max_open_requests_per_user=100)
    other = w.replica()
    asks = [submit.submit(one.ctx, sent(f"{number}")) for number, one in enumerate((w, other) * 6)]
    replies = await asyncio.gather(*asks)
    await other.ctx.db.close()
    assert Counter(reply.code for reply in replies) == {"submitted": 5, "too_many_requests": 7}
    assert len((await w.books()).requests) == 5


@pytest.mark.both_databases
async def test_whatever_became_of_a_request_it_counts_for_an_hour(w: World) -> None:
    w.tune(max_requests_per_hour=4, request_ttl_s=600)
    first, second, third = [str((await w.ask()).data["request_id"]) for _ in range(3)]
    await w.settle()
    await w.cancel(first)
    await w.decide(second, BOB, "reject", reason="not now")
    await w.run(700, 100)
    assert [(await w.view(one)).request.state for one in (first, second, third)] == [
        RequestState.CANCELLED, RequestState.REJECTED, RequestState.EXPIRED
    ]  # fmt: skip
    assert (await w.ask()).ok
    refused = await w.ask()
    assert refused.code == "too_many_requests"
    wait_s = int(refused.data["retry_after_s"])
    assert wait_s == 2900
    w.clock.advance(wait_s - 2)
    assert (await w.ask()).code == "too_many_requests"
    w.clock.advance(2)
    assert (await w.ask()).ok


@pytest.mark.both_databases
async def test_the_same_message_counts_once_and_is_answered_at_the_limit(w: World) -> None:
    w.tune(max_requests_per_hour=2)
    assert await codes(w, *[sent("k1")] * 6) == ["submitted"] * 6
    both = await asyncio.gather(*(submit.submit(w.ctx, sent("k2")) for _ in range(4)))
    assert {reply.code for reply in both} == {"submitted"}
    assert await codes(w, sent("k1"), sent("k2"), sent("k3")) == ["submitted", "submitted", "too_many_requests"]


async def test_linked_names_are_one_person_and_others_are_not(w: World) -> None:
    alice = Actor(ActorKind.OPERATOR, "alice")
    w.tune(max_requests_per_hour=2, same_person=((ALICE.id, alice.ref),))
    assert await codes(w, sent("k1"), sent("k2", alice)) == ["submitted"] * 2
    assert await codes(w, sent("k3"), sent("k4", alice)) == ["too_many_requests"] * 2
    assert await codes(w, sent("k5", BOB), sent("k6", ATLAS)) == ["submitted"] * 2


async def test_what_a_person_requests_for_programs_counts_for_that_person_too(w: World) -> None:
    w.tune(max_requests_per_hour=2)
    programs = [Actor(ActorKind.CONSUMER, name) for name in ("one", "two", "three")]
    asks = [sent(f"k{number}", program, ALICE) for number, program in enumerate(programs)]
    assert await codes(w, *asks) == ["submitted", "submitted", "too_many_requests"]
    assert await codes(w, sent("k4")) == ["too_many_requests"]
    # Its own key has the program's own number, of which its owner used one.
    assert await codes(w, sent("k5", programs[0]), sent("k6", programs[0])) == ["submitted", "too_many_requests"]


async def test_an_agents_requests_count_for_its_person_and_a_programs_for_itself(w: World) -> None:
    w.tune(max_requests_per_hour=2)
    async with w.ctx.db.write() as tx:
        for one in (HELPER, ATLAS):
            tx.add(Consumer(actor=one.ref, owner=ALICE.ref, created_at=w.clock.now(), created_by=ALICE.ref))
    assert await codes(w, sent("k1", ATLAS), sent("k2", ATLAS), sent("k3", ATLAS)) == [
        "submitted", "submitted", "too_many_requests"
    ]  # fmt: skip
    assert await codes(w, sent("k4", HELPER), sent("k5"), sent("k6", HELPER), sent("k7")) == [
        "submitted", "submitted", "too_many_requests", "too_many_requests"
    ]  # fmt: skip


async def test_again_counts_like_the_request_that_it_is(w: World) -> None:
    w.tune(max_requests_per_hour=2)
    assert (await w.ask()).ok
    assert (await again.again(w.ctx, Again("a1", ALICE, CHANNEL))).ok
    assert (await again.again(w.ctx, Again("a2", ALICE, CHANNEL))).code == "too_many_requests"


async def test_more_time_is_counted_apart_so_that_requests_never_keep_a_session_from_it(w: World) -> None:
    w.tune(max_requests_per_hour=2)
    request_id = await w.running(hours=Decimal(6))
    assert (await w.ask()).ok
    assert (await w.ask()).code == "too_many_requests"
    for _ in range(2):
        asked = await w.more(request_id)
        assert asked.code == "extension_requested"
        assert (await w.more(request_id)).code == "already_requested"
        await w.cancel(str(asked.data["request_id"]))
    refused = await w.more(request_id)
    assert (refused.code, refused.data["retry_after_s"]) == ("too_many_requests", 3600)
    assert refused.sentence.startswith("You asked for more time for this session 2 times within an hour")
    # Somebody else who may act for the session still can.
    assert (await w.more(request_id, actor=BOB)).code == "extension_requested"


async def test_each_session_may_ask_for_more_time_whatever_the_others_asked(w: World) -> None:
    w.tune(max_requests_per_hour=2)
    sessions = [await w.running(hours=Decimal(6)) for _ in range(2)]
    w.clock.advance(3600)
    sessions.append(await w.running(hours=Decimal(6)))
    for request_id in sessions:
        for _ in range(2):
            asked = await w.more(request_id)
            assert asked.code == "extension_requested"
            await w.cancel(str(asked.data["request_id"]))
        assert (await w.more(request_id)).code == "too_many_requests"


async def test_a_run_is_moved_whatever_its_owner_requested_before(w: World) -> None:
    w.tune(max_requests_per_hour=2)
    async with running(w, hours=6) as run:
        assert (await w.ask()).ok
        assert (await w.ask()).code == "too_many_requests"
        assert (await w.more(run.request_id)).code == "extension_requested"
        for number in range(2):
            moved = await run.ask("vast", f"move-{number}")
            assert moved.ok, moved
            assert (await run.ask("vast", f"twice-{number}")).code == "already_requested"
            run.target_id = str(moved.data["request_id"])
            await w.cancel(run.target_id)
            await run.over()
        refused = await run.ask("vast", "once more")
        assert refused.sentence.startswith(
            "You asked for a move of this session 2 times within an hour, and the policy"
        )


async def test_the_latest_requests_are_found_by_one_index(sqlite_db: Database) -> None:
    seen: list[str] = []
    async with sqlite_db.read() as tx:
        plan = (
            "EXPLAIN QUERY PLAN SELECT DISTINCT request_id, at FROM counted_requests WHERE person IN ('a', 'b') "
            "AND counted_as = '' AND at > '2026' ORDER BY at DESC, request_id LIMIT 5"
        )
        seen = [str(row[-1]) for row in await tx.execute(text(plan))]
        assert await latest_requests(tx, ("a", "b"), datetime(2026, 1, 1, tzinfo=UTC), 5, "") == []
    assert any("ix_counted_requests_person_counted_as_at (person=? AND counted_as=? AND at>?)" in one for one in seen)
