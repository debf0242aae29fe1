"""A file system that outgrows its approval: approvers are asked, people get days of notices, no amount deletes it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.values.reply_code import ReplyCode
from bot.services.sessions import volume_lookup
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState, SessionState
from ledger.models import Notification, Request
from providers.gpus.constraint import GpuConstraint
from tests.services.sessions.volumes.scene import LAMBDA, ready, row, session, there
from tests.services.sessions.volumes.test_mounting import ask as mount
from tests.support.world import ALICE, World

WEEK = timedelta(days=7)


async def grown(w: World, size_gb: int, excess_usd: int = 10_000, **changes: Any) -> str:
    """A file system approved for 100 GB that grows at night to so many. Its days of notices may cost much more."""
    w.tune(volume_excess_usd=Decimal(excess_usd))
    await ready(w, size_gb=100, clouds=("lambda",), **{"hours": Decimal(14 * 24), **changes})
    assert (await row(w)).cloud == LAMBDA
    (ref,) = there(w)
    w.clouds["lambda"].file_systems.fill(ref, size_gb)  # type: ignore[attr-defined]
    await w.run(300, 60)
    return ref


async def notices(w: World) -> list[Notification]:
    """The owner's notices."""
    pages = [one for one in (await w.books()).notifications if "/notice/" in one.subject]
    return [one for one in pages if one.destination.startswith("U")]


async def question(w: World) -> Request | None:
    """The newest question about its cost."""
    asked = [one for one in (await w.books()).requests if one.kind is RequestKind.OVERSPEND]
    return asked[-1] if asked else None


async def days(w: World, count: float) -> None:
    """Live through so many days."""
    for _ in range(int(count * 24)):
        w.clock.advance(3600)
        await w.settle()


@pytest.mark.slow
async def test_its_amount_alone_never_deletes_it(w: World) -> None:
    """It was deleted after 3 h 10 min at night, because its amount was used up."""
    ref = await grown(w, 6000)
    began_at = w.clock.now()
    assert await question(w) is not None
    assert len(await notices(w)) == 1
    await days(w, 6.5)
    assert there(w) == [ref]
    assert len(await notices(w)) == 7
    await days(w, 0.6)
    await w.run(600, 60)
    over = await session(w)
    assert (over.state, over.end_code, there(w)) == (SessionState.TERMINATED, "budget_cap", [])
    assert over.ended_at is not None
    assert over.ended_at - began_at >= WEEK - timedelta(minutes=10)
    assert "7 days of notices" in over.end_reason


async def test_growth_inside_the_approval_costs_no_more_than_was_approved(w: World) -> None:
    await grown(w, 200)
    assert (await question(w), await notices(w)) == (None, [])
    assert (await session(w)).volume_grace_at is None


@pytest.mark.slow
async def test_approvers_give_it_its_written_end_again(w: World) -> None:
    ref = await grown(w, 600)
    short = await session(w)
    asked = await question(w)
    assert asked is not None
    assert "Otherwise it is deleted" in asked.reason
    assert (await w.decide(asked.id)).ok
    await w.settle()
    kept = await session(w)
    assert (kept.deadline, kept.volume_grace_at) == (kept.volume_ends_at, None)
    assert short.deadline is not None
    assert kept.deadline is not None
    assert kept.deadline > short.deadline
    await days(w, 8)
    assert (there(w), len(await notices(w))) == ([ref], 1)


@pytest.mark.both_databases
@pytest.mark.slow
async def test_a_rejection_deletes_nothing_by_itself(w: World) -> None:
    ref = await grown(w, 6000)
    asked = await question(w)
    assert asked is not None
    await w.decide(asked.id, action="reject", reason="too much")
    await days(w, 2)
    latest = await question(w)
    assert latest is not None
    assert (latest.id, latest.state, there(w)) == (asked.id, RequestState.REJECTED, [ref])
    assert len(await notices(w)) == 3
    assert (await w.end((await session(w)).id)).ok
    await w.run(300, 30)
    assert there(w) == []


