"""A machine is ready when GPU Shopper logged in and found the GPUs that were bought; any other is a failed delivery."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from bot.api.views import session_out
from bot.cli.terminal.views import session_details
from bot.outbound.ssh_login import Followed, Ran, SshLogin
from bot.rules.access.sight import Sight
from bot.rules.instances.checked_gpus import checked_gpus
from bot.rules.instances.power import PowerAction
from bot.rules.jobs.stored import job_of
from bot.services.instances import gpu_checks, power
from bot.services.nodes.login_keys import public_line
from bot.services.runtime.commands import Switch
from bot.services.runtime.ports import Reach, Reached
from bot.services.sessions.service import Status
from bot.slack.blocks.request import CardFacts
from bot.slack.blocks.session import session_ready_and_ended, status
from ledger.kernel.login_problem import LoginProblem
from ledger.kernel.states import InstanceState, RequestState, SessionState
from ledger.models import Instance
from ledger.queries.views import RequestView
from providers.sandbox.machines import Flaw
from tests.support.agents import listening
from tests.support.matrix import clouds_with, on_clouds
from tests.support.wire import RealReach
from tests.support.world import ALICE, CAROL, World, facts

PERSONS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP7Zz1uLr5Y0cA1bq2V3w4x5y6z7A8B9C0D1E2F3G4H5"
#: What is wrong with the machine → the code it ends with, and a part of its sentence.
VERDICTS = {
    Flaw.WRONG_GPU: ("wrong_gpus", "but the machine has"),
    Flaw.MISSING_GPU: ("gpu_missing", "but the machine shows no GPU"),
    Flaw.SMALL_GPU: ("low_gpu_memory", "but a GPU of the machine has"),
    Flaw.OLD_DRIVER: ("old_driver", "supports CUDA 11.4 and the job needs"),
    Flaw.DRIVER_MISMATCH: ("driver_broken", "the driver and its library have different versions"),
    Flaw.HUNG_GPU: ("driver_broken", "a GPU does not respond"),
    Flaw.NO_GPU_TOOL: ("driver_broken", "the tool nvidia-smi or rocm-smi is missing"),
    Flaw.SLOW_GPU: ("throttled", "Its data sheet says"),
    Flaw.NO_LOGIN: ("no_login", "it refused GPU Shopper's key"),
    Flaw.NEW_HOST_KEY: ("wrong_host_key", "its SSH host key changed while it booted"),
    Flaw.OTHER_HOST_KEY: ("host_key_mismatch", "but the machine's own agent reports SHA256:"),
}

#: One that is judged at the first look and one that is waited for; the others differ from them in the rule alone.
QUICK = (Flaw.WRONG_GPU, Flaw.NO_LOGIN)


class Counted:
    """Counts the logins of the reach behind it; while `goes_on` is not set, they hang."""

    def __init__(self, behind: Reach) -> None:
        self.behind, self.runs = behind, 0
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()

    async def probe(self, host: str, port: int) -> Reached:
        return await self.behind.probe(host, port)

    async def host_key(self, host: str, port: int, kind: str | None = None) -> str | None:
        return await self.behind.host_key(host, port, kind)

    async def run(self, login: SshLogin, command: str, *, stdin: str = "", timeout_s: float) -> Ran:
        self.runs += 1
        self.began.set()
        await self.goes_on.wait()
        return await self.behind.run(login, command, stdin=stdin, timeout_s=timeout_s)

    async def follow(self, login: SshLogin, command: str, *, timeout_s: float) -> Followed | LoginProblem:
        return await self.behind.follow(login, command, timeout_s=timeout_s)


async def booted(w: World, cloud: str, **changes: Any) -> str:
    """A request whose machine was created and answers. Returns the request's id."""
    request_id = await w.approved(candidates=(cloud,), **changes)
    await w.settle()
    await w.run(40, 20)
    return request_id


async def the(w: World, request_id: str) -> tuple[RequestView, Instance]:
    view = await w.view(request_id)
    return view, view.instances[0]


