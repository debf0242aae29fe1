"""API keys: shown once, stored as a keyed hash, two at a time, over at once when revoked."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from bot.rules.access.scopes import PLAIN, Scope
from bot.rules.values.labels import LabelKey
from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey, Principal, authenticate
from bot.services.runtime.commands import Reply
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.queries.access import api_key
from ledger.queries.audit import read_books
from tests.support.clock import SteppedClock

ADA = Actor(ActorKind.OPERATOR, "ada")
LABELS = LabelKey("test", b"a label key for tests only")


async def make(db: Database, clock: SteppedClock, name: str = "atlas", owner: str = "UADA", **more: Any) -> Reply:
    return await api_keys.create(db, LABELS, NewKey(name, owner, **more), ADA, clock.now())


async def who(db: Database, clock: SteppedClock, token: str, labels: LabelKey = LABELS) -> Principal | None:
    return await authenticate(db, labels, token, clock.now())


async def test_a_key_speaks_for_its_holder_and_its_secret_is_stored_nowhere(db: Database, clock: SteppedClock) -> None:
    made = await make(db, clock)
    token, key_id = str(made.data["token"]), str(made.data["key_id"])
    assert token.startswith(f"gpuk_{key_id}_")
    assert token not in made.sentence
    found = await who(db, clock, token)
    assert found == Principal(
        key_id, Actor(ActorKind.CONSUMER, "atlas"), Actor(ActorKind.SLACK, "UADA"), frozenset(PLAIN)
    )
    async with db.read() as tx:
        stored = await api_key(tx, key_id)
    assert stored is not None
    secret = token.rpartition(f"{key_id}_")[2]
    assert secret not in str(vars(stored[0]))
    assert len(stored[0].secret_hash) == 64
    (event,) = (await read_books(db)).events
    assert (event.kind, event.actor, event.subject) == ("api_key.created", "operator:ada", "consumer:atlas")
    assert secret not in event.reason
    # Another deployment, or somebody who only has the database, cannot use or check it.
    assert await who(db, clock, token, LabelKey("test", b"another key of this deployment")) is None


async def test_what_opens_nothing(db: Database, clock: SteppedClock) -> None:
    token = str((await make(db, clock)).data["token"])
    wrong = f"{token[:-1]}{'a' if token[-1] != 'a' else 'b'}"
    for text in ("", "gpuk_", wrong, token.upper(), f" {token}", token.replace("gpuk_", "gpuk-"), f"{token}x"):
        assert await who(db, clock, text) is None
    assert await who(db, clock, f"gpuk_000000000000_{token[-43:]}") is None


async def test_two_keys_for_a_rotation_and_no_third(db: Database, clock: SteppedClock) -> None:
    first = (await make(db, clock)).data
    clock.advance(1)
    second = (await make(db, clock)).data
    third = await make(db, clock)
    assert (third.code, str(first["key_id"]) in third.sentence) == ("too_many_keys", True)
    assert (await make(db, clock, "hermes")).ok
    assert (await api_keys.revoke(db, str(first["key_id"]), ADA, clock.now())).ok
    assert await who(db, clock, str(first["token"])) is None
    assert await who(db, clock, str(second["token"])) is not None
    assert (await make(db, clock)).ok
    again = await api_keys.revoke(db, str(first["key_id"]), ADA, clock.now())
    assert (again.ok, again.code) == (True, "key_revoked")
    assert (await api_keys.revoke(db, "000000000000", ADA, clock.now())).code == "unknown_key"
    kinds = [event.kind for event in (await read_books(db)).events]
    assert kinds.count("api_key.revoked") == 1


@pytest.mark.both_databases
async def test_five_who_make_a_key_at_once_make_two(db: Database, clock: SteppedClock) -> None:
    replies = await asyncio.gather(*(make(db, clock) for _ in range(5)))
    assert sorted(reply.code for reply in replies) == ["key_created"] * 2 + ["too_many_keys"] * 3


async def test_a_key_ends_by_itself_and_its_use_is_noted_to_the_minute(db: Database, clock: SteppedClock) -> None:
    token = str((await make(db, clock, days=1)).data["token"])
    (view,) = await api_keys.listing(db, clock.now())
    assert (view.state, view.last_used_at, view.owner) == ("active", None, "slack:UADA")
    used_at = clock.now()
    for _ in range(3):
        assert await who(db, clock, token) is not None
        clock.advance(20)
    (view,) = await api_keys.listing(db, clock.now())
    assert view.last_used_at == used_at
    assert await who(db, clock, token) is not None
    (view,) = await api_keys.listing(db, clock.now())
    assert view.last_used_at == used_at + timedelta(minutes=1)
    clock.advance(86_400)
    assert await who(db, clock, token) is None
    (view,) = await api_keys.listing(db, clock.now())
    assert view.state == "expired"
    assert (await make(db, clock)).ok


async def test_a_holder_keeps_its_owner_and_what_is_refused_makes_nothing(db: Database, clock: SteppedClock) -> None:
    assert (await make(db, clock)).ok
    for more, code in (
        ({"owner": "UBEN"}, "other_owner"),
        ({"owner": ""}, "bad_owner"),
        ({"name": "Atlas!"}, "bad_consumer"),
        ({"scopes": ("approvals:write",)}, "scope_for_people"),
        ({"scopes": ("all",)}, "bad_scope"),
        ({"days": 0}, "bad_expiry"),
        ({"days": 400}, "bad_expiry"),
    ):
        assert (await make(db, clock, **more)).code == code
    assert len(await api_keys.listing(db, clock.now())) == 1
    person = await make(db, clock, "operator:ben", "")
    found = await who(db, clock, str(person.data["token"]))
    assert found is not None
    assert found.actor == found.owner == Actor(ActorKind.OPERATOR, "ben")
    assert Scope.APPROVALS_WRITE in found.scopes
