"""A machine mounts a volume where it is; what can't be is refused before the request is posted, and costs nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import update

from bot.rules.values.reply_code import ReplyCode
from bot.services.instances.launch_spec import VOLUME_PATH
from bot.services.runtime.commands import Reply, Terminate
from bot.services.sessions import service, transfer
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Session
from ledger.queries.access import lock_consumer
from ledger.queries.runs.relocations import sessions_to_move
from providers.gpus.constraint import GpuConstraint
from tests.services.sessions.volumes.scene import approved, ready, session, there
from tests.support.world import ALICE, DAVE, World, facts

A100 = GpuConstraint(("A100-SXM-80GB",))


async def ask(w: World, **changes: Any) -> Reply:
    """Ask for an A100 for two hours with the volume."""
    return await w.ask(**{"gpu": A100, "volume": "data", **changes})


async def running(w: World, **changes: Any) -> str:
    reply = await ask(w, **changes)
    assert reply.ok, reply
    request_id = str(reply.data["request_id"])
    await w.settle()
    decided = await w.decide(request_id)
    assert decided.ok, decided
    await w.settle()
    await w.run(60, 20)
    return request_id


async def test_it_is_mounted_into_a_machine_where_it_is_and_outlives_it(w: World) -> None:
    await ready(w, regions=("US-KS-2",))
    (ref,) = there(w)
    request_id = await running(w)
    view = await w.view(request_id)
    assert {(one.cloud, one.offer["region"]) for one in view.options} == {("runpod", "US-KS-2")}
    (pod,) = (one for one in w.clouds["runpod"].account.instances.values())  # type: ignore[attr-defined]
    assert (pod.order.network_volume, pod.order.volume_path) == (ref, "/volumes/data")
    assert pod.order.env[VOLUME_PATH] == "/volumes/data"
    row = view.instances[0]
    assert row.price_usd_h == Decimal(str(row.offer["price_usd_h"]))
    assert (await w.end(request_id)).ok
    await w.run(200, 20)
    assert there(w) == [ref]
    assert [one.state for one in (await w.books()).sessions] == [SessionState.RUNNING, SessionState.TERMINATED]


async def test_one_that_is_used_is_not_deleted_and_no_machine_outlives_it(w: World) -> None:
    await ready(w, regions=("US-KS-2",))
    volume = await session(w)
    request_id = await running(w)
    used = await w.end(volume.id)
    assert (used.code, "is in use by session" in used.sentence) == (ReplyCode.VOLUME_IN_USE, True)
    theirs = await service.terminate(w.ctx, Terminate(volume.id, facts(DAVE)))
    assert theirs.code == ReplyCode.NOT_YOURS  # Whose machine uses it is nobody else's business.
    async with w.ctx.db.read() as tx:
        found = await sessions_to_move(tx, w.clock.now(), w.clock.now(), 10)
    assert volume.id not in {one.id for one in found}
    longer = await w.more(request_id, "100", reason="more")
    assert (longer.code, "volume extend data 7d" in longer.sentence) == (ReplyCode.NO_VOLUME, True)
    assert len(there(w)) == 1


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"volume": "other"}, ReplyCode.NO_VOLUME, "You have no volume “other”. Your volumes: data."),
        ({"actor": DAVE}, ReplyCode.NO_VOLUME, "You have none. To ask for one:"),
        ({"candidates": ("vast",)}, ReplyCode.VOLUME_ELSEWHERE, "vast has no network volumes. These have them: runpod"),
        ({"candidates": ("lambda",)}, ReplyCode.VOLUME_ELSEWHERE, "it is at runpod, and you asked for lambda."),
        ({"regions": ("EU",)}, ReplyCode.VOLUME_ELSEWHERE, "it is in US-KS-2, and you asked for EU."),
        ({"gpu": GpuConstraint(("V100",))}, ReplyCode.VOLUME_ELSEWHERE, "For sale there now:"),
        ({"hours": Decimal(48)}, ReplyCode.NO_VOLUME, "before the machine would. Extend it first"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_posted(
    w: World, changes: dict[str, Any], code: ReplyCode, said: str
) -> None:
    await ready(w, regions=("US-KS-2",))
    before, creates = len((await w.books()).requests), len(w.engine.creates)
    refused = await ask(w, **changes)
    assert (refused.code, said in refused.sentence) == (code, True), refused
    assert len((await w.books()).requests) == before
    await w.settle()
    assert len(w.engine.creates) == creates


async def test_one_that_is_not_ready_yet_is_refused(w: World) -> None:
    await approved(w)
    refused = await ask(w)
    assert (refused.code, "not ready" in refused.sentence) == (ReplyCode.NO_VOLUME, True)


async def test_a_machine_is_not_launched_when_its_volume_has_gone_meanwhile(w: World) -> None:
    await ready(w, regions=("US-KS-2",))
    volume = await session(w)
    reply = await ask(w)
    await w.settle()
    assert (await w.end(volume.id)).ok
    await w.run(180, 20)
    request_id = str(reply.data["request_id"])
    assert (await w.decide(request_id)).ok
    await w.settle()
    view = await w.view(request_id)
    assert [row.state for row in view.instances] == [InstanceState.REJECTED]
    said = "Volume data has ended, so no machine was launched."
    assert (view.instances[0].outcome, view.request.outcome) == (said, said)
    # Nobody is asked again about a machine that could never mount it.
    assert (view.request.state, (await session(w)).state) == (RequestState.UNAVAILABLE, SessionState.FAILED)
    assert (await w.decide(request_id)).code == ReplyCode.ALREADY_UNAVAILABLE
    assert w.clouds["runpod"].account.instances == {}  # type: ignore[attr-defined]


async def test_a_machine_that_was_approved_too_late_to_end_before_its_volume_is_not_launched(w: World) -> None:
    await ready(w, regions=("US-KS-2",), hours=Decimal(6))
    reply = await ask(w, hours=Decimal("5.5"))
    await w.settle()
    w.clock.advance(3600)
    await w.settle()
    request_id = str(reply.data["request_id"])
    assert (await w.decide(request_id)).ok
    await w.settle()
    (refused,) = (await w.view(request_id)).instances
    assert (refused.state, "before the machine would" in refused.outcome) == (InstanceState.REJECTED, True)
    # The volume can be extended, so that the request is asked about again.
    assert (await w.view(request_id)).request.state is not RequestState.UNAVAILABLE
    assert w.clouds["runpod"].account.instances == {}  # type: ignore[attr-defined]


async def test_a_machine_is_not_launched_with_a_volume_that_was_given_to_somebody_else(w: World) -> None:
    await ready(w, regions=("US-KS-2",))
    volume = await session(w)
    reply = await ask(w)
    await w.settle()
    assert (await transfer.offer(w.ctx, transfer.OfferSession(volume.id, ALICE, DAVE))).ok
    assert (await transfer.answer(w.ctx, transfer.AnswerOffer(volume.id, DAVE, accept=True))).ok
    request_id = str(reply.data["request_id"])
    assert (await w.decide(request_id)).ok
    await w.settle()
    view = await w.view(request_id)
    (refused,) = view.instances
    assert view.request.state is RequestState.UNAVAILABLE
    assert (refused.state, "has another owner now" in refused.outcome) == (InstanceState.REJECTED, True)
    assert w.clouds["runpod"].account.instances == {}  # type: ignore[attr-defined]


async def test_a_volume_is_not_transferred_to_somebody_who_has_one_of_that_name(w: World) -> None:
    await ready(w)
    mine = await session(w)
    await ready(w, actor=DAVE)
    theirs = await session(w)
    refused = await transfer.offer(w.ctx, transfer.OfferSession(mine.id, ALICE, DAVE))
    assert (refused.code, refused.sentence) == (
        ReplyCode.BAD_TRANSFER,
        f"Volume data can't be transferred: {DAVE.ref} already has a volume of that name.",
    )
    assert (await service.terminate(w.ctx, Terminate(theirs.id, facts(DAVE)))).ok
    await w.run(200, 20)
    assert (await transfer.offer(w.ctx, transfer.OfferSession(mine.id, ALICE, DAVE))).ok
    taken = await transfer.answer(w.ctx, transfer.AnswerOffer(mine.id, DAVE, accept=True))
    assert taken.ok
    assert taken.sentence.endswith("To mount it on a machine, add volume=data to a request.")
    left = [one for one in (await w.books()).notifications if f"{mine.id}/left/" in one.subject]
    assert ["SSH" in str(one.body["text"]) for one in left] == [False]


async def test_a_person_takes_the_volume_of_their_own_program(w: World) -> None:
    await ready(w)
    volume = await session(w)
    async with w.ctx.db.write() as tx:
        await lock_consumer(tx, "consumer:atlas", DAVE.ref, "operator:ada", w.clock.now())
        await tx.execute(update(Session).where(Session.id == volume.id).values(owner="consumer:atlas"))
    assert (await transfer.offer(w.ctx, transfer.OfferSession(volume.id, DAVE, DAVE))).ok