@on_clouds(ssh=True)
async def test_ready_means_that_the_gpus_were_seen_over_a_login(w: World, cloud: str) -> None:
    request_id = await booted(w, cloud)
    view, row = await the(w, request_id)
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert row.login_key == public_line(w.ctx.labels, row.session_id)
    assert row.gpu_check is not None
    assert [gpu["gpu"] for gpu in row.gpu_check["gpus"]] == [row.offer["gpu"]] * row.offer["gpu_count"]
    assert (row.gpu_check["problem"], row.gpu_check["verdict"]) == ("", "")
    assert row.gpu_check["driver"]
    assert len(row.gpu_check["tflops"]) == row.offer["gpu_count"]


async def test_every_surface_shows_what_was_found(w: World) -> None:
    request_id = await booted(w, "vast")
    row = (await the(w, request_id))[1]
    view, now = await w.session(row.session_id), w.clock.now()
    found = checked_gpus(row.gpu_check)
    assert found is not None
    assert found.line == "1 × RTX4090, driver 580.65.06"
    assert found.more == "CUDA 13.0, 132.2 TFLOP/s"
    shown = Status(await w.view(request_id), view)
    short = status.status(shown, w.ctx.policy, CardFacts(), now, Sight.OWN, mine=True)
    assert f"{found.line}, checked" in short.text
    ready = session_ready_and_ended.ready(view, "/gpu")
    assert f"{found.line}, checked" in ready.text
    details = status.details(view, w.ctx.policy, now, Sight.OWN)
    assert f"GPUs: {found.line}, {found.more}" in details.text
    out = session_out(w.ctx, view, now, Sight.ALL)
    assert out.gpu_check is not None
    assert (out.gpu_check.gpus, out.gpu_check.driver) == (["RTX4090"], "580.65.06")
    assert any(said.startswith(f"{found.line}, {found.more}. Checked ") for said in session_details(out).sentences)


@on_clouds(ssh=True)
async def test_the_machine_is_entered_with_people_s_keys_and_without(w: World, cloud: str) -> None:
    await booted(w, cloud, public_key=PERSONS_KEY)
    await booted(w, cloud)
    # Where both chose one offer, the second create was refused and another machine took its place.
    rows = [row for row in (await w.books()).instances if row.state is InstanceState.LIVE]
    assert [row.reachable_at is not None for row in rows] == [True, True]


async def fails(w: World, flaw: Flaw, cloud: str) -> None:
    """One machine with this flaw is ended and booked, and another offer of the same approval takes its place.

    Only an agent knows the host key that its machine has, so that flaw needs one.
    """
    async with listening(w) if flaw is Flaw.OTHER_HOST_KEY else nullcontext():
        await _fails(w, flaw, cloud)


async def _fails(w: World, flaw: Flaw, cloud: str) -> None:
    w.tune(price_tolerance=Decimal(3))
    needs: dict[str, Any] = {"min_cuda": Decimal("11.8")} if flaw is Flaw.OLD_DRIVER else {}
    request_id = await w.approved(candidates=(cloud,), **needs)
    w.arm(flaw, cloud)
    await w.settle()
    await w.run(20, 10)
    view, row = await the(w, request_id)
    assert view.session is not None
    assert (row.reachable_at, view.session.ready_at) == (None, None)
    patience_s = w.ctx.providers[cloud].capabilities.boot_deadline_s or w.ctx.timing.boot_deadline_s
    await w.run(patience_s + 300 if flaw in (Flaw.NO_LOGIN, Flaw.NEW_HOST_KEY) else 100, 50)
    for _ in range(10):  # A real login that a busy computer keeps waiting is tried again.
        await w.run(100, 50)
        view, row = await the(w, request_id)
        if row.state is InstanceState.GONE and view.session and view.session.state is SessionState.RUNNING:
            break
    code, sentence = VERDICTS[flaw]
    assert (row.state, row.outcome_code) == (InstanceState.GONE, code)
    assert sentence in row.outcome
    first, second = view.instances
    assert first.offer["key"] != second.offer["key"]
    assert view.session is not None
    assert view.session.state is SessionState.RUNNING
    assert w.alive() == [second.name]
    booked = [entry for entry in (await w.books()).entries if entry.instance_id == first.id]
    assert sum(entry.amount_usd for entry in booked) > 0
    assert "session.interrupted" in w.board.kinds(view.session.id)


@pytest.mark.parametrize("flaw", QUICK)
async def test_a_failed_delivery_is_ended_booked_and_replaced(w: World, flaw: Flaw) -> None:
    await fails(w, flaw, "vast")


