"""The GraphQL endpoint, on the same account as REST v2. A real parser, because the official SDK writes its arguments
into the query text.

Business errors are answered 200 with `errors[].extensions.code`; an unknown field or argument 400 with
GRAPHQL_VALIDATION_FAILED. Introspection is disabled, and the catalogue can be read without a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from graphql import (
    DocumentNode,
    GraphQLError,
    OperationDefinitionNode,
    build_schema,
    execute_sync,
    parse,
    print_ast,
    validate,
)
from graphql.validation import NoSchemaIntrospectionCustomRule, specified_rules

from providers.sandbox.runpod.account import RunPodAccount
from providers.sandbox.runpod.faults import NO_CAPACITY, NO_FREE_GPU, RunPodProblem
from providers.sandbox.runpod.instance import Pod, graphql
from providers.sandbox.runpod.market import DATA_CENTERS, GpuType, spot_usd_h
from providers.sandbox.runpod.validation import Order

_POD_ID = re.compile(r'podId"?: *"([^"]*)"')
#: What both kinds of order have in common.
_ORDER = """
      cloudType: CloudTypeEnum, gpuTypeId: String, gpuCount: Int, name: String, imageName: String, dockerArgs: String,
      ports: String, env: [EnvironmentVariableInput], volumeInGb: Int, volumeMountPath: String,
      containerDiskInGb: Int, minVcpuCount: Int, minMemoryInGb: Int, dataCenterId: String, countryCode: String,
      supportPublicIp: Boolean, startSsh: Boolean, startJupyter: Boolean, templateId: String,
      networkVolumeId: String, allowedCudaVersions: [String], stopAfter: String, terminateAfter: String
