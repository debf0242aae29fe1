"""Sets of machines: all of them run, or none; their cost is inside the one approval."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from decimal import Decimal
from typing import Any, cast

import pytest

from bot.rules.instances.power import PowerAction
from bot.services.grants import reservations
from bot.services.instances import launch, node_sets, power
from bot.services.nodes.startup import plans
from bot.services.runtime.commands import Switch
from bot.slack.blocks.progress import headline
from bot.slack.blocks.request import request_message
from ledger.kernel.end_reason import EndReason
from ledger.kernel.grant import Grant, GrantKind
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Instance, Session
from ledger.queries.budgets.open_spend import outstanding
from ledger.queries.spend import Purse
from providers.contract import InstanceSpec, ObservedInstance, Provider
from tests.services.instances.set_placements import CLOUDS, Placements, place
from tests.support.proxy_provider import InFront, Noting, alive, noting
from tests.support.world import ALICE, BOB, World, facts

#: Placements of one test. Fifty such tests make the five hundred of a full run.
AT_ONCE = 10


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.slow] if n else []) for n in range(50)])
@pytest.mark.timeout(400)  # Ten placements and their bills take a minute on PostgreSQL, and more on a busy machine.
async def test_a_set_is_placed_whole_or_not_at_all(w: World, seed: int) -> None:
    chance, found = random.Random(seed), Placements()
    for _ in range(AT_ONCE):
        await place(w, chance, found)
    print(f"\nseed {seed}: {found}")
    assert found.placed == AT_ONCE
    await w.run(900, 30)  # What lands late is booked as closely as it is looked at.
    await w.heal()
    assert await w.violations(healed=True) == []


async def machines(w: World, request_id: str) -> tuple[Session, list[Instance]]:
    """The session of a set, and its machines in the order of their ranks."""
    view = await w.view(request_id)
    assert view.session is not None
    return view.session, sorted(view.machines, key=lambda row: row.node_rank or 0)


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.slow
async def test_everything_about_money_counts_all_machines(w: World, cloud: str) -> None:
    # Machines of a set must reach each other. RunPod's community hosts do not promise it, and are in no region.
    same: dict[str, Any] = {"candidates": (cloud,), "regions": ("us",) if cloud == "runpod" else ()}
    alone = await w.approved(**same, label="alone")
    one = (await w.view(alone)).options[0]
    request_id = await w.approved(**same, nodes=3, label="set")
    view = await w.view(request_id)
    option, approval = view.options[0], view.approvals[0]
    assert (option.offer_id, option.price_usd_h) == (one.offer_id, one.price_usd_h * 3)
    assert abs(option.expected_usd - one.expected_usd * 3) <= Decimal("0.00001")
    assert approval.total_cap_usd is not None
    assert approval.price_cap_usd_h is not None
    grants = [grant for grant in (await w.books()).grants if grant.request_id == request_id]
    assert [(grant.kind, grant.seq) for grant in grants] == [(GrantKind.CREATE, n) for n in (1, 2, 3)]
    assert 0 <= approval.total_cap_usd - sum(grant.total_cap_usd for grant in grants) < Decimal("0.000003")
    assert 0 <= approval.price_cap_usd_h - sum(grant.price_cap_usd_h for grant in grants) < Decimal("0.000003")

    label = Purse(label="set")
    async with w.ctx.db.read() as tx:
        reserved_usd, reserved_usd_h = (await outstanding(tx, label, ()))[:2]
    assert reserved_usd == sum(grant.total_cap_usd for grant in grants)
    assert reserved_usd_h == sum(grant.price_cap_usd_h for grant in grants)

    await w.settle()
    await w.run(40, 20)
    session, rows = await machines(w, request_id)
    assert session.state is SessionState.RUNNING
    assert [row.price_usd_h for row in rows] == [one.price_usd_h] * 3
    shown = await w.session(session.id)
    assert (shown.price_usd_h, shown.instance and shown.instance.node_rank) == (option.price_usd_h, 0)
    assert shown.cap_usd <= approval.total_cap_usd
    await w.run(1200, 300)
    assert (await w.end(request_id)).ok
    assert (await w.end(alone)).ok
    await w.heal()
    spent = await w.session(session.id)
    single = (await w.view(alone)).session
    assert single is not None
    once = await w.session(single.id)
    assert abs(spent.accrued_usd - once.accrued_usd * 3) <= once.accrued_usd * Decimal("0.1")


async def test_a_set_runs_when_its_last_machine_is_ready_and_each_learns_where_the_others_are(w: World) -> None:
    request_id = await w.approved(candidates=("lambda",), nodes=2, run="torchrun train.py")
    w.arm("running_before_reachable", "lambda", 1, after_s=120)
    await w.settle()
    await w.run(60, 15)
    session, rows = await machines(w, request_id)
    assert session.state is SessionState.PROVISIONING
    assert sorted(row.reachable_at is not None for row in rows) == [False, True]
    async with w.ctx.db.read() as tx:
        assert await plans(tx, [row.id for row in rows]) == {}

    await w.run(120, 15)
    session, rows = await machines(w, request_id)
    assert session.state is SessionState.RUNNING
    hosts = [str(row.set_host) for row in rows]
    assert len(set(hosts)) == 2
    async with w.ctx.db.read() as tx:
        found = await plans(tx, [row.id for row in rows])
    for rank, row in enumerate(rows):
        said = found[row.id]["environment"]
        names = ("NODE_RANK", "NUM_NODES", "MASTER_ADDR", "MASTER_PORT", "NODE_ADDRESSES", "PET_NNODES")
        assert [said[name] for name in names] == [str(rank), "2", hosts[0], "29500", ",".join(hosts), "2"]
    assert w.board.kinds(session.id).count("session.ready") == 1


async def test_the_machines_of_a_set_join_their_clouds_private_network(w: World) -> None:
    w.wrap("runpod", noting)
    request_id = await w.running(candidates=("runpod",), nodes=2)
    await w.approved(candidates=("runpod",))
    await w.settle()
    specs = cast("Noting", w.ctx.providers["runpod"]).specs
    assert [spec.in_set for spec in specs] == [True, True, False]
    _, rows = await machines(w, request_id)
    assert [row.set_host for row in rows] == [f"{row.ref}.runpod.internal" for row in rows]


@pytest.mark.slow
async def test_a_machine_without_a_private_address_never_joins_and_ends_its_set(w: World) -> None:
    request_id = await w.approved(candidates=("lambda",), nodes=2)
    w.arm("no_private_ip", "lambda", 1)
    await w.settle()
    await w.run(600, 60)
    assert (await machines(w, request_id))[0].state is SessionState.PROVISIONING
    await w.run(1400, 60)
    session, _ = await machines(w, request_id)
    assert (session.state, session.end_code) == (SessionState.TERMINATED, EndReason.SET_BROKEN)
    assert "not reachable within" in session.end_reason


async def test_a_lost_machine_ends_its_set_and_people_are_notified(w: World) -> None:
    request_id = await w.running(candidates=("lambda",), nodes=3, hours=Decimal(6))
    await w.run(600, 60)
    session, rows = await machines(w, request_id)
    w.clouds["lambda"].disturb(str(rows[1].ref), "vanish")
    await w.run(300, 15)
    session, rows = await machines(w, request_id)
    assert (session.state, session.end_code) == (SessionState.TERMINATED, EndReason.SET_BROKEN)
    assert session.end_reason.startswith("A set of 3 machines runs whole or not at all, so it ends. Machine 2: ")
    assert [row.outcome_code for row in rows] == [EndReason.SET_BROKEN, EndReason.LOST, EndReason.SET_BROKEN]
    assert (await w.view(request_id)).request.state is RequestState.APPROVED
    assert "session.interrupted" in w.board.kinds(session.id)
    assert w.alive() == []


class DiesAt(InFront):
    """The process is killed at one of its creates: before it leaves, or after its cloud has done the work."""

    def __init__(self, inner: Provider, which: int, *, after: bool) -> None:
        super().__init__(inner)
        self._left = which
        self._after = after

    async def create(self, spec: InstanceSpec, grant: Grant) -> ObservedInstance:
        self._left -= 1
        if self._left > 0:
            return await self.inner.create(spec, grant)
        if self._left == 0 and self._after:
            await self.inner.create(spec, grant)
        raise asyncio.CancelledError


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("which", [1, 2, 3])
@pytest.mark.slow
async def test_a_killed_controller_leaves_a_set_that_the_next_one_completes_or_ends(
    w: World, which: int, after: bool
) -> None:
    request_id = await w.approved(candidates=("tensordock",), nodes=3)
    w.wrap("tensordock", lambda inner: cast("Provider", DiesAt(inner, which, after=after)))
    with suppress(asyncio.CancelledError):
        await launch.send_due(w.ctx)
    await asyncio.sleep(0)
    w.wrap("tensordock", alive)
    await w.run(1200, 30)
    session, rows = await machines(w, request_id)
    sent = len({call.name for call in w.engine.creates})
    assert len(w.engine.creates) == sent, "no create is sent twice"
    if which == 3 and after:  # Every create was sent, so all are found by their labels.
        assert session.state is SessionState.RUNNING, (session.end_reason, [(r.state, r.outcome) for r in rows])
        assert len(w.alive()) == 3
        return
    assert (session.state, session.end_code) == (SessionState.TERMINATED, EndReason.SET_BROKEN)
    assert w.alive() == []
    assert InstanceState.TOMBSTONE in {row.state for row in rows}


async def test_a_failure_that_a_killed_controller_wrote_is_found_by_the_next_one(w: World) -> None:
    request_id = await w.approved(candidates=("lambda",), nodes=2)
    w.arm("create_stale_offer", "lambda", 1)
    assert await launch.send_due(w.ctx) == 2
    session, rows = await machines(w, request_id)
    assert {row.state for row in rows} == {InstanceState.REJECTED, InstanceState.LIVE}
    assert session.state is SessionState.PROVISIONING
    assert await node_sets.broken_sets_due(w.ctx) == 1
    session, rows = await machines(w, request_id)
    assert session.state is SessionState.TERMINATING
    assert {row.state for row in rows} == {InstanceState.REJECTED, InstanceState.TERMINATING}
    assert await node_sets.broken_sets_due(w.ctx) == 0


async def test_nothing_more_is_sent_after_a_failure(w: World) -> None:
    request_id = await w.approved(candidates=("lambda",), nodes=3)
    async with w.ctx.db.write() as tx:
        _, rows = await machines(w, request_id)
        await reservations.withdraw_ready(tx, rows[0].session_id, "No more.", w.clock.now(), ALICE)
    await w.settle()
    assert w.engine.creates == []
    assert (await machines(w, request_id))[0].state is SessionState.TERMINATED


@pytest.mark.slow
async def test_more_time_is_approved_and_paid_for_all_machines(w: World) -> None:
    request_id = await w.running(candidates=("lambda",), nodes=2)
    session, rows = await machines(w, request_id)
    before = session.deadline
    assert before is not None
    asked = await w.more(request_id, "1")
    assert asked.code == "extension_requested", asked
    more = str(asked.data["request_id"])
    (option,) = (await w.view(more)).options
    assert option.price_usd_h == sum(row.price_usd_h for row in rows)
    assert option.offer["nodes"] == 2
    assert (await w.decide(more, BOB)).code == "approved"
    session, _ = await machines(w, request_id)
    assert session.deadline is not None
    assert (session.deadline - before).total_seconds() == pytest.approx(3600, abs=1)
    await w.run(3 * 3600 + 300, 300)
    await w.run(300, 30)
    session, _ = await machines(w, request_id)
    assert (session.state, session.end_code) == (SessionState.TERMINATED, EndReason.RESERVATION_OVER)


async def test_a_create_that_was_sent_again_after_a_rate_limit_is_one_machine_of_its_set(w: World) -> None:
    request_id = await w.approved(candidates=("lambda",), nodes=2, hours=Decimal(3))
    w.arm("create_429", "lambda", retry_after=7)
    await w.settle()
    view = await w.view(request_id)
    (rank,) = {row.node_rank for row in view.instances if row.state is InstanceState.REJECTED}
    assert {(row.node_rank == rank, row.state) for row in view.machines} == {
        (True, InstanceState.READY),
        (False, InstanceState.LIVE),
    }
    card = str(request_message(view, w.ctx.policy).blocks)
    assert "Lambda limits launches now. We try the same offer again" in card
    assert "next offer" not in card
    assert "did not launch" not in card
    await w.run(300, 15)
    view = await w.view(request_id)
    assert headline(view) == "Running"
    assert "did not launch" not in str(request_message(view, w.ctx.policy).blocks)
    session, rows = await machines(w, request_id)
    rate_usd_h = sum(row.price_usd_h for row in rows)
    assert [row.state for row in rows] == [InstanceState.LIVE] * 2
    assert (await w.session(session.id)).price_usd_h == rate_usd_h
    more = str((await w.more(request_id, "3")).data["request_id"])
    (option,) = (await w.view(more)).options
    assert (option.price_usd_h, option.offer["nodes"]) == (rate_usd_h, 2)
    assert (await w.decide(more, BOB)).code == "approved"
    w.clouds["lambda"].disturb(str(rows[1].ref), "vanish")
    await w.run(900, 30)
    session, _ = await machines(w, request_id)
    assert session.end_reason.startswith("A set of 2 machines runs whole or not at all, so it ends. Machine 2: ")


async def test_a_set_is_not_stopped_or_started(w: World) -> None:
    request_id = await w.running(candidates=("tensordock",), nodes=2)
    for order in PowerAction:
        reply = await power.switch(w.ctx, Switch(request_id, facts(ALICE), order))
        assert (reply.ok, reply.code) == (False, "set_runs_whole")


async def test_a_cloud_of_single_machines_refuses_a_set_before_anything_is_stored(w: World) -> None:
    reply = await w.ask(candidates=("vast",), nodes=2)
    assert (reply.ok, reply.code) == (False, "bad_nodes")
    assert (
        "vast can't rent 2 machines as one set: its machines reach each other only at the few ports" in reply.sentence
    )
    reply = await w.ask(candidates=("kaggle",), nodes=2, run="python train.py")
    assert (reply.ok, reply.code) == (False, "bad_nodes")
    assert "one program on one machine" in reply.sentence
    assert not (await w.books()).requests
    for nodes in (0, 5):
        assert (await w.ask(candidates=("lambda",), nodes=nodes)).code == "bad_nodes"


async def test_a_quote_says_which_clouds_rent_out_single_machines(w: World) -> None:
    reply = await w.ask(nodes=2)
    assert reply.ok
    await w.settle()
    view = await w.view(str(reply.data["request_id"]))
    assert {option.cloud for option in view.options} <= set(CLOUDS)
    assert all(option.offer["nodes"] == 2 for option in view.options)
    said = {one["cloud"]: one["sentence"] for one in (view.quote.clouds if view.quote else [])}
    assert said["vast"].startswith("vast can't rent 2 machines as one set")
    assert said["kaggle"].startswith("kaggle can't rent 2 machines as one set")