@pytest.mark.slow
@pytest.mark.parametrize("flaw", VERDICTS)
async def test_each_failed_delivery_over_real_ssh_on_one_cloud_or_another(w: World, flaw: Flaw) -> None:
    assert isinstance(w.ctx.reach, RealReach)
    w.ctx.reach.keys = True
    clouds = ("vast",) if flaw is Flaw.OLD_DRIVER else clouds_with(ssh=True)
    await fails(w, flaw, clouds[list(VERDICTS).index(flaw) % len(clouds)])


async def test_a_machine_that_refuses_the_login_at_first_is_tried_again(w: World) -> None:
    """Cloud-init may write the keys after the SSH server started."""
    request_id = await w.approved(candidates=("vast",))
    w.arm(Flaw.NO_LOGIN, "vast")
    await w.settle()
    await w.run(60, 20)
    _, row = await the(w, request_id)
    assert row.reachable_at is None
    assert row.gpu_check is not None
    assert (row.gpu_check["problem"], row.gpu_check["since"]) == ("refused", None)
    await w.engine.ssh_ports.close_all()  # The next pass over the cloud opens the port of a machine without the fault.
    await w.run(60, 20)
    view, row = await the(w, request_id)
    assert row.reachable_at is not None
    assert len(view.instances) == 1


