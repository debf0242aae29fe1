"""Kaggle's adapter after the push: status, listing, what there is not, preflight and pacing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio

from ledger.kernel.proof import ProofKind, ProofOfEnd
from providers.clouds.kaggle.adapter import CAPABILITIES, KaggleConfig, KaggleProvider
from providers.contract import InstanceStatus, NotSeen
from providers.errors import AuthFailed, InvalidSpec, NotSent, ProviderError, RateLimited, Unavailable, Unsupported
from providers.sandbox.clock import SandboxTiming
from tests.providers.clouds.kaggle.served import NAME, Served, create, get, running
from tests.support.clock import START

CLASSES = {cls.__name__: cls for cls in ProviderError.__subclasses__()}


@pytest_asyncio.fixture
async def kaggle() -> AsyncIterator[Served]:
    async with running() as served:
        yield served


# ── watching ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_status_that_is_absent_means_queued(kaggle: Served) -> None:
    kaggle.arm("status_absent")
    kaggle.arm("queued_for_ever")
    made = await create(kaggle)
    kaggle.step(3600)

    seen = await get(kaggle, made.ref)
    assert (seen.status, seen.status_text) == (InstanceStatus.PENDING, "QUEUED")


async def test_one_run_is_asked_about_twice_a_minute_however_often_it_is_looked_at(kaggle: Served) -> None:
    made = await create(kaggle)
    config = KaggleConfig(username=kaggle.cloud.USERNAME, api_key=kaggle.cloud.API_KEY, base_url=kaggle.url)
    paced = KaggleProvider(config, kaggle.clock)
    kaggle.engine.calls.clear()
    for _ in range(12):
        await paced.get(made.ref)
        await paced.list()
        kaggle.step(10)
    await paced.close()
    asked = [call for call in kaggle.engine.calls if call.path.endswith("GetKernelSessionStatus")]
    assert len(asked) == 4  # At 0, 30, 60 and 90 seconds.


async def test_older_words_and_failures_are_read(kaggle: Served) -> None:
    kaggle.arm("old_words")
    kaggle.arm("run_fails", after_s=5)
    made = await create(kaggle)
    kaggle.step(60)

    seen = await get(kaggle, made.ref)
    assert (seen.status, seen.status_text) == (InstanceStatus.TERMINATED, "ERROR: Your notebook exited with code 1.")


async def test_a_cancelled_run_is_over(kaggle: Served) -> None:
    kaggle.arm("old_words")
    made = await create(kaggle)
    kaggle.cloud.disturb(made.ref, "cancel")
    assert (await get(kaggle, made.ref)).status is InstanceStatus.TERMINATED


async def test_a_run_that_stays_running_is_over_by_timeout_only(kaggle: Served) -> None:
    kaggle.arm("stuck_running")
    pushed_at = kaggle.clock.now()
    made = await create(kaggle, hours="1")
    kaggle.step(3600 + 1800)
    assert (await get(kaggle, made.ref)).status is InstanceStatus.RUNNING
    proof = ProofOfEnd.from_timeout(kaggle.provider.account, pushed_at, timedelta(hours=1), kaggle.clock.now())
    assert proof is not None
    assert proof.kind is ProofKind.TIMEOUT

    assert await kaggle.provider.active() == 1
    kaggle.step(13 * 3600)
    assert await kaggle.provider.active() == 0
    assert (await kaggle.provider.list()).items[0].status is InstanceStatus.TERMINATED


async def test_a_version_keeps_its_own_status(kaggle: Served) -> None:
    made = await create(kaggle)
    kaggle.step(1200)
    await kaggle.push(NAME)

    assert (await get(kaggle, made.ref)).status is InstanceStatus.TERMINATED
    assert (await get(kaggle, f"simuser/{NAME}/2")).status is InstanceStatus.PENDING


async def test_a_wrong_slug_is_not_seen_and_wrong_credentials_are_an_error(kaggle: Served) -> None:
    assert isinstance(await kaggle.provider.get("simuser/never-pushed/1"), NotSeen)
    made = await create(kaggle)
    assert isinstance(await kaggle.provider.get(f"simuser/{NAME}/7"), NotSeen)
    kaggle.arm("unauthorized")
    with pytest.raises(AuthFailed):
        await kaggle.provider.get(made.ref)
    kaggle.arm("get_denied")
    kaggle.arm("quota_503", times=3)
    with pytest.raises(Unavailable):
        await kaggle.provider.get(made.ref)
    with pytest.raises(InvalidSpec, match="ada/train"):
        await kaggle.provider.get("../secret")


@pytest.mark.parametrize("paging", ["small_pages", "no_page_token", None])
async def test_the_list_has_every_kernel_and_proves_no_absence(kaggle: Served, paging: str | None) -> None:
    for number in range(23):
        await kaggle.push(f"cpu-kernel-{number:02}", enableGpu=False, machineShape="")
    if paging:
        kaggle.arm(paging, times=None, rows=20 if paging == "no_page_token" else 4)
    listing = await kaggle.provider.list()

    assert len(listing.items) == 23
    assert listing.absence("simuser/elsewhere/1", "elsewhere") is None
    assert listing.absence(listing.items[0].ref, "") is None


async def test_half_a_list_raises(kaggle: Served) -> None:
    await create(kaggle)
    kaggle.arm("list_503", times=3)
    with pytest.raises(Unavailable):
        await kaggle.provider.list()


async def test_a_new_kernel_may_be_missing_from_the_list_for_a_while(kaggle: Served) -> None:
    kaggle.arm("list_lag", after_s=30)
    made = await create(kaggle)
    assert (await kaggle.provider.list()).items == ()
    assert (await get(kaggle, made.ref)).status is InstanceStatus.PENDING
    kaggle.step(31)
    assert [item.ref for item in (await kaggle.provider.list()).items] == [made.ref]


# ── what there is not ────────────────────────────────────────────────────────────────────────────


async def test_every_door_says_that_there_is_no_stop_and_no_cancel(kaggle: Served) -> None:
    made = await create(kaggle)
    for verb in (kaggle.provider.stop, kaggle.provider.start, kaggle.provider.restart, kaggle.provider.terminate):
        with pytest.raises(Unsupported, match="cannot"):
            await verb(made.ref)
    with pytest.raises(Unsupported, match="GPU hours"):
        await kaggle.provider.balance()

    kaggle.step(1200)
    await kaggle.provider.terminate(made.ref)
    assert kaggle.cloud.instances()[0].ended_at is not None


async def test_the_bill_is_the_quota_that_was_used_this_week(kaggle: Served) -> None:
    before = await kaggle.provider.charges(START - timedelta(days=7), START + timedelta(days=7))
    await create(kaggle)
    kaggle.step(1200)
    (line,) = await kaggle.provider.charges(START - timedelta(days=7), START + timedelta(days=7))
    assert (line.component, line.amount_usd, line.ref, line.quantum_s) == ("quota", Decimal(0), "", 1)
    assert 300 <= (line.used_s or 0) - (before[0].used_s or 0) <= 1200
    assert line.start < line.end <= kaggle.clock.now() + timedelta(seconds=1)
    kaggle.arm("quota_missing")
    assert await kaggle.provider.charges(START, START + timedelta(days=1)) == ()


def test_the_capabilities_say_so_too() -> None:
    able = CAPABILITIES
    assert (able.batch, able.free) == (True, True)
    assert not any((able.ssh, able.stop, able.restart, able.spot, able.balance))
    assert able.meter_stop_verb == "manual"


# ── preflight ────────────────────────────────────────────────────────────────────────────────────


async def test_preflight_is_silent_when_all_is_well(kaggle: Served) -> None:
    report = await kaggle.provider.preflight()
    assert (report.ok, report.problem, report.missing) == (True, "", ())
    assert report.account == kaggle.provider.account


async def test_preflight_warns_near_the_end_of_the_week(kaggle: Served) -> None:
    kaggle.arm("quota_reserved", seconds=int(27.5 * 3600))
    report = await kaggle.provider.preflight()
    assert (report.ok, report.problem) == (
        True,
        "Only 2.5 of 30 GPU hours are left this week; it is filled up at 2026-03-07 00:00 UTC.",
    )


async def test_preflight_tells_what_else_it_saw(kaggle: Served) -> None:
    kaggle.arm("quota_missing")
    assert "does not tell" in (await kaggle.provider.preflight()).problem
    await kaggle.push("other-one")
    await kaggle.push("other-two")
    assert "no other can start" in (await kaggle.provider.preflight()).problem
    for fault in ("competitions_503", "unauthorized", "quota_503"):
        kaggle.arm(fault, times=3)
        report = await kaggle.provider.preflight()
        kaggle.engine.faults.disarm()
        assert (report.ok, bool(report.problem)) == (False, True)


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        ({"username": "", "api_key": ""}, ("KAGGLE_USERNAME", "KAGGLE_KEY")),
        ({"api_key": ""}, ("KAGGLE_KEY",)),
        ({"username": ""}, ("KAGGLE_USERNAME",)),
    ],
)
async def test_preflight_names_what_is_missing(config: dict[str, Any], missing: tuple[str, ...]) -> None:
    async with running(**config) as served:
        report = await served.provider.preflight()
    assert (report.ok, report.missing, report.account) == (False, missing, "")


async def test_a_token_alone_is_enough() -> None:
    async with running(username="", api_key="", api_token="KGAT_SANDBOX0000000000000000000000") as served:
        assert (await served.provider.preflight()).ok
        assert (await create(served)).ref == f"simuser/{NAME}/1"
    async with running(username="", api_key="", api_token="KGAT_another") as served:
        report = await served.provider.preflight()
        assert (report.ok, "another" in report.problem) == (False, False)


# ── pacing ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "wait_s"),
    [("rate_limited", 7.0), ("rate_limited_date", 7.0), ("rate_limited_bare", None), ("rate_limited_200", None)],
)
async def test_every_form_of_slow_down_is_read(kaggle: Served, fault: str, wait_s: float | None) -> None:
    kaggle.arm(fault)
    with pytest.raises(RateLimited) as caught:
        await kaggle.provider.quota()
    assert caught.value.retry_after_s == wait_s


async def test_trouble_before_the_push_is_a_definite_no() -> None:
    async with running(SandboxTiming.quick()) as served:
        served.arm("server_error", times=None, status=500)
        with pytest.raises(NotSent, match="nothing was pushed"):
            await create(served)
        assert served.engine.creates == []
