"""Translation between RunPod's pod JSON and the contract's types, both ways, and of its bill."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ledger.kernel import money
from providers.adapter_helpers import instant, is_port, listed, number, part, text
from providers.cloud_init import authorized_keys
from providers.clouds.runpod.errors import CLOUD
from providers.contract import Charge, InstanceSpec, InstanceStatus, ObservedInstance, OpenPort, SshEndpoint
from providers.errors import InvalidSpec, UnexpectedResponse
from providers.gpus import table

SSH_PORT = 22
#: Where a pod's web page on a port is reached; long answers are cut off there after about 100 s.
PROXY_URL = "https://{}-{}.proxy.runpod.net"
#: Unless set otherwise. The container disk holds the image and is wiped by stop and restart; the disk that was asked
#: for is the volume.
CONTAINER_DISK_GB = 20
HOURS_PER_MONTH = Decimal(720)
DISK_USD_GB_MONTH = Decimal("0.10")
STOPPED_VOLUME_USD_GB_MONTH = Decimal("0.20")
#: The smallest volume that the API accepts.
VOLUME_MIN_GB = 10
VOLUME_PATH = "/workspace"
#: Where a network volume is mounted; `{}` is its name.
VOLUMES_PATH = "/volumes/{}"
ENV_MAX = 50
#: Set by the platform inside a pod. Given by us it would hand the account's key to the workload.
RESERVED_ENV = "RUNPOD_API_KEY"

STATUS: Mapping[str, InstanceStatus] = {
    "PROVISIONING": InstanceStatus.PENDING,
    "STARTING": InstanceStatus.BOOTING,
    "RUNNING": InstanceStatus.RUNNING,
    "EXITED": InstanceStatus.STOPPED,
    "ERROR": InstanceStatus.ERROR,
    "TERMINATED": InstanceStatus.TERMINATED,
}


# ── to the cloud ─────────────────────────────────────────────────────────────────────────────────


def volume_gb(disk_gb: int) -> int:
    """The volume that is created for `disk_gb`: never below the API's minimum of 10 GB."""
    return max(VOLUME_MIN_GB, disk_gb)


def cuda_version(least: Decimal) -> str:
    """A CUDA version as the API takes it: major and minor."""
    return f"{least:.1f}"


def create_body(spec: InstanceSpec, container_gb: int = CONTAINER_DISK_GB) -> dict[str, Any]:
    """The JSON of `POST /v2/pods`. Raises `InvalidSpec` for what RunPod is known to refuse or to misread."""
    ticket = spec.offer.ticket
    if "gpu_id" not in ticket or "cloud" not in ticket:
        raise InvalidSpec(CLOUD, f"the offer {spec.offer.id} does not come from runpod's catalogue")
    if spec.offer.spot is not (spec.bid_usd_h is not None):
        raise InvalidSpec(CLOUD, "runpod needs a bid in dollars per hour for a spot offer, and for no other")
    if not spec.image or not spec.name:
        raise InvalidSpec(CLOUD, "runpod needs an image and a name, for example image=runpod/pytorch:1.0.2-cu1281")
    body: dict[str, Any] = {
        "name": spec.name,
        "image": spec.image,
        # The service's default is SECURE, about twice the price, so the tier is always sent.
        "cloud": ticket["cloud"],
        "gpu": {"id": ticket["gpu_id"], "count": spec.offer.gpu_count},
        **_storage(spec, container_gb),
        "ports": ["22/tcp", *map(str, spec.ports)],
        "env": _environment(spec),
        "startSsh": True,
    }
    if spec.min_cuda is not None:
        # On a host with an older driver the container never starts, and is billed until somebody notices.
        body["gpu"]["minCudaVersion"] = cuda_version(spec.min_cuda)
    if ticket.get("data_center_id"):
        body["dataCenterIds"] = [ticket["data_center_id"]]
    if spec.in_set:
        body["globalNetworking"] = True
    if spec.onstart:
        # Keys in the environment take the place of the account's, so where people bring none, ours comes by the script.
        ours = spec.login_key if "PUBLIC_KEY" not in body["env"] else ""
        body["args"] = _start_command(f"{authorized_keys('/root', [ours])}\n{spec.onstart}" if ours else spec.onstart)
    return body


