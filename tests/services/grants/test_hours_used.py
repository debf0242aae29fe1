"""The cap on hours through failover, a second approval and a replacement: what is granted in all, and until when."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from bot.services.approvals.break_glass import BreakGlass, break_glass
from bot.services.grants import override as grant_override
from bot.services.instances import launch_spec
from bot.services.runtime import recovery_mode
from ledger.core.claims import Claim
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Option, Request
from tests.services.runtime.test_recovery_mode import rowless
from tests.support.world import ALICE, BOB, CAROL, World, facts

ADA = Actor(ActorKind.OPERATOR, "ada")


async def lose(w: World) -> None:
    """The machine is gone without anybody's word, and that is seen."""
    row = (await w.books()).instances[-1]
    w.clouds[row.cloud].disturb(str(row.ref), "vanish")
    await w.run(90, 30)


async def test_hours_of_an_earlier_approval_count_towards_the_override(bare: World) -> None:
    w = bare
    w.tune(replacements=0)
    request_id = await w.running(hours=Decimal(11), candidates=("vast",))
    deadline = (await w.books()).sessions[0].deadline
    assert deadline is not None
    w.clock.advance((deadline - w.clock.now()).total_seconds() - 3600)  # Ten hours of it are over.
    await lose(w)
    view = await w.view(request_id)
    assert view.request.state is RequestState.PENDING
    assert view.override is not None
    assert "21" in view.override.rule
    assert (await w.decide(request_id, CAROL)).code == "approved"
    assert (await w.view(view.override.id)).request.state is RequestState.APPROVED
    await w.settle()
    await w.run(40, 20)
    # More time counts all of it, too.
    assert (await w.more(request_id, "1")).code == "reason_needed"


async def test_an_option_with_a_longer_hold_is_not_taken_before_its_override(w: World) -> None:
    request_id = str((await w.ask(hours=Decimal(11), candidates=("vast",))).data["request_id"])
    await w.settle()
    options = (await w.view(request_id)).options
    async with w.ctx.db.write() as tx:
        for option in options[1:]:
            row = await tx.get_one(Option, option.id)
            row.estimate = {**row.estimate, "hold_hours": "2"}
        parent, now = await tx.get_one(Request, request_id), w.clock.now()
        override = await grant_override.ask_override(tx, parent, Decimal(12), "12 hours", now, due_at=parent.expires_at)
    assert (await w.decide(request_id, BOB, rank=2)).code == "override_first"
    assert (await w.decide(request_id, BOB, rank=1)).code == "approved"
    w.withdraw(options[0])
    await w.settle()
    assert (await w.view(override.id)).request.state is RequestState.CANCELLED
    assert [row.state for row in (await w.books()).instances] == [InstanceState.REJECTED]
    assert w.alive() == []


async def test_a_replacement_is_not_bought_after_the_approved_end_nor_in_recovery(bare: World) -> None:
    w = bare
    w.tune(price_tolerance=Decimal(3))
    await w.running(candidates=("runpod",), hours=Decimal(1))
    deadline = (await w.books()).sessions[0].deadline
    assert deadline is not None
    w.clock.advance((deadline - w.clock.now()).total_seconds() - 720)
    await w.settle()
    row = (await w.books()).instances[0]
    w.clouds["runpod"].disturb(str(row.ref), "vanish")
    stray = await rowless(w)
    await w.run(150, 30)
    creates = len(w.engine.creates)
    books = await w.books()
    grant, waiting = books.grants[-1], books.instances[-1]
    assert (grant.kind, waiting.state) == ("replace", InstanceState.READY)
    held = Claim(waiting.id, "nobody")

    async def may(at: timedelta) -> bool:
        async with w.ctx.db.write() as tx:
            return await launch_spec.may_send(w.ctx, tx, held, grant.id, waiting.session_id, w.clock.now() + at)

    assert not await may(timedelta(0))  # An instance that the ledger does not know waits for an operator.
    await recovery_mode.condemn(w.ctx.db, stray.id, ADA, "a test", w.clock.now())
    assert await may(timedelta(0))
    # A pass that began before the end comes after it.
    assert not await may(deadline - w.clock.now())
    w.clock.advance((deadline - w.clock.now()).total_seconds() + 60)
    await w.run(60, 20)
    books = await w.books()
    assert len(w.engine.creates) == creates
    assert books.sessions[0].state in (SessionState.TERMINATING, SessionState.TERMINATED)


async def test_questions_about_a_lost_machine_end_with_it_and_decide_nothing_about_the_request(bare: World) -> None:
    w = bare
    w.tune(replacements=0, break_glass=(ALICE.id,), max_hours=Decimal(3))
    request_id = await w.running(hours=Decimal("2.5"), candidates=("vast",))
    more = str((await w.more(request_id, "0.5")).data["request_id"])
    w.clock.advance(3600)
    await lose(w)
    assert [(await w.view(one)).request.state for one in (request_id, more)] == [
        RequestState.PENDING,
        RequestState.CANCELLED,
    ]
    assert (await w.decide(more, BOB, "reject", reason="too dear")).code == "already_cancelled"
    assert (await w.view(request_id)).request.state is RequestState.PENDING
    # Nobody passes the cap on hours by breaking the glass: an hour was had before, and two more are too many.
    urgent = BreakGlass(request_id, facts(ALICE), "demo is down")
    assert (await break_glass(w.ctx, urgent)).code == "override_first"
    override = (await w.view(request_id)).override
    assert override is not None
    assert (await w.decide(override.id, BOB)).code == "approved"
    assert (await break_glass(w.ctx, urgent)).code == "break_glass"
