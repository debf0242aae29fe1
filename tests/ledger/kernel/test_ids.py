"""Ids and tokens come from one source, which a simulation replaces by a seeded one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from random import Random

from ledger.kernel.ids import Ids, bare_id, hex_token, ids_from, new_id, url_token

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)


def drawn() -> list[str]:
    return [new_id("req", AT), new_id("req", AT), hex_token(), hex_token(4), url_token()]


def test_the_same_seed_gives_the_same_ids_and_tokens() -> None:
    found = []
    for seed in (1, 1, 2):
        with ids_from(Ids(Random(seed))):
            found.append(drawn())
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_without_a_seed_nothing_repeats() -> None:
    both = [*drawn(), *drawn()]
    assert len(set(both)) == len(both)


def test_ids_of_one_millisecond_are_in_the_order_in_which_they_were_made() -> None:
    ids = [bare_id(new_id("evt", AT)) for _ in range(50)]
    assert ids == sorted(ids)


def test_tokens_have_the_length_that_is_asked_for() -> None:
    assert [len(hex_token()), len(hex_token(4)), len(url_token())] == [32, 8, 24]


async def test_tasks_take_their_ids_from_the_source_of_who_started_them() -> None:
    async def draw() -> list[str]:
        return drawn()

    with ids_from(Ids(Random(1))):
        one = await asyncio.create_task(draw())
    with ids_from(Ids(Random(1))):
        assert one == drawn()
    assert one != drawn()
