"""The person behind a program or an operator hears of their sessions in a direct message."""

from __future__ import annotations

import pytest

from bot.services.access import api_keys
from bot.services.access.api_keys import NewKey
from bot.services.people import direct_messages
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import NotificationKind
from ledger.models import Session
from tests.support.world import ALICE, CHANNEL, World

ADA, ATLAS, ALICE_TOO = (
    Actor(ActorKind.OPERATOR, "ada"),
    Actor(ActorKind.CONSUMER, "atlas"),
    Actor(ActorKind.OPERATOR, "al"),
)


async def key(w: World, name: str, owner: str) -> None:
    made = await api_keys.create(w.ctx.db, w.ctx.labels, NewKey(name, owner), ADA, w.clock.now())
    assert made.ok, made


async def test_who_answers_for_what(w: World) -> None:
    w.tune(same_person=((ALICE.id, ALICE_TOO.ref),))
    for name, owner in (("atlas", ALICE.ref), ("hermes", ALICE_TOO.ref), ("lone", ADA.ref)):
        await key(w, name, owner)
    async with w.ctx.db.read() as tx:
        found = {
            ref: await direct_messages.slack_user(tx, w.ctx.policy, ref)
            for ref in (ALICE.ref, ALICE_TOO.ref, "consumer:atlas", "consumer:hermes")
        }
        assert set(found.values()) == {ALICE.id}
        for ref in (ADA.ref, "consumer:lone", "consumer:unknown"):
            assert await direct_messages.slack_user(tx, w.ctx.policy, ref) is None


@pytest.mark.parametrize(
    ("owner", "to"),
    [(ALICE, ALICE.id), (ALICE_TOO, ALICE.id), (ATLAS, ALICE.id), (ADA, CHANNEL)],
    ids=str,
)
async def test_the_person_behind_an_owner_is_warned_in_private(w: World, owner: Actor, to: str) -> None:
    w.tune(same_person=((ALICE.id, ALICE_TOO.ref),))
    await key(w, "atlas", ALICE.ref)
    request_id = await w.running(owner, candidates=("vast",))
    await w.run(3900, 600)
    warned = {where for kind, _, where, _ in w.board.shown if kind == NotificationKind.SESSION_ENDING}
    assert warned == {to}
    session = (await w.view(request_id)).session
    assert session is not None
    async with w.ctx.db.write() as tx:
        row = await tx.get_one(Session, session.id)
        await direct_messages.notify(tx, w.ctx.policy, w.clock.now(), row.owner, subject="s/1", text="Paused.")
    await w.settle()
    replies = [where for kind, subject, where, _ in w.board.shown if (kind, subject) == ("reply", "s/1")]
    assert replies == ([to] if to == ALICE.id else [])
    await w.end(request_id, owner)
    await w.run(120, 30)
