"""One pod of the sandbox: its life by the clock, and how both APIs describe it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.images import cuda_of
from providers.sandbox.account import SandboxInstance
from providers.sandbox.runpod.market import GpuType
from providers.sandbox.runpod.validation import Order
from providers.sandbox.ssh import HOST

ACTIONS = {
    "PROVISIONING": ("stop", "terminate"),
    "STARTING": ("stop", "terminate"),
    "RUNNING": ("stop", "restart", "terminate"),
    "EXITED": ("start", "terminate"),
    "ERROR": ("start", "terminate"),
    "TERMINATED": (),
}
#: How long the address of the previous container is shown after a start or restart, where that fault is on.
STALE_S = 30
#: What every host has per GPU.
VCPUS_PER_GPU, RAM_GB_PER_GPU = 8, 31
#: Where the public ports begin that are shown for other ports than SSH's; nothing listens there.
FIRST_PORT, PORTS = 40_000, 20_000
#: The address beside a web page's port, which only RunPod's own proxy reaches.
PROXY_ONLY = "100.64.0.5"
#: A part of the boot is spent on finding a host.
PROVISIONING_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Boot:
    """When a container passes its stages, in seconds from the create, start or restart."""

    running_s: float
    #: From here on `runtime` and `ssh.direct` are shown; never before RUNNING.
    reachable_s: float
    #: The pod says RUNNING from the first moment, as live pods were seen to do, and is not reachable any earlier.
    running_at_once: bool = False
    #: How much later sshd answers at the address that is shown.
    sshd_lag_s: float = 0
    #: The image never starts: the pod stays RUNNING without a runtime.
    never: bool = False
    #: The main process ends so often; the platform restarts it and bills on.
    exit_every_s: float | None = None
    #: The address of the previous container is shown for a while.
    stale_address: bool = False


@dataclass(kw_only=True)
class Pod(SandboxInstance):
    """A pod and everything that happened to it. `launched_at` is the newest create, start or restart."""

    order: Order
    kind: GpuType
    rate_usd_h: Decimal
    data_center: str | None
    host_cuda: str
    launched_at: datetime
    boot: Boot
    #: How long it is shown as TERMINATED.
    fades_s: float
    #: EXITED, ERROR or TERMINATED once that happened; None while alive.
    ended: str | None = None
    change: str = ""
    #: Counts containers, because each gets a public port of its own. `port` is the present one's.
    generation: int = 1
    port: int | None = None
    old_port: int | None = None
    #: Switched by a test: sshd does not answer although everything says that it does.
    deaf: bool = False
    #: The host has no public address: no port of it is mapped, whatever was asked for.
    no_address: bool = False

    @property
    def port_key(self) -> str:
        """The key of its SSH port: its id, with a number from its second container on."""
        return self.ref if self.generation == 1 else f"{self.ref}.{self.generation}"

    def status(self, now: datetime) -> str:
        """The v2 status word."""
        if self.ended is not None:
            return self.ended
        age_s, running_s = self._container_s(now), self.boot.running_s
        if self.boot.running_at_once or age_s >= running_s:
            return "RUNNING"
        return "PROVISIONING" if age_s < running_s * PROVISIONING_SHARE else "STARTING"

    def exists(self, now: datetime) -> bool:
        """Whether it is in the account: created by now and not terminated."""
        return self.created_at <= now and self.ended != "TERMINATED"

    def fading(self, now: datetime) -> bool:
        """Whether it is terminated and still shown for a moment, as TERMINATED."""
        return self.ended_at is not None and now < self.ended_at + timedelta(seconds=self.fades_s)

    def is_over(self, now: datetime) -> bool:
        """Terminated, shown no longer, and without a port that has to be closed."""
        return self.ended == "TERMINATED" and not self.fading(now) and self.port is None

    def shown(self, now: datetime) -> bool:
        """Whether the container's runtime is reported."""
        return self.ended is None and not self._never_starts and self._container_s(now) >= self.boot.reachable_s

    @property
    def _never_starts(self) -> bool:
        """Whether its container cannot start, by a fault or because the image's CUDA is above the host's."""
        needed = cuda_of(self.order.image)
        return self.boot.never or (needed is not None and needed > Decimal(self.host_cuda))

    def reachable(self, now: datetime) -> bool:
        lag_s = self.boot.reachable_s + self.boot.sshd_lag_s
        silent = self.deaf or self.no_address or self.boot.exit_every_s is not None or "22/tcp" not in self.order.ports
        return self.exists(now) and self.shown(now) and self._container_s(now) >= lag_s and not silent

    def uptime_s(self, now: datetime) -> int:
        """Seconds since the container last started."""
        up_s = max(0.0, self._container_s(now) - self.boot.reachable_s)
        return int(up_s % self.boot.exit_every_s if self.boot.exit_every_s else up_s)

    def address(self, now: datetime) -> tuple[str, int] | None:
        """The address that the API shows for port 22, which may be the previous container's."""
        if "22/tcp" not in self.order.ports or self.ended is not None or self.no_address:
            return None
        if self.boot.stale_address and self.old_port is not None and self._container_s(now) < STALE_S:
            return HOST, self.old_port
        return (HOST, self.port) if self.shown(now) and self.port is not None else None

    def mapped(self, now: datetime) -> list[tuple[int, int]]:
        """Every TCP port that is shown: its number in the container, and the public one."""
        address = self.address(now)
        found = [] if address is None else [(22, address[1])]
        if self.shown(now) and not self.no_address:
            inside = [int(port.partition("/")[0]) for port in self.order.ports if port.endswith("/tcp")]
            found += [(port, FIRST_PORT + (port * 7 + self.generation) % PORTS) for port in inside if port != 22]
        return found

    def cost_usd_h(self) -> float:
        """The `cost` field: the GPUs' rate. Stopped pods go on showing it, as the live service was seen to do."""
        return float(self.rate_usd_h)

    def _container_s(self, now: datetime) -> float:
        return (now - self.launched_at) / timedelta(seconds=1)


