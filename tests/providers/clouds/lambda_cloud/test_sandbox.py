"""The Lambda sandbox by hand: keys, regions, images, file systems, firewall, log, and what it refuses."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from providers.contract import InstanceStatus, ObservedInstance
from providers.gpus.constraint import GpuConstraint
from tests.providers.clouds.lambda_cloud.served import cloud, clouds
from tests.providers.served import Served

__all__ = ["cloud", "clouds"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_both_ways_to_give_the_key(cloud: Served) -> None:
    basic = base64.b64encode(f"{cloud.sandbox.API_KEY}:".encode()).decode()
    for given in (f"Basic {basic}", f"Bearer {cloud.sandbox.API_KEY}"):
        assert (await cloud.ask("GET", "/regions", headers={"Authorization": given}))[0] == 200
    status, body = await cloud.ask("GET", "/regions", headers={"Authorization": "Bearer x"})
    assert (status, body["error"]["code"]) == (401, "global/invalid-api-key")
    assert (await cloud.ask("GET", "/nowhere"))[1]["error"]["code"] == "global/not-found"


async def test_regions_images_and_firewall(cloud: Served) -> None:
    regions = {row["name"] for row in (await cloud.ask("GET", "/regions"))[1]["data"]}
    images = (await cloud.ask("GET", "/images"))[1]["data"]
    assert {row["region"]["name"] for row in images} == regions
    assert len({row["id"] for row in images}) == len(images)
    rules = [{"protocol": "tcp", "port_range": [22, 22], "source_network": "203.0.113.0/24"}]
    assert (await cloud.ask("PUT", "/firewall-rules", json={"data": rules}))[0] == 200
    assert (await cloud.ask("GET", "/firewall-rules"))[1]["data"] == rules
    assert (await cloud.ask("PUT", "/firewall-rules", json={"data": "x"}))[0] == 400


async def test_file_systems_belong_to_a_region_and_to_their_users(cloud: Served) -> None:
    offer = await cloud.offer()
    made = (await cloud.ask("POST", "/filesystems", json={"name": "data", "region": offer.region}))[1]["data"]
    assert (await cloud.ask("POST", "/filesystems", json={"name": "data", "region": offer.region}))[0] == 400
    assert (await cloud.ask("POST", "/filesystems", json={"name": "1", "region": offer.region}))[0] == 400
    launch: dict[str, Any] = {
        "instance_type_name": offer.ticket["instance_type"],
        "region_name": offer.region,
        "ssh_key_names": ["laptop"],
        "file_system_names": ["data"],
    }
    status, body = await cloud.ask("POST", "/instance-operations/launch", json=launch)
    assert status == 200
    assert (await cloud.ask("DELETE", f"/filesystems/{made['id']}"))[1]["error"]["code"].endswith("filesystem-in-use")
    await cloud.ask("POST", "/instance-operations/terminate", json=body["data"])
    cloud.step()
    assert (await cloud.ask("DELETE", f"/filesystems/{made['id']}"))[0] == 200
    assert (await cloud.ask("GET", "/file-systems"))[1]["data"] == []
    assert (await cloud.ask("DELETE", "/filesystems/x"))[0] == 404


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ssh_key_names": ["nobody"]}, "global/object-does-not-exist"),
        ({"ssh_key_names": ["laptop", "laptop"]}, "global/invalid-parameters"),
        ({"quantity": 2}, "global/invalid-parameters"),
        ({"name": "n" * 65}, "global/invalid-parameters"),
        ({"tags": [{"key": "Bad Key", "value": "x"}]}, "global/invalid-parameters"),
        ({"hostname": "-x"}, "global/invalid-parameters"),
        ({"instance_type_name": "gpu_99x"}, "global/invalid-parameters"),
        ({"region_name": "mars-1"}, "instance-operations/launch/insufficient-capacity"),
        ({"file_system_names": ["none"]}, "global/object-does-not-exist"),
    ],
)
async def test_the_sandbox_refuses_what_lambda_would(cloud: Served, changes: dict[str, Any], code: str) -> None:
    offer = await cloud.offer()
    good = {
        "instance_type_name": offer.ticket["instance_type"],
        "region_name": offer.region,
        "ssh_key_names": ["laptop"],
    }
    status, body = await cloud.ask("POST", "/instance-operations/launch", json=good | changes)

    assert (status in {400, 404}, body["error"]["code"]) == (True, code)
    assert cloud.truth() == []


async def test_renaming_and_generated_keys(cloud: Served) -> None:
    running = await cloud.running()
    assert (await cloud.ask("POST", f"/instances/{running.ref}", json={"name": "new"}))[1]["data"]["name"] == "new"
    assert (await cloud.ask("POST", "/instances/none", json={"name": "new"}))[0] == 404
    assert isinstance(await cloud.seen(running.ref), ObservedInstance)
    status, body = await cloud.ask("POST", "/ssh-keys", json={"name": "made"})
    assert (status, "private_key" in body["data"]) == (200, True)
    assert "private_key" not in (await cloud.ask("GET", "/ssh-keys"))[1]["data"][-1]
    assert (await cloud.ask("POST", "/ssh-keys", json={"name": ""}))[0] == 400
    assert (await cloud.ask("DELETE", "/ssh-keys/none"))[0] == 404
    assert (await cloud.ask("GET", "/audit-events?start=yesterday"))[0] == 400
    logged = (await cloud.ask("GET", "/audit-events?resource_type=cloud.ssh_key"))[1]["data"]
    assert {event["resource_name"] for event in logged} == {"ssh_key"}


async def test_the_sandbox_counts_launches_by_the_minute(cloud: Served) -> None:
    cloud.timing(enforce_rate_limits=True)
    answers = []
    for _ in range(7):
        answers.append((await cloud.ask("POST", "/instance-operations/launch", json={}))[0])
        cloud.step(12)
    assert answers == [400] * 5 + [400, 400]
    assert (await cloud.ask("GET", "/regions"))[0] == 200
    assert (await cloud.ask("GET", "/regions"))[0] == 429


async def test_machines_with_several_gpus_boot_longer(cloud: Served) -> None:
    cloud.timing(boot_s=200.0)
    found = await cloud.provider.offers(GpuConstraint(count_min=8, count_max=8), disk_gb=40, spot=False)
    made = await cloud.provider.create(cloud.spec(found[0]), cloud.grant())
    cloud.step(400)
    assert (await cloud.seen(made.ref)).status is InstanceStatus.BOOTING
    cloud.step(250)
    assert (await cloud.seen(made.ref)).status is InstanceStatus.RUNNING
