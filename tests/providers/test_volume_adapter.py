"""Network volumes through the adapters: offered, created once, listed, billed, mounted, deleted; over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from ledger.kernel.grant import Grant, GrantKind
from ledger.kernel.volume_name import VOLUME
from providers.cloud_names import volumes_of
from providers.clouds.lambda_cloud.adapter import LambdaConfig
from providers.clouds.lambda_cloud.file_systems import LambdaVolumes
from providers.clouds.runpod.network_volumes import RunPodVolumes
from providers.completeness import COMPLETE, Extent
from providers.contract import AttachedVolume, InstanceSpec, NotSeen, ObservedInstance, Offer, Provider
from providers.errors import (
    AuthFailed,
    InUse,
    InvalidSpec,
    OutcomeUnknown,
    ProviderError,
    Unavailable,
    UnexpectedResponse,
)
from providers.gpus.constraint import GpuConstraint
from providers.http import HttpReply
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from providers.sandbox.engine import Engine, SandboxCloud
from providers.sandbox.lambda_cloud.sandbox import LambdaSandbox
from providers.sandbox.sandboxes import SANDBOXES
from providers.sandbox.server import build_app
from tests.support.clock import START, SteppedClock
from tests.support.serving import serving

ASKED = GpuConstraint(names=(f"{VOLUME}data",))
CLOUDS = ("runpod", "lambda")
NAME = "data-ab12"


@dataclass(frozen=True, slots=True)
class Served:
    engine: Engine
    clock: SteppedClock
    cloud: SandboxCloud
    machines: Provider
    volumes: Provider

    def arm(self, fault: str, **params: Any) -> None:
        self.engine.faults.arm(self.cloud.name, fault, 1, **params)

    async def offer(self, size_gb: int = 200) -> Offer:
        return (await self.volumes.offers(ASKED, disk_gb=size_gb, spot=False))[0]

    async def create(self, size_gb: int = 200, name: str = NAME) -> ObservedInstance:
        return await self.volumes.create(InstanceSpec(name, await self.offer(size_gb), "", size_gb), grant(name))


def grant(label: str) -> Grant:
    cap = Decimal(100)
    return Grant("gnt_1", "req_1", GrantKind.CREATE, label, cap, cap, Decimal(6), START + timedelta(hours=6))


@asynccontextmanager
async def running(name: str) -> AsyncIterator[Served]:
    clock = SteppedClock()
    engine = Engine(clock, SandboxTiming.quick())
    cloud = SANDBOXES[name](engine)
    async with serving(build_app({name: cloud}, tick_s=None)) as base:
        entry = REGISTRY[name]
        config = entry.config(cloud.environment(f"{base}/{name}"))
        both = entry.build_all(config, clock, LocalPacer(clock, 0))
        try:
            yield Served(engine, clock, cloud, both[name], both[volumes_of(name)])
        finally:
            for provider in both.values():
                await provider.close()


@pytest.fixture(params=CLOUDS)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    async with running(request.param) as found:
        yield found


async def test_only_who_asks_for_a_volume_is_offered_one(served: Served) -> None:
    found = await served.volumes.offers(ASKED, disk_gb=200, spot=False)
    assert len({one.region for one in found}) == len(found) > 1
    assert {one.cloud for one in found} == {volumes_of(served.cloud.name)}
    by_use = served.cloud.name == "lambda"
    assert all(one.storage_usd_h == (0 if by_use else one.price_usd_h) for one in found)
    least, most = served.volumes.capabilities.volume_gb or (0, 0)
    for constraint, size, spot in (
        (GpuConstraint(), 200, False),
        (GpuConstraint(names=("A10",)), 200, None),
        (ASKED, 200, True),
        (ASKED, least - 1, False),
        (ASKED, most + 1, False),
    ):
        assert (await served.volumes.offers(constraint, disk_gb=size, spot=spot)).items == ()
    calls = len(served.engine.calls)
    assert (await served.machines.offers(ASKED, disk_gb=200, spot=False)).items == ()
    assert len(served.engine.calls) - calls <= 2


@pytest.mark.parametrize(
    ("cloud", "size_gb", "month_usd"),
    [("runpod", 200, "14"), ("runpod", 1000, "70"), ("runpod", 2000, "120"), ("lambda", 100, "20")],
)
async def test_the_price_is_that_of_the_price_page(cloud: str, size_gb: int, month_usd: str) -> None:
    async with running(cloud) as served:
        hours = 720 if cloud == "runpod" else 730
        price = (await served.offer(size_gb)).price_usd_h
        assert price is not None
        assert abs(price * hours - Decimal(month_usd)) < Decimal("0.001")


async def test_it_is_created_once_listed_and_deleted(served: Served) -> None:
    made = await served.create()
    assert made.name == NAME
    assert [one.ref for one in (await served.volumes.list()).items] == [made.ref]
    assert (await served.machines.list()).items == ()
    assert await served.volumes.get(made.ref) == (await served.volumes.list()).items[0]
    assert await served.volumes.find(NAME) == (await served.volumes.list()).items
    assert await served.volumes.terminate(made.ref) is True
    assert await served.volumes.terminate(made.ref) is False
    assert (await served.volumes.list()).items == ()
    assert isinstance(await served.volumes.get(made.ref), NotSeen)
    assert [(one.cloud, one.alive) for one in served.cloud.instances()] == [(volumes_of(served.cloud.name), False)]


async def test_every_cursor_page_is_read_and_half_a_list_is_refused() -> None:
    async with running("runpod") as served:
        refs = {(await served.create(name=f"data-{n}")).ref for n in range(3)}
        served.engine.faults.arm("runpod", "small_pages", 3)
        listing = await served.volumes.list()
        assert ({one.ref for one in listing.items}, listing.completeness) == (refs, COMPLETE)
        served.arm("page_error")
        with pytest.raises(ProviderError):
            await served.volumes.list()


async def test_a_list_that_may_be_cut_proves_no_absence() -> None:
    async with running("runpod") as served:
        await served.create()
        whole = await served.volumes.list()
        assert whole.absence("agv6w2qcg7", "") is not None
        served.arm("no_pagination")
        cut = await served.volumes.list()
        assert (cut.items, cut.completeness.extent) == (whole.items, Extent.PARTIAL)
        assert cut.absence("agv6w2qcg7", "") is None


async def test_one_is_read_by_its_own_id_whatever_the_listing_lacks() -> None:
    async with running("runpod") as served:
        made = await served.create()
        served.arm("volumes_short")
        assert (await served.volumes.list()).items == ()
        served.arm("volumes_short")
        assert isinstance(await served.volumes.get(made.ref), ObservedInstance)
        assert isinstance(await served.volumes.get("agv6w2qcg7"), NotSeen)
        for fault in ("get_503", "unauthorized"):
            served.engine.faults.arm("runpod", fault, 3)
            with pytest.raises(ProviderError):
                await served.volumes.get(made.ref)
            served.engine.faults.disarm()


async def test_a_404_of_something_in_between_is_no_absence() -> None:
    adapter = REGISTRY["runpod"].build_all(
        REGISTRY["runpod"].config({"RUNPOD_API_KEY": "rpa_x"}), SteppedClock(), LocalPacer(SteppedClock(), 0)
    )
    volumes = adapter[volumes_of("runpod")]
    assert isinstance(volumes, RunPodVolumes)
    page = HttpReply(404, {}, "<html>404 Not Found</html>", None)
    told = HttpReply(404, {}, "", {"title": "Not Found", "status": 404, "detail": "network volume not found"})
    assert (volumes._gone(page), volumes._gone(told)) == (False, True)
    for provider in adapter.values():
        await provider.close()


@pytest.mark.parametrize("fault", ["create_lost_reply", "create_503_after"])
async def test_a_reply_that_is_lost_leaves_one_volume(served: Served, fault: str) -> None:
    served.arm(fault)
    with pytest.raises(OutcomeUnknown):
        await served.create()
    found = await served.volumes.find(NAME)
    assert not isinstance(found, NotSeen)
    assert len(found) == 1
    assert len(served.engine.creates) == 1


async def test_a_volume_may_land_late_and_be_listed_later(served: Served) -> None:
    served.arm("create_lands_late", after_s=200)
    with pytest.raises(OutcomeUnknown):
        await served.create()
    assert isinstance(await served.volumes.find(NAME), NotSeen)
    served.engine.clock.travel(201)
    assert not isinstance(await served.volumes.find(NAME), NotSeen)
    served.arm("create_list_lag", after_s=60)
    second = await served.create(name="data-cd34")
    assert second.ref not in {one.ref for one in (await served.volumes.list()).items}
    served.engine.clock.travel(61)
    assert second.ref in {one.ref for one in (await served.volumes.list()).items}


async def test_a_definite_no_creates_nothing(served: Served) -> None:
    served.arm("create_auth")
    with pytest.raises(ProviderError) as refused:
        await served.create()
    assert refused.value.definite_no
    too_large = InstanceSpec(NAME, await served.offer(), "", 100_000)
    with pytest.raises(InvalidSpec):
        await served.volumes.create(too_large, grant(NAME))
    assert served.cloud.instances() == []
    with pytest.raises(InvalidSpec):
        await served.volumes.terminate("../pods")


async def test_a_machine_mounts_it_and_it_outlives_the_machine(served: Served) -> None:
    gpu = "RTX4090" if served.cloud.name == "runpod" else "A10"
    found = await served.machines.offers(GpuConstraint(names=(gpu,)), disk_gb=50, spot=False)
    offer = next(one for one in found if one.region != "any")
    place = next(o for o in await served.volumes.offers(ASKED, disk_gb=20, spot=False) if o.region == offer.region)
    made = await served.volumes.create(InstanceSpec(NAME, place, "", 20), grant(NAME))
    spec = InstanceSpec(
        "run-1",
        offer,
        "runpod/pytorch:1.0.2",
        50,
        volume=AttachedVolume(made.ref, served.volumes.capabilities.volume_path.format("data")),
    )
    machine = await served.machines.create(spec, grant("run-1"))
    seen = await served.machines.get(machine.ref)
    assert isinstance(seen, ObservedInstance)
    assert seen.price_usd_h == offer.price_usd_h
    if served.cloud.name == "runpod":
        served.arm("mounted_volume_deleted")
    with pytest.raises(InUse, match=machine.ref):
        await served.volumes.terminate(made.ref)
    served.engine.faults.disarm()
    await served.machines.terminate(machine.ref)
    served.clock.advance(10)
    assert [one.ref for one in (await served.volumes.list()).items] == [made.ref]
    assert await served.volumes.terminate(made.ref) is True


async def test_a_volume_elsewhere_is_refused_with_the_create(served: Served) -> None:
    gpu = "RTX4090" if served.cloud.name == "runpod" else "A10"
    offer = next(
        one
        for one in await served.machines.offers(GpuConstraint(names=(gpu,)), disk_gb=50, spot=False)
        if one.region != "any"
    )
    spec = InstanceSpec("run-1", offer, "runpod/pytorch:1.0.2", 50, volume=AttachedVolume("ab12cd34", "/data"))
    with pytest.raises(ProviderError) as refused:
        await served.machines.create(spec, grant("run-1"))
    assert refused.value.definite_no


async def test_runpods_bill_is_what_the_hours_cost() -> None:
    async with running("runpod") as served:
        made = await served.create(200)
        served.clock.advance(10 * 3600)
        lines = await served.volumes.charges(START - timedelta(hours=1), served.clock.now())
        assert {(one.ref, one.component) for one in lines} == {(made.ref, "storage")}
        due = sum((one.amount_usd for one in lines), Decimal(0))
        (price,) = [one.price_usd_h for one in (await served.volumes.list()).items]
        assert price is not None
        assert abs(due - price * 10) <= due / 100
        assert (await served.machines.charges(START, served.clock.now())) == ()


async def test_lambda_bills_what_is_on_it() -> None:
    async with running("lambda") as served:
        assert isinstance(served.cloud, LambdaSandbox)
        made = await served.create(200)
        assert made.price_usd_h == Decimal("0.000001")
        served.cloud.file_systems.fill(made.ref, 100)
        (seen,) = (await served.volumes.list()).items
        assert seen.price_usd_h is not None
        assert abs(seen.price_usd_h * 730 - 20) < Decimal("0.001")
        served.cloud.file_systems.fill(made.ref, 2000)  # More bytes than any other number of an API.
        (seen,) = (await served.volumes.list()).items
        assert seen.price_usd_h is not None
        assert abs(seen.price_usd_h * 730 - 400) < Decimal("0.001")
        with pytest.raises(ProviderError):
            await served.volumes.charges(START, served.clock.now())


@pytest.mark.parametrize("unreadable", [None, "many", -1])
async def test_lambdas_rate_is_unknown_without_its_use(unreadable: Any) -> None:
    """No use would be no cost, and the ledger would book nothing: without a rate it keeps the last one."""
    adapter = LambdaVolumes(LambdaConfig(), SteppedClock())
    seen = adapter.observed({"id": "ab" * 16, "name": NAME, "bytes_used": unreadable})
    assert (seen.price_usd_h, seen.storage_usd_h) == (None, None)
    await adapter.close()


async def test_lambda_keeps_a_file_system_that_is_in_use() -> None:
    adapter = LambdaVolumes(LambdaConfig(), SteppedClock())
    with pytest.raises(AuthFailed):
        await adapter.list()
    assert (await adapter.offers(ASKED, disk_gb=20, spot=None)).items == ()
    with pytest.raises(UnexpectedResponse):
        adapter.observed({"name": "data"})
    await adapter.close()
    assert Unavailable("lambda", "x").definite_no is False
