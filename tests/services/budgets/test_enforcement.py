"""Budgets hold for every approver and however many approve at once, and give back what was not spent."""

from __future__ import annotations

import asyncio
import secrets
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.budgets.budget import Period
from bot.rules.values.reply_code import ReplyCode
from bot.services.approvals import decisions
from bot.services.billing import costs
from bot.services.billing.metering import cost_now
from bot.services.budgets import enforcement, setting
from bot.services.runtime.commands import Decide, FinishSession
from bot.services.sessions import service
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.calendar_spans import begin
from ledger.kernel.money import cents
from ledger.kernel.states import GrantState, NotificationKind, RequestState, RollupTier
from ledger.models import Token
from ledger.queries.access import lock_consumer
from tests.support import rows
from tests.support.world import ALICE, BOB, CAROL, DAVE, World, facts

THRESHOLD = NotificationKind.BUDGET_THRESHOLD


async def pending(w: World, actor: Actor = ALICE, **changes: Any) -> str:
    reply = await w.ask(actor, **changes)
    assert reply.ok, reply
    await w.settle()
    return str(reply.data["request_id"])


async def cap(w: World, request_id: str) -> Decimal:
    """The most that an approval of the first option covers."""
    return (await w.view(request_id)).options[0].worst_usd


@pytest.mark.both_databases
@pytest.mark.slow
async def test_7837_two_hundred_approvals_at_once_against_a_budget_for_ten_are_ten(w: World) -> None:
    w.tune(approvers=(rows.BEN.id,), budgets={"global": {"monthly": Decimal(16)}})
    tokens = []
    async with w.ctx.db.write() as tx:
        for _ in range(200):
            request = await rows.request(tx, at=w.clock.now())
            option = await rows.option(tx, await rows.quote(tx, request, at=w.clock.now()))
            assert option.worst_usd == Decimal("1.6")
            tokens.append(secrets.token_urlsafe(8))
            tx.add(
                Token(token=tokens[-1], request_id=request.id, quote_version=1, action="approve", option_id=option.id)
            )
    replies = await asyncio.gather(*(decisions.decide(w.ctx, Decide(token, facts(rows.BEN))) for token in tokens))
    codes = [reply.code for reply in replies]
    assert (codes.count(ReplyCode.APPROVED), codes.count(ReplyCode.OVER_BUDGET)) == (10, 190)
    books = await w.books()
    reserved = sum((e.amount_usd for e in books.entries if e.kind == "reserve"), Decimal(0))
    assert (len(books.grants), reserved, len(books.approvals)) == (10, Decimal(16), 10)


async def test_over_the_limit_nothing_is_recorded_and_what_ends_gives_its_rest_back(w: World) -> None:
    first, second = await pending(w), await pending(w)
    limit = await cap(w, first) + await cap(w, second) / 2
    w.tune(budgets={"user:*": {"daily": limit}})
    assert (await w.decide(first)).code == "approved"
    refused = await w.decide(second)
    assert (refused.ok, refused.code) == (False, "over_budget")
    assert "This doesn't fit the daily budget of user:UALICE" in refused.sentence
    view = await w.view(second)
    assert (view.request.state, view.approvals) == (RequestState.PENDING, ())
    other = await pending(w, DAVE)
    assert (await w.decide(other)).code == "approved"  # Each user has a budget of their own.
    await w.settle()
    await w.run(60, 20)
    await w.end(first)
    await w.run(120, 30)
    assert (await w.decide(second)).code == "approved"
    (line,) = await enforcement.overview(w.ctx, ALICE)
    assert line.spent_usd > 0
    assert line.open_usd == await cap(w, second)


@pytest.mark.both_databases
@pytest.mark.slow
async def test_what_runs_counts_once_as_spent_or_as_reserved(w: World) -> None:
    w.tune(budgets={"global": {"monthly": Decimal(100), "hourly": Decimal(10)}})
    request_id = await w.running(hours=Decimal(4))
    whole = await cap(w, request_id)
    w.clock.advance(2 * 3600 + 60)
    await w.settle()
    lines = {line.period: line for line in await enforcement.overview(w.ctx)}
    monthly = lines[Period.MONTHLY]
    assert monthly.spent_usd > 0
    assert monthly.committed_usd == whole
    (grant,) = (await w.books()).grants
    assert lines[Period.HOURLY].committed_usd == grant.price_cap_usd_h
    more = str((await w.more(request_id)).data["request_id"])
    w.tune(budgets={"global": {"hourly": grant.price_cap_usd_h}})
    assert (await w.decide(more)).code == "approved"  # The machine is paid for already; more time adds no rate.
    another = await pending(w, DAVE)
    assert "/h" in (await w.decide(another)).sentence


