"""What a simulated month rarely brings about, forced: an amount used up, a program's budget, and old prices."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

from bot.rules.jobs.stored import job_of
from bot.services.market.reads import FRESH_S, STRETCHED_S
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance, Session
from providers.completeness import AnswerPart
from providers.contract import Offer, Provider
from providers.errors import RateLimited
from tests.services.webhooks.test_subscriptions import ATLAS, HERMES, hook, log_of, principal, program, pump, told
from tests.support.matrix import on_clouds
from tests.support.proxy_provider import InFront
from tests.support.world import ALICE, World

#: An instance may outlive its end by so much, of a cloud that can be reached.
LATE = timedelta(seconds=60)
STEP_S = 20.0


class Busy(InFront):
    """A cloud that refuses to list its offers, for calling too often; everything else it does."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.is_busy = False
        self.refused = 0

    async def offers(self, *args: Any, **options: Any) -> AnswerPart[Offer]:
        if self.is_busy:
            self.refused += 1
            raise RateLimited("vast", "vast was called too often")
        return await self.inner.offers(*args, **options)


async def of(w: World, request_id: str) -> tuple[Session, list[Instance]]:
    """The session of a request, and its instances."""
    view = await w.view(request_id)
    assert view.session is not None
    return view.session, list(view.instances)


def ended(w: World, row: Instance) -> Any:
    """When the instance really ended."""
    (item,) = [one for one in w.instances() if one.name == row.name]
    assert item.ended_at is not None
    return item.ended_at


async def until_over(w: World, deadline: Any) -> None:
    """Let time pass to the end of a session, and three minutes more."""
    await w.run((deadline - w.clock.now()).total_seconds() - 60, 600)
    await w.run(240, STEP_S)


@on_clouds(terminate=True)
async def test_an_amount_that_is_used_up_ends_the_session_though_the_cloud_refuses_at_first(
    w: World, cloud: str
) -> None:
    reply = await w.ask(candidates=(cloud,), hours=Decimal(4))
    request_id = str(reply.data["request_id"])
    await w.settle()
    option = (await w.view(request_id)).options[0]
    cap_usd = (option.price_usd_h * Decimal("0.6")).quantize(Decimal("0.01"))
    assert (await w.decide(request_id, cap_usd=cap_usd)).code == "approved"
    await w.settle()
    await w.run(60, STEP_S)
    session, _ = await of(w, request_id)
    assert session.deadline is not None
    assert session.deadline < session.created_at + timedelta(hours=1)
    w.arm("destroy_429", cloud, times=2)
    await until_over(w, session.deadline)
    after, (row,) = await of(w, request_id)
    assert (after.state, after.end_code, row.state) == (SessionState.TERMINATED, "budget_cap", InstanceState.GONE)
    assert ended(w, row) <= session.deadline + LATE
    assert len(w.engine.creates) == 1
    assert w.bill() <= cap_usd + 2 * option.price_usd_h * Decimal(LATE / timedelta(hours=1))


async def test_the_budget_of_a_program_reaches_its_webhook_once_for_each_share_and_nobody_elses(w: World) -> None:
    await program(w, "atlas")
    await program(w, "hermes")
    async with told(w) as atlas, told(w) as hermes:
        hook_id = await hook(w, atlas, principal(ATLAS), "budget")
        await hook(w, hermes, principal(HERMES), "budget")
        first = str((await w.ask(ATLAS, candidates=("vast",))).data["request_id"])
        await w.settle()
        worst_usd = (await w.view(first)).options[0].worst_usd
        budgets = {"consumer:atlas": {"total": worst_usd * Decimal("1.2")}, "consumer:hermes": {"total": Decimal(500)}}
        w.tune(budgets=budgets)
        atlas.status = 503
        assert (await w.decide(first)).code == "approved"
        await pump(w)
        assert (atlas.taken, atlas.attempts) == ([], 1)  # One approval reached several shares: the highest says it.
        atlas.status = 200
        second = str((await w.ask(ATLAS, candidates=("vast",))).data["request_id"])
        await w.settle()
        assert (await w.decide(second)).code == "over_budget"
        await w.run(600, 60)
        await pump(w)
        said = [(one["type"], one["data"]) for one in atlas.taken]
        assert [name for name, _ in said] == ["budget.threshold"], said
        assert all("consumer:atlas" in str(data) for _, data in said), said
        assert len(set(atlas.ids)) == 1
        assert {one.state for one in await log_of(w, hook_id)} == {"sent"}
        assert hermes.attempts == 0
        # The budget bought one machine, and the end of its hours comes as approved.
        session, (row,) = await of(w, first)
        assert session.deadline is not None
        await until_over(w, session.deadline)
        assert ended(w, row) <= session.deadline + LATE
        assert len(w.engine.creates) == 1


async def test_prices_that_are_five_minutes_old_buy_nothing_twice_and_delay_no_end(w: World) -> None:
    """Vast refuses to list its offers for an hour: prices are read every five minutes instead of every minute."""
    w.wrap("vast", lambda inner: cast("Provider", Busy(inner)))
    busy = cast("Busy", w.ctx.providers["vast"])
    first = await w.running(candidates=("vast",), hours=Decimal(1))
    session, (row,) = await of(w, first)
    assert session.deadline is not None
    # The purchase dropped the prices that were known, so they are read again before the cloud refuses.
    await w.ctx.catalog.inventory(job_of((await w.view(first)).request.job), w.ctx.policy)
    busy.is_busy = True
    w.clock.advance(FRESH_S + 1)
    # The prices were read a minute ago. They are offered again, and what was rented meanwhile is not bought again.
    asked = [str((await w.ask(ALICE, candidates=("vast",), hours=Decimal(2))).data["request_id"]) for _ in range(2)]
    await w.settle()
    assert busy.refused == 1
    for request_id in asked:
        view = await w.view(request_id)
        assert view.options
        assert view.quote is not None
        assert busy.refused == 1
        await w.decide(request_id)
    await w.settle()
    await w.run(STRETCHED_S, STEP_S)
    # An old price may name a host that is rented by now; its refusal is one create, and the next offer is another row.
    sent = [one.name for one in w.engine.creates]
    assert len(sent) == len(set(sent))
    assert {one.name for one in w.instances()} == {one.name for one in w.engine.creates if one.outcome == "committed"}
    # A host with more GPUs offers the rest anew, so two may be on one host, and never two of one offer.
    bought = [one.offer["key"] for one in (await w.books()).instances if one.state is InstanceState.LIVE]
    assert len(bought) == len(set(bought)) == 3
    refused = busy.refused
    await until_over(w, session.deadline)
    # Nobody asked for offers, so nobody asked the cloud; its end came in time.
    assert busy.refused == refused
    after, _ = await of(w, first)
    assert (after.state, after.end_code) == (SessionState.TERMINATED, "reservation_over")
    assert ended(w, row) <= session.deadline + LATE
    for request_id in asked:
        view = await w.view(request_id)
        live = [one for one in view.instances if one.state is InstanceState.LIVE]
        assert len(live) == (1 if view.session and view.session.state is SessionState.RUNNING else 0)
    busy.is_busy = False
    w.clock.advance(STRETCHED_S)
    job = job_of((await w.view(asked[0])).request.job)
    (answer,) = (await w.ctx.catalog.inventory(job, w.ctx.policy)).answers
    assert (answer.ok, answer.at) == (True, w.clock.now())
