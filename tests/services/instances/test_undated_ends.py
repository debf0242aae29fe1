"""An end that nothing dates: what an instance can have cost counts until it had ended, or worked, for certain."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from bot.rules.billing.true_up import SETTLED
from bot.services.billing import bill_confirmation, true_up
from bot.services.instances import reconcile, termination
from bot.services.instances.blind_time import last_worked, worked_by_listing
from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock
from ledger.kernel.states import InstanceState
from providers.contract import Provider
from providers.errors import Unavailable
from tests.services.instances.test_lost import in_use, known, later, lose, off, only
from tests.support.proxy_provider import Hiding, InFront
from tests.support.world import World


class LateOrder(InFront):
    """A cloud that gets its first order to end after its caller's time is over.

    With `retried` it gets it in the second call, which repeats it, and whose last answer is that there is no such
    machine. `confirms` is a clock to which that answer shows the time.
    """

    retried, calls = False, 0
    confirms: GuardedClock | None = None

    async def terminate(self, ref: str) -> bool:
        self.calls += 1
        if self.retried and self.calls > 1:
            if self.confirms is not None:
                self.confirms.note_date(self.inner.name, self.confirms.now(), 0.1)
            await self.inner.terminate(ref)
            return False
        raise Unavailable(self.inner.name, "no reply")


async def ordered_late(w: World, cloud: str, *, retried: bool) -> LateOrder:
    """The end of an instance in use was ordered, and no reply came."""
    request_id = await in_use(w, cloud)
    w.wrap(cloud, lambda inner: cast("Provider", LateOrder(inner)))
    late = cast("LateOrder", w.ctx.providers[cloud])
    late.retried = retried
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    return late


@pytest.mark.parametrize("retried", [False, True])
async def test_an_end_that_no_reply_dates_may_have_been_at_any_time_until_it_was_known(
    bare: World, retried: bool
) -> None:
    w = bare
    late = await ordered_late(w, "lambda", retried=retried)
    called_at = w.clock.now()
    w.clock.advance(300)
    if not retried:
        await late.inner.terminate(str((await only(w)).ref))
    await termination.terminate_due(w.ctx)
    for _ in range(4):
        await later(w, 40, "lambda")
    row = await only(w)
    assert row.state is InstanceState.GONE
    assert row.terminate_acked_at == (called_at if retried else None)
    low_usd, high_usd = known(w, row)
    assert low_usd < w.bill() <= high_usd


@pytest.mark.parametrize("starts", [False, True])
async def test_a_bill_for_time_after_a_call_without_a_reply_is_booked_without_a_person(
    bare: World, starts: bool
) -> None:
    """The call never reached the cloud, which was called again half an hour later, perhaps by a process that starts."""
    w = bare
    late = await ordered_late(w, "tensordock", retried=True)
    called_at = w.clock.now()
    w.clock.advance(1800)
    if starts:
        late.confirms = GuardedClock(w.machine, confirm_s=CONFIRM_S)
        w.ctx = replace(w.ctx, clock=late.confirms)
    await termination.terminate_due(w.ctx)
    for _ in range(4):
        await later(w, 40, "tensordock")
    row = await only(w)
    assert (row.state, row.ended_at) == (InstanceState.GONE, called_at)
    assert -await off(w) > w.bill() / 2
    w.clock.advance((SETTLED + timedelta(hours=2)).total_seconds())
    await true_up.reconcile_due(w.ctx)
    assert abs(await off(w)) <= w.bill() / 100
    assert await bill_confirmation.unconfirmed(w.ctx) == []


@pytest.mark.parametrize("cloud", ["lambda", "runpod"])
async def test_an_end_that_was_accepted_and_not_done_is_booked_until_the_one_that_was_done(
    bare: World, cloud: str
) -> None:
    """Nothing was listed between: only the second order, which the cloud accepts too, shows that it still billed."""
    w = bare
    request_id = await in_use(w, cloud)
    w.arm("destroy_not_done", cloud, times=1)
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    assert len(w.alive()) == 1
    w.clock.advance(1800)
    await termination.terminate_due(w.ctx)
    done_at = w.clock.now()
    assert w.alive() == []
    for _ in range(4):
        await later(w, 40, cloud)
    row = await only(w)
    assert (row.state, row.ended_at) == (InstanceState.GONE, done_at)
    assert abs(await off(w)) <= w.bill() / 100
    low_usd, high_usd = known(w, row)
    assert low_usd <= w.bill() <= high_usd


@pytest.mark.parametrize("phase_s", [0, 20, 40])
async def test_an_order_that_is_repeated_soon_and_accepted_again_may_be_the_one_that_ended_it(
    bare: World, phase_s: int
) -> None:
    """A cloud may accept an order again while it lists late what has ended, so nobody knows which one it was."""
    w = bare
    request_id = await in_use(w, "lambda")
    w.arm("destroy_not_done", "lambda", times=1)
    w.clock.advance(phase_s)
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    accepted_at = w.clock.now()
    w.clock.advance(25)
    await termination.terminate_due(w.ctx)
    assert w.alive() == []
    for _ in range(4):
        await later(w, 40, "lambda")
    row = await only(w)
    assert (row.state, row.ended_at) == (InstanceState.GONE, accepted_at)
    low_usd, high_usd = known(w, row)
    assert low_usd < w.bill() <= high_usd


def start(w: World, *, off: timedelta) -> None:
    """A process starts on a machine whose clock is wrong by `off`, and one cloud shows it the time."""
    w.machine.off = off
    clock = GuardedClock(w.machine, confirm_s=CONFIRM_S)
    clock.note_date("vast", w.clock.now(), 0.1)
    w.ctx = replace(w.ctx, clock=clock)


async def test_a_process_that_starts_an_hour_behind_dates_no_end(bare: World) -> None:
    """Its clock shows a time before the launch, and a single cloud is not believed at once."""
    w = bare
    request_id = await in_use(w)
    start(w, off=-timedelta(hours=1))
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    assert w.alive() == []
    start(w, off=timedelta())
    for _ in range(4):
        await later(w, 40)
    row = await only(w)
    assert row.state is InstanceState.GONE
    assert str(row.billing_from) < str(row.ended_at)
    w.clock.advance((SETTLED + timedelta(hours=2)).total_seconds())
    await true_up.reconcile_due(w.ctx)
    assert abs(await off(w)) <= w.bill() / 100
    assert await bill_confirmation.unconfirmed(w.ctx) == []


async def test_the_first_look_that_lacked_a_lost_machine_may_have_been_wrong(bare: World) -> None:
    w = bare
    await in_use(w)
    row = await only(w)
    w.wrap("vast", lambda inner: cast("Provider", Hiding(inner)))
    await later(w, 30)
    w.clock.advance(25)
    lose(w, row)
    for _ in range(4):
        await later(w, 30)
    row = await only(w)
    assert (row.state, row.absent_at[0]) == (InstanceState.GONE, row.ended_at and row.ended_at.isoformat())
    low_usd, high_usd = known(w, row)
    assert low_usd < w.bill() <= high_usd


class ListedMeanwhile(Hiding):
    """A cloud that is listed between the note of the call and its order to end, without what has failed."""

    world: World

    async def terminate(self, ref: str) -> bool:
        await reconcile.observe(self.world.ctx, self.inner.name)
        return await self.inner.terminate(ref)


@pytest.mark.parametrize(
    ("unseen_s", "starts", "listed"),
    [(29, False, False), (150, False, False), (290, False, False), (900, True, False), (900, True, True)],
)
async def test_what_failed_just_before_its_end_was_ordered_has_a_range_from_then_on(
    bare: World, unseen_s: int, starts: bool, listed: bool
) -> None:
    """Nothing looked between: the cloud accepts the end of what it bills no more.

    A process that starts does not know when its cloud was listed last.
    """
    w = bare
    request_id = await in_use(w, "lambda")
    w.clouds["lambda"].disturb(str((await only(w)).ref), "preempted")
    w.clock.advance(unseen_s)
    if starts:
        w.ctx.listed_at.clear()
    if listed:
        w.wrap("lambda", lambda inner: cast("Provider", ListedMeanwhile(inner)))
        cast("ListedMeanwhile", w.ctx.providers["lambda"]).world = w
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    for _ in range(4):
        await later(w, 40, "lambda")
    row = await only(w)
    assert row.state is InstanceState.GONE
    low_usd, high_usd = known(w, row)
    assert low_usd <= w.bill() <= high_usd


@pytest.mark.parametrize("status", ["running", "offline"])
async def test_a_call_without_a_reply_is_no_evidence_once_its_cloud_shows_that_the_instance_runs(
    bare: World, status: str
) -> None:
    """An instance that is offline may have been ended by the call, which its cloud carries out slowly."""
    w = bare
    await ordered_late(w, "lambda", retried=False)
    called_at = w.clock.now()
    await later(w, 20, "lambda")
    assert (await only(w)).terminate_called_at == called_at  # Its listings may lag for so long.
    if status == "offline":
        w.clouds["lambda"].disturb(str((await only(w)).ref), "preempted")
    await later(w, 1800, "lambda")
    row = await only(w)
    if status == "offline":
        assert row.terminate_called_at == called_at
        return
    assert (row.terminate_called_at, row.terminate_acked_at) == (None, None)
    lose(w, row)
    await later(w, 40, "lambda")
    gone_at = w.clock.now()
    for _ in range(3):
        await later(w, 40, "lambda")
    row = await only(w)
    assert (row.state, row.ended_at) == (InstanceState.GONE, gone_at)
    assert row.latest_end_at is not None
    assert gone_at < row.latest_end_at <= w.clock.now()
    assert abs(await off(w)) <= w.bill() / 20
    low_usd, high_usd = known(w, row)
    assert low_usd < w.bill() <= high_usd


async def test_a_stored_trouble_is_the_last_sign_of_work(bare: World) -> None:
    """A row of an earlier release has the trouble alone. Nothing later becomes its last sign of work."""
    w = bare
    await in_use(w)
    row, at = await only(w), w.clock.now()
    w.ctx.listed_at.clear()
    assert (await worked_by_listing(w.ctx, row, None, {}, at)).keys() == {"worked_at"}
    row.trouble_at, row.terminate_asked_at = at - timedelta(minutes=10), at
    assert await worked_by_listing(w.ctx, row, None, {}, at) == {}
    assert await last_worked(w.ctx, row, at, at - timedelta(hours=1)) == {}