async def test_an_extension_takes_from_the_budget_of_the_sessions_owner(w: World) -> None:
    request_id = await w.running()
    w.tune(budgets={"user:UALICE": {"total": await cap(w, request_id) + Decimal("0.01")}})
    by_bob = str((await w.more(request_id, actor=BOB)).data["request_id"])
    assert (await w.decide(by_bob, CAROL)).code == "over_budget"
    assert [g.kind for g in (await w.books()).grants] == ["create"]


async def test_an_administrator_may_go_above_it_with_the_amount_typed_and_written_down(w: World) -> None:
    w.tune(budgets={"global": {"daily": Decimal("0.01")}}, budget_admins=(CAROL.id, DAVE.id))
    request_id = await pending(w)
    assert (await w.decide(request_id, BOB)).code == "over_budget"
    asked = await w.decide(request_id, CAROL)
    assert (asked.code, "This doesn't fit the daily budget of global" in asked.sentence) == ("amount_needed", True)
    assert asked.data["over_budget"] is True
    assert (await w.decide(request_id, CAROL, typed_amount="1234")).code == "amount_mismatch"
    # Being an administrator of budgets is not being an approver.
    assert (await w.decide(request_id, DAVE, typed_amount="1234")).code == "not_an_approver"
    expected = (await w.view(request_id)).options[0].expected_usd
    assert (await w.decide(request_id, CAROL, typed_amount=f"{expected:.2f}")).code == "approved"
    (event,) = [e for e in (await w.books()).events if e.kind == "budget.overridden"]
    assert (event.actor, event.subject) == (CAROL.ref, request_id)


async def test_the_owners_of_a_budget_are_told_of_the_highest_share_once(w: World) -> None:
    first, second = await pending(w), await pending(w)
    w.tune(
        budgets={"global": {"total": await cap(w, first) / Decimal("0.85")}, "label:gpu": {"total": Decimal(1000)}},
        budget_owners={"global": ("UFINANCE",)},
    )
    await w.decide(first)
    assert (await w.decide(second)).code == "over_budget"
    await w.settle()
    told = [(entry[1], entry[2]) for entry in w.board.shown if entry[0] == "budget.threshold"]
    assert sorted(told) == [("global/total/all/80", "UFINANCE")]
    await w.settle()
    await w.run(60, 20)
    await w.end(first)
    await w.run(120, 30)
    await w.decide(second)
    await w.settle()
    assert len([entry for entry in w.board.shown if entry[0] == "budget.threshold"]) == 1


async def test_a_budget_has_thresholds_of_its_own(w: World) -> None:
    request_id = await pending(w)
    limit = await cap(w, request_id) / Decimal("0.85")
    w.tune(
        budgets={"global": {"total": limit}, "user:*": {"total": limit}, "label:gpu": {"total": limit}},
        budget_own_thresholds={"user:*": (Decimal("0.7"),), "label:gpu": ()},
    )
    await w.decide(request_id)
    await w.settle()
    told = [entry[1] for entry in w.board.shown if entry[0] == "budget.threshold"]
    assert {(one.partition(":")[0].partition("/")[0], one.rpartition("/")[2]) for one in told} == {
        ("global", "80"),
        ("user", "70"),
    }  # One approval that reaches 50 % and 80 % at once sends one message.


async def test_a_persons_own_budget_warns_that_person_too(w: World) -> None:
    request_id = await pending(w)
    w.tune(budgets={"user:*": {"monthly": await cap(w, request_id) / Decimal("0.85")}})
    await w.decide(request_id)
    await w.settle()
    warned = {one.destination: one.body["text"] for one in (await w.books()).notifications if one.kind == THRESHOLD}
    assert warned.keys() == {ALICE.id, "channel:operators"}
    assert warned[ALICE.id].startswith("Your budget passed 80%: monthly $")
    assert warned["channel:operators"].startswith(f"The budget user:{ALICE.id} passed 80%: monthly $")


@pytest.mark.parametrize(("shares", "expected"), [(None, {"80"}), ((Decimal("0.7"),), {"70"}), ((), set())])
async def test_a_budget_that_is_set_later_has_thresholds_of_its_own(
    w: World, shares: tuple[Decimal, ...] | None, expected: set[str]
) -> None:
    request_id = await pending(w)
    limit, ada = await cap(w, request_id) / Decimal("0.85"), Actor(ActorKind.OPERATOR, "ada")
    reply = await setting.put(w.ctx, ada, "user:UALICE", Period.MONTHLY, limit, "a test", shares)
    assert ("Warnings at 70%." in reply.sentence, "Nobody is warned." in reply.sentence) == (bool(shares), shares == ())
    await w.decide(request_id)
    await w.settle()
    warned = [one.subject for one in (await w.books()).notifications if one.kind == THRESHOLD]
    assert {one.rpartition("/")[2] for one in warned} == expected