def _storage(spec: InstanceSpec, container_gb: int) -> dict[str, Any]:
    """The disks of a pod. One with a network volume has no other volume, so its container disk holds all of the rest.

    Both cost the same, so its price is that of the offer.
    """
    if spec.volume is None:
        mounts: dict[str, Any] = {"persistent": {"size": volume_gb(spec.disk_gb), "path": VOLUME_PATH}}
        return {"disk": container_gb, "mounts": mounts}
    mounts = {"network": [{"volumeId": spec.volume.ref, "path": spec.volume.path}]}
    return {"disk": container_gb + volume_gb(spec.disk_gb), "mounts": mounts}


def _environment(spec: InstanceSpec) -> dict[str, str]:
    env = dict(spec.env)
    if RESERVED_ENV in env:
        raise InvalidSpec(CLOUD, f"the environment may not set {RESERVED_ENV}: runpod gives each pod a key of its own")
    keys = [*env.get("PUBLIC_KEY", "").splitlines(), *spec.public_keys]
    unique = list(dict.fromkeys(k.strip() for k in keys if k.strip()))
    if unique:
        env["PUBLIC_KEY"] = "\n".join([*unique, *([spec.login_key] if spec.login_key else [])])
    if len(env) > ENV_MAX:
        raise InvalidSpec(CLOUD, f"runpod takes at most {ENV_MAX} environment variables, {len(env)} were given")
    return env


#: The container's first process. A stop sends SIGTERM to it alone, so it tells the agent, whose process id is in its
#: lock. It never ends: a container whose first process ends is restarted in a loop and billed on.
_FIRST_PROCESS = """\
trap 'kill -USR1 "$(cat /opt/gpu-shopper/agent/lock)" 2>/dev/null' TERM
bash /tmp/onstart.sh > /tmp/onstart.log 2>&1 &
[ -x /start.sh ] && /start.sh &
while :; do wait; sleep infinity & done
"""


def _start_command(onstart: str) -> str:
    """The container's arguments: run the script beside the image's own start, and never let process 1 end.

    Scripts travel as base64 because the service splits the string into arguments by rules of its own.
    """
    script, first = (base64.b64encode(text.encode()).decode() for text in (onstart, _FIRST_PROCESS))
    return (
        f"bash -c 'echo {script} | base64 -d > /tmp/onstart.sh; echo {first} | base64 -d > /tmp/first_process.sh; "
        "exec bash /tmp/first_process.sh'"
    )


# ── from the cloud ───────────────────────────────────────────────────────────────────────────────


def observed(pod: Any) -> ObservedInstance:
    """One pod as the contract sees it. Raises `UnexpectedResponse` when it has no id.

    RunPod's `cost` is the GPUs' rate alone; the disks that the pod lists are added at the price page's rate, so that
    the price means the same as an offer's. It is believed for live pods only: stopped pods were seen with their running
    price. An unknown status word counts as PENDING: the pod exists, and nothing more is known. The SSH address is
    passed on for a RUNNING pod only, because a stopped one goes on showing the address of its previous container.
    """
    ref = pod.get("id") if isinstance(pod, dict) else None
    if not isinstance(ref, str) or not ref:
        raise UnexpectedResponse(CLOUD, "runpod described a pod without an id")
    word = pod.get("status")
    status = STATUS.get(word, InstanceStatus.PENDING) if isinstance(word, str) else InstanceStatus.PENDING
    starting = word == "RUNNING" and pod.get("runtime") is None
    live = status in (InstanceStatus.PENDING, InstanceStatus.BOOTING, InstanceStatus.RUNNING)
    gpu_id, count = part(pod, "gpu").get("id"), part(pod, "gpu").get("count")
    cost, storage = number(pod.get("cost")), _storage_usd_h(pod, stopped=status is InstanceStatus.STOPPED)
    return ObservedInstance(
        cloud=CLOUD,
        ref=ref,
        name=text(pod.get("name")),
        status=status,
        status_text="RUNNING, container not started yet" if starting else text(word) or "no status",
        gpu=(table.canonical(CLOUD, gpu_id) or gpu_id) if isinstance(gpu_id, str) else None,
        gpu_count=count if isinstance(count, int) else None,
        price_usd_h=cost + storage if live and cost is not None else None,
        storage_usd_h=storage,
        ssh=_ssh(part(pod, "ssh", "direct")) if status is InstanceStatus.RUNNING else None,
        ports=_ports(pod) if status is InstanceStatus.RUNNING else (),
        set_host=_set_host(part(pod, "globalNetworking")) if status is InstanceStatus.RUNNING else None,
        region=text(pod.get("dataCenterId")),
        created_at=instant(pod.get("createdAt")),
        started_at=instant(pod.get("startedAt")),
    )


