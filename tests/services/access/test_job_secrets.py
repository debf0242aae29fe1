"""Secrets of jobs: kept encrypted, listed by name, and each one its owner's under all of their names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.fernet import InvalidToken
from sqlalchemy import select, update

from bot.services.access import job_secrets
from bot.services.access.job_secrets import StoreSecret
from bot.services.runtime.commands import Reply
from ledger.engine.db import Database
from ledger.kernel.actor import Actor, ActorKind
from ledger.models import Event, Secret
from tests.support.world import ALICE, BOB, World

VALUE = "hf_canary'\"$`\nsecond line"
ADA = Actor(ActorKind.OPERATOR, "ada")


async def store(w: World, name: str = "HF_TOKEN", value: str = VALUE, actor: Actor = ALICE) -> Reply:
    w.clock.advance(1)
    return await job_secrets.store(w.ctx, StoreSecret(actor, name, value))


async def names(w: World, actor: Actor = ALICE) -> list[str]:
    return [one["name"] for one in (await job_secrets.show(w.ctx, actor)).data["secrets"]]


async def opened(w: World, actor: Actor = ALICE, *wanted: str) -> dict[str, str]:
    async with w.ctx.db.read() as tx:
        asked = {"one": (actor, wanted or ("HF_TOKEN",))}
        return (await job_secrets.opened(tx, w.ctx.policy, w.ctx.labels, asked))["one"]


async def rows(db: Database) -> list[Secret]:
    async with db.read() as tx:
        return list(await tx.scalars(select(Secret).order_by(Secret.person, Secret.name)))


@pytest.mark.both_databases
async def test_a_secret_is_stored_replaced_listed_and_deleted(w: World) -> None:
    assert (await job_secrets.show(w.ctx, ALICE)).sentence == (
        "You have no secrets here. Store one: `gpu-shopper secret set HF_TOKEN`."
    )
    first = await store(w)
    assert (first.code, first.sentence) == (
        "secret_stored", "HF_TOKEN is stored. Name it in a request, as in secrets=HF_TOKEN."
    )  # fmt: skip
    assert await opened(w) == {"HF_TOKEN": VALUE}
    assert "has a new value" in (await store(w, value="other")).sentence
    assert await opened(w) == {"HF_TOKEN": "other"}
    await store(w, "A")
    (a, hf) = (await job_secrets.show(w.ctx, ALICE)).data["secrets"]
    assert (a["name"], hf["name"], hf["updated_at"] > hf["created_at"]) == ("A", "HF_TOKEN", True)
    assert await names(w, BOB) == []
    assert (await job_secrets.delete(w.ctx, BOB, "HF_TOKEN")).code == "no_secret"
    gone = await job_secrets.delete(w.ctx, ALICE, "HF_TOKEN")
    assert (gone.code, gone.ok) == ("secret_deleted", True)
    assert (await job_secrets.delete(w.ctx, ALICE, "HF_TOKEN")).code == "no_secret"
    assert (await names(w), await opened(w)) == (["A"], {})


async def test_what_can_be_no_variable_is_refused_and_not_repeated(w: World) -> None:
    for name, value in (("PATH", VALUE), ("hf", VALUE), ("A", ""), ("A", "hf_canary" * 1000)):
        refused = await store(w, name, value)
        assert (refused.ok, refused.code, "canary" in refused.sentence) == (False, "bad_secret", False)
    assert (await job_secrets.delete(w.ctx, ALICE, "x;y")).code == "bad_secret"
    assert "canary" not in repr(StoreSecret(ALICE, "A", VALUE))


async def test_the_ledger_has_no_value_and_the_journal_says_who_stored_which_name(w: World) -> None:
    await store(w)
    await job_secrets.delete(w.ctx, ALICE, "HF_TOKEN")
    await store(w)
    async with w.ctx.db.read() as tx:
        events = list(await tx.scalars(select(Event).order_by(Event.at, Event.id)))
    noted = [(str(one.kind), one.actor, one.reason) for one in events]
    stored, deleted = ("secret.stored", ALICE.ref, "HF_TOKEN"), ("secret.deleted", ALICE.ref, "HF_TOKEN")
    assert noted == [stored, deleted, stored]
    (row,) = await rows(w.ctx.db)
    assert "canary" not in f"{row.ciphertext} {[vars(one) for one in events]}"


async def test_a_row_that_is_given_to_somebody_else_can_not_be_read(w: World) -> None:
    await store(w)
    await store(w, "B", "b")
    async with w.ctx.db.write() as tx:
        await tx.execute(update(Secret).where(Secret.name == "HF_TOKEN").values(person=BOB.ref))
        await tx.execute(update(Secret).where(Secret.name == "B").values(name="C"))
    assert await opened(w, BOB) == {}
    assert await opened(w, ALICE, "C", "B") == {}
    (row,) = [one for one in await rows(w.ctx.db) if one.person == BOB.ref]
    try:
        job_secrets.box(w.ctx.labels, BOB.ref, "HF_TOKEN").decrypt(row.ciphertext)
    except InvalidToken:
        return
    raise AssertionError("somebody else's cipher opened it")


async def test_a_person_has_one_set_of_secrets_under_all_of_their_names(w: World) -> None:
    ctx = replace(w.ctx, policy=replace(w.ctx.policy, same_person=(("operator:ada", "UALICE"),)))
    w.ctx = ctx
    await store(w, value="slack")
    assert await opened(w, ADA) == {"HF_TOKEN": "slack"}
    await store(w, value="terminal", actor=ADA)
    assert (await opened(w), await names(w), len(await rows(w.ctx.db))) == ({"HF_TOKEN": "terminal"}, ["HF_TOKEN"], 1)
    assert (await job_secrets.delete(w.ctx, ALICE, "HF_TOKEN")).ok
    assert await names(w, ADA) == []


async def test_a_person_stores_at_most_a_hundred(w: World) -> None:
    for number in range(100):
        assert (await store(w, f"S{number}", "x")).ok
    assert (await store(w, "S100", "x")).code == "too_many_secrets"
    assert (await store(w, "S99", "y")).ok


async def test_values_of_several_people_are_read_at_once_and_not_mixed(w: World) -> None:
    await store(w, value="a")
    await store(w, value="b", actor=BOB)
    wanted = {"1": (ALICE, ("HF_TOKEN", "MISSING")), "2": (BOB, ("HF_TOKEN",)), "3": (ALICE, ())}
    async with w.ctx.db.read() as tx:
        found = await job_secrets.opened(tx, w.ctx.policy, w.ctx.labels, wanted)
    assert found == {"1": {"HF_TOKEN": "a"}, "2": {"HF_TOKEN": "b"}, "3": {}}