@pytest.mark.parametrize("share", ["0", "1.01", "-0.5"])
async def test_a_threshold_is_a_share_of_the_limit(w: World, share: str) -> None:
    ada = Actor(ActorKind.OPERATOR, "ada")
    reply = await setting.put(w.ctx, ada, "global", Period.MONTHLY, Decimal(5), "", [Decimal(share)])
    assert (reply.code, "above 0 and at most 1, for example 0.8" in reply.sentence) == ("bad_budget", True)


async def test_without_owners_the_administrators_are_told_or_else_the_operators(w: World) -> None:
    request_id = await pending(w)
    w.tune(budgets={"global": {"daily": await cap(w, request_id)}}, budget_thresholds=(Decimal(1),))
    await w.decide(request_id)
    await w.settle()
    assert {e[2] for e in w.board.shown if e[0] == "budget.threshold"} == {"channel:operators"}
    w.tune(budgets={"global": {"total": await cap(w, request_id)}}, budget_admins=(CAROL.id,))
    another = await pending(w)
    await w.decide(another, CAROL, typed_amount=f"{(await w.view(another)).options[0].expected_usd:.2f}")


async def test_teams_labels_and_programs_have_budgets(w: World) -> None:
    program = Actor(ActorKind.CONSUMER, "atlas")
    async with w.ctx.db.write() as tx:
        await lock_consumer(tx, program.ref, DAVE.ref, "operator:ada", w.clock.now())
    little = {"total": Decimal("0.01")}
    plenty = {"total": Decimal(1000)}
    w.tune(teams={"research": (ALICE.id, CAROL.id)})
    for actor, label, limits, key in (
        (ALICE, None, {"team:research": little, "global": plenty}, "team:research"),
        (DAVE, None, {"team:research": little}, ""),
        (ALICE, "mosaic", {"label:mosaic": little}, "label:mosaic"),
        (ALICE, "other", {"label:mosaic": little}, ""),
        (ALICE, None, {"label:*": little}, "label:gpu"),
        (program, None, {"consumer:*": little}, "consumer:atlas"),
        (program, None, {"user:UDAVE": little}, "user:UDAVE"),  # The owner of a program pays for it.
    ):
        w.tune(budgets=limits)
        request_id = await pending(w, actor, label=label)
        reply = await w.decide(request_id)
        assert (reply.code == "over_budget") == bool(key), (actor, label, reply)
        assert key in reply.sentence
        await w.cancel(request_id, BOB)


async def test_the_policys_own_approval_stays_inside_the_budgets(w: World) -> None:
    w.tune(
        auto_approve_below_usd=Decimal(50),
        auto_approve_signed_by="UBOSS",
        auto_approve_until=date(2030, 1, 1),
        auto_approve_daily_usd=Decimal(1000),
        budgets={"global": {"total": Decimal("0.01")}},
    )
    request_id = await pending(w)
    view = await w.view(request_id)
    assert (view.request.state, "the total budget of global" in view.request.rule) == (RequestState.PENDING, True)
    w.tune(budgets={"global": {"total": Decimal(1000)}}, budget_thresholds=(Decimal("0.0001"),))
    approved = await pending(w)
    assert (await w.view(approved)).request.state is RequestState.APPROVED
    await w.settle()
    assert "budget.threshold" in w.board.kinds()


async def test_costs_are_grouped_and_everybody_sees_their_own(w: World) -> None:
    await w.running(label="mosaic")
    await w.running(DAVE)
    w.clock.advance(timedelta(hours=1, minutes=1).total_seconds())
    await w.settle()
    everybody, mine = await costs.overview(w.ctx), await costs.overview(w.ctx, ALICE)
    books = await w.books()
    total = sum((e.amount_usd for e in books.entries if e.kind == "accrue"), Decimal(0))
    views = (await service.listing(w.ctx)).sessions
    so_far = sum((cost_now(w.ctx, view, w.clock.now()) for view in views), Decimal(0))
    assert everybody.month_usd == everybody.today_usd == everybody.total_usd == so_far > mine.month_usd > 0
    assert everybody.running_usd == so_far - total > 0
    assert sum(amount for _, amount in everybody.buckets) == so_far
    brief = await costs.brief(w.ctx, ALICE)
    assert (brief.today_usd, brief.month_usd) == (mine.today_usd, mine.month_usd)
    assert len(brief.days) == costs.DAYS_SHOWN
    assert brief.days[-1] == (begin(RollupTier.DAY, w.clock.now()), mine.today_usd)
    assert {name for name, _ in everybody.groups["owner"]} == {ALICE.ref, DAVE.ref}
    assert [name for name, _ in mine.groups["label"]] == ["mosaic"]
    for by in ("owner", "cloud", "gpu", "label"):
        assert sum(amount for _, amount in everybody.groups[by]) == so_far
    many = tuple((str(n), Decimal(n)) for n in range(20, 0, -1))
    assert costs.shortened(many)[-1] == ("12 others", Decimal(78))
    assert all(g.state is GrantState.USED for g in books.grants)


