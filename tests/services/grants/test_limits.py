"""What the requester and the approvers set as the most holds for all attempts of a request together."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.services.instances import launch
from ledger.kernel.states import InstanceState, RequestState
from providers.completeness import AnswerPart
from providers.contract import Offer, Provider
from providers.gpus.constraint import GpuConstraint
from tests.support.world import BOB, CAROL, World

DEAR = {"hours": Decimal(12), "gpu": GpuConstraint(("RTX4090",), 1, 1)}


class Market:
    """A cloud whose prices are what the test says."""

    def __init__(self, inner: Provider, *, more_usd_h: Decimal = Decimal(0)) -> None:
        self._inner = inner
        self.more_usd_h = more_usd_h

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def offers(self, *args: Any, **kwargs: Any) -> AnswerPart[Offer]:
        found = await self._inner.offers(*args, **kwargs)
        dearer = (replace(o, price_usd_h=o.price_usd_h + self.more_usd_h) for o in found if o.price_usd_h)
        return replace(found, items=tuple(dearer))

    async def requote(self, *args: Any, **kwargs: Any) -> Offer | None:
        found = await self._inner.requote(*args, **kwargs)
        return replace(found, price_usd_h=found.price_usd_h + self.more_usd_h) if found and found.price_usd_h else found


async def pending(w: World, **changes: Any) -> str:
    reply = await w.ask(**changes)
    assert reply.ok, reply
    await w.settle()
    return str(reply.data["request_id"])


async def booked(w: World) -> Decimal:
    return sum((one.amount_usd for one in (await w.books()).entries if one.kind == "accrue"), Decimal(0))


async def typed(w: World, request_id: str) -> str:
    """The amount that the dialog asks for."""
    return f"{(await w.view(request_id)).options[0].expected_usd:.2f}"


async def sold_out(w: World, request_id: str) -> None:
    """Everything that the request shows is rented by somebody else, so that its approval buys nothing."""
    for option in (await w.view(request_id)).options:
        w.clouds[option.cloud].withdraw(option.offer_key)


@pytest.mark.slow
async def test_the_requesters_most_is_for_all_attempts_together(w: World) -> None:
    w.tune(replacements=0, failover=False)
    w.boots_in(5000)
    request_id = await pending(w, budget_cap_usd=Decimal("1.20"), candidates=("runpod",))
    attempts = 0
    while (await w.view(request_id)).request.state is RequestState.PENDING:
        before = await booked(w)
        assert (await w.decide(request_id)).code == "approved"
        grant = max((await w.books()).grants, key=lambda one: one.seq)
        assert grant.total_cap_usd <= Decimal("1.20") - before
        attempts += 1
        await w.run(1200, 60)
    view = await w.view(request_id)
    assert (view.request.state, attempts > 1) == (RequestState.UNAVAILABLE, True)
    assert "Earlier attempts spent $" in view.request.outcome
    assert await booked(w) <= Decimal("1.20")


async def test_a_create_is_never_sent_above_the_price_that_the_requester_named(w: World) -> None:
    made: list[Market] = []

    def priced(inner: Provider) -> Provider:
        made.append(Market(inner))
        wrapped: Any = made[0]
        return wrapped  # type: ignore[no-any-return]

    w.wrap("runpod", priced)
    request_id = await pending(w, candidates=("runpod",))
    quoted = (await w.view(request_id)).options[0].price_usd_h
    await w.cancel(request_id)
    limit = quoted + Decimal("0.01")
    request_id = await pending(w, candidates=("runpod",), max_price_usd_h=limit)
    assert (await w.decide(request_id)).code == "approved"
    assert (await w.books()).grants[-1].price_cap_usd_h == limit
    made[0].more_usd_h = Decimal("0.02")  # Inside the tolerance of 10 %, and above what was asked for.
    await launch.send_due(w.ctx)
    assert w.engine.creates == []
    assert (await w.view(request_id)).instances[0].state is InstanceState.REJECTED
    await w.settle()
    assert (await w.view(request_id)).request.state is RequestState.UNAVAILABLE


async def test_an_approvers_limit_outlives_the_quote_until_an_approver_lifts_it(w: World) -> None:
    w.tune(confirm_above_usd=Decimal(1), failover=False)
    request_id = await pending(w, **DEAR)
    option = (await w.view(request_id)).options[0]
    limit = option.expected_usd.quantize(Decimal("0.01"))
    assert limit < option.worst_usd
    assert (await w.decide(request_id, typed_amount=await typed(w, request_id), cap_usd=limit)).code == "approved"
    await sold_out(w, request_id)
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.state, view.request.quote_version) == (RequestState.PENDING, 2)
    # The dialog opens even where the amount alone would not need one, and says what holds.
    w.tune(confirm_above_usd=Decimal(1000))
    asked = await w.decide(request_id, CAROL)
    assert (asked.code, asked.data["limit_usd"], asked.data["limit_by"]) == ("amount_needed", limit, BOB.ref)
    assert (await w.decide(request_id, CAROL, typed_amount=await typed(w, request_id))).code == "approved"
    assert max((await w.books()).grants, key=lambda one: one.seq).total_cap_usd == limit
    await sold_out(w, request_id)
    await w.settle()
    worst = (await w.view(request_id)).options[0].worst_usd
    lifted = worst.quantize(Decimal("0.01")) - Decimal("0.01")
    assert lifted > limit
    done = await w.decide(request_id, CAROL, typed_amount=await typed(w, request_id), cap_usd=lifted)
    assert done.code == "approved"
    assert max((await w.books()).grants, key=lambda one: one.seq).total_cap_usd == lifted


async def test_an_exact_price_of_many_decimals_is_bought_without_any_tolerance(w: World) -> None:
    w.tune(price_tolerance=Decimal(1))

    def finer(inner: Provider) -> Provider:
        wrapped: Any = Market(inner, more_usd_h=Decimal("0.0000004"))
        return wrapped  # type: ignore[no-any-return]

    w.wrap("vast", finer)
    request_id = await pending(w, candidates=("vast",))
    assert (await w.decide(request_id)).code == "approved"
    await w.settle()
    view = await w.view(request_id)
    assert (view.request.quote_version, view.instances[0].state) == (1, InstanceState.LIVE)