async def test_a_driver_that_is_still_being_installed_is_waited_for(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm(Flaw.DRIVER_MISMATCH, "vast")
    await w.settle()
    await w.run(60, 20)
    assert (await the(w, request_id))[1].state is InstanceState.LIVE
    await w.engine.ssh_ports.close_all()
    await w.run(40, 20)
    view, row = await the(w, request_id)
    assert row.reachable_at is not None
    assert len(view.instances) == 1


async def test_without_a_replacement_people_are_asked(w: World) -> None:
    w.tune(replacements=0)
    request_id = await w.approved(candidates=("vast",))
    w.arm(Flaw.WRONG_GPU, "vast")
    await w.settle()
    await w.run(300, 30)
    view, row = await the(w, request_id)
    assert row.state is InstanceState.GONE
    assert view.request.state is RequestState.PENDING
    assert "1 × RTX4090 bought, but the machine has 1 × RTX3060." in view.request.outcome
    assert row.machine_id in view.request.failed_machines


async def test_a_machine_that_failed_its_check_is_offered_to_nobody_for_a_day(w: World) -> None:
    w.tune(replacements=0)
    w.arm(Flaw.WRONG_GPU, "vast")
    row = (await the(w, await booted(w, "vast")))[1]
    assert row.outcome_code == "wrong_gpus"

    async def asked() -> RequestView:
        reply = await w.ask(CAROL, candidates=("vast",))
        await w.settle()
        return await w.view(str(reply.data["request_id"]))

    other = await asked()
    assert f"vast:{row.offer['key']}" not in {option.offer_id for option in other.options}
    assert other.quote is not None
    assert "skipped: that machine failed its check in the last 24 hours." in str(other.quote.excluded)
    w.clock.advance(25 * 3600)
    later = (await asked()).quote
    assert later is not None
    assert "failed its check" not in str(later.excluded)


async def test_what_a_host_showed_is_a_reason_of_its_later_offers_and_not_of_the_inventory(w: World) -> None:
    w.tune(replacements=0, options_shown=50)
    w.arm(Flaw.WRONG_GPU, "vast")
    row = (await the(w, await booted(w, "vast")))[1]
    w.clock.advance(25 * 3600)
    reply = await w.ask(CAROL, candidates=("vast",))
    await w.settle()
    later = await w.view(str(reply.data["request_id"]))
    (known,) = [one for one in later.options if one.offer["machine_id"] == row.machine_id]
    assert "reliability (1 of 1 session on this host failed)." in known.why
    assert all("on this host" not in one.why for one in later.options if one is not known)
    answer = await w.ctx.catalog.market(job_of(later.request.job), 50)
    assert [one.machine_id for one in answer.offers if one.own is not None] == [row.machine_id]
    listing = await w.ctx.catalog.inventory(job_of(later.request.job), w.ctx.policy)
    assert row.machine_id in {one.machine_id for one in listing.market.offers}
    assert not any(one.own for one in listing.market.offers)


async def test_a_team_may_be_content_with_a_port_that_greets(w: World) -> None:
    w.tune(validate_login=False)
    request_id = await w.approved(candidates=("vast",))
    w.arm(Flaw.NO_GPU_TOOL, "vast")
    await w.settle()
    await w.run(40, 20)
    _, row = await the(w, request_id)
    assert row.reachable_at is not None
    assert (row.login_key, row.gpu_check) == (None, None)
    view = await w.session(row.session_id)
    assert "GPUs: not checked by a login" in status.details(view, w.ctx.policy, w.clock.now(), Sight.OWN).text
    assert "checked" not in session_ready_and_ended.ready(view, "/gpu").text
    assert session_out(w.ctx, view, w.clock.now(), Sight.OWN).gpu_check is None


async def test_a_boot_that_the_policy_no_longer_wants_checked_is_ready_when_its_port_greets(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm(Flaw.NO_LOGIN, "vast")
    await w.settle()
    await w.run(60, 20)
    w.tune(validate_login=False)
    await w.run(20, 20)
    assert (await the(w, request_id))[1].reachable_at is not None


async def test_while_the_clock_is_in_doubt_nobody_logs_in(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm(Flaw.WRONG_GPU, "vast")
    await w.settle()
    w.machine.off = timedelta(hours=3)
    await w.run(60, 20)
    assert (await the(w, request_id))[1].state is InstanceState.LIVE
    w.machine.off = timedelta()
    await w.run(40, 20)
    assert (await the(w, request_id))[1].outcome_code == "wrong_gpus"


async def test_a_machine_that_was_ready_before_is_not_ended_for_its_login(w: World) -> None:
    """Its disk is worth more than the check, so after a start it is ready when its SSH server answers."""
    request_id = await w.running(candidates=("tensordock",))
    row = (await the(w, request_id))[1]
    await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.STOP))
    await w.run(120, 20)
    w.arm(Flaw.NO_LOGIN, "tensordock")
    await power.switch(w.ctx, Switch(request_id, facts(ALICE), PowerAction.START))
    await w.run(120, 20)
    again = (await the(w, request_id))[1]
    assert again.id == row.id
    assert again.reachable_at is not None


async def test_an_order_to_end_it_counts_more_than_the_check(w: World) -> None:
    request_id = await w.approved(candidates=("vast",))
    w.arm(Flaw.NO_LOGIN, "vast")
    await w.settle()
    await w.run(60, 20)
    assert (await w.end(request_id)).ok
    assert await gpu_checks.checks_due(w.ctx) == 0
    await w.run(200, 50)
    assert (await the(w, request_id))[1].outcome_code == "asked"


@pytest.mark.both_databases
async def test_two_replicas_check_a_machine_once(w: World) -> None:
    """Two measurements at the same time would each find half of the speed."""
    request_id = await w.approved(candidates=("vast",))
    w.arm(Flaw.NO_LOGIN, "vast")
    await w.settle()
    await w.run(60, 20)
    reach = Counted(w.ctx.reach)
    one, other = replace(w.ctx, reach=reach), replace(w.replica().ctx, reach=reach)
    reach.goes_on.clear()
    first = asyncio.create_task(gpu_checks.checks_due(one))
    await reach.began.wait()
    assert await gpu_checks.checks_due(other) == 0
    assert reach.runs == 1
    reach.goes_on.set()
    await first
    await other.db.close()
    assert (await the(w, request_id))[1].login_until is None


async def test_a_slow_machine_is_measured_twice_and_one_with_a_program_of_its_own_never(w: World) -> None:
    reach = Counted(w.ctx.reach)
    w.ctx = replace(w.ctx, reach=reach)
    w.arm(Flaw.SLOW_GPU, "vast")
    await booted(w, "vast")
    assert (await w.books()).instances[0].outcome_code == "throttled"
    assert reach.runs == 1 + gpu_checks.SPEED_TRIES
    reach.runs = 0
    w.arm(Flaw.SLOW_GPU, "runpod")
    own = await booted(w, "runpod", image="ghcr.io/team/server:1", public_key=PERSONS_KEY)
    row = (await the(w, own))[1]
    assert row.reachable_at is not None
    assert row.gpu_check is not None
    assert (row.gpu_check["tflops"], reach.runs) == ([], 1)
