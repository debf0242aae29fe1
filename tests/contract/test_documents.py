"""The clouds' own documents: their example answers are read by our adapters, and what the suite sends agrees with them.

Every test of this suite holds the calls that it made against the documents, too (`tests/contract/conftest.py`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from providers.contract import InstanceStatus, NotSeen, Provider, SshEndpoint
from providers.errors import UnexpectedResponse
from providers.gpus.constraint import GpuConstraint
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY
from providers.sandbox.engine import Engine
from providers.sandbox.sandboxes import SANDBOXES
from tests.contract.documents import Exchange, documents, needs_documents
from tests.contract.known_errors import undocumented
from tests.providers.scripted import answer, playing
from tests.support.clock import SteppedClock

pytestmark = needs_documents

ANY = GpuConstraint(count_min=1, count_max=8)
LONG_AGO, LATER = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def reading(cloud: str, *bodies: Any) -> AsyncIterator[Provider]:
    """An adapter whose cloud gives these answers, the last one again and again."""
    clock = SteppedClock()
    async with playing(*map(answer, bodies)) as played:
        sandbox = SANDBOXES[cloud](Engine(clock))
        environment = sandbox.environment(f"http://127.0.0.1:{played.port}")
        provider = REGISTRY[cloud].connect(environment, clock, LocalPacer(clock, 0))
        try:
            yield provider
        finally:
            await provider.close()


# ── RunPod ───────────────────────────────────────────────────────────────────────────────────────


async def test_runpods_example_pods_are_read() -> None:
    for body in documents("runpod").examples("GET", "/v2/pods/x"):
        async with reading("runpod", body) as provider:
            seen = await provider.get(body["id"])
        assert not isinstance(seen, NotSeen)
        assert (seen.ref, seen.name, seen.region) == (body["id"], body["name"], body["dataCenterId"])
        assert seen.gpu_count == body["gpu"]["count"]
        assert (seen.status is InstanceStatus.RUNNING) is (body["status"] == "RUNNING")
        if (direct := (body["ssh"] or {}).get("direct")) and seen.status is InstanceStatus.RUNNING:
            assert seen.ssh == SshEndpoint(direct["host"], direct["port"], direct["username"])
    for body in documents("runpod").examples("GET", "/v2/pods"):
        async with reading("runpod", body) as provider:
            assert {one.ref for one in (await provider.list()).items} == {one["id"] for one in body["pods"]}


async def test_runpods_example_catalogue_is_read() -> None:
    for body in documents("runpod").examples("GET", "/v2/catalog/gpus"):
        async with reading("runpod", body) as provider:
            found = await provider.offers(GpuConstraint(), disk_gb=50, spot=False)
        for row in body["gpus"]:
            mine = [one for one in found if one.ticket["gpu_id"] == row["id"]]
            for one in mine:
                each = row["price"][one.ticket["cloud"].lower()]
                assert one.gpu_usd_h == Decimal(str(each))
            said = row.get("availability")
            assert bool(mine) or said == "NONE"


async def test_runpods_example_bill_adds_up() -> None:
    for body in documents("runpod").examples("GET", "/v2/billing/pods"):
        async with reading("runpod", body) as provider:
            lines = await provider.charges(LONG_AGO, LATER)
        total = sum(Decimal(str(one["totalAmount"])) for one in body["records"])
        assert sum(line.amount_usd for line in lines) == total


# ── Lambda ───────────────────────────────────────────────────────────────────────────────────────


async def test_lambdas_example_instances_are_read() -> None:
    for body in documents("lambda").examples("GET", "/api/v1/instances"):
        async with reading("lambda", body) as provider:
            items = (await provider.list()).items
        (row,) = body["data"]
        assert [(one.ref, one.name) for one in items] == [(row["id"], row.get("name"))]
        assert items[0].region == row["region"]["name"]


async def test_lambdas_example_types_are_read() -> None:
    for body in documents("lambda").examples("GET", "/api/v1/instance-types"):
        (row,) = body["data"].values()
        # The document's own example has a region with capacity; its type is spelled out from the schema.
        async with reading("lambda", body) as provider:
            found = await provider.offers(ANY, disk_gb=50, spot=False)
        price = Decimal(row["instance_type"]["price_cents_per_hour"]) / 100
        assert {one.price_usd_h for one in found} == {price}
        assert {one.region for one in found} == {one["name"] for one in row["regions_with_capacity_available"]}


# ── Vast.ai ──────────────────────────────────────────────────────────────────────────────────────


async def test_vasts_example_offer_is_read() -> None:
    """The document shows one offer where its schema has a list of them: that is its error, and refused as such."""
    (body,) = documents("vast").examples("POST", "/api/v0/bundles/")
    row = body["offers"]
    async with reading("vast", body) as provider:
        with pytest.raises(UnexpectedResponse):
            await provider.offers(ANY, disk_gb=50, spot=False)
    async with reading("vast", {"offers": [row]}) as provider:
        (offer,) = await provider.offers(ANY, disk_gb=50, spot=False)
    assert (offer.key, offer.gpu, offer.gpu_count) == (str(row["id"]), row["gpu_name"], row["num_gpus"])
    assert (offer.price_usd_h, offer.min_bid_usd_h) == (Decimal("0.234567"), Decimal("0.111111"))
    assert (offer.cuda_max, offer.compute_capability) == (Decimal("11.2"), Decimal(9))
    assert (offer.country, offer.verified, offer.datacenter) == ("AT", True, False)


async def test_vasts_example_instances_are_read() -> None:
    (body,) = documents("vast").examples("GET", "/api/v1/instances/")
    (row,) = body["instances"]
    async with reading("vast", {**body, "next_token": None, "total_instances": 1}) as provider:
        (item,) = (await provider.list()).items
    assert (item.ref, item.name, item.status) == (str(row["id"]), row["label"], InstanceStatus.RUNNING)
    assert (item.gpu, item.machine_id) == ("RTX4090", str(row["machine_id"]))
    assert item.price_usd_h == Decimal(str(row["dph_total"]))


async def test_vasts_example_bill_is_read() -> None:
    (body,) = documents("vast").examples("GET", "/api/v0/charges/")
    (row,) = body["results"]
    async with reading("vast", {**body, "next_token": None}) as provider:
        lines = await provider.charges(LONG_AGO, LATER)
    assert [(one.ref, one.component) for one in lines] == [("12345678", "gpu")]
    (part,) = row["items"]
    assert lines[0].amount_usd == Decimal(str(part["amount"]))
    assert lines[0].start == datetime.fromtimestamp(part["start"], UTC)


# ── the check itself ─────────────────────────────────────────────────────────────────────────────


def exchange(sent: Any, status: int, answered: Any) -> Exchange:
    body = b"" if answered is None else json.dumps(answered).encode()
    return Exchange("runpod", "POST", "/v2/pods", "", json.dumps(sent).encode(), status, body, disturbed=False)


def test_a_call_that_no_document_knows_is_found() -> None:
    pod = documents("runpod").examples("POST", "/v2/pods", 201)[0]
    fine: dict[str, Any] = {"name": "x", "image": "a", "gpu": {"id": "NVIDIA L4", "count": 1, "minCudaVersion": "12.8"}}
    assert undocumented("runpod", [exchange(fine, 201, pod)]) == []
    wrong = {**fine, "gpu": {**fine["gpu"], "minCudaVersion": "new"}}
    said = undocumented("runpod", [exchange(wrong, 201, pod)])
    assert any(one.startswith("POST /v2/pods: sent: gpu.minCudaVersion: 'new' does not match") for one in said)
    said = undocumented("runpod", [exchange(fine, 201, {**pod, "status": "DANCING"})])
    assert any(one.startswith("POST /v2/pods: answered 201: status: 'DANCING' is not one of") for one in said)
    assert undocumented("runpod", [exchange({**fine, "spot": True}, 201, pod)]) != []
