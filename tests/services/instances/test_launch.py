"""The create's turn is taken before the send is committed: a row in SENDING waits for nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

import pytest

from bot.rules.instances.failover import PATIENCE
from bot.rules.instances.startup_script import bootstrap
from bot.services.access import sharing
from bot.services.access.sharing import ShareWith
from bot.services.instances import launch, reconcile
from ledger.kernel.grant import Grant
from ledger.kernel.states import InstanceState, RequestState
from ledger.models import GrantRow, Instance
from ledger.queries.orphans import every_orphan
from providers.contract import InstanceSpec, Listing, ObservedInstance, Provider
from providers.errors import NoCapacity, OutcomeUnknown, ProviderError, RateLimited
from providers.profiles import model
from providers.sandbox.runpod.sandbox import RunPodSandbox
from tests.services.access.test_sharing import key_of
from tests.support.proxy_provider import InFront, Noting, noting
from tests.support.world import ALICE, DAVE, World

Act = Callable[[], Awaitable[None]]


class Meanwhile(InFront):
    """Something happens while it prepares a create, or before it answers a listing, once."""

    def __init__(self, inner: Provider, *, prepares: Act | None = None, lists: Act | None = None) -> None:
        super().__init__(inner)
        self._prepares, self._lists = prepares, lists

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        act, self._prepares = self._prepares, None
        if act is not None:
            await act()
        return await self.inner.prepare(spec, grant)

    async def list(self) -> Listing:
        act, self._lists = self._lists, None
        if act is not None:
            await act()
        return await self.inner.list()


class Preparing(InFront):
    """Says something before the create, once."""

    def __init__(self, inner: Provider, error: ProviderError) -> None:
        super().__init__(inner)
        self._errors = [error]

    async def prepare(self, spec: InstanceSpec, grant: Grant) -> InstanceSpec:
        if self._errors:
            raise self._errors.pop()
        return await self.inner.prepare(spec, grant)


def saying(error: ProviderError) -> Callable[[Provider], Provider]:
    return lambda inner: cast("Provider", Preparing(inner, error))


async def test_an_end_while_a_launch_is_prepared_sends_nothing(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))

    async def end() -> None:
        assert (await w.end(request_id, ALICE)).ok

    w.wrap("vast", lambda inner: cast("Provider", Meanwhile(inner, prepares=end)))
    await w.settle()
    assert (await w.view(request_id)).instances[0].state is InstanceState.REJECTED
    assert w.engine.creates == []


async def test_who_leaves_while_a_launch_is_prepared_is_not_on_the_machine(w: World) -> None:
    w.tune(validate_login=False)  # Nobody can log in to the machine later and remove a key there.
    keys = {who: await key_of(w, who) for who in (ALICE, DAVE)}
    request_id = await w.approved(candidates=("runpod",), share=(DAVE.ref,))

    async def leaves() -> None:
        assert (await sharing.change(w.ctx, ShareWith(request_id, ALICE, DAVE, off=True))).ok

    w.wrap("runpod", lambda inner: cast("Provider", Meanwhile(inner, prepares=leaves)))
    await w.settle()
    runpod = w.clouds["runpod"]
    assert isinstance(runpod, RunPodSandbox)
    (pod,) = runpod.account.instances.values()
    assert pod.order.env["PUBLIC_KEY"].splitlines() == [keys[ALICE]]


async def test_what_is_launched_during_a_listing_is_no_orphan(w: World) -> None:
    """The ledger is read after the listing: what it lacked before was approved and made meanwhile."""
    request_id = str((await w.ask(candidates=("vast",))).data["request_id"])
    await w.settle()

    async def buy() -> None:
        assert (await w.decide(request_id)).code == "approved"
        assert await launch.send_due(w.ctx)

    w.wrap("vast", lambda inner: cast("Provider", Meanwhile(inner, lists=buy)))
    found = await reconcile.observe(w.ctx, "vast")
    assert found.listed >= 1
    assert (await w.view(request_id)).instances[0].state is InstanceState.LIVE
    async with w.ctx.db.read() as tx:
        assert await every_orphan(tx) == []


@pytest.mark.both_databases
async def test_a_create_whose_turn_is_far_away_stays_ready_and_is_sent_later(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.wrap("vast", saying(RateLimited("vast", "vast takes 1 in 4.7 s, and others are waiting already", 20.0)))
    await w.settle()
    row = (await w.view(request_id)).instances[0]
    assert (row.state, row.sent_at, row.claim_token) == (InstanceState.READY, None, None)
    assert w.engine.creates == []

    w.clock.advance(21)
    await w.settle()
    (row,) = (await w.view(request_id)).instances
    assert (row.state, len(w.engine.creates)) == (InstanceState.LIVE, 1)


async def test_a_no_before_the_send_is_a_definite_no(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.wrap("vast", saying(NoCapacity("vast", "the offer is gone")))
    await w.settle()
    first, second = (await w.view(request_id)).instances
    assert (first.state, first.sent_at, first.outcome_code) == (InstanceState.REJECTED, None, "no_capacity")
    assert (second.state, len(w.engine.creates)) == (InstanceState.LIVE, 1)


@pytest.mark.both_databases
async def test_what_was_sent_before_is_searched_for_and_not_sent_again(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.wrap("vast", saying(OutcomeUnknown("vast", "vast has an instance of this name already")))
    await w.settle()
    row = (await w.view(request_id)).instances[0]
    assert (row.state, w.engine.creates) == (InstanceState.UNKNOWN, [])
    assert row.outcome == "vast has an instance of this name already."


async def test_a_machine_is_given_what_its_clouds_profile_says(w: World) -> None:
    for cloud in ("runpod", "lambda", "kaggle"):
        w.wrap(cloud, noting)
        await w.approved(candidates=(cloud,))
        await w.settle()
        (spec,) = cast("Noting", w.ctx.providers[cloud]).specs
        places = model.load(cloud).overrides
        assert dict(spec.env) == places.environment
        # A program is a person's own; every other machine makes its directories first.
        assert spec.onstart == (
            "python train.py" if cloud == "kaggle" else bootstrap(places.environment, places.directories)
        )


async def test_an_image_that_a_person_chose_keeps_its_own_command(w: World) -> None:
    w.wrap("runpod", noting)
    await w.approved(candidates=("runpod",), image="vllm/vllm-openai:v0.9")
    await w.settle()
    (spec,) = cast("Noting", w.ctx.providers["runpod"]).specs
    assert (spec.image, spec.onstart, spec.env["DATA_DIR"]) == ("vllm/vllm-openai:v0.9", "", "/root/data")


class LongOwner(InFront):
    """The same account at Kaggle, whose user name has 60 characters."""

    def _named(self, one: ObservedInstance) -> ObservedInstance:
        return replace(one, ref=f"{'m' * 60}/{one.ref.partition('/')[2]}")

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        return self._named(await self.inner.create(spec, grant))

    async def list(self) -> Listing:
        found = await self.inner.list()
        return replace(found, items=tuple(map(self._named, found.items)))


async def test_the_longest_id_is_written_down(w: World) -> None:
    w.wrap("kaggle", lambda inner: cast("Provider", LongOwner(inner)))
    request_id = await w.approved(candidates=("kaggle",))
    await w.settle()
    row = (await w.view(request_id)).instances[0]
    assert (row.state, len(row.ref or "") > 64) == (InstanceState.LIVE, True)


async def newest(w: World, request_id: str) -> Instance:
    return (await w.view(request_id)).instances[-1]


async def test_the_wait_for_a_rate_limit_goes_on_in_another_process(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm("search_429", "vast", times=None, retry_after=20)
    began = w.clock.now()
    for _ in range(4):
        other = w.replica()
        await launch.send_due(other.ctx)
        await other.ctx.db.close()
        w.clock.advance(21)
    row = await newest(w, request_id)
    assert (row.state, row.outcome_code) == (InstanceState.REJECTED, "rate_limited")
    assert row.ended_at is not None
    assert row.ended_at - began <= PATIENCE
    assert (await w.view(request_id)).request.state is RequestState.QUOTING


async def test_a_rate_limit_long_after_the_one_before_is_waited_out_too(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    for _ in range(2):
        w.arm("search_429", "vast", times=1, retry_after=2)
        await launch.send_due(w.ctx)
        row = await newest(w, request_id)
        assert (row.state, row.limited_at) == (InstanceState.READY, w.clock.now())
        w.clock.advance(120)  # Nothing is sent meanwhile, as in recovery mode.
    await launch.send_due(w.ctx)
    assert (await newest(w, request_id)).state is InstanceState.LIVE


@pytest.mark.parametrize("fault", ["search_429", "create_429"])
async def test_no_rate_limit_is_waited_out_beyond_the_approval(w: World, fault: str) -> None:
    request_id = await w.approved(candidates=("runpod" if fault == "create_429" else "vast",))
    row = await newest(w, request_id)
    async with w.ctx.db.read() as tx:
        until = (await tx.get_one(GrantRow, row.grant_id)).until
    w.clock.advance((until - w.clock.now()).total_seconds() - 5)
    w.arm(fault, row.cloud, retry_after=7)
    await launch.send_due(w.ctx)
    row = await newest(w, request_id)
    assert (row.n, row.state, row.outcome_code) == (1, InstanceState.REJECTED, "rate_limited")
    assert (await w.view(request_id)).request.state is RequestState.QUOTING
