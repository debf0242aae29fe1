"""The TensorDock sandbox by hand: nodes, secrets, the rate limit, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.served import PUBLIC_KEY
from tests.providers.clouds.tensordock.served import cloud, clouds
from tests.providers.served import Served

__all__ = ["cloud", "clouds"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_nodes_and_secrets(cloud: Served) -> None:
    nodes = (await cloud.ask("GET", "/hostnodes?gpu=l40-48gb"))[1]["data"]["hostnodes"]
    assert len(nodes) == 1
    assert (await cloud.ask("GET", f"/hostnodes/{nodes[0]['id']}"))[1]["data"] == nodes[0]
    assert (await cloud.ask("GET", "/hostnodes/none"))[0] == 404
    wanted = {"data": {"type": "secret", "attributes": {"name": "n", "value": "hush", "type": "SECRET"}}}
    status, body = await cloud.ask("POST", "/secrets", json=wanted)
    assert (status, "value" in body["data"]) == (201, False)
    assert "hush" not in str((await cloud.ask("GET", f"/secrets/{body['data']['id']}"))[1])
    assert (await cloud.ask("DELETE", f"/secrets/{body['data']['id']}"))[0] == 200
    assert (await cloud.ask("DELETE", f"/secrets/{body['data']['id']}"))[0] == 404
    assert (await cloud.ask("GET", "/secrets/none"))[0] == 404
    assert (await cloud.ask("POST", "/secrets", json={}))[0] == 400


async def test_a_hundred_calls_a_minute(cloud: Served) -> None:
    cloud.timing(enforce_rate_limits=True)
    answers = [(await cloud.ask("GET", "/secrets"))[0] for _ in range(101)]
    assert answers == [200] * 100 + [429]
    cloud.step(60)
    assert (await cloud.ask("GET", "/secrets"))[0] == 200


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resources": {}}, "Required"),
        ({"image": "templeos"}, "Invalid input"),
        ({"location_id": "nowhere"}, "Invalid input"),
        ({"ssh_key": None}, "SSH key is required"),
        ({"useDedicatedIp": False}, "must be forwarded"),
        ({"storage_gb": 99}, "at least 100"),
        ({"vcpu_count": 7}, "even"),
        ({"ram_gb": 500}, "ratio limit"),
        ({"storage_gb": 99_999}, "No available nodes found"),
    ],
)
async def test_the_sandbox_refuses_what_tensordock_would(cloud: Served, changes: dict[str, Any], said: str) -> None:
    found = await cloud.provider.offers(cloud.one, disk_gb=40, spot=False)
    offer = next(one for one in found if one.ticket["own_ip"] == "yes")
    sizes = {"vcpu_count": 8, "ram_gb": 32, "storage_gb": 100, "gpus": {offer.ticket["gpu"]: {"count": 1}}}
    sent: dict[str, Any] = {
        "name": "x",
        "image": "ubuntu2404",
        "location_id": offer.ticket["location"],
        "ssh_key": PUBLIC_KEY,
        "useDedicatedIp": True,
        "resources": sizes | {k: v for k, v in changes.items() if k in sizes},
    }
    sent |= {k: v for k, v in changes.items() if k not in sizes}
    body = {"data": {"type": "virtualmachine", "attributes": sent}}
    _, answer = await cloud.ask("POST", "/instances", json=body)

    assert said in str(answer)
    assert cloud.truth() == []