"""
SCHEMA = build_schema(
    """
    enum CloudTypeEnum { ALL SECURE COMMUNITY }
    enum PodStatus { CREATED RUNNING RESTARTING EXITED PAUSED DEAD TERMINATED }
    enum PodType { RESERVED INTERRUPTABLE }
    input GpuTypeFilter { id: String, ids: [String] }
    input GpuLowestPriceInput {
      gpuCount: Int, secureCloud: Boolean, dataCenterId: String, countryCode: String, minDisk: Int,
      minMemoryInGb: Int, minVcpuCount: Int, minCudaVersion: String, cudaVersion: String,
      allowedCudaVersions: [String], totalDisk: Int, compliance: [String], globalNetwork: Boolean,
      supportPublicIp: Boolean
    }
    input EnvironmentVariableInput { key: String!, value: String! }
    input PodFilter { podId: String! }
    input PodStopInput { podId: String!, incrementVersion: Boolean }
    input PodTerminateInput { podId: String! }
    input PodResumeInput { podId: String!, gpuCount: Int!, syncMachine: Boolean }
    input PodBidResumeInput { podId: String!, bidPerGpu: Float!, gpuCount: Int! }
    input UserSettingsInput { pubKey: String }
    input PodFindAndDeployOnDemandInput {
      ORDER, minCudaVersion: String, minDownload: Int, minUpload: Int, containerRegistryAuthId: String,
      deployCost: Float, compliance: [String]
    }
    input PodRentInterruptableInput { ORDER, bidPerGpu: Float! }
    type LowestPrice {
      gpuName: String, gpuTypeId: String, minimumBidPrice: Float, uninterruptablePrice: Float, minVcpu: Int,
      minMemory: Int, stockStatus: String, countryCode: String, maxUnreservedGpuCount: Int,
      availableGpuCounts: [Int], rentedCount: Int, totalCount: Int, rentalPercentage: Float,
      compliance: [String]
    }
    type GpuType {
      id: String, displayName: String, manufacturer: String, memoryInGb: Int, cudaCores: Int, secureCloud: Boolean,
      communityCloud: Boolean, securePrice: Float, communityPrice: Float, secureSpotPrice: Float,
      communitySpotPrice: Float, clusterPrice: Float, oneWeekPrice: Float, oneMonthPrice: Float,
      threeMonthPrice: Float, sixMonthPrice: Float, maxGpuCount: Int, maxGpuCountSecureCloud: Int,
      maxGpuCountCommunityCloud: Int, minPodGpuCount: Int, nodeGroupDatacenters: [DataCenter],
      lowestPrice(input: GpuLowestPriceInput): LowestPrice
    }
    type CpuFlavor { id: String, groupId: String, displayName: String, minVcpu: Int, maxVcpu: Int, ramMultiplier: Int }
    type GpuAvailability { gpuTypeId: String, displayName: String, stockStatus: String }
    type DataCenter {
      id: String, name: String, location: String, listed: Boolean, gpuAvailability: [GpuAvailability]
    }
    type PodPort { ip: String, isIpPublic: Boolean, privatePort: Int, publicPort: Int, type: String }
    type PodGpu { id: String, gpuUtilPercent: Float, memoryUtilPercent: Float }
    type PodRuntime { uptimeInSeconds: Int, ports: [PodPort], gpus: [PodGpu] }
    type PodMachine { gpuDisplayName: String, podHostId: String }
    type NetworkVolume { id: String, name: String, size: Int, dataCenterId: String }
    type Pod {
      id: String, name: String, imageName: String, dockerArgs: String, dockerId: String,
      containerRegistryAuthId: String, env: [String],
      gpuCount: Int, vcpuCount: Float, memoryInGb: Float, containerDiskInGb: Int, volumeInGb: Float,
      volumeMountPath: String, port: Int, ports: String, costPerHr: Float, desiredStatus: PodStatus,
      lastStatusChange: String, podType: PodType, uptimeSeconds: Int, machineId: String, machine: PodMachine,
      runtime: PodRuntime, clusterIp: String, networkVolume: NetworkVolume
    }
    type User {
      id: String, email: String, pubKey: String, clientBalance: Float, currentSpendPerHr: Float, spendLimit: Float,
      minBalance: Float, underBalance: Boolean, pods: [Pod], networkVolumes: [NetworkVolume]
    }
    type Query {
      gpuTypes(input: GpuTypeFilter): [GpuType]
      dataCenters: [DataCenter]
      countryCodes: [String]
      cpuFlavors: [CpuFlavor]
      myself: User
      pod(input: PodFilter): Pod
    }
    type Mutation {
      podFindAndDeployOnDemand(input: PodFindAndDeployOnDemandInput): Pod
      podRentInterruptable(input: PodRentInterruptableInput!): Pod
      podStop(input: PodStopInput!): Pod
      podResume(input: PodResumeInput!): Pod
      podBidResume(input: PodBidResumeInput!): Pod
      podTerminate(input: PodTerminateInput!): Boolean
      updateUserSettings(input: UserSettingsInput): User
    }
    """.replace("ORDER", _ORDER)
)
RULES = (*specified_rules, NoSchemaIntrospectionCustomRule)
#: What may be read without a key.
PUBLIC = frozenset({"gpuTypes", "dataCenters", "countryCodes"})
SPOT = "podRentInterruptable"
CREATES = frozenset({"podFindAndDeployOnDemand", SPOT})
USER_ID = "user_practice"
_STOCK = {"HIGH": "High", "MEDIUM": "Medium", "LOW": "Low", "NONE": None}
_CODES = {402: "INSUFFICIENT_BALANCE", 404: "RUNPOD", 409: "RUNPOD"}


def document(query: Any) -> DocumentNode:
    """The parsed and validated query. Raises `GraphQLError`; the answer then is 400."""
    if not isinstance(query, str):
        raise GraphQLError("Must provide query string.")
    parsed = parse(query)
    errors = validate(SCHEMA, parsed, RULES)
    if errors:
        raise errors[0]
    return parsed


def fields(parsed: DocumentNode) -> frozenset[str]:
    """The root fields that a document selects."""
    names = set()
    for definition in parsed.definitions:
        if isinstance(definition, OperationDefinitionNode):
            names |= {s.name.value for s in definition.selection_set.selections if hasattr(s, "name")}
    return frozenset(names)


def only_pod(parsed: DocumentNode, variables: Any) -> str:
    """The one pod that a document names by `podId`, in its text or in its variables; "" for none or several."""
    found = set(_POD_ID.findall(print_ast(parsed))) | set(_POD_ID.findall(json.dumps(variables)))
    return found.pop() if len(found) == 1 else ""


def run(
    parsed: DocumentNode,
    variables: Any,
    account: RunPodAccount,
    deploy: Callable[[Order], Pod],
) -> dict[str, Any]:
    """Execute against `account`. `deploy` makes a pod, so that both APIs create the same way."""
    values = variables if isinstance(variables, dict) else None
    result = execute_sync(SCHEMA, parsed, root_value=Root(account, deploy), variable_values=values)
    answer: dict[str, Any] = {"data": result.data}
    if result.errors:
        answer["errors"] = [_error(e) for e in result.errors]
    return answer


def _error(error: GraphQLError) -> dict[str, Any]:
    original = error.original_error
    code, message = "INTERNAL_SERVER_ERROR", "Something went wrong. Please try again later or contact support."
    if isinstance(original, RunPodProblem):
        message = original.detail
        code = "SUPPLY_CONSTRAINT" if message == NO_CAPACITY else _CODES.get(original.status, "RUNPOD")
    return {"message": message, "path": error.path, "extensions": {"code": code}}


class Root:
    """The resolvers: one method per root field, found by name."""

    def __init__(self, account: RunPodAccount, deploy: Callable[[Order], Pod]) -> None:
        self._account = account
        self._deploy = deploy

    def gpuTypes(self, info: Any, input: dict[str, Any] | None = None) -> list[dict[str, Any]]:  # noqa: A002, N802
        types = self._account.market.types.values()
        wanted = (input or {}).get("id")
        return [self._gpu(gpu) for gpu in types if wanted in (None, gpu.id)]

    def dataCenters(self, info: Any) -> list[dict[str, Any]]:  # noqa: N802
        market = self._account.market
        centers = []
        for name, region, _ in DATA_CENTERS:
            stock = [(gpu, market.centers(gpu, 1).get(name)) for gpu in market.types.values()]
            available = [
                {"gpuTypeId": gpu.id, "displayName": gpu.name, "stockStatus": _STOCK[level]}
                for gpu, level in stock
                if level
            ]
            row = {"id": name, "name": name, "location": region, "listed": True, "gpuAvailability": available}
            centers.append(row)
        return centers

    def countryCodes(self, info: Any) -> list[str]:  # noqa: N802
        return ["CA", "CZ", "FR", "IS", "JP", "NL", "NO", "RO", "SE", "US"]

    def cpuFlavors(self, info: Any) -> list[dict[str, Any]]:  # noqa: N802
        """None: only GPUs are rented here."""
        return []

    def myself(self, info: Any) -> dict[str, Any]:
        account, now = self._account, self._account.now
        balance = account.left_usd()
        return {
            "id": USER_ID,
            "email": "practice@example.com",
            "pubKey": account.public_key,
            "clientBalance": float(balance),
            "currentSpendPerHr": float(account.rate_usd_h()),
            "spendLimit": float(account.spend_limit_usd_h),
            "minBalance": 0.0,
            "underBalance": balance <= 0,
            "pods": [graphql(pod, now) for pod in account.listed() if pod.ended != "TERMINATED"],
            "networkVolumes": [
                {"id": one.ref, "name": one.name, "size": int(one.size_gb), "dataCenterId": one.region}
                for one in account.network_volumes.values()
                if one.exists(now)
            ],
        }

    def pod(self, info: Any, input: dict[str, Any] | None = None) -> dict[str, Any] | None:  # noqa: A002
        try:
            found = self._account.pod((input or {}).get("podId", ""))
        except RunPodProblem:
            return None
        return graphql(found, self._account.now)

    def podFindAndDeployOnDemand(self, info: Any, input: dict[str, Any] | None = None) -> dict[str, Any] | None:  # noqa: A002, N802
        return self._create(input or {}, None)

    def podRentInterruptable(self, info: Any, input: dict[str, Any]) -> dict[str, Any] | None:  # noqa: A002, N802
        return self._create(input, input["bidPerGpu"])

    def podStop(self, info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002, N802
        return self._act(input["podId"], "stop")

    def podResume(self, info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002, N802
        if self._account.pod(input["podId"]).order.bid_usd_h is not None:
            raise RunPodProblem(400, "You can not resume a spot pod; use podBidResume.")
        return self._act(input["podId"], "start")

    def podBidResume(self, info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002, N802
        if self._account.pod(input["podId"]).order.bid_usd_h is None:
            raise RunPodProblem(400, NO_FREE_GPU)
        return self._act(input["podId"], "start")

    def podTerminate(self, info: Any, input: dict[str, Any]) -> None:  # noqa: A002, N802
        try:
            self._account.pod(input["podId"])
        except RunPodProblem as problem:
            raise RunPodProblem(404, "pod not found to terminate") from problem
        self._act(input["podId"], "terminate")

    def updateUserSettings(self, info: Any, input: dict[str, Any] | None = None) -> dict[str, Any]:  # noqa: A002, N802
        if input and input.get("pubKey") is not None:
            self._account.public_key = input["pubKey"]
        return self.myself(info)

    def _act(self, pod_id: str, action: str) -> dict[str, Any]:
        return graphql(self._account.act(pod_id, action, self._account.next_boot()), self._account.now)

    def _create(self, given: dict[str, Any], bid: float | None) -> dict[str, Any]:
        cloud = given.get("cloudType") or "ALL"
        problem = RunPodProblem(400, NO_CAPACITY)
        for tier in ("COMMUNITY", "SECURE") if cloud == "ALL" else (cloud,):
            try:
                return graphql(self._deploy(_order(given, tier, bid)), self._account.now)
            except RunPodProblem as refused:
                problem = refused
        raise problem

    def _gpu(self, gpu: GpuType) -> dict[str, Any]:
        secure, community = gpu.price_usd_h["SECURE"], gpu.price_usd_h["COMMUNITY"]
        return {
            "id": gpu.id,
            "displayName": gpu.name,
            "manufacturer": gpu.manufacturer,
            "memoryInGb": gpu.memory_gb,
            "cudaCores": 0,
            "secureCloud": gpu.sells("SECURE"),
            "communityCloud": gpu.sells("COMMUNITY"),
            "securePrice": None if secure is None else float(secure),
            "communityPrice": None if community is None else float(community),
            "maxGpuCount": max(gpu.most.values()),
            "maxGpuCountSecureCloud": gpu.most["SECURE"],
            "maxGpuCountCommunityCloud": gpu.most["COMMUNITY"],
            "minPodGpuCount": 1,
            "nodeGroupDatacenters": [{"id": name, "name": name} for name in self._account.market.centers(gpu, 1)],
            "lowestPrice": partial(self._lowest, gpu),
        }

    def _lowest(self, gpu: GpuType, info: Any, input: dict[str, Any] | None = None) -> dict[str, Any]:  # noqa: A002
        given = input or {}
        count, secure, center = given.get("gpuCount") or 1, given.get("secureCloud"), given.get("dataCenterId")
        market = self._account.market
        tiers = ["SECURE", "COMMUNITY"] if secure is None else ["SECURE" if secure else "COMMUNITY"]
        level = "NONE"
        prices = []
        if market.host_cuda(gpu, given.get("minCudaVersion") or "") is None:
            tiers = []
        for tier in tiers:
            here = market.centers(gpu, count).get(center, "NONE") if center else market.stock(gpu, tier, count)
            price = gpu.price_usd_h[tier]
            if here != "NONE" and price is not None:
                prices.append(price)
                level = here
        return {
            "gpuName": gpu.name,
            "gpuTypeId": gpu.id,
            "uninterruptablePrice": float(min(prices)) if prices else None,
            "minimumBidPrice": float(spot_usd_h(min(prices))) if prices else None,
            "stockStatus": _STOCK[level],
            "minVcpu": 8 * count,
            "minMemory": 31 * count,
            "compliance": [],
        }


def _order(given: dict[str, Any], tier: str, bid: float | None) -> Order:
    if not given.get("gpuTypeId"):
        raise RunPodProblem(400, "gpuTypeId is required")
    center = given.get("dataCenterId")
    return Order(
        name=given.get("name") or "unnamed",
        image=given.get("imageName") or "",
        gpu_id=given["gpuTypeId"],
        count=given.get("gpuCount") or 1,
        tier=tier,
        data_centers=(center,) if center else (),
        disk_gb=given.get("containerDiskInGb") or 20,
        volume_gb=given.get("volumeInGb") or 0,
        volume_path=given.get("volumeMountPath") or "",
        network_volume=given.get("networkVolumeId"),
        ports=tuple(p for p in (given.get("ports") or "").split(",") if p),
        env={entry["key"]: entry["value"] for entry in given.get("env") or ()},
        args=given.get("dockerArgs") or "",
        start_ssh=bool(given.get("startSsh")),
        public_ip=bool(given.get("supportPublicIp")),
        min_cuda=given.get("minCudaVersion") or "",
        allowed_cuda=tuple(given.get("allowedCudaVersions") or ()),
        bid_usd_h=bid,
    )
