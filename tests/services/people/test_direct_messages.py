"""The person behind a program or an operator hears of their sessions in a direct message."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.services.access import api_keys, delegation
from bot.services.access.api_keys import NewKey
from bot.services.access.delegation import Delegate
from bot.services.notifications import interruption
from bot.services.people import direct_messages
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import NotificationKind
from ledger.models import Instance, Session
from tests.support.world import ALICE, BOB, CAROL, CHANNEL, DAVE, World, facts

ADA, ATLAS, ALICE_TOO = (
    Actor(ActorKind.OPERATOR, "ada"),
    Actor(ActorKind.CONSUMER, "atlas"),
    Actor(ActorKind.OPERATOR, "al"),
)


def shown(w: World, kind: str, subject: str) -> list[str]:
    """Where a message was shown."""
    return [where for one, of, where, _ in w.board.shown if (one, of) == (kind, subject)]


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
@pytest.mark.slow
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
        await direct_messages.notify_owner(tx, w.ctx.policy, w.clock.now(), row, subject="s/2", text="Stopped.")
    await w.settle()
    assert shown(w, "reply", "s/1") == ([to] if to == ALICE.id else [])
    assert shown(w, "reply", "s/2") == [to]
    await w.end(request_id, owner)
    await w.run(120, 30)


@pytest.mark.parametrize("owner", [ALICE, ALICE_TOO, ATLAS, ADA], ids=str)
@pytest.mark.slow
async def test_an_interruption_an_orphan_and_a_foreign_end_reach_the_person(w: World, owner: Actor) -> None:
    w.tune(same_person=((ALICE.id, ALICE_TOO.ref),))
    await key(w, "atlas", ALICE.ref)
    person = [] if owner == ADA else [ALICE.id]
    await w.running(owner, candidates=("vast",))
    (row,) = (await w.books()).instances
    async with w.ctx.db.write() as tx:
        found = await tx.get_one(Instance, row.id)
        await interruption.notify_interruption(tx, w.ctx.policy, found, w.clock.now())
        await interruption.notify_interruption(tx, w.ctx.policy, found, w.clock.now(), orphan_id="orp_1")
    await w.settle()
    for subject in (f"{row.session_id}/{row.id}", f"{row.session_id}/{row.id}/orp_1"):
        assert sorted(shown(w, "session.interrupted", subject)) == sorted([CHANNEL, *person])
    await w.end(row.session_id, BOB)
    await w.run(120, 30)
    assert shown(w, "reply", f"{row.session_id}/ended-by") == (person or [CHANNEL])
    (told,) = [note for note in (await w.books()).notifications if note.subject.endswith("/ended-by")]
    assert str(told.body["text"]).startswith("Your session" if person else "Session")


@pytest.mark.parametrize("by", [ALICE, ALICE_TOO], ids=str)
@pytest.mark.slow
async def test_nobody_is_notified_of_an_end_of_their_own(w: World, by: Actor) -> None:
    w.tune(same_person=((ALICE.id, ALICE_TOO.ref),))
    await key(w, "atlas", ALICE.ref)
    for owner in (ATLAS, ALICE):
        request_id = await w.running(owner, candidates=("vast",))
        assert (await w.end(request_id, by)).ok
        await w.run(120, 30)
    assert [subject for _, subject, _, _ in w.board.shown if subject.endswith("/ended-by")] == []


async def test_amendments_and_delegations_reach_an_operators_slack_account(w: World) -> None:
    w.tune(same_person=((DAVE.id, "operator:dave"),), approvers=(BOB.id, CAROL.id, DAVE.id))
    dave = Actor(ActorKind.OPERATOR, "dave")
    asked = str((await w.ask(dave, candidates=("vast",))).data["request_id"])
    await w.settle()
    assert (await w.decide(asked, BOB, hours=Decimal(1))).code == "approved"
    given = Delegate(facts(BOB), dave, w.clock.now().date())
    assert (await delegation.delegate(w.ctx, given)).ok
    assert (await delegation.revoke(w.ctx, Delegate(facts(BOB)))).ok
    await w.settle()
    direct = [(kind, subject.split("_")[0]) for kind, subject, where, _ in w.board.shown if where == DAVE.id]
    assert ("reply", "req") in direct
    assert direct.count(("operator.page", "del")) == 2
    await w.end(asked, dave)
    await w.run(120, 30)


async def test_administrators_of_budgets_are_people_too(w: World) -> None:
    w.tune(same_person=((CAROL.id, "operator:carol"),), budget_admins=("operator:carol", "operator:nobody", CAROL.id))
    w.tune(budgets={"global": {"total": Decimal("1.2")}})
    await w.approved(candidates=("vast",))
    await w.settle()
    assert {to for kind, _, to, _ in w.board.shown if kind == "budget.threshold"} == {CAROL.id}
