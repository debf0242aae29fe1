"""The adapter against what only Vast.ai does: refusals, half-made instances, queued starts, outbids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio

from providers.contract import InstanceStatus, NotSeen
from providers.errors import (
    InsufficientFunds,
    InvalidSpec,
    NoCapacity,
    RateLimited,
)
from providers.gpus.constraint import GpuConstraint
from tests.contract.served import DISK_GB, LABEL, Clouds, banner, serving
from tests.providers.clouds.vast.served import Vast, bench, create
from tests.providers.read_offers import every_offer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def clouds() -> AsyncIterator[Clouds]:
    async with serving() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def vast(clouds: Clouds) -> AsyncIterator[Vast]:
    async with bench(clouds) as fresh:
        yield fresh


# ── 429 in its forms ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["text", "threshold", "detail", "json"])
@pytest.mark.parametrize("retry_after", [None, 9])
async def test_every_form_of_429_is_one_error(vast: Vast, form: str, retry_after: int | None) -> None:
    vast.arm("get_429", form=form, retry_after=retry_after)
    with pytest.raises(RateLimited) as caught:
        await vast.provider.get("1")

    assert caught.value.retry_after_s == retry_after


async def test_the_documented_intervals_are_kept_when_they_are_on(vast: Vast) -> None:
    vast.timing(enforce_rate_limits=True)
    assert isinstance(await vast.provider.get("1"), NotSeen)
    with pytest.raises(RateLimited):
        await vast.provider.get("1")
    vast.step(2.1)
    assert isinstance(await vast.provider.get("1"), NotSeen)


async def test_a_listing_of_many_pages_keeps_the_interval(vast: Vast) -> None:
    for n in range(27):
        await vast.create(f"n{n}-{LABEL}")
    vast.timing(enforce_rate_limits=True)
    paced = vast.replica()

    assert len((await paced.list()).items) == 27
    await paced.close()


async def test_the_whole_market_takes_its_documented_pace_and_leaves_a_turn_to_others(vast: Vast) -> None:
    vast.timing(enforce_rate_limits=True)
    vast.step(60)
    paced, before_s = vast.replica(), vast.clock.monotonic()
    everything = GpuConstraint(count_max=8)
    first = await every_offer(paced, everything, disk_gb=40, spot=False)
    assert first.completeness.is_complete
    assert len(first) > 128
    assert vast.clock.monotonic() == before_s, "as many pages as a burst has, less one turn, take no time"
    await paced.offers(vast.one, disk_gb=40, spot=False)
    assert vast.clock.monotonic() == before_s, "another search does not wait behind them"
    again = await every_offer(paced, everything, disk_gb=40, spot=False)
    assert {offer.key for offer in again} == {offer.key for offer in first}
    await paced.close()
    assert vast.clock.monotonic() - before_s >= 24


async def test_the_copy_of_the_market_takes_only_turns_that_nobody_waits_for(vast: Vast) -> None:
    vast.timing(enforce_rate_limits=True)
    vast.step(60)
    paced, everything, before_s = vast.replica(), GpuConstraint(count_max=8), vast.clock.monotonic()
    answer = await paced.offers(everything, disk_gb=40, spot=False, spare=True)
    answer = await paced.offers(everything, disk_gb=40, spot=False, rest=answer.rest, spare=True)
    with pytest.raises(RateLimited) as refused:
        await paced.offers(everything, disk_gb=40, spot=False, rest=answer.rest, spare=True)
    assert 0 < (refused.value.retry_after_s or 0) <= 12
    for _ in range(4):
        await paced.offers(vast.one, disk_gb=40, spot=False)
    assert vast.clock.monotonic() == before_s, "four turns of six are left to people"
    await paced.close()


# ── creating ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_create_answers_with_an_id_and_a_secret(vast: Vast) -> None:
    status, body = await create(vast, label="me")
    assert (status, body["success"]) == (200, True)
    assert isinstance(body["new_contract"], int)
    assert body["instance_api_key"]


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"image": None}, 500, "server_error"),
        ({"disk": 4}, 400, "invalid_args"),
        ({"disk": 99_999}, 400, "invalid_args"),
        ({"label": "x" * 257}, 400, "invalid_args"),
        ({"onstart": "x" * 5000}, 400, "invalid_args"),
        ({"price": 0}, 400, "invalid_price"),
        ({"price": 129}, 400, "invalid_price"),
    ],
)
async def test_a_create_is_checked(vast: Vast, body: dict[str, Any], status: int, error: str) -> None:
    got, answer = await create(vast, **body)
    assert (got, answer["success"], answer["error"]) == (status, False, error)
    assert vast.truth() == []


async def test_an_offer_is_used_once(vast: Vast) -> None:
    offer = await vast.offer()
    await vast.provider.create(vast.spec(offer), vast.grant())
    with pytest.raises(NoCapacity):
        await vast.provider.create(vast.spec(offer), vast.grant())

    assert [c.outcome for c in vast.creates()] == ["committed", "refused"]


async def test_a_half_made_instance_exists_and_bills_its_disk(vast: Vast) -> None:
    """A bid below the lowest accepted one, which is what a moving market makes of a bid that was enough."""
    offers = await vast.provider.offers(vast.one, disk_gb=DISK_GB, spot=True)
    offer = next(o for o in offers if o.price_usd_h and o.price_usd_h > 0)
    vast.sandbox.reprice(offer.key, Decimal("1.01"))
    made = await vast.provider.create(replace(vast.spec(offer), bid_usd_h=offer.min_bid_usd_h), vast.grant())
    vast.step(3600)

    found = await vast.provider.find(LABEL)
    assert not isinstance(found, NotSeen)
    assert [(one.ref, one.status) for one in found] == [(made.ref, InstanceStatus.STOPPED)]
    (true,) = vast.truth()
    assert true.gpu_usd == 0
    assert true.storage_usd > 0


async def test_an_image_newer_than_the_hosts_driver_never_starts_and_is_called_broken(vast: Vast) -> None:
    offer = await vast.offer()
    assert offer.cuda_max is not None
    image = f"own/train:cuda{offer.cuda_max + 1}"
    made = await vast.provider.create(replace(vast.spec(offer), image=image), vast.grant())
    vast.step(3600)

    seen = await vast.seen(made.ref)
    assert (seen.status, seen.ssh) == (InstanceStatus.ERROR, None)
    assert "unsatisfied condition: cuda" in seen.status_text
    assert vast.truth()[0].gpu_usd == 0


async def test_hosts_are_searched_by_the_cuda_that_an_image_needs(vast: Vast) -> None:
    every = await vast.provider.offers(vast.one, disk_gb=DISK_GB, spot=False)
    new = await vast.provider.offers(replace(vast.one, cuda_min=Decimal("12.4")), disk_gb=DISK_GB, spot=False)
    assert {o.cuda_max for o in every} == {Decimal("12.2"), Decimal("12.8")}
    assert {o.cuda_max for o in new} == {Decimal("12.8")}
    # Where no host is left they are all told, so that people hear the reason.
    none = await vast.provider.offers(replace(vast.one, cuda_min=Decimal("13.5")), disk_gb=DISK_GB, spot=False)
    assert {o.key for o in none} == {o.key for o in every}


async def test_the_keys_travel_with_the_create(vast: Vast) -> None:
    made = await vast.create()
    _, body = await vast.ask("GET", f"/api/v0/instances/{made.ref}/")

    assert "authorized_keys" in body["instances"]["onstart"]
    assert "ada@example" in body["instances"]["onstart"]
    assert body["instances"]["extra_env"] == [["TOKEN", "swordfish-env-secret"]]


async def test_a_spot_instance_pays_its_bid(vast: Vast) -> None:
    offers = await vast.provider.offers(vast.one, disk_gb=DISK_GB, spot=True)
    offer = next(o for o in offers if o.price_usd_h and o.price_usd_h > 0)
    assert offer.min_bid_usd_h is not None
    bid = offer.min_bid_usd_h * 2
    spec = vast.spec(offer)
    with pytest.raises(InvalidSpec):
        await vast.provider.create(spec, vast.grant())
    made = await vast.provider.create(type(spec)(spec.name, offer, spec.image, DISK_GB, bid_usd_h=bid), vast.grant())
    vast.step()
    seen = await vast.seen(made.ref)

    assert seen.spot
    assert seen.price_usd_h is not None
    assert abs(seen.price_usd_h - bid - offer.storage_usd_h) < Decimal("0.0001")
    assert len(vast.creates()) == 1


# ── the life of an instance ────────────────────────────────────────────────────────────────────────


async def test_the_boot_walks_through_the_documented_words(vast: Vast) -> None:
    vast.timing(boot_s=100.0, get_lag_s=5.0)
    made = await vast.create()
    words = []
    for _ in range(13):
        _, body = await vast.ask("GET", f"/api/v0/instances/{made.ref}/")
        row = body["instances"]
        words.append("gone" if row is None else row["actual_status"])
        assert row is None or (row["ports"] is None) == (row["actual_status"] != "running")
        vast.step(9)

    assert list(dict.fromkeys(words)) == ["gone", None, "created", "loading", "running"]
    assert vast.truth()[0].gpu_s == 17


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("boot_error", InstanceStatus.ERROR),
        ("pull_error", InstanceStatus.ERROR),
        ("never_boots", InstanceStatus.BOOTING),
        ("null_status", InstanceStatus.PENDING),
    ],
)
async def test_boots_that_go_wrong(vast: Vast, fault: str, expected: InstanceStatus) -> None:
    vast.arm(fault)
    made = await vast.create()
    vast.step()

    assert (await vast.seen(made.ref)).status is expected
    assert vast.truth()[0].gpu_usd == 0


async def test_a_null_status_ends(vast: Vast) -> None:
    vast.arm("null_status", after_s=60)
    made = await vast.create()
    vast.step(64)

    assert (await vast.seen(made.ref)).status is InstanceStatus.RUNNING


async def test_a_lagging_read_is_not_seen_and_then_seen(vast: Vast) -> None:
    vast.arm("create_get_lag", after_s=20)
    made = await vast.create()
    assert isinstance(await vast.provider.get(made.ref), NotSeen)
    vast.step(21)
    assert (await vast.seen(made.ref)).ref == made.ref
    vast.arm("get_null")
    assert isinstance(await vast.provider.get(made.ref), NotSeen)


async def test_a_queued_start_is_cancelled_and_never_fires(vast: Vast) -> None:
    running = await vast.running()
    await vast.provider.stop(running.ref)
    vast.step()
    paid = vast.truth()[0].gpu_usd
    vast.arm("start_queued", flips_s=300)
    with pytest.raises(NoCapacity):
        await vast.provider.start(running.ref)
    vast.step(3600)

    assert (await vast.seen(running.ref)).status is InstanceStatus.STOPPED
    assert vast.truth()[0].gpu_usd == paid


async def test_a_queued_start_that_nobody_cancels_fires(vast: Vast) -> None:
    running = await vast.running()
    await vast.provider.stop(running.ref)
    vast.step()
    vast.arm("start_queued", flips_s=300)
    status, body = await vast.ask("PUT", f"/api/v0/instances/{running.ref}/", json={"state": "running"})
    assert (status, body["success"], body["error"]) == (200, False, "resources_unavailable")
    vast.step(3600)

    assert (await vast.seen(running.ref)).status is InstanceStatus.RUNNING


async def test_a_start_waits_for_gpus_that_somebody_else_rents(vast: Vast) -> None:
    running = await vast.running()
    await vast.provider.stop(running.ref)
    vast.step()
    vast.sandbox.disturb(running.ref, "gpu_taken")
    with pytest.raises(NoCapacity):
        await vast.provider.start(running.ref)

    assert vast.account.queued == set()


async def test_a_start_of_what_is_gone_has_no_capacity(vast: Vast) -> None:
    with pytest.raises(NoCapacity):
        await vast.provider.start("7")
    await vast.provider.stop("7")


@pytest.mark.parametrize("variant", ["outbid_a", "outbid_b"])
async def test_both_forms_of_being_outbid_read_as_stopped(vast: Vast, variant: str) -> None:
    running = await vast.running()
    vast.sandbox.disturb(running.ref, variant)
    vast.step()
    seen = await vast.seen(running.ref)
    assert seen.status is InstanceStatus.STOPPED
    assert running.ssh is not None
    assert await banner(running.ssh.host, running.ssh.port) == b""

    vast.sandbox.disturb(running.ref, "outbid_over")
    vast.step()
    assert (await vast.seen(running.ref)).status is InstanceStatus.RUNNING


async def test_other_gpus_and_a_price_that_rises_are_shown_and_billed(vast: Vast) -> None:
    vast.arm("other_gpu")
    running = await vast.running()
    before = await vast.seen(running.ref)
    assert (before.gpu, vast.truth()[0].gpu) == ("RTX3090", "RTX3090")
    vast.sandbox.disturb(running.ref, "much_dearer")
    vast.step(3600)
    after = await vast.seen(running.ref)
    assert before.price_usd_h is not None
    assert after.price_usd_h is not None
    assert after.price_usd_h > before.price_usd_h * Decimal("1.4")
    assert vast.truth()[0].total_usd > before.price_usd_h * Decimal("1.4")


async def test_an_offline_host_bills_nothing(vast: Vast) -> None:
    running = await vast.running()
    vast.sandbox.disturb(running.ref, "offline")
    assert (await vast.seen(running.ref)).status is InstanceStatus.OFFLINE
    paid = vast.truth()[0].total_usd
    vast.step(3600)
    assert vast.truth()[0].total_usd == paid

    vast.sandbox.disturb(running.ref, "online")
    vast.step(3600)
    assert (await vast.seen(running.ref)).status is InstanceStatus.RUNNING
    assert vast.truth()[0].gpu_usd > paid


async def test_what_vanishes_or_expires(vast: Vast) -> None:
    one, two = await vast.running(), await vast.running()
    vast.sandbox.disturb(one.ref, "vanish")
    vast.sandbox.disturb(two.ref, "expire")
    vast.step()

    assert isinstance(await vast.provider.get(one.ref), NotSeen)
    assert (await vast.seen(two.ref)).status is InstanceStatus.STOPPED
    with pytest.raises(KeyError):
        vast.sandbox.disturb(two.ref, "eaten by a bear")
    with pytest.raises(KeyError):
        vast.sandbox.disturb("7", "offline")


async def test_without_credit_everything_stops_and_nothing_is_sold(vast: Vast) -> None:
    running = await vast.running()
    vast.sandbox.disturb(running.ref, "credit_gone")
    vast.step()

    assert (await vast.seen(running.ref)).status is InstanceStatus.STOPPED
    assert (await vast.provider.balance()).credit_usd < 0
    report = await vast.provider.preflight()
    assert (report.ok, "credit" in report.problem) == (False, True)
    with pytest.raises(InsufficientFunds):
        await vast.create()


@pytest.mark.parametrize("fault", ["destroy_lost_reply", "destroy_503_after"])
async def test_a_destroy_whose_reply_was_lost_is_repeated_and_succeeds(vast: Vast, fault: str) -> None:
    running = await vast.running()
    vast.arm(fault)
    await vast.provider.terminate(running.ref)

    assert vast.alive() == []
