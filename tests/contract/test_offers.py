"""Offers: priced, filtered, and checked again on our side."""

from __future__ import annotations

from decimal import Decimal

import pytest

from providers.errors import NoCapacity, QuotaExceeded
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS
from tests.contract.served import DISK_GB, Bench
from tests.providers.read_offers import every_offer

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_offers_are_priced_for_the_whole_offer_with_the_disk(bench: Bench) -> None:
    found = await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=False)

    good = [o for o in found if bench.usable(o)]
    assert good
    for offer in good:
        assert offer.cloud == bench.entry.name
        assert offer.gpu == bench.sandbox.STAPLE
        assert offer.gpu_count == bench.sandbox.STAPLE_COUNT
        assert offer.memory_gb == GPUS[offer.gpu].memory_gb
        assert not offer.spot
        assert " " not in offer.key
        assert offer.fetched_at == bench.clock.now()
        assert offer.price_usd_h is not None
        assert offer.price_usd_h >= offer.storage_usd_h


async def test_more_disk_costs_more_unless_it_comes_with_the_machine(bench: Bench) -> None:
    # No cloud's smallest disk is above 110 GB, so the second asks for more than #1 everywhere.
    small = {o.key: o for o in await bench.provider.offers(bench.one, disk_gb=110, spot=False)}
    large = {o.key: o for o in await bench.provider.offers(bench.one, disk_gb=300, spot=False)}

    both = [(small[key], large[key]) for key in small.keys() & large.keys() if bench.usable(small[key])]
    assert both
    for less, more in both:
        if not bench.provider.capabilities.billing.storage_while_stopped:
            assert (less.storage_usd_h, more.price_usd_h) == (Decimal(0), less.price_usd_h)
            continue
        assert more.storage_usd_h > less.storage_usd_h
        assert (more.price_usd_h or Decimal(0)) > (less.price_usd_h or Decimal(0))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
async def test_the_count_is_kept(bench: Bench, count: int) -> None:
    found = await bench.provider.offers(GpuConstraint(count_min=count, count_max=count), disk_gb=DISK_GB, spot=False)

    assert {o.gpu_count for o in found} == ({count} if count in bench.sandbox.COUNTS else set())


async def test_a_range_of_counts_is_a_range(bench: Bench) -> None:
    wanted = GpuConstraint(count_min=2, count_max=4)
    found = await every_offer(bench.provider, wanted, disk_gb=DISK_GB, spot=False, calls=3)

    assert found
    assert all(2 <= o.gpu_count <= 4 for o in found)


async def test_memory_bounds_are_kept_by_nominal_size(bench: Bench) -> None:
    size = GPUS[bench.sandbox.STAPLE].memory_gb
    wanted = GpuConstraint(count_max=8, memory_gb_min=Decimal(size), memory_gb_max=Decimal(size))
    found = await bench.provider.offers(wanted, disk_gb=DISK_GB, spot=False)

    assert found
    assert {o.memory_gb for o in found} == {Decimal(size)}
    assert (
        await bench.provider.offers(GpuConstraint(memory_gb_min=Decimal(999)), disk_gb=DISK_GB, spot=False)
    ).items == ()


@pytest.mark.needs(VARIED=True)
async def test_one_spelling_for_two_memory_sizes_is_told_apart(bench: Bench) -> None:
    wanted = GpuConstraint(names=("A100-SXM-80GB",), count_max=8)
    found = await bench.provider.offers(wanted, disk_gb=DISK_GB, spot=False)

    assert found
    assert {(o.gpu, o.memory_gb) for o in found} == {("A100-SXM-80GB", Decimal(80))}


async def test_a_gpu_that_the_cloud_does_not_sell_gives_nothing_and_no_error(bench: Bench) -> None:
    assert (await bench.provider.offers(GpuConstraint(names=("K80",)), disk_gb=DISK_GB, spot=False)).items == ()


@pytest.mark.needs(VARIED=True)
async def test_no_names_means_any_gpu(bench: Bench) -> None:
    found = await bench.provider.offers(GpuConstraint(), disk_gb=DISK_GB, spot=False)

    assert len({o.gpu for o in found}) > 3


async def test_spot_offers_only_where_the_cloud_has_them(bench: Bench) -> None:
    spot = await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=True)
    both = await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=None)

    assert bool(spot) is bench.provider.capabilities.spot
    assert all(o.spot and (o.min_bid_usd_h or 0) >= 0 for o in spot if o.price_usd_h and o.price_usd_h > 0)
    assert {o.spot for o in both} == ({True, False} if bench.provider.capabilities.spot else {False})


async def test_one_page_is_one_request_per_price_list(bench: Bench) -> None:
    bench.engine.calls.clear()
    await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=False)

    # RunPod has two price lists (secure and community), Vast.ai one.
    assert 1 <= len(bench.engine.calls) <= 2


async def test_deeper_pages_repeat_no_offer(bench: Bench) -> None:
    wide = GpuConstraint(count_min=1, count_max=8)
    first = await bench.provider.offers(wide, disk_gb=DISK_GB, spot=False)
    deep = await every_offer(bench.provider, wide, disk_gb=DISK_GB, spot=False)

    keys = [o.key for o in deep]
    assert len(keys) == len(set(keys))
    assert len(deep) > len(first) or not bench.sandbox.PAGED
    assert {o.key for o in first} <= set(keys)


@pytest.mark.needs(free=False)
async def test_a_price_that_moves_is_seen_at_once(bench: Bench) -> None:
    offer = await bench.offer()
    assert bench.sandbox.reprice(offer.key, Decimal(2)) > 0

    again = {o.key: o for o in await bench.provider.offers(bench.one, disk_gb=DISK_GB, spot=False)}
    assert offer.price_usd_h is not None
    assert (again[offer.key].price_usd_h or Decimal(0)) > offer.price_usd_h * Decimal("1.5")


async def test_an_offer_from_a_deep_page_is_asked_for_alone(bench: Bench) -> None:
    wide = GpuConstraint(count_max=8)
    found = await every_offer(bench.provider, wide, disk_gb=DISK_GB, spot=None)
    chosen = [*filter(bench.usable, found)][-1]
    bench.step(1)
    bench.engine.calls.clear()
    fresh = await bench.provider.requote(chosen, disk_gb=DISK_GB)
    reads = len(bench.engine.calls)

    assert fresh is not None
    assert fresh.fetched_at == bench.clock.now()
    assert (fresh.key, fresh.gpu, fresh.gpu_count, fresh.spot, fresh.price_usd_h, fresh.ticket) == (
        chosen.key, chosen.gpu, chosen.gpu_count, chosen.spot, chosen.price_usd_h, chosen.ticket,
    )  # fmt: skip
    # A batch cloud's one offer is made of its quota and its active runs.
    assert reads == 1 or (bench.able.batch and reads <= 3)
    if not bench.able.free:
        assert bench.sandbox.reprice(chosen.key, Decimal(2)) > 0
        dearer = await bench.provider.requote(chosen, disk_gb=DISK_GB)
        assert dearer is not None
        assert (dearer.price_usd_h or 0) > (chosen.price_usd_h or 0)
    assert bench.sandbox.withdraw("*") > 0
    assert await bench.provider.requote(chosen, disk_gb=DISK_GB) is None


async def test_an_offer_that_somebody_else_took_cannot_be_bought(bench: Bench) -> None:
    offer = await bench.offer()
    assert bench.sandbox.withdraw("*") > 0

    with pytest.raises(QuotaExceeded if bench.able.free else NoCapacity):
        await bench.provider.create(bench.spec(offer), bench.grant())
    assert bench.truth() == []
