"""The sandbox as the shared engine sees it: faults, keys and limits of the gateway, truth, and market moves."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from providers.cloud_names import volumes_of
from providers.sandbox.api import RateWindow
from providers.sandbox.engine import TrueInstance
from providers.sandbox.faults import DEARER
from providers.sandbox.machines import SandboxMachine, keys_in
from providers.sandbox.nodes.boot import NodeBoot, container
from providers.sandbox.runpod import faults
from providers.sandbox.runpod.account import RunPodAccount
from providers.sandbox.runpod.faults import ACCESS_DENIED, WINDOWS, RunPodProblem, bearer, key_problem, problem
from providers.sandbox.runpod.instance import Pod
from providers.sandbox.runpod.market import GpuType, RunPodMarket
from providers.sandbox.runpod.routes_rest import POD_KEY, RunPodRest

KEY = re.compile(r"(?P<tier>secure|community)/(?P<slug>.+)x(?P<count>\d+)(?:/(?P<center>[^/]+))?")


class RunPodSandbox(RunPodRest):
    """RunPod as of November 2026: REST v2, the deprecated GraphQL, and REST v1 answering 410."""

    name = "runpod"
    FAULTS = faults.FAULTS
    DISTURBANCES = faults.DISTURBANCES
    BROKE_USD = Decimal(0)
    API_KEY = "rpa_SANDBOX0000000000000000000000000000000000"

    def reset(self) -> None:
        self.account = RunPodAccount(self)
        self._windows = tuple(RateWindow(most, seconds, name) for name, (most, seconds) in WINDOWS.items())

    @property
    def market(self) -> RunPodMarket:
        return self.account.market

    def environment(self, url: str) -> dict[str, str]:
        """For the adapter, for `runpodctl` (RUNPOD_REST_V2_URL, RUNPOD_GRAPHQL_URL) and for the Python SDK."""
        return {
            "RUNPOD_API_KEY": self.API_KEY,
            "RUNPOD_REST_V2_URL": f"{url}/v2",
            "RUNPOD_GRAPHQL_URL": f"{url}/graphql",
            "RUNPOD_API_BASE_URL": url,
            "RUNPOD_CONTAINER_DISK_GB": "20",
            # Its community hosts have addresses, but for the fault that says otherwise.
            "RUNPOD_TIERS": "all",
            "RUNPOD_SPOT": "false",
        }

    # ── the gateway ──────────────────────────────────────────────────────────────────────────────

    def key_refusal(self, request: Request, group: str) -> Response | None:
        """For a missing key, a wrong one, or the user agent of a simple script."""
        key, pod_id = bearer(request), request.path_params.get("pod_id")
        if pod_id is not None and key == f"{POD_KEY}{pod_id}":
            # People report that a pod's key may stop its pod, and that a DELETE is refused.
            return None if request.url.path.endswith("/action") else problem(403, ACCESS_DENIED)
        return key_problem(request, key, self.API_KEY)

    def injected(self, ref: str) -> Mapping[str, str]:
        """A pod's id, and the key that may stop and terminate this pod only."""
        pod_id = ref.partition(".")[0]
        return {"RUNPOD_POD_ID": pod_id, "RUNPOD_API_KEY": f"{POD_KEY}{pod_id}"}

    def ordered(self, request: Request, body: Mapping[str, Any]) -> tuple[str | None, str]:
        """An offer is a GPU in a tier."""
        name, gpu = body.get("name"), body.get("gpu")
        if "dataCenter" in body:  # A network volume, whose offer is its data center.
            return name if isinstance(name, str) else None, str(body["dataCenter"])
        gpu_id = gpu.get("id") if isinstance(gpu, dict) else None
        return name if isinstance(name, str) else None, f"{body.get('cloud')}/{gpu_id}"

    def malformed(self) -> Response:
        return RunPodProblem(422, "Request validation failed.", ("$: got another type, want object",)).answer

    def rate_windows(self, group: str) -> Iterable[RateWindow]:
        """Three for one user."""
        return self._windows

    def too_often(self, group: str, window: RateWindow, wait_s: int) -> Response:
        """A 429 that names the full window."""
        detail = f"rate limit exceeded for the {window.name} window"
        return problem(429, detail, headers={"Retry-After": str(wait_s)})

    def answer_late(self) -> Response:
        return problem(504, "upstream request timeout")

    # ── the truth ────────────────────────────────────────────────────────────────────────────────

    async def tick(self) -> None:
        """Give every container that is up its own port, and take the ports of ended ones away."""
        self.account.settle()
        now = self.now
        for pod in self.account.living.at(now):
            if pod.ended is not None and pod.port is not None:
                await self.engine.ssh_ports.close(self.port_key(pod.port_key))
                pod.old_port, pod.port = pod.port, None
            elif pod.port is None and pod.shown(now):
                pod.port = self.engine.ssh_ports.reserve(self.port_key(pod.port_key))
        await super().tick()

    def instances(self) -> list[TrueInstance]:
        """Pods, and the network volumes beside them."""
        now = self.now
        volumes = (one for one in self.account.network_volumes.values() if one.created_at <= now)
        return [*super().instances(), *(one.truth(volumes_of(self.name), now) for one in volumes)]

    def reachable(self) -> list[str]:
        """Containers whose sshd answers now: the pod's id, with a number from its second container on."""
        now = self.now
        return [p.port_key for p in self.account.living.at(now) if p.reachable(now)]

    def inside(self, ref: str) -> SandboxMachine | None:
        pod = self._pod(ref)
        if pod is None:
            return None
        encoded = re.search(r"echo (\S+) \| base64 -d", pod.order.args)
        script = base64.b64decode(encoded[1]).decode() if encoded else ""
        brought = keys_in(f"{pod.order.env.get('PUBLIC_KEY', '')}\n{script}")
        return SandboxMachine(pod.gpu, pod.gpu_count, brought)

    def boot(self, ref: str) -> NodeBoot | None:
        """RunPod's images put the keys of PUBLIC_KEY onto the machine, and run the arguments of the container."""
        machine, pod = self.machine(ref), self._pod(ref)
        if machine is None or pod is None:
            return None
        keys = tuple(pod.order.env.get("PUBLIC_KEY", "").splitlines())
        variables = {**pod.order.env, **self.injected(ref)}
        kept = (pod.order.volume_path,) if pod.order.volume_path else ()
        return container(machine, pod.order.args, variables, keys, container=pod.port_key, kept=kept)

    def _pod(self, port_key: str) -> Pod | None:
        return next((pod for pod in self.account.living.at(self.now) if pod.port_key == port_key), None)

    def variables(self, ref: str) -> Mapping[str, str]:
        pod = self._pod(ref)
        return pod.order.env if pod is not None else {}

    # ── moves from outside ───────────────────────────────────────────────────────────────────────

    def reprice(self, key: str, factor: Decimal) -> int:
        """The price of a GPU in a tier, for every count and datacenter, because RunPod has one price for them all."""
        wanted = self._find(key)
        changed = 0
        for gpu in tuple(self.market.types.values()):
            for tier, price in gpu.price_usd_h.items():
                if price is not None and (key == "*" or (wanted is not None and wanted[:2] == (gpu, tier))):
                    self.market.move_price(gpu.id, tier, price * factor)
                    changed += 1
        return changed

    def withdraw(self, key: str) -> int:
        """One datacenter of one GPU, or a whole tier of it when the key names no datacenter."""
        if key == "*":
            for gpu in self.market.types.values():
                for tier in gpu.most:
                    self.market.withdraw(gpu.id, tier, "", 1)
            return len(self.market.types)
        found = self._find(key)
        if found is None:
            return 0
        gpu, tier, count, center = found
        if self.market.place(gpu, tier, count, (center,) if center else ()) is None:
            return 0
        self.market.withdraw(gpu.id, tier, center, count)
        return 1

    def happen(self, ref: str, what: str) -> None:
        pod, now = self.account.instances[ref], self.now
        if what == "host_failure":
            self.account.end(pod, "ERROR", now, "Exited by Runpod: host failure")
        elif what == "exit":
            self.account.end(pod, "EXITED", now, "Exited by Runpod")
        elif what == "outbid":
            self.account.end(pod, "EXITED", now, "Outbid")
        elif what == "vanish":
            self.account.end(pod, "TERMINATED", now, "Terminated by user")
        elif what == "deaf":
            pod.deaf = True
        else:
            pod.rate_usd_h *= DEARER[what]
            pod.meter.change("gpu", now, pod.rate_usd_h)

    def _find(self, key: str) -> tuple[GpuType, str, int, str] | None:
        """GPU, tier, count and datacenter ("" = any) of an offer key of the adapter."""
        match = KEY.fullmatch(key)
        if match is None:
            return None
        gpu = self.market.by_slug().get(match["slug"])
        if gpu is None:
            return None
        # An interruptible offer stands for its tier, and has no datacenter.
        center = "" if match["center"] in (None, "spot") else match["center"]
        return gpu, match["tier"].upper(), int(match["count"]), center
