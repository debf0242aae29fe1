"""A volume that its cloud does not list: nothing is lost by a short listing, and what is gone is proved for an hour."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.rules.values.reply_code import ReplyCode
from bot.services.instances.termination import end_session
from bot.services.sessions import volume_lookup
from ledger.kernel.end_reason import EndReason
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from tests.services.instances.test_adoption import keep
from tests.services.sessions.volumes.scene import ready, row, session, there
from tests.services.sessions.volumes.test_mounting import ask, running
from tests.support.world import ALICE, BOB, World

REGION: dict[str, Any] = {"regions": ("US-KS-2",)}


@pytest.mark.both_databases
@pytest.mark.slow
async def test_a_short_listing_loses_no_volume(w: World) -> None:
    """One minute of it: the volume counted as lost, could not be extended, and was deleted at its end with its data."""
    request_id = await ready(w, **REGION)
    (ref,) = there(w)
    w.arm("volumes_short", "runpod", times=6)
    await w.run(180, 30)
    w.engine.faults.disarm()
    before = await session(w)
    assert (before.state, (await row(w)).state) == (SessionState.RUNNING, InstanceState.LIVE)
    more = await w.more(request_id, "24")
    assert more.ok, more
    await w.settle()
    assert (await w.decide(str(more.data["request_id"]))).ok
    after = await session(w)
    assert before.deadline is not None
    assert after.deadline is not None
    w.clock.advance(before.deadline - w.clock.now())
    await w.run(300, 30)
    assert there(w) == [ref]
    assert (await ask(w)).ok
    assert list((await w.books()).orphans) == []


async def test_a_listing_that_stays_short_loses_no_volume(w: World) -> None:
    """Two hours of it. Each read by its own id shows the volume, and the operators are told."""
    await ready(w, **REGION)
    (ref,) = there(w)
    w.arm("volumes_short", "runpod", times=10_000)
    await w.run(7200, 120)
    assert ((await session(w)).state, (await row(w)).absent_at, there(w)) == (SessionState.RUNNING, [], [ref])
    assert "operator.page" in w.board.kinds()
    w.engine.faults.disarm()


async def test_half_a_listing_changes_nothing(w: World) -> None:
    """The page that follows fails, or the answer doesn't say whether more follow."""
    await ready(w, **REGION)
    for fault in ("page_error", "no_pagination"):
        w.arm(fault, "runpod", times=10_000)
        await w.run(900, 60)
        w.engine.faults.disarm()
        assert ((await session(w)).state, (await row(w)).absent_at) == (SessionState.RUNNING, [])


async def test_one_that_no_read_shows_mounts_nowhere_and_can_be_extended(w: World) -> None:
    request_id = await ready(w, **REGION)
    (ref,) = there(w)
    asked = await ask(w)
    await w.settle()
    account = w.clouds["runpod"].account  # type: ignore[attr-defined]
    hidden = account.network_volumes.pop(ref)
    await w.run(900, 60)
    assert (await row(w)).absent_at
    refused = await ask(w)
    assert (refused.code, "runpod does not list it now" in refused.sentence) == (ReplyCode.NO_VOLUME, True)
    (mine,) = await volume_lookup.mine(w.ctx, ALICE)
    assert (
        volume_lookup.trouble(mine) == "runpod doesn't list this volume now. It stays yours, and you still pay for it."
    )
    late = str(asked.data["request_id"])
    assert (await w.decide(late)).ok
    await w.settle()
    view = await w.view(late)
    assert "does not list volume data now" in view.instances[0].outcome
    assert view.request.state is not RequestState.UNAVAILABLE
    assert (await w.more(request_id, "24")).ok
    account.network_volumes[ref] = hidden
    await w.run(120, 30)
    assert ((await w.books()).instances[0].absent_at, there(w)) == ([], [ref])
    assert (await w.session((await w.books()).sessions[0].id)).session.state is SessionState.RUNNING


@pytest.mark.slow
async def test_a_read_that_fails_is_no_miss(w: World) -> None:
    await ready(w)
    (ref,) = there(w)
    account = w.clouds["runpod"].account  # type: ignore[attr-defined]
    hidden = account.network_volumes.pop(ref)
    w.arm("get_503", "runpod", times=10_000)
    await w.run(5400, 120)
    assert ((await row(w)).absent_at, (await session(w)).state) == ([], SessionState.RUNNING)
    w.engine.faults.disarm()
    account.network_volumes[ref] = hidden
    await w.run(60, 30)


@pytest.mark.slow
async def test_one_that_returns_after_it_counted_as_gone_is_kept_for_people(w: World) -> None:
    """Longer than any rule waits. Its approved end passes, and its data still wait for a decision."""
    await ready(w)
    (ref,) = there(w)
    account = w.clouds["runpod"].account  # type: ignore[attr-defined]
    hidden = account.network_volumes.pop(ref)
    await w.run(4500, 100)
    lost = await session(w)
    assert (lost.state, lost.end_code) == (SessionState.TERMINATED, "lost")
    account.network_volumes[ref] = hidden
    await w.run(120, 30)
    (orphan,) = (await w.books()).orphans
    assert (orphan.state, "until an operator decides" in orphan.reason) == (OrphanState.QUARANTINED, True)
    w.clock.advance(60 * 3600)
    await w.run(300, 30)
    assert there(w) == [ref]
    kept = await keep(w, orphan.id, BOB)
    assert kept.ok, kept
    await w.run(60, 20)
    assert ((await session(w)).gpu, (await session(w)).state, there(w)) == ("volume:data", SessionState.RUNNING, [ref])
    assert Decimal((await session(w)).hours) > 0
    await w.end((await session(w)).id)
    await w.run(200, 20)
    assert there(w) == []


@pytest.mark.slow
async def test_one_that_a_machine_of_somebody_mounts_is_not_deleted_and_its_owner_is_told(w: World) -> None:
    """RunPod documents no refusal, so a delete may go through under a machine that nobody here knows."""
    await ready(w, **REGION)
    (ref,) = there(w)
    machine = await running(w)
    (pod,) = w.clouds["runpod"].account.instances.values()  # type: ignore[attr-defined]
    w.arm("mounted_volume_deleted", "runpod", times=1000)
    volume = (await w.books()).sessions[0]
    async with w.ctx.db.write() as tx:
        await end_session(w.ctx, tx, volume.id, EndReason.ASKED, "Its owner deleted it.", ALICE, w.clock.now())
    await w.run(200, 20)
    assert there(w) == [ref]
    notes = [one for one in (await w.books()).notifications if one.subject.endswith("/in-use")]
    assert len(notes) == 2
    assert all(pod.ref in str(one.body) for one in notes)
    w.engine.faults.disarm()
    await w.end(machine)
    await w.run(400, 20)
    assert there(w) == []


async def test_a_cloud_that_only_lists_its_volumes_must_miss_one_for_longer(w: World) -> None:
    """Two hours of a short listing. A read there is the same list once more, so an hour of reads lost the volume."""
    await ready(w, clouds=("lambda",))
    (ref,) = there(w)
    w.arm("volumes_short", "lambda", times=10_000)
    await w.run(2 * 3600, 120)
    assert (await row(w)).absent_at != []
    w.engine.faults.disarm()
    await w.run(900, 60)
    assert ((await session(w)).state, (await row(w)).absent_at, there(w)) == (SessionState.RUNNING, [], [ref])
    w.clouds["lambda"].account.file_systems.pop(ref)  # type: ignore[attr-defined]
    await w.run(7 * 3600, 300)
    assert ((await row(w)).state, (await row(w)).outcome_code) == (InstanceState.GONE, EndReason.LOST)