async def test_what_a_success_really_costs_counts_the_failures_too(w: World) -> None:
    runs = []
    for actor in (ALICE, ALICE, ALICE, DAVE):
        runs.append(await w.running(actor))
        w.clock.advance(60)  # So that the next is offered what is still for sale.
    well, wrong, given_up, theirs = runs
    assert (await service.done(w.ctx, FinishSession(well, facts(ALICE)))).ok
    assert (await service.done(w.ctx, FinishSession(wrong, facts(ALICE), succeeded=False))).ok
    assert (await w.end(given_up)).ok
    assert (await service.done(w.ctx, FinishSession(theirs, facts(DAVE), succeeded=False))).ok
    await w.run(120, 30)
    books = await w.books()
    accrued = [entry for entry in books.entries if entry.kind == "accrue"]
    booked = {
        session.request_id: sum(entry.amount_usd for entry in accrued if entry.session_id == session.id)
        for session in books.sessions
    }
    mine, everybody = (await costs.overview(w.ctx, ALICE)).finished, (await costs.overview(w.ctx)).finished
    assert (mine.runs, mine.successes, mine.success_rate) == (2, 1, Decimal("0.5"))
    assert mine.spent_usd == booked[well] + booked[wrong] > 0
    assert mine.per_success_usd == cents(mine.spent_usd)
    assert (everybody.runs, everybody.spent_usd) == (3, mine.spent_usd + booked[theirs])
    nothing = (await costs.overview(w.ctx, CAROL)).finished
    assert (nothing.runs, nothing.per_success_usd) == (0, None)


async def test_without_budgets_nothing_is_locked_or_listed(w: World) -> None:
    assert await enforcement.overview(w.ctx, ALICE) == []
    await w.approved()
    assert "budget.threshold" not in w.board.kinds()


async def test_a_budget_that_is_set_while_the_service_runs_only_tightens(w: World) -> None:
    w.tune(budgets={"user:*": {"daily": Decimal(50)}, "global": {"monthly": Decimal(100)}})
    ada = Actor(ActorKind.OPERATOR, "ada")

    async def put(scope: str, period: Period, limit: Decimal | None) -> str:
        return (await setting.put(w.ctx, ada, scope, period, limit, "a test")).code

    assert await put("user:UALICE", Period.MONTHLY, Decimal(1)) == "budget_set"
    assert await put("global", Period.MONTHLY, Decimal(900)) == "budget_set"
    lines = {(line.key, line.period): line.limit_usd for line in await enforcement.overview(w.ctx, ALICE)}
    assert lines == {
        ("user:UALICE", Period.DAILY): Decimal(50),
        ("user:UALICE", Period.MONTHLY): Decimal(1),
        ("global", Period.MONTHLY): Decimal(100),
    }
    request_id = await pending(w)
    assert (await w.decide(request_id)).code == "over_budget"
    assert await put("user:UALICE", Period.MONTHLY, None) == "budget_set"
    assert await put("user:UALICE", Period.MONTHLY, None) == "unknown_budget"
    assert await put("nobody", Period.MONTHLY, Decimal(1)) == "bad_budget"
    assert (await w.decide(request_id)).code == "approved"
    books = await w.books()
    assert [event.subject for event in books.events if event.kind == "budget.set"] == [
        "budget:user:UALICE",
        "budget:global",
        "budget:user:UALICE",
    ]
    await w.settle()
    assert ("operator.page", "budget/global/monthly") in [(kind, subject) for kind, subject, *_ in w.board.shown]
    await w.end(request_id)
    await w.settle()


async def test_a_budget_below_what_is_spent_says_so_when_it_is_set(w: World) -> None:
    w.tune(budgets={"global": {"monthly": Decimal(100)}})
    ada = Actor(ActorKind.OPERATOR, "ada")
    request_id = await w.running()
    above = await setting.put(w.ctx, ada, "user:UALICE", Period.MONTHLY, Decimal(90), "a test")
    below = await setting.put(w.ctx, ada, "user:UALICE", Period.MONTHLY, Decimal("0.01"), "a test")
    assert above.sentence == "The monthly budget of user:UALICE is $90.00."
    assert "is $0.01. That is already exceeded: monthly $" in below.sentence
    assert "Running machines keep running" in below.sentence
    await w.end(request_id)
    await w.settle()
