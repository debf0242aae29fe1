"""A machine that stopped working is kept while waiting is cheap and something on it would be lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bot.api.views import session_out
from bot.rules.access.sight import Sight
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.slack.blocks import listing
from ledger.kernel.states import InstanceState, SessionState
from ledger.models import Instance, Notification
from tests.support.agents import agent, listening, pass_time
from tests.support.world import ALICE, World

MINUTES = 60.0


async def rows(w: World) -> list[Instance]:
    return list((await w.books()).instances)


async def pages(w: World) -> list[Notification]:
    return [note for note in (await w.books()).notifications if note.kind == "operator.page"]


async def disturb(w: World, how: str, number: int = 0) -> Instance:
    """Let the cloud of one machine do something to it."""
    row = (await rows(w))[number]
    assert row.ref is not None
    w.clouds[row.cloud].disturb(row.ref, how)
    return row


@pytest.mark.slow
async def test_machines_whose_credit_is_gone_keep_their_disks_and_operators_are_asked_to_pay(w: World) -> None:
    await w.running(candidates=("vast",), hours=Decimal(6))
    await w.running(ALICE, candidates=("vast",), hours=Decimal(6))
    await disturb(w, "credit_gone")
    await w.run(60 * MINUTES, 60)
    assert [row.state for row in await rows(w)] == [InstanceState.LIVE] * 2
    assert len(w.alive()) == 2
    texts = [note.body["text"] for note in await pages(w) if "account" in note.subject]
    assert len(texts) == 1
    assert "2 machines" in texts[0]
    assert "credit" in texts[0]


async def test_a_machine_whose_host_is_offline_and_costs_nothing_is_kept(w: World) -> None:
    await w.running(candidates=("vast",))
    await disturb(w, "offline")
    await w.run(60 * MINUTES, 60)
    assert [row.state for row in await rows(w)] == [InstanceState.LIVE]
    assert len(w.alive()) == 1


@pytest.mark.slow
async def test_a_job_with_idle_gpus_is_work_until_it_exits(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), hours=Decimal(6), run="python tokenize.py")
        await pass_time(w, 1)
        agent(w).utilisation = [0.0]
        agent(w).machine = {"cpu_percent": 0, "logins": 0}
        await pass_time(w, 4 * 3600)
        session = (await w.books()).sessions[0]
        assert (session.state, session.early_end_code) == (SessionState.RUNNING, None)


async def test_a_job_ends_when_it_idles_for_as_long_as_its_requester_wrote(w: World) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), hours=Decimal(6), run="python tokenize.py", idle_s=7200)
        await pass_time(w, 1)
        agent(w).utilisation = [0.0]
        agent(w).machine = {"cpu_percent": 0, "logins": 0}
        await pass_time(w, 7000)
        assert (await w.books()).sessions[0].early_end_code is None
        await pass_time(w, 400)
        session = (await w.books()).sessions[0]
        assert session.early_end_code == "idle"
        assert "The limit for this session is 2 hours." in (session.early_end_reason or "")


@pytest.mark.parametrize(
    ("job", "machine"),
    [
        ("running", {"steps": [{"name": "file-1", "state": "running", "seconds": 3000}]}),
        ("running", {"steps": [{"name": "install", "state": "waiting", "seconds": 0}]}),
        ("queued", {}),
        ("saving", {}),
    ],
)
@pytest.mark.slow
async def test_a_machine_that_starts_up_copies_or_saves_is_not_idle(
    w: World, job: str, machine: dict[str, Any]
) -> None:
    async with listening(w):
        await w.running(candidates=("vast",), hours=Decimal(6))
        await pass_time(w, 1)
        agent(w).utilisation, agent(w).job = [0.0], job
        agent(w).machine = {"cpu_percent": 0, "logins": 0, **machine}
        await pass_time(w, 2 * 3600)
        session = (await w.books()).sessions[0]
        assert (session.state, session.early_end_code) == (SessionState.RUNNING, None)
        # With nothing left to do it is idle, as it was before.
        agent(w).job, agent(w).machine = "running", {"cpu_percent": 0, "logins": 0}
        await pass_time(w, 3600)
        assert (await w.books()).sessions[0].end_code == "idle"


async def test_an_outbid_machine_is_outbid_in_every_list_at_the_price_of_its_disk(w: World) -> None:
    w.tune(price_tolerance=Decimal(3))
    request_id = await w.running(candidates=("vast",), spot=SpotPolicy.YES)
    row = await disturb(w, "outbid_a")
    await w.run(60, 30)
    session = (await w.view(request_id)).session
    assert session is not None
    view = await w.session(session.id)
    shown = session_out(w.ctx, view, w.clock.now(), Sight.OWN)
    lines = str(listing.sessions([view], {}, w.clock.now()))
    assert "outbid" in lines
    assert "running" not in lines
    assert shown.now_usd_h == row.storage_usd_h
    assert 0 < row.storage_usd_h < row.price_usd_h / 2