def _storage_usd_h(pod: Any, *, stopped: bool) -> Decimal:
    """What the disks of a pod cost per hour: a stop wipes the container disk, and doubles the rate of the volume."""
    container, volume = number(pod.get("disk")), number(part(pod, "mounts", "persistent").get("size"))
    sizes = (volume,) if stopped else (container, volume)
    disk_gb = sum((gb for gb in sizes if gb is not None and gb > 0), Decimal(0))
    rate = STOPPED_VOLUME_USD_GB_MONTH if stopped else DISK_USD_GB_MONTH
    return money.amount_even(disk_gb * rate / HOURS_PER_MONTH)


def _ssh(direct: Mapping[str, Any]) -> SshEndpoint | None:
    """`ssh.direct` as an endpoint. `ssh.proxy` is an interactive shell only and is never used."""
    host, port, user = direct.get("host"), direct.get("port"), direct.get("username")
    if not isinstance(host, str) or not host or not isinstance(port, int) or not 0 < port < 65536:
        return None
    return SshEndpoint(host, port, user if isinstance(user, str) and user else "root")


def _set_host(network: Mapping[str, Any]) -> str | None:
    """Where other pods of the account reach this one; None for a pod that did not join their private network."""
    return (text(network.get("internalDns")) or text(network.get("ip"))) if network.get("enabled") is True else None


def _ports(pod: Mapping[str, Any]) -> tuple[OpenPort, ...]:
    """The ports beside SSH's: TCP ones at the address that the runtime shows, web pages through RunPod's proxy.

    The runtime lists web pages, too, with an address that only the proxy reaches.
    """
    runtime = pod.get("runtime")
    if not isinstance(runtime, dict):
        return ()
    asked = pod.get("ports")
    words = [word.partition("/") for word in asked if isinstance(word, str)] if isinstance(asked, list) else []
    pages = {
        int(port): PROXY_URL.format(pod["id"], port) for port, _, kind in words if kind == "http" and is_port(port)
    }
    rows = runtime.get("ports")
    for row in rows if isinstance(rows, list) else []:
        inside, outside, host = (part(row).get(name) for name in ("private", "public", "ip"))
        if part(row).get("type") == "tcp" and inside != SSH_PORT and is_port(inside) and is_port(outside):
            pages.setdefault(int(str(inside)), f"{host}:{outside}")
    return tuple(OpenPort(number, address) for number, address in sorted(pages.items()))


def charges(body: Any) -> tuple[Charge, ...]:
    """The records of `GET /v2/billing/pods` as charges, one per component that is not zero.

    One record is one pod in one bucket. What `totalAmount` holds beyond the named parts becomes `other`, so that the
    charges of a record always add up to its total.
    """
    records = listed(CLOUD, body, "records", "runpod's bill has no records")
    return tuple(line for record in records for line in _lines(record))


def _lines(record: Any) -> list[Charge]:
    if not isinstance(record, dict):
        raise UnexpectedResponse(CLOUD, "runpod's bill has a record that is not an object")
    ref, start, end = record.get("podId"), instant(record.get("startTime")), instant(record.get("endTime"))
    total = number(record.get("totalAmount"))
    if not isinstance(ref, str) or start is None or end is None or total is None:
        raise UnexpectedResponse(CLOUD, "runpod's bill has a record without pod, period or amount")
    parts = {
        "gpu": number(record.get("gpuAmount")) or Decimal(0),
        "storage": number(record.get("diskAmount")) or Decimal(0),
    }
    parts["other"] = total - sum(parts.values())
    return [
        Charge(CLOUD, f"{ref}/{start:%Y-%m-%dT%H:%M:%SZ}/{component}", ref, component, amount, start, end)
        for component, amount in parts.items()
        if amount
    ]


def rfc3339(at: datetime) -> str:
    """A time as the API wants it: UTC, whole seconds, `Z`."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
