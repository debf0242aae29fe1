"""The RunPod sandbox's manners and market over real HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from providers.clouds.runpod.offers import MORE_COUNTS
from providers.completeness import Completeness
from providers.contract import InstanceSpec
from providers.errors import NoCapacity, RateLimited, Unavailable
from providers.gpus.constraint import GpuConstraint
from providers.registry import REGISTRY
from providers.sandbox.clock import SandboxTiming
from tests.providers.clouds.runpod.served import ONE, Served, cheap, create, grant, running
from tests.providers.read_offers import every_offer
from tests.support.clock import SteppedClock


@pytest.fixture
async def quick() -> AsyncIterator[Served]:
    async with running(SandboxTiming.quick()) as served:
        yield served


@pytest.fixture
async def slow() -> AsyncIterator[Served]:
    async with running(SandboxTiming()) as served:
        yield served


# ── the gateway's manners ────────────────────────────────────────────────────────────────────────


async def test_unknown_fields_are_refused_and_unknown_parameters_are_not(quick: Served) -> None:
    body = {"image": "i", "gpu": {"id": "x", "gpuTypeIds": []}, "interruptible": True, "cloud": "ALL", "disk": 0}
    reply = await quick.http.post("/v2/pods", json=body)
    assert reply.status_code == 422
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["errors"] == [
        "$: missing property 'name'",
        "$: additional properties 'interruptible' not allowed",
        "$.cloud: value must be one of 'SECURE', 'COMMUNITY'",
        "$.disk: want an integer of at least 1",
        "$.gpu: additional properties 'gpuTypeIds' not allowed",
    ]
    assert (await quick.http.get("/v2/pods?computeType=GPU&name=x")).json()["pods"] == []


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"gpu": {"id": "NVIDIA L4"}, "cpu": {"id": "cpu3c"}}, 400),
        ({"gpu": {"id": "NVIDIA L4", "minCudaVersion": "12.8", "allowedCudaVersions": ["12.8"]}}, 400),
        ({"gpu": {"id": "No Such GPU"}}, 422),
        ({"gpu": {"id": "NVIDIA L4"}, "mounts": {"persistent": {"size": 5, "path": "/w"}}}, 422),
        ({"gpu": {"id": "NVIDIA L4"}, "mounts": {"network": []}}, 422),
        ({"gpu": {"id": "NVIDIA L4"}, "mounts": {"network": [{"volumeId": "v", "path": "/w"}]}}, 400),
        ({"gpu": {"id": "NVIDIA L4"}, "env": {"A": 1}}, 422),
        ({"gpu": {"id": "NVIDIA L4"}, "dataCenterIds": ["XX-NO-1"]}, 400),
        ({"gpu": {"id": "NVIDIA L4"}}, 201),
    ],
)
async def test_rules_of_a_create(quick: Served, changes: dict[str, Any], status: int) -> None:
    reply = await quick.http.post("/v2/pods", json={"name": "n", "image": "i", **changes})
    assert reply.status_code == status
    assert len(quick.engine.creates) == 1
    assert quick.engine.creates[0].outcome == ("committed" if status == 201 else "refused")


async def test_keys_methods_paths_and_request_ids(quick: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "httpx")  # The key is put into an address here, which its client would say.
    anonymous = await quick.http.get("/v2/pods", headers={"Authorization": ""})
    assert (anonymous.status_code, anonymous.json()["detail"]) == (401, "missing bearer token")
    assert (await quick.http.get("/v2/pods?api_key=" + quick.cloud.API_KEY, headers={"Authorization": ""})).is_error
    urllib = await quick.http.get("/v2/pods", headers={"User-Agent": "Python-urllib/3.11"})
    assert (urllib.status_code, urllib.text) == (403, "error code: 1010")
    wrong = await quick.http.put("/v2/pods")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    assert (await quick.http.get("/v2/networkvolumes")).json()["detail"] == "resource not found"
    assert (await quick.http.get("/v1/pods")).status_code == 410
    first, second = await quick.http.get("/v2/pods"), await quick.http.get("/v2/pods")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


async def test_rate_windows(slow: Served) -> None:
    for left in range(59, -1, -1):
        reply = await slow.http.get("/v2/pods")
        assert f'"minute";r={left};' in reply.headers["ratelimit"]
    refused = await slow.http.get("/v2/pods")
    assert refused.status_code == 429
    assert refused.json()["detail"] == "rate limit exceeded for the minute window"
    with pytest.raises(RateLimited) as raised:
        await slow.provider.list()
    assert raised.value.retry_after_s == 60
    slow.travel(60)
    assert (await slow.provider.list()).items == ()


async def test_actions_follow_the_status(quick: Served) -> None:
    ref = (await create(quick)).ref

    async def act(action: str) -> int:
        return (await quick.http.post(f"/v2/pods/{ref}/action", json={"action": action})).status_code

    assert await act("restart") == 409
    quick.travel(5)
    assert await act("restart") == 200
    assert await act("fly") == 422
    assert await act("stop") == 200
    assert await act("stop") == 409
    assert await act("start") == 200
    assert await act("terminate") == 204
    assert await act("terminate") == 404
    assert (await quick.http.delete(f"/v2/pods/{ref}")).status_code == 404


async def test_account_keys_go_into_pods_that_bring_none(quick: Served) -> None:
    assert (await quick.http.put("/v2/account/ssh-keys", json={"keys": ["k1", "k2"]})).status_code == 200
    assert (await quick.http.put("/v2/account/ssh-keys", json={"keys": "k1"})).status_code == 422
    assert (await quick.http.get("/v2/account/ssh-keys")).json() == {"keys": ["k1", "k2"]}
    body = {"name": "n", "image": "i", "gpu": {"id": "NVIDIA L4"}, "startSsh": True}
    assert (await quick.http.post("/v2/pods", json=body)).json()["env"] == {"PUBLIC_KEY": "k1\nk2"}
    own = await quick.http.post("/v2/pods", json={**body, "env": {"PUBLIC_KEY": "mine"}})
    assert own.json()["env"] == {"PUBLIC_KEY": "mine"}


async def test_catalogue_routes(quick: Served) -> None:
    assert (await quick.http.get("/v2/catalog/gpus?include=AVAILABILITY")).status_code == 400
    assert "availability" not in (await quick.http.get("/v2/catalog/gpus")).json()["gpus"][0]
    one = await quick.http.get("/v2/catalog/gpus/NVIDIA%20%20RTX%20A4500")
    assert one.json()["id"] == "NVIDIA  RTX A4500"
    assert (await quick.http.get("/v2/catalog/gpus/nothing")).status_code == 404
    centers = (await quick.http.get("/v2/catalog/datacenters?include=GPU_AVAILABILITY&regions=ASIA")).json()
    assert [c["id"] for c in centers["dataCenters"]] == ["AP-JP-1"]
    for query in ("cloud=ALL", "count=0"):
        reply = await quick.http.get(f"/v2/catalog/gpus?include=AVAILABILITY&product=POD&{query}")
        assert reply.status_code == 400


# ── the market ───────────────────────────────────────────────────────────────────────────────────


async def test_a_search_is_one_page_per_tier_and_count(quick: Served) -> None:
    first = await quick.provider.offers(GpuConstraint(count_max=8), disk_gb=50, spot=None)
    assert {offer.gpu_count for offer in first} == {1}
    assert first.completeness == Completeness.partial(MORE_COUNTS)
    spare = await quick.provider.offers(GpuConstraint(count_max=8), disk_gb=50, spot=None, rest=first.rest, spare=True)
    assert ({offer.gpu_count for offer in spare}, spare.completeness.is_complete) == ({2}, False)
    assert [call.path for call in quick.engine.calls] == ["/v2/catalog/gpus"] * 4
    found = await every_offer(quick.provider, GpuConstraint(count_max=8), disk_gb=50, spot=None)
    assert found.completeness.is_complete
    assert len(found) > 200
    assert len({offer.key for offer in found}) == len(found)
    assert {offer.gpu_count for offer in found} == set(range(1, 9))
    assert [call.path for call in quick.engine.calls] == ["/v2/catalog/gpus"] * (4 + 16)
    assert any(offer.price_usd_h == 0 for offer in found)
    assert any(offer.price_usd_h is None for offer in found)
    assert (await quick.provider.offers(ONE, disk_gb=50, spot=True)).items == ()
    assert (await quick.provider.offers(GpuConstraint(count_min=99, count_max=99), disk_gb=50, spot=None)).items == ()


async def test_the_market_is_the_same_for_the_same_seed(quick: Served, slow: Served) -> None:
    one = await quick.provider.offers(ONE, disk_gb=50, spot=False)
    two = await slow.provider.offers(ONE, disk_gb=50, spot=False)
    assert [(o.key, o.price_usd_h) for o in one] == [(o.key, o.price_usd_h) for o in two]


async def test_a_page_that_fails_fails_the_search(quick: Served) -> None:
    quick.arm("server_error")
    with pytest.raises(Unavailable):
        await quick.provider.offers(ONE, disk_gb=50, spot=False)


async def test_every_key_can_be_withdrawn_and_repriced(quick: Served) -> None:
    for offer in await quick.provider.offers(ONE, disk_gb=50, spot=False):
        if offer.price_usd_h is not None:
            assert quick.cloud.reprice(offer.key, Decimal(1)) == 1, offer.key
        assert quick.cloud.withdraw(offer.key) == 1, offer.key
        assert quick.cloud.withdraw(offer.key) == 0, offer.key
    assert (await quick.provider.offers(ONE, disk_gb=50, spot=False)).items == ()
    assert quick.cloud.reprice("*", Decimal(2)) > 60
    assert quick.cloud.withdraw("*") > 30
    for key in ("nonsense", "community/Nothingx1"):
        assert quick.cloud.reprice(key, Decimal(2)) == quick.cloud.withdraw(key) == 0


async def test_an_offer_that_is_gone_is_no_capacity(quick: Served) -> None:
    offer = await cheap(quick)
    quick.cloud.withdraw(offer.key)
    with pytest.raises(NoCapacity):
        await quick.provider.create(InstanceSpec("n", offer, "i", 50), grant("n"))
    assert quick.cloud.instances() == []


async def test_a_rise_in_price_is_seen_on_the_pod(quick: Served) -> None:
    quick.arm("price_above", factor="2")
    offer = await cheap(quick)
    assert (await create(quick)).price_usd_h == (offer.gpu_usd_h or 0) * 2 + offer.storage_usd_h


# ── drivers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("least", "host", "starts"), [(None, "12.4", False), ("12.8", "12.8", True)])
async def test_an_image_starts_only_on_a_host_with_its_cuda(
    quick: Served, least: str | None, host: str, starts: bool
) -> None:
    image, named = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404", Decimal(least) if least else None
    spec = InstanceSpec("run-1", await cheap(quick), image, 50, ("ssh-ed25519 AAAA a",), min_cuda=named)
    made = await quick.provider.create(spec, grant("run-1"))
    quick.travel(3600)
    pod = (await quick.http.get(f"/v2/pods/{made.ref}")).json()
    assert (pod["cudaVersion"], pod["runtime"] is not None) == (host, starts)


async def test_no_pod_is_placed_where_no_host_has_the_cuda(quick: Served) -> None:
    spec = InstanceSpec("run-1", await cheap(quick), "own/image:1", 50, min_cuda=Decimal("13.5"))
    with pytest.raises(NoCapacity):
        await quick.provider.create(spec, grant("run-1"))
    found = await quick.provider.offers(GpuConstraint(("V100-16GB",), cuda_min=Decimal("12.9")), disk_gb=50, spot=False)
    assert found.items == ()
    assert await quick.provider.offers(GpuConstraint(("V100-16GB",), cuda_min=Decimal("12.8")), disk_gb=50, spot=False)


# ── addresses and ports ──────────────────────────────────────────────────────────────────────────


async def test_a_community_pod_may_have_no_address_and_a_restart_gives_it_none(quick: Served) -> None:
    quick.arm("no_address")
    made = await create(quick)
    for _ in range(2):
        quick.travel(60)
        pod = (await quick.http.get(f"/v2/pods/{made.ref}")).json()
        assert (pod["status"], pod["ssh"]["direct"], pod["runtime"]["ports"]) == ("RUNNING", None, [])
        assert quick.cloud.reachable() == []
        await quick.provider.restart(made.ref)


async def test_only_the_tiers_that_are_set_are_offered(quick: Served) -> None:
    url = str(quick.http.base_url)
    offered = {}
    for tiers in ("", "secure", "community", "all"):
        settings = {**quick.cloud.environment(url), "RUNPOD_TIERS": tiers}
        if not tiers:
            del settings["RUNPOD_TIERS"]
        provider = REGISTRY["runpod"].connect(settings, SteppedClock())
        found = await provider.offers(ONE, disk_gb=50, spot=False)
        offered[tiers] = {offer.ticket["cloud"] for offer in found}
        await provider.close()
    both = {"SECURE", "COMMUNITY"}
    assert offered == {"": {"SECURE"}, "secure": {"SECURE"}, "community": {"COMMUNITY"}, "all": both}


async def test_every_port_that_is_asked_for_is_mapped_and_listed(quick: Served) -> None:
    body = {"name": "x", "image": "i", "gpu": {"id": "NVIDIA L4"}, "ports": ["22/tcp", "10022/tcp", "8888/http"]}
    ref = (await quick.http.post("/v2/pods", json=body)).json()["id"]
    quick.travel(60)
    ports = (await quick.http.get(f"/v2/pods/{ref}")).json()["runtime"]["ports"]
    assert [(one["private"], one["type"]) for one in ports] == [(22, "tcp"), (10022, "tcp"), (8888, "http")]
    assert ports[-1]["ip"].startswith("100.64.")  # Only RunPod's own proxy reaches it.
    assert len({one["public"] for one in ports}) == 3


@pytest.mark.parametrize(
    ("wish", "status"), [({"minVcpuCountPerGpu": 8, "minRamPerGpu": 31}, 201), ({"minRamPerGpu": 32}, 400)]
)
async def test_a_pod_is_placed_only_where_the_host_is_large_enough(
    quick: Served, wish: dict[str, int], status: int
) -> None:
    body = {"name": "x", "image": "i", "gpu": {"id": "NVIDIA L4", **wish}}
    assert (await quick.http.post("/v2/pods", json=body)).status_code == status
