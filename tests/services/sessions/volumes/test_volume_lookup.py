"""A volume is asked for, approved, created once, accrued, announced and deleted; and nothing is refused too late."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.values.reply_code import ReplyCode
from bot.services.instances import reconcile
from bot.services.runtime.commands import Reply, Terminate
from bot.services.sessions import service, volume_lookup
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import InstanceState, OrphanState, RequestState, SessionState
from tests.services.sessions.volumes.scene import LAMBDA, RUNPOD, approved, ask, ready, row, session, there
from tests.support.world import ALICE, BOB, DAVE, World, facts

#: 200 GB at $0.07 a month of 720 hours.
RATE = Decimal(200) * Decimal("0.07") / 720


async def test_it_is_a_request_of_its_own_kind_whose_amount_is_size_price_and_time(w: World) -> None:
    reply = await ask(w)
    assert reply.ok, reply
    await w.settle()
    view = await w.view(str(reply.data["request_id"]))
    assert (view.request.kind, view.request.state) == (RequestKind.VOLUME, RequestState.PENDING)
    assert {option.cloud for option in view.options} == {RUNPOD}
    assert abs(view.options[0].expected_usd - RATE * 48) < Decimal("0.01")
    assert view.override is None  # The limit on hours is about machines.
    assert there(w) == []
    assert (await w.decide(view.request.id, ALICE)).code == ReplyCode.REQUESTER
    assert there(w) == []


async def test_it_is_created_once_accrues_and_is_in_the_owners_costs(w: World) -> None:
    await ready(w)
    assert len(there(w)) == 1
    one = await row(w)
    assert (one.cloud, one.state) == (RUNPOD, InstanceState.LIVE)
    assert str(one.name).startswith("volume-data-")
    w.clock.advance(3600 * 10)
    await w.settle()
    view = await w.session((await session(w)).id)
    bill = w.bill()
    assert abs(view.accrued_usd - bill) <= bill / 10  # The hour that runs is not booked yet.
    assert len([call for call in w.engine.creates if call.cloud == "runpod"]) == 1


async def test_the_ledger_agrees_with_the_bill_at_the_end(w: World) -> None:
    await ready(w)
    w.clock.advance(3600 * 20)
    await w.settle()
    reply = await w.end((await session(w)).id)
    assert reply.ok, reply
    assert "will be deleted" in reply.sentence
    await w.run(300, 20)
    assert (await session(w)).state is SessionState.TERMINATED
    assert there(w) == []
    view = await w.session((await session(w)).id)
    assert abs(view.accrued_usd - w.bill()) <= w.bill() / 100


async def test_it_is_deleted_at_its_end_and_its_owner_is_told_a_day_and_an_hour_before(w: World) -> None:
    await ready(w)
    one = await session(w)
    assert one.deadline is not None
    for before in (timedelta(hours=24), timedelta(hours=1)):
        w.clock.advance(one.deadline - before - w.clock.now() - timedelta(seconds=5))
        await w.settle()
        told = len([kind for kind in w.board.kinds(one.id) if kind == "session.ending"])
        w.clock.advance(10)
        await w.settle()
        assert len([kind for kind in w.board.kinds(one.id) if kind == "session.ending"]) == told + 1
    assert len(there(w)) == 1
    w.clock.advance((await session(w)).deadline - w.clock.now())  # type: ignore[operator]
    await w.run(300, 20)
    over = await session(w)
    assert (over.state, over.end_code) == (SessionState.TERMINATED, "reservation_over")
    assert there(w) == []


async def test_a_lost_reply_is_looked_up_by_its_label_and_nothing_is_bought_twice(w: World) -> None:
    await approved(w)
    w.arm("create_lost_reply", "runpod")
    await w.settle()
    await w.run(120, 20)
    assert (await session(w)).state is SessionState.RUNNING
    assert len(there(w)) == 1
    assert len([call for call in w.engine.creates if call.cloud == "runpod"]) == 1


async def test_one_that_never_appears_is_given_up_and_asked_about_again(w: World) -> None:
    request_id = await approved(w)
    w.arm("create_500", "runpod")
    await w.settle()
    await w.run(420, 30)
    assert (await row(w)).state is InstanceState.TOMBSTONE
    assert (await w.view(request_id)).request.state in (RequestState.PENDING, RequestState.QUOTING)
    assert there(w) == []


async def test_one_that_lands_late_is_deleted_or_adopted_and_never_left(w: World) -> None:
    await approved(w)
    w.arm("late_create", "runpod", after_s=200)
    await w.settle()
    await w.run(300, 20)
    assert (await session(w)).state is SessionState.RUNNING
    assert len(there(w)) == 1


async def test_one_that_vanishes_closes_its_record_and_is_not_replaced(w: World) -> None:
    await ready(w)
    (ref,) = there(w)
    w.clouds["runpod"].account.network_volumes[ref].end(w.clock.now(), 0.0)  # type: ignore[attr-defined]
    await w.run(3500, 100)
    assert (await session(w)).state is SessionState.RUNNING
    await w.run(600, 100)
    over = await session(w)
    assert (over.state, over.end_code) == (SessionState.TERMINATED, "lost")
    assert "session.ended" in w.board.kinds(over.id)
    assert len((await w.books()).instances) == 1
    assert there(w) == []


async def test_what_bears_our_name_without_an_open_record_waits_for_an_operator(w: World) -> None:
    await ready(w)
    account = w.clouds["runpod"].account  # type: ignore[attr-defined]
    name = (await row(w)).name
    await w.end((await session(w)).id)
    await w.run(300, 20)
    assert there(w) == []
    ours = account.add_volume(name, Decimal(20), "EU-RO-1")
    theirs = account.add_volume("somebodys-data", Decimal(20), "EU-RO-1")
    await w.run(300, 20)
    assert there(w) == [ours.ref, theirs.ref]  # Nobody knows what is on it.
    (orphan,) = (await w.books()).orphans
    assert (orphan.ref, orphan.state) == (ours.ref, OrphanState.QUARANTINED)
    ours.end(w.clock.now(), 0.0)
    theirs.end(w.clock.now(), 0.0)


async def test_more_time_is_asked_for_like_that_of_a_session(w: World) -> None:
    request_id = await ready(w)
    before = (await session(w)).deadline
    asked = await w.more(request_id, "168")
    assert asked.ok, asked
    await w.settle()
    decided = await w.decide(str(asked.data["request_id"]))
    assert decided.ok, decided
    assert before is not None
    assert (await session(w)).deadline == before + timedelta(hours=168)
    too_long = await w.more(request_id, str(366 * 24))
    assert (too_long.code, "365 days" in too_long.sentence) == (ReplyCode.TOO_LONG, True)


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"name": "Data!"}, ReplyCode.BAD_VOLUME, "2 to 24 lowercase letters"),
        ({"size_gb": 5}, ReplyCode.BAD_VOLUME, "10 to 4,096 GB"),
        ({"hours": Decimal(9000)}, ReplyCode.TOO_LONG, "365 days"),
        ({"hours": Decimal("NaN")}, ReplyCode.TOO_LONG, "365 days"),
        ({"clouds": ("vast",)}, ReplyCode.NO_VOLUMES, "vast has no network volumes. These have them: runpod, lambda."),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_posted(
    w: World, changes: dict[str, Any], code: ReplyCode, said: str
) -> None:
    refused = await ask(w, **changes)
    assert (refused.code, said in refused.sentence) == (code, True), refused
    assert list((await w.books()).requests) == []


async def test_a_name_is_used_once_by_its_owner(w: World) -> None:
    first = await ask(w)
    again = await ask(w)
    assert (first.ok, again.code) == (True, ReplyCode.ALREADY_REQUESTED)
    await w.settle()
    await w.decide(str(first.data["request_id"]))
    await w.settle()
    await w.run(60, 20)
    assert (await ask(w)).code == ReplyCode.BAD_VOLUME
    assert (await ask(w, actor=DAVE)).ok


async def test_lambda_bills_what_is_on_a_file_system(w: World) -> None:
    await ready(w, clouds=("lambda",))
    assert (await row(w)).cloud == LAMBDA
    (ref,) = there(w)
    w.clouds["lambda"].file_systems.fill(ref, 100)  # type: ignore[attr-defined]
    await w.run(60, 20)
    w.clock.advance(3600 * 30)
    await w.settle()
    await w.end((await session(w)).id)
    await w.run(300, 20)
    view, bill = await w.session((await session(w)).id), w.bill()
    assert bill > Decimal("0.7")
    assert abs(view.accrued_usd - bill) <= bill / 50


async def test_nothing_is_listed_for_who_has_no_volume(w: World) -> None:
    assert await volume_lookup.mine(w.ctx, ALICE) == []
    found = await volume_lookup.named(w.ctx, ALICE, "data")
    assert isinstance(found, Reply)
    assert "You have none." in found.sentence
    await ready(w)
    assert [one.session.gpu for one in await volume_lookup.mine(w.ctx, ALICE)] == ["volume:data"]
    assert await volume_lookup.mine(w.ctx, DAVE) == []
    other = await volume_lookup.named(w.ctx, ALICE, "other")
    assert isinstance(other, Reply)
    assert "Your volumes: data." in other.sentence


async def test_only_its_owner_or_an_approver_deletes_it(w: World) -> None:
    await ready(w)
    one = await session(w)
    refused = await service.terminate(w.ctx, Terminate(one.id, facts(DAVE)))
    assert refused.code == ReplyCode.NOT_YOURS
    assert (await service.terminate(w.ctx, Terminate(one.id, facts(BOB)))).ok
    await w.run(300, 20)
    assert there(w) == []


async def test_a_listing_that_fails_is_asked_for_at_the_slow_pace_only(w: World) -> None:
    w.arm("list_503", "runpod", times=20)
    failed = await reconcile.observe(w.ctx, RUNPOD)
    assert (failed.urgent, bool(failed.problem)) == (False, True)
    assert (await reconcile.observe(w.ctx, "runpod")).urgent is True
    w.engine.faults.disarm()


async def test_a_volume_is_not_shown_in_the_message_of_a_machine(w: World) -> None:
    machine = str((await w.ask()).data["request_id"])
    await w.cancel(machine)
    first = str((await ask(w)).data["request_id"])
    await w.cancel(first)
    second = str((await ask(w)).data["request_id"])
    rows = [(await w.view(one)).request.card_of for one in (machine, first, second)]
    assert rows == [None, None, first]
