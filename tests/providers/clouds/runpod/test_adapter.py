"""A pod's life and bill in the sandbox, and the adapter against the troubles that are RunPod's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import SecretStr

from providers.clouds.runpod.adapter import RunPodConfig, RunPodProvider
from providers.contract import InstanceSpec, InstanceStatus, NotSeen, ObservedInstance
from providers.errors import (
    AuthFailed,
    InvalidSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    Unavailable,
    UnexpectedResponse,
    Unsupported,
)
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.runpod.sandbox import RunPodSandbox
from tests.providers.clouds.runpod.served import Served, banner, cheap, create, get, grant, running
from tests.support.clock import START, SteppedClock
from tests.support.serving import serving


@pytest.fixture
async def quick() -> AsyncIterator[Served]:
    async with running(SandboxTiming.quick()) as served:
        yield served


@pytest.fixture
async def slow() -> AsyncIterator[Served]:
    async with running(SandboxTiming()) as served:
        yield served


# ── a pod's life ─────────────────────────────────────────────────────────────────────────────────


async def test_from_provisioning_to_an_ssh_banner(slow: Served) -> None:
    made = await create(slow)
    assert made.status is InstanceStatus.PENDING
    assert isinstance(await slow.provider.get(made.ref), NotSeen)
    slow.travel(3)
    assert (await get(slow, made.ref)).status is InstanceStatus.PENDING
    assert isinstance(await slow.provider.find("7f3c"), NotSeen)
    slow.travel(60)
    assert (await get(slow, made.ref)).status is InstanceStatus.BOOTING
    slow.travel(60)
    seen = await get(slow, made.ref)
    assert (seen.status, seen.ssh) == (InstanceStatus.RUNNING, None)
    slow.travel(10)
    found = await slow.provider.find("7f3c")
    assert not isinstance(found, NotSeen)
    ssh = found[0].ssh
    assert ssh is not None
    assert (await banner(ssh.host, ssh.port)).startswith(b"SSH-2.0-")


async def test_the_oldest_of_two_with_one_name_comes_first(quick: Served) -> None:
    first = await create(quick, "twin")
    quick.travel(5)
    second = await create(quick, "twin")
    found = await quick.provider.find("twin")
    assert not isinstance(found, NotSeen)
    assert [item.ref for item in found] == [first.ref, second.ref]


async def test_running_says_nothing_about_being_reachable(quick: Served) -> None:
    quick.arm("running_at_once")
    quick.arm("sshd_lag", after_s=90)
    made = await create(quick)
    assert (made.status, made.ssh) == (InstanceStatus.RUNNING, None)
    quick.travel(10)
    ssh = (await get(quick, made.ref)).ssh
    assert ssh is not None
    with pytest.raises(ConnectionRefusedError):
        await banner(ssh.host, ssh.port)
    quick.travel(90)
    await get(quick, made.ref)
    assert await banner(ssh.host, ssh.port)


@pytest.mark.parametrize("fault", ["never_boots", "exit_loop"])
async def test_containers_that_never_serve_are_billed_all_the_same(quick: Served, fault: str) -> None:
    quick.arm(fault)
    made = await create(quick)
    quick.travel(3600)
    assert (await get(quick, made.ref)).status is InstanceStatus.RUNNING
    assert quick.cloud.reachable() == []
    assert made.price_usd_h is not None
    assert quick.cloud.instances()[0].gpu_usd == made.price_usd_h - (made.storage_usd_h or 0)


async def test_the_container_disk_is_a_setting_that_is_priced_and_sent(quick: Served) -> None:
    usual = await cheap(quick)
    settings = {**quick.cloud.environment(str(quick.http.base_url)), "RUNPOD_CONTAINER_DISK_GB": "120"}
    clock = SteppedClock()
    roomy = REGISTRY["runpod"].connect(settings, clock, LocalPacer(clock, 0))
    offer = await cheap(replace(quick, provider=roomy))
    hundred_gb = Decimal(100) * Decimal("0.10") / 720
    assert abs(offer.storage_usd_h - usual.storage_usd_h - hundred_gb) < Decimal("0.00001")
    assert offer.storage_stopped_usd_h == usual.storage_stopped_usd_h
    made = await create(replace(quick, provider=roomy))
    assert made.storage_usd_h == offer.storage_usd_h
    await roomy.close()


async def test_a_restart_changes_the_port_and_may_show_the_old_one(quick: Served) -> None:
    made = await create(quick)
    quick.travel(10)
    before = (await get(quick, made.ref)).ssh
    quick.arm("stale_address")
    await quick.provider.restart(made.ref)
    quick.travel(5)
    assert (await get(quick, made.ref)).ssh == before
    quick.travel(30)
    after = (await get(quick, made.ref)).ssh
    assert after is not None
    assert before is not None
    assert after.port != before.port
    assert await banner(after.host, after.port)
    with pytest.raises(ConnectionRefusedError):
        await banner(before.host, before.port)


async def test_stop_start_and_terminate_can_be_said_twice(quick: Served) -> None:
    made = await create(quick)
    quick.travel(10)
    await quick.provider.stop(made.ref)
    await quick.provider.stop(made.ref)
    stopped = await get(quick, made.ref)
    assert (stopped.status, stopped.price_usd_h, stopped.ssh) == (InstanceStatus.STOPPED, None, None)
    quick.arm("start_no_capacity")
    with pytest.raises(NoCapacity):
        await quick.provider.start(made.ref)
    await quick.provider.start(made.ref)
    quick.travel(10)
    await quick.provider.start(made.ref)
    assert (await get(quick, made.ref)).status is InstanceStatus.RUNNING
    await quick.provider.terminate(made.ref)
    await quick.provider.terminate(made.ref)
    await quick.provider.stop(made.ref)
    quick.travel(5)
    assert (await quick.provider.list()).items == ()


async def test_acknowledged_is_not_done(quick: Served) -> None:
    made = await create(quick)
    quick.travel(10)
    quick.arm("delete_ignored")
    await quick.provider.terminate(made.ref)
    quick.arm("action_ignored")
    await quick.provider.stop(made.ref)
    quick.travel(60)
    assert (await get(quick, made.ref)).status is InstanceStatus.RUNNING


@pytest.mark.parametrize(
    ("what", "status"),
    [("host_failure", InstanceStatus.ERROR), ("exit", InstanceStatus.STOPPED), ("deaf", InstanceStatus.RUNNING)],
)
async def test_what_happens_from_outside(quick: Served, what: str, status: InstanceStatus) -> None:
    made = await create(quick)
    quick.travel(10)
    quick.cloud.disturb(made.ref, what)
    assert (await get(quick, made.ref)).status is status
    assert quick.cloud.reachable() == []


async def test_a_price_that_rises_is_shown_and_billed(quick: Served) -> None:
    made = await create(quick)
    quick.travel(10)
    before = await get(quick, made.ref)
    quick.cloud.disturb(made.ref, "dearer")
    quick.travel(3600)
    after = await get(quick, made.ref)
    assert before.price_usd_h is not None
    assert after.price_usd_h is not None
    assert after.price_usd_h > before.price_usd_h
    (item,) = quick.cloud.instances()
    assert before.price_usd_h < item.total_usd


async def test_somebody_else_deletes_it(quick: Served) -> None:
    made = await create(quick)
    quick.cloud.disturb(made.ref, "vanish")
    assert isinstance(await quick.provider.get(made.ref), NotSeen)
    with pytest.raises(KeyError):
        quick.cloud.disturb(made.ref, "nonsense")
    with pytest.raises(KeyError):
        quick.cloud.disturb("nothing", "vanish")


async def test_a_key_that_may_not_act(quick: Served) -> None:
    made = await create(quick)
    quick.travel(10)
    quick.arm("forbidden", None)
    asked = (quick.provider.terminate(made.ref), quick.provider.stop(made.ref), quick.provider.get(made.ref))
    for answered in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(answered, AuthFailed)
    quick.engine.faults.disarm()
    quick.arm("action_conflict")
    with pytest.raises(InvalidSpec):
        await quick.provider.stop(made.ref)
    with pytest.raises(InvalidSpec):
        await quick.provider.start("no-such-pod")


# ── creates ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("fault", "outcome"), RunPodSandbox.FAULTS.creates.items())
async def test_one_create_is_one_request_whatever_happens(quick: Served, fault: str, outcome: str) -> None:
    offer = await cheap(quick)
    spec = InstanceSpec("run-7f3c", offer, "runpod/pytorch:1.0.2", 50, env={"TOKEN": "hunter2-hunter2"})
    quick.arm(fault)
    (answer,) = await asyncio.gather(quick.provider.create(spec, grant("7f3c")), return_exceptions=True)
    assert len(quick.engine.creates) == 1
    assert quick.engine.faults.bitten == [("runpod", fault)]
    quick.travel(300)
    exists = quick.cloud.instances() != []
    if outcome == "ok":
        assert isinstance(answer, ObservedInstance)
        assert exists
        return
    assert isinstance(answer, ProviderError)
    assert type(answer).__name__ == outcome
    assert "hunter2" not in f"{answer!r} {answer.__cause__!r}"
    assert not (answer.definite_no and exists)


# ── listings ─────────────────────────────────────────────────────────────────────────────────────


async def test_every_page_or_an_error(quick: Served) -> None:
    refs = {(await create(quick, f"run-{i}")).ref for i in range(5)}
    quick.arm("small_pages", None, rows=2)
    assert {item.ref for item in (await quick.provider.list()).items} == refs
    quick.engine.faults.disarm("runpod")
    quick.arm("page_error")
    with pytest.raises(Unavailable):
        await quick.provider.list()
    quick.arm("no_pagination")
    assert len((await quick.provider.list()).items) == 5


async def test_a_late_create_is_found_by_its_name(quick: Served) -> None:
    quick.arm("late_create", after_s=200)
    with pytest.raises(OutcomeUnknown):
        await create(quick, "run-late")
    quick.travel(199)
    assert isinstance(await quick.provider.find("late"), NotSeen)
    assert quick.cloud.instances() == []
    quick.travel(2)
    assert not isinstance(await quick.provider.find("late"), NotSeen)
    assert [(c.outcome, c.name) for c in quick.engine.creates] == [("pending", "run-late")]


# ── money ────────────────────────────────────────────────────────────────────────────────────────


async def test_the_bill_is_the_truth_to_the_cent(quick: Served) -> None:
    made = await create(quick)
    quick.travel(5400)
    await quick.provider.stop(made.ref)
    quick.travel(7200)
    standing = await quick.provider.get(made.ref)
    assert isinstance(standing, ObservedInstance)
    assert standing.storage_usd_h == (await cheap(quick)).storage_stopped_usd_h
    await quick.provider.terminate(made.ref)
    quick.travel(7200)
    (true,) = quick.cloud.instances()
    offer = await cheap(quick)
    assert true.gpu_s == 5400
    assert true.gpu_usd == (offer.gpu_usd_h or 0) * Decimal("1.5")
    stored = offer.storage_usd_h * Decimal("1.5") + offer.storage_stopped_usd_h * 2
    assert abs(true.storage_usd - stored) < Decimal("0.00001")
    charges = await quick.provider.charges(START, START + timedelta(hours=6))
    assert abs(sum((c.amount_usd for c in charges), -true.total_usd)) < Decimal("0.00001")
    assert {c.ref for c in charges} == {made.ref}
    assert all(c.end - c.start == timedelta(hours=1) for c in charges)
    first_hour = await quick.provider.charges(START, START + timedelta(hours=1))
    assert {c.start for c in first_hour} == {START}


async def test_bill_parameters(quick: Served) -> None:
    made = await create(quick)
    quick.travel(3600)
    for query in ("bucketSize=minute", "lastN=2&startTime=2026-03-02T09:00:00Z", "startTime=yesterday", "lastN=x"):
        assert (await quick.http.get(f"/v2/billing/pods?{query}")).status_code == 400, query
    body = (await quick.http.get(f"/v2/billing/pods?lastN=3&bucketSize=hour&podId={made.ref}")).json()
    assert body["metadata"]["recordCount"] == len(body["records"]) == 1
    assert body["metadata"]["totals"]["gpuAmount"] == body["records"][0]["gpuAmount"]
    assert body["records"][0]["gpuAmount"] == float((made.price_usd_h or 0) - (made.storage_usd_h or 0))
    assert (await quick.http.get("/v2/billing/pods?podId=other")).json()["records"] == []


async def test_balance_falls_by_the_second(quick: Served) -> None:
    await create(quick)
    quick.travel(3600)
    balance = await quick.provider.balance()
    assert balance.credit_usd == pytest.approx(Decimal(500) - quick.cloud.instances()[0].total_usd)
    assert balance.spend_limit_usd_h == 80
    quick.arm("balance_retired", None)
    with pytest.raises(Unsupported):
        await quick.provider.balance()
    preflight = await quick.provider.preflight()
    assert preflight.ok
    assert preflight.balance is None
    assert preflight.problem.startswith("Balance unknown")


async def test_preflight_names_what_is_missing(quick: Served) -> None:
    assert (await quick.provider.preflight()).balance is not None
    quick.arm("unauthorized")
    refused = await quick.provider.preflight()
    assert not refused.ok
    assert refused.problem
    keyless = RunPodProvider(RunPodConfig(), SteppedClock())
    assert (await keyless.preflight()).missing == ("RUNPOD_API_KEY",)
    await keyless.close()


async def test_at_zero_pods_end_at_the_second_the_credit_ran_out(quick: Served) -> None:
    home = next(iter(quick.cloud.market.centers(quick.cloud.market.types["NVIDIA A40"], 1)))
    volume = quick.cloud.account.add_volume("kept", Decimal(10), home).ref
    body = {"name": "kept", "image": "i", "gpu": {"id": "NVIDIA A40"}}
    mounts = {"network": [{"volumeId": volume, "path": "/workspace"}]}
    kept = (await quick.http.post("/v2/pods", json={**body, "mounts": mounts})).json()
    lost = (await quick.http.post("/v2/pods", json=body)).json()
    quick.cloud.account.credit_usd = Decimal(1)
    quick.travel(6 * 3600)
    listed = (await quick.http.get("/v2/pods")).json()["pods"]
    assert [(p["id"], p["status"]) for p in listed] == [(kept["id"], "EXITED")]
    # The volume is billed on, and was a part of what used up the credit.
    pods = [one for one in quick.cloud.instances() if one.ref != volume]
    assert abs(sum((i.total_usd for i in pods), Decimal(-1))) < Decimal("0.002")
    assert (await quick.http.get(f"/v2/pods/{lost['id']}")).status_code == 404
    restart = await quick.http.post(f"/v2/pods/{kept['id']}/action", json={"action": "start"})
    assert restart.status_code == 402


async def test_limits_of_the_account(quick: Served) -> None:
    body = {"name": "n", "image": "i", "gpu": {"id": "NVIDIA H200", "count": 8}}
    codes = [(await quick.http.post("/v2/pods", json=body)).status_code for _ in range(3)]
    assert codes == [201, 201, 400]
    quick.cloud.account.credit_usd = Decimal(0)
    assert (await quick.http.post("/v2/pods", json=body)).status_code == 402


FULL = [{"id": f"p{i}"} for i in range(1000)]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"pods": None},
        {"pods": [{}]},
        {"pods": FULL},
        {"pods": [], "pagination": []},
        {"pods": [], "pagination": {"hasNextPage": True}},
        {"pods": [], "pagination": {"nextCursor": "same", "hasNextPage": True}},
        {"data": {"myself": None}},
        {"data": {"myself": {"clientBalance": None}}},
        {"errors": [{"message": "m"}]},
    ],
)
async def test_answers_of_another_shape_are_errors(answer: Any) -> None:
    async def answers(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        body = json.dumps(answer).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    async with serving(answers) as base:
        provider = RunPodProvider(RunPodConfig(api_key=SecretStr("k"), base_url=f"{base}/v2/"), SteppedClock())
        asked = (provider.list(), provider.charges(START, START), provider.balance(), provider.get("x"))
        for answered in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(answered, UnexpectedResponse)
        await provider.close()