async def test_while_nobody_pays_for_it_no_machine_mounts_it_and_its_owner_reads_why(w: World) -> None:
    await grown(w, 6000)
    refused = await mount(w, gpu=GpuConstraint(("A10",)))
    assert (refused.code, "outgrew its approved amount" in refused.sentence) == (ReplyCode.NO_VOLUME, True)
    (view,) = await volume_lookup.mine(w.ctx, ALICE)
    assert volume_lookup.trouble(view) == "The approved amount doesn't pay for this volume until its end."


async def test_an_extension_moves_its_written_end(w: World) -> None:
    await grown(w, 600)
    short = await session(w)
    more = await w.more(short.request_id, "24", reason="more")
    assert more.ok, more
    await w.settle()
    assert (await w.decide(str(more.data["request_id"]))).ok
    longer = await session(w)
    assert short.volume_ends_at is not None
    assert longer.volume_ends_at == short.volume_ends_at + timedelta(hours=24)
    assert longer.deadline is not None
    assert short.deadline is not None
    assert short.deadline <= longer.deadline < longer.volume_ends_at


@pytest.mark.slow
async def test_days_on_which_nobody_could_be_told_do_not_count(w: World) -> None:
    ref = await grown(w, 6000)
    w.clock.advance(timedelta(days=6))
    await w.run(300, 60)
    assert len(await notices(w)) == 2
    await days(w, 3)
    assert (there(w), len(await notices(w))) == ([ref], 5)


async def test_one_that_lives_for_hours_is_warned(w: World) -> None:
    await ready(w, hours=Decimal(5))
    volume = await session(w)
    assert volume.deadline is not None
    w.clock.advance(volume.deadline - w.clock.now() - timedelta(hours=2.4))
    await w.settle()
    assert "session.ending" in w.board.kinds(volume.id)


async def test_the_card_shows_what_of_the_limit_is_for_notices(w: World) -> None:
    request_id = await ready(w, clouds=("lambda",), size_gb=100)
    (option,) = {one.id: one for one in (await w.view(request_id)).options if one.rank == 1}.values()
    assert "7 days of notices at up to 200 GB" in option.estimate["notices"]
    hourly = option.price_usd_h
    assert option.worst_usd >= hourly * 48 + 2 * hourly * 168


async def test_its_days_of_notices_cost_at_most_their_limit_beyond_the_approval_and_become_fewer(w: World) -> None:
    """A volume that grew 300-fold cost 12.5 times of what was approved, and nobody decided about it."""
    ref = await grown(w, 6000, 50)
    approved_usd = sum((one.total_cap_usd or Decimal(0) for one in (await w.books()).approvals), Decimal(0))
    began_at = w.clock.now()
    await days(w, 1)
    await w.run(300, 60)
    assert there(w) == [ref]
    while there(w) and w.clock.now() < began_at + WEEK:
        await days(w, 0.05)
        await w.run(300, 60)
    over, books = await session(w), await w.books()
    assert (over.state, over.end_code) == (SessionState.TERMINATED, "budget_cap")
    assert "Nobody approved its cost in 2 days of notices." in over.end_reason
    spent_usd = sum((one.amount_usd for one in books.entries if one.kind == "accrue"), Decimal(0))
    rate_usd_h = (await row(w)).price_usd_h
    assert approved_usd < spent_usd <= approved_usd + 50 + rate_usd_h * 2
    assert len(await notices(w)) == 2


async def test_a_volume_whose_day_costs_more_than_the_limit_has_a_day_of_notices(w: World) -> None:
    ref = await grown(w, 6000, 0)
    await days(w, 0.95)
    assert (there(w), len(await notices(w))) == ([ref], 1)
    await days(w, 0.1)
    await w.run(600, 60)
    assert there(w) == []
