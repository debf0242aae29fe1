"""The operator confirms a bill that its cloud explains, and no bill that only a wrong time in the ledger explains."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal

import pytest

from bot.rules.billing.true_up import SETTLED
from bot.services.billing import bill_confirmation, true_up
from bot.services.instances import launch, reconcile, termination
from ledger.engine.db import Database
from ledger.kernel.states import InstanceState, NotificationKind
from providers.sandbox.clock import SandboxTiming
from tests.scenarios.simulation.bill_pages import OPERATOR, confirm_explained
from tests.scenarios.simulation.bills import differences
from tests.support.clock import SteppedClock
from tests.support.world import World, world

UNSEEN_S = 1800.0


@pytest.fixture
async def w(db: Database, clock: SteppedClock) -> AsyncIterator[World]:
    """A world whose bill is judged by the test itself."""
    async with world(db, clock, sandbox=SandboxTiming.quick()) as built:
        yield built


async def rented(w: World, cloud: str) -> tuple[str, str]:
    """A request, and the machine of it that has worked for a while and was just listed."""
    w.tune(replacements=0)
    request_id = await w.running(candidates=(cloud,), hours=Decimal(6))
    await looked_at(w, cloud, 600)
    (row,) = (await w.books()).instances
    return request_id, str(row.ref)


async def looked_at(w: World, cloud: str, *after_s: float) -> None:
    for seconds in after_s:
        w.clock.advance(seconds)
        await reconcile.observe(w.ctx, cloud)


async def disagreements(w: World, hidden: set[str]) -> tuple[list[str], list[str], list[str]]:
    """Two days later: what the bill and the ledger disagree about, the operator's replies, and what is left of it."""
    w.clock.advance((SETTLED + timedelta(hours=2)).total_seconds())
    await true_up.reconcile_due(w.ctx)
    books = await w.books()
    assert [row.state for row in books.instances] == [InstanceState.GONE]
    pages = [str(n.body["text"]) for n in books.notifications if n.kind is NotificationKind.OPERATOR_PAGE]
    before = list(differences(w.ctx, books, w.instances()))
    replies = await confirm_explained(w.ctx, pages, w.instances(), hidden)
    after = list(differences(w.ctx, await w.books(), w.instances()))
    return before, [str(one.code) for one in replies], after


@pytest.mark.quick
async def test_a_price_that_rose_unseen_is_confirmed(w: World) -> None:
    request_id, ref = await rented(w, "runpod")
    w.clouds["runpod"].disturb(ref, "much_dearer")
    w.clock.advance(UNSEEN_S)
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    await looked_at(w, "runpod", 40, 40, 40, 40)
    before, replies, after = await disagreements(w, set())
    assert len(before) == 1
    assert replies == ["bill_confirmed"]
    assert after == []
    assert await bill_confirmation.unconfirmed(w.ctx) == []
    assert any(one.actor == OPERATOR.ref for one in (await w.books()).events)


@pytest.mark.quick
@pytest.mark.parametrize("was_hidden", [True, False])
async def test_time_that_the_ledger_lacks_is_confirmed_only_where_the_cloud_hid_the_machine(
    w: World, was_hidden: bool
) -> None:
    request_id, ref = await rented(w, "tensordock")
    w.clouds["tensordock"].disturb(ref, "ghost")
    await w.end(request_id)
    await termination.terminate_due(w.ctx)
    await looked_at(w, "tensordock", 40, 40, 40, 40, UNSEEN_S)
    w.clouds["tensordock"].disturb(ref, "vanish")
    before, replies, after = await disagreements(w, {ref} if was_hidden else set())
    assert len(before) == 1
    assert (replies, after) == ((["bill_confirmed"], []) if was_hidden else ([], before))


@pytest.mark.quick
@pytest.mark.parametrize("vanishes_after_s", [100, 3600])
async def test_what_vanished_unseen_after_its_create_was_given_up_is_unknown_to_everybody(
    w: World, vanishes_after_s: float
) -> None:
    w.arm("create_lost_reply", "tensordock")
    request_id = await w.approved(candidates=("tensordock",))
    await launch.send_due(w.ctx)
    (made,) = w.instances()
    w.clouds["tensordock"].disturb(made.ref, "ghost")
    await w.run(vanishes_after_s, 60)
    w.clouds["tensordock"].disturb(made.ref, "vanish")
    await w.run(600, 60)
    row = (await w.view(request_id)).instances[0]
    assert row.state is InstanceState.TOMBSTONE
    books, is_late = await w.books(), vanishes_after_s > 600
    found = list(differences(w.ctx, books, w.instances()))
    assert (len(found), len(list(differences(w.ctx, books, w.instances(), {made.ref})))) == (int(is_late), 0)