def v2(pod: Pod, now: datetime) -> dict[str, Any]:
    """The pod as REST v2 shows it. The environment comes back in clear, as it does there."""
    order, status, address = pod.order, pod.status(now), pod.address(now)
    direct = proxy = None
    ports = [{"private": one, "public": public, "type": "tcp", "ip": HOST} for one, public in pod.mapped(now)]
    if pod.shown(now):
        pages = [int(port.partition("/")[0]) for port in order.ports if port.endswith("/http")]
        ports += [
            {"private": one, "public": FIRST_PORT + one % PORTS, "type": "http", "ip": PROXY_ONLY} for one in pages
        ]
        user = f"{pod.ref}-64411eb2"
        proxy = {"host": "ssh.runpod.io", "port": 22, "username": user, "command": f"ssh {user}@ssh.runpod.io"}
    if address is not None:
        host, port = address
        direct = {"host": host, "port": port, "username": "root", "command": f"ssh root@{host} -p {port}"}
    started = pod.launched_at + timedelta(seconds=pod.boot.reachable_s)
    mounts: dict[str, Any] = {}
    if order.network_volume:
        mounts = {"network": [{"volumeId": order.network_volume, "path": order.volume_path}]}
    elif order.volume_gb:
        mounts = {"persistent": {"size": order.volume_gb, "path": order.volume_path}}
    return {
        "id": pod.ref,
        "name": order.name,
        "image": order.image,
        "args": order.args,
        "disk": order.disk_gb,
        "mounts": mounts,
        "ports": list(order.ports),
        "env": dict(order.env),
        "registry": None,
        "status": status,
        "actions": list(ACTIONS[status]),
        "gpu": {
            "id": pod.kind.id,
            "count": order.count,
            "vcpuCount": VCPUS_PER_GPU * order.count,
            "memory": RAM_GB_PER_GPU * order.count,
        },
        "cloud": order.tier,
        "dataCenterId": None if status == "PROVISIONING" else pod.data_center,
        "cudaVersion": None if status == "PROVISIONING" else pod.host_cuda,
        "ssh": {"proxy": proxy, "direct": direct},
        "template": None,
        "cost": pod.cost_usd_h(),
        "locked": False,
        "globalNetworking": _network(pod, now),
        "runtime": _runtime(pod, now, ports),
        "createdAt": rfc3339(pod.created_at),
        "startedAt": rfc3339(started) if pod.shown(now) else None,
    }


def _network(pod: Pod, now: datetime) -> dict[str, Any]:
    if not pod.order.global_networking:
        return {"enabled": False}
    name = {"internalDns": f"{pod.ref}.runpod.internal"} if pod.shown(now) else {}
    return {"enabled": True, **name}


def _runtime(pod: Pod, now: datetime, ports: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not pod.shown(now):
        return None
    return {
        "uptime": pod.uptime_s(now),
        "gpus": [{"util": 0, "memoryUtil": 0} for _ in range(pod.order.count)],
        "cpu": {"util": 1},
        "memory": {"util": 2},
        "ports": ports,
    }


def graphql(pod: Pod, now: datetime) -> dict[str, Any]:
    """The pod with the names that the GraphQL schema uses."""
    order = pod.order
    ports = [
        {"ip": HOST, "isIpPublic": True, "privatePort": one, "publicPort": public, "type": "tcp"}
        for one, public in pod.mapped(now)
    ]
    shown = pod.shown(now)
    return {
        "id": pod.ref,
        "name": order.name,
        "imageName": order.image,
        "dockerArgs": order.args,
        "dockerId": None,
        "containerRegistryAuthId": None,
        "env": [f"{key}={value}" for key, value in order.env.items()],
        "gpuCount": order.count,
        "vcpuCount": VCPUS_PER_GPU * order.count,
        "memoryInGb": RAM_GB_PER_GPU * order.count,
        "containerDiskInGb": order.disk_gb,
        "volumeInGb": order.volume_gb,
        "volumeMountPath": order.volume_path or None,
        "port": None,
        "ports": ",".join(order.ports),
        "costPerHr": pod.cost_usd_h(),
        # What was asked for, not what is.
        "desiredStatus": "RUNNING" if pod.ended is None else "EXITED",
        "lastStatusChange": pod.change,
        "podType": "INTERRUPTABLE" if order.bid_usd_h is not None else "RESERVED",
        "uptimeSeconds": pod.uptime_s(now) if shown else 0,
        "machineId": f"m{pod.ref[:8]}",
        "machine": {"gpuDisplayName": pod.kind.name, "podHostId": f"{pod.ref}-64411eb2"},
        "runtime": {"uptimeInSeconds": pod.uptime_s(now), "ports": ports} if shown else None,
    }


def rfc3339(at: datetime) -> str:
    """UTC, whole seconds, `Z`."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
