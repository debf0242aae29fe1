"""GraphQL of the sandbox, asked the way RunPod's Python client asks: one `query` text, arguments written into it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from providers.sandbox.clock import SandboxTiming
from tests.providers.clouds.runpod.served import Served, running

#: Every field that the client reads of a pod.
POD = """id containerDiskInGb costPerHr desiredStatus dockerArgs dockerId env gpuCount imageName lastStatusChange
  machineId memoryInGb name podType port ports uptimeSeconds vcpuCount volumeInGb volumeMountPath
  runtime { ports { ip isIpPublic privatePort publicPort type } } machine { gpuDisplayName }"""
DEPLOY = """mutation { podFindAndDeployOnDemand(input: {
  name: "run-7f3c", imageName: "runpod/pytorch", cloudType: %s, startSsh: true,
  gpuTypeId: "NVIDIA GeForce RTX 4090", supportPublicIp: true, gpuCount: 1, volumeInGb: 0, minVcpuCount: 1,
  minMemoryInGb: 1, dataCenterId: null, dockerArgs: "", ports: "22/tcp,8888/http", volumeMountPath: "/workspace",
  env: [{ key: "A", value: "1" }, { key: "B", value: "2" }]
}) { id imageName env machineId machine { podHostId } } }"""


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with running(SandboxTiming.quick()) as one:
        yield one


async def ask(served: Served, query: str, status: int = 200, headers: dict[str, str] | None = None) -> Any:
    reply = await served.http.post("/graphql", json={"query": query}, headers=headers)
    assert reply.status_code == status, reply.text
    return reply.json()


async def deploy(served: Served, cloud: str = "ALL") -> str:
    body = await ask(served, DEPLOY % cloud)
    return str(body["data"]["podFindAndDeployOnDemand"]["id"])


async def pod(served: Served, pod_id: str) -> Any:
    return (await ask(served, f'query pod {{ pod(input: {{podId: "{pod_id}"}}) {{ {POD} }} }}'))["data"]["pod"]


async def test_gpus(served: Served) -> None:
    body = await ask(served, "query GpuTypes { gpuTypes { id displayName memoryInGb } }")
    assert {"id": "NVIDIA GeForce RTX 4090", "displayName": "RTX 4090", "memoryInGb": 24} in body["data"]["gpuTypes"]
    query = """query GpuTypes { gpuTypes(input: {id: "NVIDIA GeForce RTX 4090"}) {
      maxGpuCount id displayName manufacturer memoryInGb cudaCores
      secureCloud communityCloud securePrice communityPrice oneMonthPrice threeMonthPrice
      oneWeekPrice communitySpotPrice secureSpotPrice
      lowestPrice(input: {gpuCount: 2}) { minimumBidPrice uninterruptablePrice stockStatus } } }"""
    (gpu,) = (await ask(served, query))["data"]["gpuTypes"]
    assert (gpu["securePrice"], gpu["communityPrice"], gpu["communitySpotPrice"]) == (0.74, 0.34, None)
    assert gpu["lowestPrice"] == {"minimumBidPrice": 0.17, "uninterruptablePrice": 0.34, "stockStatus": "High"}


async def test_stock_by_datacenter(served: Served) -> None:
    centers = (await ask(served, "{ dataCenters { id gpuAvailability { gpuTypeId stockStatus } } countryCodes }"))[
        "data"
    ]
    assert len(centers["dataCenters"]) > 10
    assert "US" in centers["countryCodes"]
    stocked = next(c for c in centers["dataCenters"] if c["gpuAvailability"])
    first = stocked["gpuAvailability"][0]
    query = f"""{{ gpuTypes(input: {{id: "{first["gpuTypeId"]}"}}) {{
      here: lowestPrice(input: {{secureCloud: true, dataCenterId: "{stocked["id"]}"}}) {{ stockStatus }}
      gone: lowestPrice(input: {{secureCloud: true, gpuCount: 99}}) {{ stockStatus uninterruptablePrice }} }} }}"""
    (gpu,) = (await ask(served, query))["data"]["gpuTypes"]
    assert gpu["here"]["stockStatus"] == first["stockStatus"]
    assert gpu["gone"] == {"stockStatus": None, "uninterruptablePrice": None}


async def test_a_pod_from_deploy_to_terminate(served: Served) -> None:
    body = await ask(served, DEPLOY % "ALL")
    made = body["data"]["podFindAndDeployOnDemand"]
    assert made["env"] == ["A=1", "B=2"]
    assert made["machine"]["podHostId"].startswith(made["id"])
    seen = await pod(served, made["id"])
    # ALL finds the cheaper tier first.
    assert (seen["costPerHr"], seen["desiredStatus"], seen["podType"]) == (0.34, "RUNNING", "RESERVED")
    assert seen["runtime"] is None
    served.travel(10)
    (port,) = (await pod(served, made["id"]))["runtime"]["ports"]
    assert (port["privatePort"], port["isIpPublic"], port["type"]) == (22, True, "tcp")
    # Both APIs show the same pod.
    v2 = (await served.http.get(f"/v2/pods/{made['id']}")).json()
    assert v2["ssh"]["direct"]["port"] == port["publicPort"]

    stop = f'mutation {{ podStop(input: {{ podId: "{made["id"]}" }}) {{ id desiredStatus }} }}'
    assert (await ask(served, stop))["data"]["podStop"] == {"id": made["id"], "desiredStatus": "EXITED"}
    resume = f"""mutation {{ podResume(input: {{ podId: "{made["id"]}", gpuCount: 1 }}) {{
      id desiredStatus imageName env machineId machine {{ podHostId }} }} }}"""
    assert (await ask(served, resume))["data"]["podResume"]["desiredStatus"] == "RUNNING"
    listed = (await ask(served, f"query myPods {{ myself {{ pods {{ {POD} }} }} }}"))["data"]["myself"]["pods"]
    assert [p["id"] for p in listed] == [made["id"]]

    terminate = f'mutation {{ podTerminate(input: {{ podId: "{made["id"]}" }}) }}'
    assert await ask(served, terminate) == {"data": {"podTerminate": None}}
    assert await pod(served, made["id"]) is None
    again = await ask(served, terminate)
    assert again["errors"][0]["message"] == "pod not found to terminate"
    assert (await ask(served, "{ myself { pods { id } } }"))["data"]["myself"]["pods"] == []


async def test_the_user_and_the_key(served: Served) -> None:
    update = 'mutation { updateUserSettings(input: { pubKey: "ssh-ed25519 A\\nssh-ed25519 B" }) { id pubKey } }'
    changed = (await ask(served, update))["data"]["updateUserSettings"]
    assert changed["pubKey"] == "ssh-ed25519 A\nssh-ed25519 B"
    query = "query myself { myself { id pubKey networkVolumes { id name size dataCenterId } } }"
    assert (await ask(served, query))["data"]["myself"] == {**changed, "networkVolumes": []}
    assert (await served.http.get("/v2/account/ssh-keys")).json()["keys"] == ["ssh-ed25519 A", "ssh-ed25519 B"]


async def test_spot_pods(served: Served) -> None:
    rent = (DEPLOY % "COMMUNITY").replace(
        "podFindAndDeployOnDemand(input: {", "podRentInterruptable(input: { bidPerGpu: 0.2,"
    )
    pod_id = (await ask(served, rent))["data"]["podRentInterruptable"]["id"]
    seen = await pod(served, pod_id)
    assert (seen["podType"], seen["costPerHr"]) == ("INTERRUPTABLE", 0.2)
    served.travel(10)
    await ask(served, f'mutation {{ podStop(input: {{ podId: "{pod_id}" }}) {{ id }} }}')
    resumed = await ask(served, f'mutation {{ podResume(input: {{ podId: "{pod_id}", gpuCount: 1 }}) {{ id }} }}')
    assert "podBidResume" in resumed["errors"][0]["message"]
    bid = f'mutation {{ podBidResume(input: {{ podId: "{pod_id}", bidPerGpu: 0.2, gpuCount: 1 }}) {{ id }} }}'
    assert (await ask(served, bid))["data"]["podBidResume"]["id"] == pod_id
    ordinary = await deploy(served)
    refused = await ask(served, bid.replace(pod_id, ordinary))
    assert refused["data"]["podBidResume"] is None


async def test_business_errors_are_answered_200(served: Served) -> None:
    served.arm("no_capacity", 2)
    body = await ask(served, DEPLOY % "ALL")
    assert body["data"] == {"podFindAndDeployOnDemand": None}
    (error,) = body["errors"]
    assert error["message"].startswith("There are no longer any instances available")
    assert (error["path"], error["extensions"]) == (["podFindAndDeployOnDemand"], {"code": "SUPPLY_CONSTRAINT"})
    served.cloud.account.credit_usd -= 500
    poor = await ask(served, DEPLOY % "SECURE")
    assert poor["errors"][0]["extensions"] == {"code": "INSUFFICIENT_BALANCE"}
    missing = DEPLOY.replace('gpuTypeId: "NVIDIA GeForce RTX 4090",', "") % "ALL"
    assert (await ask(served, missing))["errors"][0]["message"] == "gpuTypeId is required"
    gone = await ask(served, 'mutation { podStop(input: { podId: "x" }) { id } }')
    assert gone["errors"][0]["message"] == "pod not found"


async def test_mistakes_in_the_query_are_answered_400(served: Served) -> None:
    for query in (
        "{ nothing }",
        "{ myself { id",
        "{ __schema { types { name } } }",
        "{ pod(input: {podId: 5}) { id } }",
    ):
        body = await ask(served, query, 400)
        assert body["errors"][0]["extensions"]["code"] == "GRAPHQL_VALIDATION_FAILED", query
    reply = await served.http.post("/graphql", content=b"no json")
    assert reply.status_code == 400


async def test_keys(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "httpx")  # One key is put into an address, which this test's client would say.
    anonymous = {"Authorization": ""}
    assert (await ask(served, "{ gpuTypes { id } }", headers=anonymous))["data"]["gpuTypes"]
    await ask(served, "{ myself { id } }", 401, anonymous)
    await ask(served, DEPLOY % "ALL", 401, {"Authorization": "Bearer wrong"})
    url = f"/graphql?api_key={served.cloud.API_KEY}"
    reply = await served.http.post(url, json={"query": "{ myself { id } }"}, headers=anonymous)
    assert reply.json()["data"]["myself"]["id"]
    assert [c.outcome for c in served.engine.creates] == ["refused"]


async def test_a_reply_can_be_spoiled_here_too(served: Served) -> None:
    served.arm("error_after_create")
    await ask(served, DEPLOY % "ALL", 503)
    assert len(served.cloud.instances()) == 1
    assert (served.engine.creates[0].name, served.engine.creates[0].outcome) == ("run-7f3c", "committed")
    served.arm("balance_retired")
    await ask(served, "{ myself { clientBalance } }", 410)
