"""The body of `POST /v2/pods`, checked as strictly as the real service does, and turned into an order.

The service answers 422 and lists every complaint as `$.path: what is wrong`; an unknown field is one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from providers.sandbox.runpod.faults import RunPodProblem

ENV_MAX = 50


@dataclass(frozen=True, slots=True)
class Order:
    """What a create asks for, from either API. `volume_gb` 0 = no volume."""

    name: str
    image: str
    gpu_id: str
    count: int
    tier: str
    data_centers: tuple[str, ...] = ()
    disk_gb: int = 20
    volume_gb: int = 0
    volume_path: str = ""
    network_volume: str | None = None
    ports: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    args: str = ""
    start_ssh: bool = False
    global_networking: bool = False
    public_ip: bool = False
    #: Least vCPUs and GB of memory per GPU; 0 where nothing is asked for.
    min_vcpus: int = 0
    min_ram_gb: int = 0
    min_cuda: str = ""
    allowed_cuda: tuple[str, ...] = ()
    #: Dollars per GPU and hour; set by the interruptible GraphQL mutation only.
    bid_usd_h: float | None = None


#: What is wrong with a value; None when nothing is.
Check = Callable[[Any], str | None]


def _typed(kind: type, name: str) -> Check:
    return lambda value: None if isinstance(value, kind) else f"got another type, want {name}"


def _one_of(*words: str) -> Check:
    return lambda value: None if value in words else f"value must be one of {', '.join(map(repr, words))}"


_text, _flag, _object = _typed(str, "string"), _typed(bool, "boolean"), _typed(dict, "object")
_tier = _one_of("SECURE", "COMMUNITY")
_action = _one_of("start", "stop", "restart", "terminate")


def _filled(value: Any) -> str | None:
    return _text(value) or (None if value else "minLength: got 0, want 1")


def _whole(value: Any) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return None if good else "want an integer of at least 1"


def _texts(value: Any) -> str | None:
    good = isinstance(value, list) and all(isinstance(v, str) for v in value)
    return None if good else "got another type, want array of strings"


def _text_map(value: Any) -> str | None:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        return "got another type, want object of strings"
    return None if len(value) <= ENV_MAX else f"maxProperties: got {len(value)}, want at most {ENV_MAX}"


def _version(value: Any) -> str | None:
    good = isinstance(value, str) and re.fullmatch(r"\d+\.\d+", value)
    return None if good else "does not match pattern '^\\d+\\.\\d+$'"


def _versions(value: Any) -> str | None:
    return _texts(value) or next((wrong for one in value if (wrong := _version(one))), None)


def _anything(_value: Any) -> str | None:
    return None


_POD: Mapping[str, Check] = {
    "name": _filled,
    "image": _filled,
    "gpu": _object,
    "cpu": _object,
    "cloud": _tier,
    "dataCenterIds": _texts,
    "disk": _whole,
    "mounts": _object,
    "ports": _texts,
    "env": _text_map,
    "args": _text,
    "cmd": _texts,
    "entrypoint": _texts,
    "registry": _anything,
    "startSsh": _flag,
    "startJupyter": _flag,
    "globalNetworking": _flag,
    "templateId": _text,
}
_GPU: Mapping[str, Check] = {
    "id": _filled,
    "count": _whole,
    "allowedCudaVersions": _versions,
    "minCudaVersion": _version,
    # Clients send these two, and the document does not know them.
    "minVcpuCountPerGpu": _whole,
    "minRamPerGpu": _whole,
}
_PERSISTENT: Mapping[str, Check] = {"size": _whole, "path": _filled}
_NETWORK: Mapping[str, Check] = {"volumeId": _filled, "path": _filled}


def read_create(body: dict[str, Any]) -> Order:
    """The order in `body`. Raises `Problem` 422 with every complaint, or 400 for a rule across fields."""
    errors = _check("$", body, _POD, required=("name",))
    gpu = body.get("gpu")
    if isinstance(gpu, dict):
        errors += _check("$.gpu", gpu, _GPU, required=("id",))
    mounts = body.get("mounts")
    if isinstance(mounts, dict):
        errors += _check_mounts(mounts)
    if errors:
        raise RunPodProblem(422, "Request validation failed.", tuple(errors))
    if "image" not in body and "templateId" not in body:
        raise RunPodProblem(400, "image is required unless templateId is set")
    if not isinstance(gpu, dict) or "cpu" in body:
        raise RunPodProblem(400, "exactly one of gpu and cpu must be set; this service rents GPU pods only")
    if gpu.get("allowedCudaVersions") and "minCudaVersion" in gpu:
        raise RunPodProblem(400, "allowedCudaVersions and minCudaVersion exclude each other")
    return _order(body, gpu, mounts if isinstance(mounts, dict) else {})


def read_action(body: dict[str, Any]) -> str:
    """The action in the body of `POST /v2/pods/{id}/action`. Raises `Problem` 422."""
    errors = _check("$", body, {"action": _action}, required=("action",))
    if errors:
        raise RunPodProblem(422, "Request validation failed.", tuple(errors))
    return str(body["action"])


def _check(path: str, body: dict[str, Any], checks: Mapping[str, Check], required: tuple[str, ...]) -> list[str]:
    errors = [f"{path}: missing property '{name}'" for name in required if name not in body]
    unknown = [f"'{name}'" for name in body if name not in checks]
    if unknown:
        errors.append(f"{path}: additional properties {', '.join(unknown)} not allowed")
    for name, check in checks.items():
        complaint = check(body[name]) if name in body else None
        if complaint:
            errors.append(f"{path}.{name}: {complaint}")
    return errors


def _check_mounts(mounts: dict[str, Any]) -> list[str]:
    errors = _check("$.mounts", mounts, {"persistent": _object, "network": _anything}, required=())
    persistent, network = mounts.get("persistent"), mounts.get("network")
    if isinstance(persistent, dict):
        errors += _check("$.mounts.persistent", persistent, _PERSISTENT, required=("size", "path"))
        size = persistent.get("size")
        if isinstance(size, int) and size < 10:
            errors.append(f"$.mounts.persistent.size: minimum: got {size}, want 10")
    if network is not None:
        if not isinstance(network, list) or len(network) != 1 or not isinstance(network[0], dict):
            errors.append("$.mounts.network: want an array of one object")
        else:
            errors += _check("$.mounts.network[0]", network[0], _NETWORK, required=("volumeId", "path"))
        if persistent is not None:
            errors.append("$.mounts: persistent and network exclude each other")
    return errors


def _order(body: dict[str, Any], gpu: dict[str, Any], mounts: dict[str, Any]) -> Order:
    persistent, network = mounts.get("persistent"), mounts.get("network")
    return Order(
        name=body["name"],
        image=body.get("image", ""),
        gpu_id=gpu["id"],
        count=gpu.get("count", 1),
        # The real service's default, which is what makes a forgotten tier expensive.
        tier=body.get("cloud", "SECURE"),
        data_centers=tuple(body.get("dataCenterIds", ())),
        disk_gb=body.get("disk", 20),
        volume_gb=persistent["size"] if persistent else 0,
        volume_path=persistent["path"] if persistent else network[0]["path"] if network else "",
        network_volume=network[0]["volumeId"] if network else None,
        ports=tuple(body.get("ports", ())),
        env=dict(body.get("env", {})),
        args=body.get("args", ""),
        global_networking=body.get("globalNetworking", False),
        start_ssh=body.get("startSsh", False),
        min_vcpus=gpu.get("minVcpuCountPerGpu", 0),
        min_ram_gb=gpu.get("minRamPerGpu", 0),
        min_cuda=gpu.get("minCudaVersion", ""),
        allowed_cuda=tuple(gpu.get("allowedCudaVersions", ())),
    )
