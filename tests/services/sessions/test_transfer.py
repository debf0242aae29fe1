"""A session gets another owner: offered, accepted once, declined, withdrawn, expired, and refused where it must be."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import select, update

from bot.rules.instances.power import PowerAction
from bot.rules.policy.tiers import ApprovalTier
from bot.rules.values.phrases import usd
from bot.services.access import sharing
from bot.services.access.key_holders import keys_of
from bot.services.access.sharing import ShareWith
from bot.services.billing import costs
from bot.services.billing.metering import cost_now
from bot.services.billing.within_hours import accrue_owner_change
from bot.services.instances import power
from bot.services.requests.again import Again, again
from bot.services.runtime.clock_guard import CONFIRM_S, ClockInDoubt, GuardedClock
from bot.services.runtime.commands import Reply, Switch
from bot.services.sessions import service, transfer
from bot.services.sessions.transfer import AnswerOffer, OfferSession
from ledger.kernel.actor import Actor
from ledger.kernel.entry_kind import USED
from ledger.kernel.event_kind import EventKind
from ledger.kernel.states import NotificationKind
from ledger.models import Node, Session, Transfer
from ledger.queries.views import SessionView
from tests.api.door import code_of, opened
from tests.services.access.test_sharing import key_of
from tests.services.checkpoints.test_verification import looks_at
from tests.services.nodes.test_key_writes import machine
from tests.support.clock import SteppedClock
from tests.support.stores import Shelf, served
from tests.support.wire import RealReach
from tests.support.world import ALICE, BOB, CAROL, CHANNEL, DAVE, World, facts

EVE = Actor.from_ref("operator:eve")
CHECKPOINT = "s3://bucket/run"


@pytest.fixture(autouse=True)
def _real_logins(w: World) -> None:
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True


async def running(w: World) -> str:
    """A session of Alice, who has a key; so has Dave."""
    for who in (ALICE, DAVE):
        await key_of(w, who)
    return await w.running(candidates=("runpod",), hours=Decimal(6))


async def offer(w: World, of: str, by: Actor = ALICE, to: Actor = DAVE) -> Reply:
    return await transfer.offer(w.ctx, OfferSession(of, by, to))


async def answer(w: World, of: str, by: Actor = DAVE, *, accept: bool = True) -> Reply:
    return await transfer.answer(w.ctx, AnswerOffer(of, by, accept=accept))


def costs_now(w: World, view: SessionView) -> Decimal:
    return cost_now(w.ctx, view, w.clock.now())


async def session(w: World) -> Session:
    return (await w.books()).sessions[-1]


async def kinds(w: World) -> list[str]:
    return [one.kind for one in (await w.books()).events if one.kind.startswith("session.") and "ffer" in one.kind] + [
        one.kind for one in (await w.books()).events if one.kind == EventKind.SESSION_TRANSFERRED
    ]


class _Ahead(SteppedClock):
    """The same time as another clock, of a machine whose wall clock is fifty minutes ahead."""

    def __init__(self, base: SteppedClock) -> None:
        self._base = base

    def now(self) -> datetime:
        return self._base.now() + timedelta(minutes=50)

    def monotonic(self) -> float:
        return self._base.monotonic()


async def test_a_clock_in_doubt_books_nothing_for_a_change_of_owner(w: World) -> None:
    request_id = await running(w)
    await w.run(600, 300)
    assert (await offer(w, request_id)).ok
    before = len((await w.books()).entries)
    trusted, w.ctx = w.ctx, replace(w.ctx, clock=GuardedClock(_Ahead(w.clock), confirm_s=CONFIRM_S))
    refused = await answer(w, request_id)
    assert (refused.ok, refused.code) == (False, "clock_wrong")
    assert refused.sentence.startswith("Nothing can be transferred while the clock is wrong: ")
    assert ((await session(w)).owner, len((await w.books()).entries)) == (ALICE.ref, before)
    w.ctx = trusted
    assert (await answer(w, request_id)).code == "transferred"
    await w.run(300, 30)
    assert (await w.end(request_id, DAVE)).ok
    await w.run(300, 30)
    used_usd = sum((one.amount_usd for one in (await w.books()).entries if one.kind in USED), Decimal(0))
    assert used_usd == pytest.approx(w.bill(), abs=Decimal("0.01"))


async def test_a_change_of_owner_is_not_booked_while_the_clock_is_in_doubt(w: World) -> None:
    await running(w)
    await w.run(600, 300)
    doubted = replace(w.ctx, clock=GuardedClock(_Ahead(w.clock), confirm_s=CONFIRM_S))
    (row,) = (await w.books()).instances
    before = len((await w.books()).entries)
    with pytest.raises(ClockInDoubt, match=r"^The change of owner is not booked while the clock is wrong: "):
        async with w.ctx.db.write() as tx:
            await accrue_owner_change(doubted, tx, row.id, doubted.clock.now())
    assert len((await w.books()).entries) == before


@pytest.mark.slow
async def test_the_new_owner_gets_the_session_its_later_costs_and_its_keys(w: World) -> None:
    request_id = await running(w)
    await w.run(2 * 3600 + 600, 300)
    own = await session(w)
    await sharing.change(w.ctx, ShareWith(request_id, ALICE, DAVE))
    await w.settle()
    async with w.ctx.db.write() as tx:
        tx.add(
            Node(
                instance_id=(await w.books()).instances[-1].id,
                session_id=own.id,
                token_hash="t",
                made_at=own.created_at,
            )
        )
        await tx.flush()
        await tx.execute(update(Node).values(api_token_hash="h", api_token_at=own.created_at))
    offered = await offer(w, request_id)
    assert (offered.code, "The offer expires 2026-03-02 " in offered.sentence) == ("offered", True)
    assert (await offer(w, request_id)).sentence == offered.sentence
    assert (await offer(w, request_id, to=EVE)).code == "bad_transfer"
    assert (await session(w)).owner == ALICE.ref
    before = await costs.overview(w.ctx, ALICE)
    due = costs_now(w, await w.session(own.id))
    assert due > (await w.session(own.id)).accrued_usd > 0
    replies = await asyncio.gather(*(answer(w, request_id) for _ in range(3)))
    assert [one.code for one in replies] == ["transferred"] * 3
    assert sum("is yours already" in one.sentence for one in replies) == 2
    own = await session(w)
    view = await w.view(request_id)
    assert (own.owner, view.request.requester, view.shared_with) == (DAVE.ref, DAVE.ref, ())
    (event,) = [one for one in (await w.books()).events if one.kind == EventKind.SESSION_TRANSFERRED]
    assert (event.data["from"], event.data["to"], Decimal(event.data["booked_usd"])) == (ALICE.ref, DAVE.ref, due)
    async with w.ctx.db.read() as tx:
        assert (await tx.scalars(select(Node.api_token_hash))).all() == [None]
    await w.settle()
    _, inside = await machine(w)
    async with w.ctx.db.read() as tx:
        (alices,), (daves,) = [await keys_of(tx, w.ctx.policy, who) for who in (ALICE, DAVE)]
    assert (inside.lets_in("root", alices.public_key), inside.lets_in("root", daves.public_key)) == (False, True)
    assert [one.session.id for one in (await service.listing(w.ctx, DAVE)).sessions] == [own.id]
    assert (await service.listing(w.ctx, ALICE)).sessions == ()
    await w.run(2 * 3600, 300)
    alice, dave = await costs.overview(w.ctx, ALICE), await costs.overview(w.ctx, DAVE)
    total = (await w.session(own.id)).accrued_usd
    assert alice.month_usd == before.month_usd == due
    assert dave.month_usd - dave.running_usd == total - due > 0
    assert (await w.end(request_id, ALICE)).code == "not_yours"
    assert (await w.end(request_id, DAVE)).ok
    await w.run(300, 30)
    ended = [one for one in (await w.books()).notifications if one.kind is NotificationKind.SESSION_ENDED]
    assert [one.destination for one in ended] == [DAVE.id]
    assert (await answer(w, request_id)).sentence.endswith("is yours already.")


@pytest.mark.both_databases
@pytest.mark.parametrize("again_at_s", [None, 900])
@pytest.mark.slow
async def test_the_hour_that_runs_is_booked_to_each_owner_for_their_part(w: World, again_at_s: int | None) -> None:
    """An hour may have three owners, too: each pays their part of it, and all parts together are the hour."""
    request_id = await running(w)
    await w.run(2 * 3600 + 600, 300)
    own = await session(w)
    cap_usd, due = (await w.session(own.id)).cap_usd, costs_now(w, await w.session(own.id))
    await offer(w, request_id)
    reply = await answer(w, request_id)
    assert f"may still spend {usd(cap_usd - due)} " in reply.sentence
    (left,) = [one for one in (await w.books()).notifications if "/left/" in one.subject]
    assert f"Its costs so far, {usd(due)}, stay yours" in left.body["text"]
    view = await w.session(own.id)
    assert view.accrued_usd == costs_now(w, view) == due
    parts = {ALICE: due}
    if again_at_s is not None:
        await w.run(again_at_s, 300)
        parts[DAVE] = costs_now(w, await w.session(own.id)) - due
        await offer(w, request_id, by=DAVE, to=ALICE)
        assert (await answer(w, request_id, by=ALICE)).code == "transferred"
    await w.run(2 * 3600, 300)
    last = DAVE if again_at_s is None else ALICE
    whole = costs_now(w, await w.session(own.id))
    parts[last] = whole - parts[ALICE if last is DAVE else DAVE]
    for who in (ALICE, DAVE):
        assert (await costs.overview(w.ctx, who)).month_usd == parts[who], who
    assert (await w.end(request_id, last)).ok
    await w.run(300, 30)
    (row,) = (await w.books()).instances
    used = [one for one in (await w.books()).entries if one.instance_id == row.id and one.kind in USED]
    assert sum(one.amount_usd for one in used) == pytest.approx(w.bill(), abs=Decimal("0.0001"))


async def test_the_part_of_an_hour_that_a_retained_disk_costs_stays_with_its_owner(w: World) -> None:
    for who in (ALICE, DAVE):
        await key_of(w, who)
    request_id = await w.running(candidates=("vast",), hours=Decimal(6))
    assert (await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.STOP))).code == "power_action"
    await w.run(3600 + 1200, 300)
    own = await session(w)
    due = costs_now(w, await w.session(own.id))
    await offer(w, request_id)
    assert (await answer(w, request_id)).code == "transferred"
    await w.run(3600, 300)
    whole = costs_now(w, await w.session(own.id))
    assert (await costs.overview(w.ctx, ALICE)).month_usd == due
    assert (await costs.overview(w.ctx, DAVE)).month_usd == whole - due > 0


async def test_an_offer_is_declined_withdrawn_expires_and_ends_with_its_session(w: World) -> None:
    request_id = await running(w)
    short = request_id[-6:]
    assert (await answer(w, request_id)).sentence == f"Session {short} is not offered to you."
    assert (await offer(w, request_id, by=DAVE)).code == "not_yours"
    assert (await offer(w, request_id)).ok
    assert (await answer(w, request_id, by=EVE)).code == "no_transfer"
    assert (await answer(w, request_id, by=EVE, accept=False)).code == "no_transfer"
    declined = await answer(w, request_id, accept=False)
    assert declined.sentence == f"The offer of session {short} is declined. Its owner stays the same."
    assert "no longer open (declined)" in (await answer(w, request_id)).sentence
    said = [one.body.get("text", "") for one in (await w.books()).notifications if one.destination == ALICE.id]
    assert f"{DAVE.ref} declined session {short}. It stays yours." in said
    assert (await offer(w, request_id)).ok
    withdrawn = await answer(w, request_id, by=ALICE, accept=False)
    assert "is withdrawn" in withdrawn.sentence
    w.clock.advance(60)
    assert (await offer(w, request_id)).ok
    async with w.ctx.db.write() as tx:
        await tx.execute(update(Transfer).values(expires_at=w.clock.now() + timedelta(seconds=5)))
    w.clock.advance(6)
    assert "no longer open (expired)" in (await answer(w, request_id)).sentence
    assert await transfer.transfers_due(w.ctx) == 1
    assert await transfer.transfers_due(w.ctx) == 0
    assert (await offer(w, request_id)).ok
    assert (await w.end(request_id)).ok
    refused = await answer(w, request_id)
    assert (refused.code, "can't be transferred" in refused.sentence) == ("bad_transfer", True)
    assert await transfer.transfers_due(w.ctx) == 1
    assert "no longer open (overtaken)" in (await answer(w, request_id)).sentence
    assert (await offer(w, request_id)).code == "bad_transfer"
    assert (await session(w)).owner == ALICE.ref


async def test_it_is_refused_where_nobody_has_approved_it_for_the_new_owner(w: World) -> None:
    request_id = await running(w)
    own = await offer(w, request_id, to=BOB)
    assert (own.code, "nobody may approve their own spend" in own.sentence) == ("transfer_not_approved", True)
    w.tune(approvers=("UCAROL",))
    other = await offer(w, request_id)
    assert (other.code, "It has none from" in other.sentence) == ("transfer_not_approved", True)
    w.tune(approvers=("UBOB", "UCAROL"))
    assert (await offer(w, request_id, to=ALICE)).code == "bad_transfer"
    assert (await w.more(request_id, "3")).code == "extension_requested"
    waiting = await offer(w, request_id)
    assert (waiting.code, "waits for approval" in waiting.sentence) == ("bad_transfer", True)
    assert (await offer(w, "zzzzzz")).code == "unknown_id"
    assert (await offer(w, str((await w.ask()).data["request_id"]))).code == "no_session"
    await w.settle()


async def test_the_budget_of_the_new_owner_is_checked_at_the_offer_and_at_the_acceptance(w: World) -> None:
    request_id = await running(w)
    w.tune(budgets={f"user:{DAVE.id}": {"total": Decimal("0.01")}})
    assert (await offer(w, request_id)).code == "over_budget"
    w.tune(budgets={})
    assert (await offer(w, request_id)).ok
    w.tune(budgets={f"user:{DAVE.id}": {"total": Decimal("0.01")}})
    assert (await answer(w, request_id)).code == "over_budget"
    # The budget of everybody counts the session already, so a transfer adds nothing to it.
    w.tune(budgets={"global": {"total": Decimal("0.01")}})
    assert (await answer(w, request_id)).code == "transferred"


async def test_who_has_no_key_accepts_after_adding_one(w: World) -> None:
    w.tune(same_person=((CAROL.id, "operator:carol"),))
    await key_of(w, ALICE)
    request_id = await w.running(candidates=("runpod",))
    carol = Actor.from_ref("operator:carol")
    assert (await offer(w, request_id, to=carol)).ok
    async with opened(w) as door:
        key, eve = await door.key("operator:carol"), await door.key("operator:eve")
        path = f"/sessions/{request_id[-6:]}"
        assert code_of(await door.call("GET", path, eve)) == "unknown_id"
        assert (await door.call("GET", path, key)).json()["owner"] == ALICE.ref
        assert code_of(await door.call("POST", f"{path}/transfer/accept", key)) == "no_key"
        await key_of(w, CAROL)
        assert (await door.call("POST", f"{path}/transfer/accept", key)).json()["code"] == "transferred"
        assert (await door.call("POST", f"{path}/transfer", key, json={"person": "operator:eve"})).json()[
            "code"
        ] == "offered"
        assert (await door.call("POST", f"{path}/transfer/decline", key)).json()["code"] == "declined"
    assert (await session(w)).owner == carol.ref


async def test_who_asked_still_audits_what_happened_until_the_transfer(w: World) -> None:
    w.tune(same_person=((ALICE.id, "operator:alice"),))
    request_id = await running(w)
    assert (await offer(w, request_id)).ok
    assert (await answer(w, request_id)).code == "transferred"
    w.clock.advance(60)
    await sharing.change(w.ctx, ShareWith(request_id, DAVE, CAROL))
    async with opened(w) as door:
        alice, eve = await door.key("operator:alice"), await door.key("operator:eve")
        read = (await door.call("GET", f"/audit/{request_id}", alice)).json()
        kinds_read = [one["kind"] for one in read["events"]]
        assert (kinds_read[0], EventKind.SESSION_TRANSFERRED in kinds_read) == (EventKind.REQUEST_MADE, True)
        assert (EventKind.REQUEST_SHARED in kinds_read, read["broken"]) == (False, [])
        assert code_of(await door.call("GET", f"/audit/{request_id}", eve)) == "unknown_id"
        assert code_of(await door.call("GET", f"/sessions/{request_id[-6:]}", alice)) == "unknown_id"


async def test_the_new_owner_needs_the_approvals_of_all_that_the_session_may_cost(w: World) -> None:
    """Most of it is used, so what it may still spend is far below the limit that the whole session is above."""
    request_id = await running(w)
    cap_usd = (await w.session((await session(w)).id)).cap_usd
    await w.run(5 * 3600, 900)
    assert cap_usd - costs_now(w, await w.session((await session(w)).id)) < cap_usd / 2
    for limits in (
        {"two_approvers_above_usd": cap_usd * Decimal("0.9")},
        {"approval_tiers": (ApprovalTier("interns", approvals=2, above_usd=cap_usd * Decimal("0.9"), team="interns"),)},
    ):
        w.tune(two_approvers_above_usd=None, approval_tiers=(), teams={"interns": (DAVE.id,)})
        w.tune(**limits)
        refused = await offer(w, request_id)
        assert (refused.code, "may cost in all" in refused.sentence) == ("transfer_not_approved", True), limits
        assert "It has 1 from" in refused.sentence
    # What the policy wants at more than this session may cost, and of other people, is not wanted of Dave.
    w.tune(
        two_approvers_above_usd=cap_usd * Decimal("1.1"),
        approval_tiers=(ApprovalTier("others", approvals=2, above_usd=cap_usd * Decimal("0.9"), team="others"),),
        teams={"others": (CAROL.id,)},
    )
    assert (await offer(w, request_id)).code == "offered"
    assert (await answer(w, request_id)).code == "transferred"


async def test_the_new_owner_needs_the_approvals_of_all_hours_of_the_session(w: World) -> None:
    request_id = await running(w)
    extension = str((await w.more(request_id, "3", reason="more")).data["request_id"])
    assert (await w.decide(extension, BOB)).code == "approved"
    w.tune(approval_tiers=(ApprovalTier("long", approvals=2, above_hours=Decimal(8)),))
    refused = await offer(w, request_id)
    assert (refused.code, "because 9 hours is above 8 hours" in refused.sentence) == ("transfer_not_approved", True)
    w.tune(approval_tiers=(ApprovalTier("long", approvals=2, above_hours=Decimal(9)),))
    assert (await offer(w, request_id)).code == "offered"


async def test_what_the_run_used_in_an_earlier_session_counts_for_the_new_owner(w: World) -> None:
    async with served(Shelf()) as stores:
        looks_at(w, stores)
        for who in (ALICE, DAVE):
            await key_of(w, who)
        first = await w.running(hours=Decimal(2), candidates=("runpod",), checkpoint=CHECKPOINT)
        cap_usd = (await w.session((await session(w)).id)).cap_usd
        await w.run(3600, 900)
        assert (await w.end(first)).ok
        await w.run(300, 30)
        reply = await again(w.ctx, Again("again-1", ALICE, CHANNEL, (await w.view(first)).request))
        second = str(reply.data["request_id"])
        await w.settle()
        assert (await w.decide(second, BOB)).code == "approved"
        await w.settle()
        await w.run(40, 20)
        w.tune(two_approvers_above_usd=cap_usd * Decimal("1.2"))
        refused = await offer(w, second)
        assert (refused.code, " in all is above " in refused.sentence) == ("transfer_not_approved", True)
        w.tune(two_approvers_above_usd=cap_usd * Decimal("2.1"))
        assert (await offer(w, second)).code == "offered"
