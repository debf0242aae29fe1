"""The Lambda adapter against its sandbox: pacing, ends, and the derived bill."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from providers.contract import InstanceStatus, NotSeen
from providers.errors import (
    AuthFailed,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
)
from tests.contract.served import LABEL, NAME, banner
from tests.providers.clouds.lambda_cloud.served import cloud, clouds
from tests.providers.served import Served

__all__ = ["cloud", "clouds"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


# ── pacing ───────────────────────────────────────────────────────────────────────────────────────


async def test_launches_keep_their_distance_even_where_the_cloud_minds(cloud: Served) -> None:
    spec = cloud.spec(await cloud.offer())
    cloud.timing(enforce_rate_limits=True)
    cloud.step(60)
    paced = cloud.replica()
    for _ in range(3):
        await paced.create(spec, cloud.grant())
    await paced.close()

    at = [call.at for call in cloud.creates()]
    assert all(later - earlier >= timedelta(seconds=12) for earlier, later in pairwise(at))
    assert len(cloud.truth()) == 3


async def test_who_would_wait_too_long_is_refused_without_a_call(cloud: Served) -> None:
    spec, paced = cloud.spec(await cloud.offer()), cloud.replica()
    made = await asyncio.gather(*(paced.create(spec, cloud.grant()) for _ in range(8)), return_exceptions=True)
    await paced.close()

    refused = [one for one in made if isinstance(one, RateLimited)]
    assert 0 < len(refused) < 8, "some launches fit into half a minute, eight never do"
    assert all(one.definite_no and (one.retry_after_s or 0) > 0 for one in refused)
    assert len(cloud.creates()) == len(cloud.truth()) == 8 - len(refused)


@pytest.mark.parametrize("form", ["json", "html"])
@pytest.mark.parametrize("retry_after", [3, None])
async def test_any_429_is_read_by_its_status(cloud: Served, form: str, retry_after: int | None) -> None:
    cloud.arm("list_429", 1, form=form, retry_after=retry_after)
    with pytest.raises(RateLimited) as caught:
        await cloud.provider.list()

    assert caught.value.retry_after_s == retry_after


# ── launch ───────────────────────────────────────────────────────────────────────────────────────


async def test_the_machine_gets_what_was_asked(cloud: Served) -> None:
    made = await cloud.create()
    machine = cloud.account.instances[made.ref]

    assert made.status is InstanceStatus.PENDING
    assert (machine.name, machine.kind.name) == (NAME, "gpu_1x_rtx6000")
    assert "swordfish-env-secret" in machine.user_data
    assert "swordfish-env-secret" not in repr(await cloud.seen(made.ref))


async def test_two_instances_for_one_launch_are_both_found_by_name(cloud: Served) -> None:
    cloud.arm("create_two")
    with pytest.raises(OutcomeUnknown):
        await cloud.create()

    found = await cloud.provider.find(LABEL)
    assert not isinstance(found, NotSeen)
    assert {item.ref for item in found} == {item.ref for item in cloud.truth()}
    assert len(found) == 2


async def test_a_region_without_capacity_is_not_offered_and_cannot_be_bought(cloud: Served) -> None:
    offer = await cloud.offer()
    assert cloud.sandbox.withdraw(offer.key) == 1
    with pytest.raises(NoCapacity):
        await cloud.provider.create(cloud.spec(offer), cloud.grant())

    assert offer.key not in {o.key for o in await cloud.provider.offers(cloud.one, disk_gb=40, spot=False)}


async def test_an_inactive_account_cannot_buy(cloud: Served) -> None:
    running = await cloud.running()
    cloud.sandbox.disturb(running.ref, "account_inactive")
    with pytest.raises(ProviderError) as caught:
        await cloud.create()
    assert caught.value.code == "insufficient_funds"

    cloud.arm("list_inactive")
    report = await cloud.provider.preflight()
    assert (report.ok, "inactive" in report.problem) == (False, True)


# ── what is seen ─────────────────────────────────────────────────────────────────────────────────


async def test_there_is_no_address_while_it_boots(cloud: Served) -> None:
    cloud.timing(boot_s=200.0)
    made = await cloud.create()
    cloud.step(100)

    seen = await cloud.seen(made.ref)
    assert (seen.status, seen.ssh) == (InstanceStatus.BOOTING, None)
    _, body = await cloud.ask("GET", f"/instances/{made.ref}")
    assert "ip" not in body["data"]
    assert body["data"]["actions"]["terminate"]["reason_code"] == "vm-has-not-launched"


@pytest.mark.parametrize(
    ("what", "status", "after"),
    [
        ("unhealthy", InstanceStatus.OFFLINE, InstanceStatus.RUNNING),
        ("preempted", InstanceStatus.ERROR, InstanceStatus.ERROR),
    ],
)
async def test_what_happens_to_an_instance_is_seen(
    cloud: Served, what: str, status: InstanceStatus, after: InstanceStatus
) -> None:
    """One that was preempted is billed no more, so it never works again."""
    running = await cloud.running()
    cloud.sandbox.disturb(running.ref, what)

    assert (await cloud.seen(running.ref)).status is status
    cloud.sandbox.disturb(running.ref, "healthy")
    assert (await cloud.seen(running.ref)).status is after


async def test_a_shutdown_inside_is_billed_on(cloud: Served) -> None:
    running = await cloud.running()
    assert running.ssh is not None
    cloud.sandbox.disturb(running.ref, "shutdown")
    before = cloud.truth()[0].total_usd
    cloud.step(3600)

    assert (await cloud.seen(running.ref)).status is InstanceStatus.RUNNING
    assert await banner(running.ssh.host, running.ssh.port) == b""
    assert cloud.truth()[0].total_usd > before
    with pytest.raises(KeyError):
        cloud.sandbox.disturb(running.ref, "eaten by a bear")


async def test_an_instance_whose_tags_are_hidden_is_still_found(cloud: Served) -> None:
    cloud.arm("tags_hidden")
    made = await cloud.create()
    cloud.step()

    seen = await cloud.seen(made.ref)
    assert seen.created_at is None
    assert isinstance(await cloud.provider.find(LABEL), tuple)


async def test_the_price_may_be_that_of_today(cloud: Served) -> None:
    cloud.arm("price_live")
    made = await cloud.create()
    before = (await cloud.seen(made.ref)).price_usd_h
    cloud.sandbox.reprice("*", Decimal(2))

    assert before is not None
    assert (await cloud.seen(made.ref)).price_usd_h == before * 2


async def test_a_missing_read_is_not_seen_and_garbage_is_an_error(cloud: Served) -> None:
    running = await cloud.running()
    cloud.arm("get_missing")
    assert isinstance(await cloud.provider.get(running.ref), NotSeen)
    for fault in ("list_garbage", "list_provider"):
        cloud.arm(fault)
        with pytest.raises((UnexpectedResponse, Unavailable)):
            await cloud.provider.list()
    cloud.arm("search_garbage")
    with pytest.raises(UnexpectedResponse):
        await cloud.offer()
    cloud.arm("search_empty")
    assert (await cloud.provider.offers(cloud.one, disk_gb=40, spot=False)).items == ()
    cloud.arm("list_empty")
    assert (await cloud.provider.list()).items == ()


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────


async def test_an_instance_that_is_listed_as_terminated_counts_as_absent(cloud: Served) -> None:
    running = await cloud.running()
    cloud.arm("terminated_lingers", after_s=300)
    await cloud.provider.terminate(running.ref)
    assert (await cloud.provider.list()).absence(running.ref, NAME) is None
    cloud.step()

    listing = await cloud.provider.list()
    assert [item.status for item in listing.items] == [InstanceStatus.TERMINATED]
    assert listing.absence(running.ref, NAME) is not None
    assert isinstance(await cloud.provider.get(running.ref), NotSeen)


@pytest.mark.parametrize("fault", ["destroy_lost_reply", "destroy_503_after", "destroy_again_404"])
async def test_a_terminate_may_be_repeated_whatever_happened(cloud: Served, fault: str) -> None:
    running = await cloud.running()
    cloud.arm(fault)
    await cloud.provider.terminate(running.ref)
    await cloud.provider.terminate(running.ref)

    assert cloud.alive() == []


async def test_a_terminate_that_names_no_instance_is_no_success(cloud: Served) -> None:
    running = await cloud.running()
    cloud.arm("destroy_unnamed")
    with pytest.raises(UnexpectedResponse, match="does not name"):
        await cloud.provider.terminate(running.ref)

    assert len(cloud.alive()) == 1


async def test_a_terminate_that_is_refused_while_booting_is_accepted_later(cloud: Served) -> None:
    cloud.arm("terminate_refused_while_booting")
    made = await cloud.create()
    with pytest.raises(Unavailable):
        await cloud.provider.terminate(made.ref)
    cloud.step()
    await cloud.provider.terminate(made.ref)

    assert cloud.alive() == []


async def test_a_restart_in_conflict_is_worth_another_try(cloud: Served) -> None:
    running = await cloud.running()
    cloud.arm("restart_conflict")
    with pytest.raises(Unavailable):
        await cloud.provider.restart(running.ref)
    with pytest.raises(UnexpectedResponse):
        await cloud.provider.restart("0" * 32)
    await cloud.provider.restart(running.ref)
    assert (await cloud.seen(running.ref)).status is InstanceStatus.BOOTING


# ── the bill ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_bill_comes_from_the_audit_log_over_all_its_pages(cloud: Served) -> None:
    first, second = await cloud.running(), await cloud.running()
    cloud.step(90)
    await cloud.provider.terminate(first.ref)
    cloud.step(3600)
    cloud.arm("audit_small_pages", None, rows=2)
    now = cloud.clock.now()
    true = {item.ref: item for item in cloud.truth()}
    lines = {line.ref: line for line in await cloud.provider.charges(now - timedelta(days=1), now)}

    assert set(lines) == {first.ref, second.ref}
    assert lines[first.ref].amount_usd == true[first.ref].total_usd
    assert lines[first.ref].end == true[first.ref].ended_at
    assert abs(lines[second.ref].amount_usd - true[second.ref].total_usd) <= true[second.ref].total_usd / 100


async def test_billing_from_the_first_health_check_stays_within_what_is_booked(cloud: Served) -> None:
    cloud.timing(boot_s=300.0)
    cloud.arm("billed_from_active")
    made = await cloud.create()
    cloud.step(299)
    assert cloud.truth()[0].total_usd == 0
    cloud.step(3601)
    await cloud.provider.terminate(made.ref)
    now = cloud.clock.now()
    (line,) = await cloud.provider.charges(now - timedelta(days=1), now)

    assert 0 < cloud.truth()[0].total_usd < line.amount_usd


async def test_an_instance_that_lands_late_is_billed_from_its_launch_in_the_log_too(cloud: Served) -> None:
    cloud.arm("create_lands_late", after_s=200.0)
    with pytest.raises(OutcomeUnknown):
        await cloud.create()
    cloud.step(600)
    (true,) = cloud.truth()
    await cloud.provider.terminate(true.ref)
    now = cloud.clock.now()
    (line,) = await cloud.provider.charges(now - timedelta(days=1), now)

    assert line.amount_usd == cloud.truth()[0].total_usd


async def test_an_audit_log_that_cannot_be_read_is_an_error(cloud: Served) -> None:
    now = cloud.clock.now()
    for fault, expected in (("audit_503", Unavailable), ("audit_auth", AuthFailed)):
        cloud.arm(fault, None)
        with pytest.raises(expected):
            await cloud.provider.charges(now, now)
        cloud.engine.faults.disarm()
