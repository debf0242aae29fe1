"""The sandbox as the shared engine sees it: faults, truth, market moves, and the create that both APIs go through."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from starlette.responses import Response
from starlette.routing import BaseRoute

from providers.gpus import table
from providers.sandbox.engine import CreateCall, SandboxCloud, TrueInstance
from providers.sandbox.faults import LostReply
from providers.sandbox.runpod import faults
from providers.sandbox.runpod.account import Account, Landing
from providers.sandbox.runpod.instance import Boot, Pod
from providers.sandbox.runpod.market import GpuType, Market
from providers.sandbox.runpod.responses import RateWindows, problem
from providers.sandbox.runpod.routes_rest import Rest
from providers.sandbox.runpod.validation import Order, Problem

KEY = re.compile(r"(?P<tier>secure|community)/(?P<slug>.+)x(?P<count>\d+)(?:/(?P<center>[^/]+))?")


class RunPodSandbox(SandboxCloud):
    """RunPod as of November 2026: REST v2, the deprecated GraphQL, and REST v1 answering 410."""

    name = "runpod"
    FAULTS = faults.FAULTS
    ALIASES = faults.ALIASES
    CREATE_FAULTS = faults.CREATE_FAULTS
    DISTURBANCES = faults.DISTURBANCES
    API_KEY = "rpa_SANDBOX0000000000000000000000000000000000"

    account: Account
    market: Market
    windows: RateWindows

    def reset(self) -> None:
        """Back to the seeded market and an empty account with $500."""
        self.market = Market(self.engine.seed)
        self.account = Account(self.engine, self.market)
        self.windows = RateWindows()

    def environment(self, url: str) -> dict[str, str]:
        """For the adapter, for `runpodctl` (RUNPOD_REST_V2_URL, RUNPOD_GRAPHQL_URL) and for the Python SDK."""
        return {
            "RUNPOD_API_KEY": self.API_KEY,
            "RUNPOD_REST_V2_URL": f"{url}/v2",
            "RUNPOD_GRAPHQL_URL": f"{url}/graphql",
            "RUNPOD_API_BASE_URL": url,
            "RUNPOD_CONTAINER_DISK_GB": "20",
        }

    def routes(self) -> list[BaseRoute]:
        """`/v2/…`, `/graphql`, and `/v1/…`, which is gone."""
        return Rest(self).routes()

    # ── creating ─────────────────────────────────────────────────────────────────────────────────

    def deploy(self, order: Order, call: CreateCall) -> Pod:
        """Make the pod that was ordered, or refuse. Raises `Problem`; `call` is brought up to date either way."""
        for name in faults.REFUSALS:
            params = self.fault(name)
            if params is not None:
                call.outcome = "refused"
                raise faults.refusal(name, params)
        late = self.fault("late_create")
        after_s = 0.0 if late is None else float(late.get("after_s", 200))
        try:
            pod = self.account.create(self._with_key(order), self._landing(after_s))
        except Problem:
            call.outcome = "refused"
            raise
        call.ref = pod.id
        call.outcome = "committed" if late is None else "pending"
        return pod

    def spoiled(self, call: CreateCall) -> Response | None:
        """What is answered instead of the created pod while a fault of the reply is armed."""
        if call.outcome == "pending":
            return problem(504, "upstream request timeout")
        if self.fault("lost_reply") is not None:
            return LostReply(201)
        broken = self.fault("error_after_create")
        if broken is not None:
            return problem(int(broken.get("status", 503)), faults.WENT_WRONG)
        if self.fault("unreadable_reply") is not None:
            return Response("<html><body>Created</body></html>", 201, media_type="text/html")
        return None

    def _with_key(self, order: Order) -> Order:
        """With `startSsh` the account's keys go into PUBLIC_KEY, unless the order brings its own."""
        if not order.start_ssh or "PUBLIC_KEY" in order.env or not self.account.public_key:
            return order
        return order.with_env({**order.env, "PUBLIC_KEY": self.account.public_key})

    def _landing(self, after_s: float) -> Landing:
        timing = self.engine.timing
        lag, price = self.fault("list_lag"), self.fault("price_above")
        return Landing(
            boot=self._first_boot(),
            after_s=after_s,
            listed_after_s=timing.list_lag_s if lag is None else float(lag.get("after_s", 60)),
            found_after_s=timing.get_lag_s,
            price_factor=Decimal(1) if price is None else Decimal(str(price.get("factor", "1.5"))),
        )

    def _first_boot(self) -> Boot:
        timing = self.engine.timing
        sshd, loop = self.fault("sshd_lag"), self.fault("exit_loop")
        return Boot(
            running_s=timing.boot_s,
            reachable_s=timing.boot_s + timing.reachable_s,
            running_at_once=self.fault("running_at_once") is not None,
            sshd_lag_s=0 if sshd is None else float(sshd.get("after_s", 90)),
            never=self.fault("never_boots") is not None,
            exit_every_s=None if loop is None else float(loop.get("every_s", 20)),
        )

    def next_boot(self) -> Boot:
        """How a container starts again after a start or restart."""
        timing = self.engine.timing
        stale = self.fault("stale_address") is not None
        return Boot(timing.start_s, timing.start_s + timing.reachable_s, stale_address=stale)

    # ── the truth ────────────────────────────────────────────────────────────────────────────────

    async def tick(self) -> None:
        """Give every container that is up its own port, and take the ports of ended ones away."""
        self.account.settle()
        now = self.now
        for pod in self.account.living.at(now):
            if pod.ended is not None and pod.port is not None:
                await self.engine.doors.close(self.door(_door(pod)))
                pod.old_port, pod.port = pod.port, None
            elif pod.port is None and pod.shown(now):
                pod.port = self.engine.doors.reserve(self.door(_door(pod)))
        await super().tick()

    def reachable(self) -> list[str]:
        """Containers whose sshd answers now: the pod's id, with a number from its second container on."""
        now = self.now
        return [_door(p) for p in self.account.living.at(now) if p.exists(now) and p.listening(now)]

    def variables(self, ref: str) -> Mapping[str, str]:
        """What the pod was made with."""
        return next((pod.order.env for pod in self.account.living.at(self.now) if _door(pod) == ref), {})

    def instances(self) -> list[TrueInstance]:
        """Every pod that has landed."""
        self.account.settle()
        now = self.now
        return [
            TrueInstance(
                cloud=self.name,
                ref=pod.id,
                name=pod.order.name,
                status=pod.status(now),
                gpu=table.canonical(self.name, pod.gpu.id) or pod.gpu.id,
                gpu_count=pod.order.count,
                created_at=pod.created_at,
                ended_at=pod.ended_at if pod.ended == "TERMINATED" else None,
                gpu_s=pod.meter.seconds("gpu", now),
                gpu_usd=pod.meter.usd("gpu", now),
                storage_usd=pod.meter.usd("storage", now),
            )
            for pod in sorted(self.account.pods.values(), key=lambda p: p.created_at)
            if pod.created_at <= now
        ]

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

    def disturb(self, ref: str, what: str) -> None:
        """Do one of `DISTURBANCES`. KeyError for an unknown pod or word."""
        pod, now = self.account.pods[ref], self.now
        if what == "host_failure":
            self.account.end(pod, "ERROR", now, "Exited by Runpod: host failure")
        elif what == "exit":
            self.account.end(pod, "EXITED", now, "Exited by Runpod")
        elif what == "vanish":
            self.account.end(pod, "TERMINATED", now, "Terminated by user")
        elif what == "deaf":
            pod.deaf = True
        elif what in faults.DEARER:
            pod.reprice(now, faults.DEARER[what])
        else:
            raise KeyError(what)

    def _find(self, key: str) -> tuple[GpuType, str, int, str] | None:
        """GPU, tier, count and datacenter ("" = any) of an offer key of the adapter."""
        match = KEY.fullmatch(key)
        if match is None:
            return None
        gpu = self.market.by_slug().get(match["slug"])
        return None if gpu is None else (gpu, match["tier"].upper(), int(match["count"]), match["center"] or "")


def _door(pod: Pod) -> str:
    return pod.id if pod.generation == 1 else f"{pod.id}.{pod.generation}"
