"""The state behind the sandbox: one account, its pods, its credit. Both APIs act on this and on nothing else."""

from __future__ import annotations

import random
import string
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.sandbox.engine import Engine
from providers.sandbox.runpod.instance import ACTIONS, Boot, Pod, rfc3339
from providers.sandbox.runpod.market import Market
from providers.sandbox.runpod.validation import Order, Problem
from providers.sandbox.timeline import Living, Settled

NO_CAPACITY = (
    "There are no longer any instances available with the requested specifications. Please refresh and try again."
)
NO_FREE_GPU = "There are not enough free GPUs on the host machine to start this pod."
LOW_BALANCE = "Your account balance is too low to rent a pod. Please add funds to your account."
SPEND_LIMIT = "This pod would exceed your account's spend limit."
CREDIT_USD = Decimal(500)
SPEND_LIMIT_USD_H = Decimal(80)
#: Dollars per GB and hour, from RunPod's price page; a month counts as 720 hours.
DISK_USD_GB_H = Decimal("0.10") / 720
STOPPED_USD_GB_H = Decimal("0.20") / 720
ALPHABET = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class Landing:
    """How a create takes effect: when, when it is seen, at which price, and how its container starts."""

    boot: Boot
    after_s: float = 0
    listed_after_s: float = 0
    found_after_s: float = 0
    price_factor: Decimal = Decimal(1)


class Account:
    """One account. Amounts are dollars. Whatever reads or changes pods first brings the bill up to date."""

    def __init__(self, engine: Engine, market: Market) -> None:
        self._engine = engine
        self.market = market
        self.credit_usd = CREDIT_USD
        self._settled = Settled()
        self.spend_limit_usd_h = SPEND_LIMIT_USD_H
        self.public_key = ""
        #: Every pod that ever was, by id, in order of creation.
        self.pods: dict[str, Pod] = {}
        self.living = Living(self.pods, self._over, lambda pod, now: pod.meter.total_usd(now))
        #: Network volume → its datacenter. There is no route to make one: a test adds what it needs.
        self.network_volumes: dict[str, str] = {}
        self._began = self.now
        self._ids = random.Random(f"{market.seed}/ids")

    @property
    def now(self) -> datetime:
        """The sandbox's time."""
        return self._engine.clock.now()

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    def listed(self) -> list[Pod]:
        """What a listing shows, newest first: terminated pods for a moment longer, new ones after their lag."""
        self.settle()
        now, destroy_s = self.now, self._engine.timing.destroy_s
        shown = [
            pod
            for pod in self.living.at(now)
            if (pod.exists(now) or pod.fading(now, destroy_s)) and pod.age_s(now) >= pod.listed_after_s
        ]
        return sorted(shown, key=lambda pod: pod.created_at, reverse=True)

    def seen(self, pod_id: str) -> Pod:
        """A pod asked for by id. Raises `Problem` 404 for one that is gone or not visible yet."""
        pod = self.pod(pod_id)
        if pod.age_s(self.now) < pod.found_after_s:
            raise Problem(404, "pod not found")
        return pod

    def pod(self, pod_id: str) -> Pod:
        """A pod that exists, visible or not. Raises `Problem` 404."""
        self.settle()
        pod = self.pods.get(pod_id)
        if pod is None or not pod.exists(self.now):
            raise Problem(404, "pod not found")
        return pod

    def balance_usd(self) -> Decimal:
        """Credit left."""
        self.settle()
        return self.credit_usd - self.living.spent_usd(self.now)

    def rate_usd_h(self) -> Decimal:
        """What the account spends per hour now."""
        return sum((self._rate(pod) for pod in self.living.at(self.now)), Decimal(0))

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    def create(self, order: Order, landing: Landing) -> Pod:
        """A new pod, billed from the moment it lands. Raises `Problem` 400, 402 or 422 as the service would."""
        self.settle()
        gpu = self.market.types.get(order.gpu_id)
        if gpu is None:
            raise Problem(422, f"gpu type '{order.gpu_id}' was not found")
        price = gpu.price_usd_h.get(order.tier)
        center = self.market.place(gpu, order.tier, order.count, self._wanted(order))
        if center is None or price is None:
            raise Problem(400, NO_CAPACITY)
        if order.bid_usd_h is not None:
            price = Decimal(str(order.bid_usd_h))
        rate = price * order.count * landing.price_factor
        if self.balance_usd() < rate:
            raise Problem(402, LOW_BALANCE)
        if self.rate_usd_h() + rate > self.spend_limit_usd_h:
            raise Problem(400, SPEND_LIMIT)
        at = self.now + timedelta(seconds=landing.after_s)
        pod = Pod(self._new_id(), order, gpu, rate, center or None, at, at, landing.boot)
        pod.listed_after_s, pod.found_after_s = landing.listed_after_s, landing.found_after_s
        pod.change = f"Rented by User: {_words(at)}"
        self._run(pod, at)
        self.pods[pod.id] = pod
        return pod

    def act(self, pod_id: str, action: str, boot: Boot) -> Pod:
        """One of start, stop, restart, terminate. Raises `Problem` 404, or 409 when the pod's status forbids it."""
        pod, now = self.pod(pod_id), self.now
        status = pod.status(now)
        if action not in ACTIONS[status]:
            raise Problem(409, f"action '{action}' is not allowed while the pod is {status}")
        if action == "terminate":
            self.end(pod, "TERMINATED", now, f"Terminated by user: {_words(now)}")
        elif action == "stop":
            self.end(pod, "EXITED", now, f"Exited by user: {_words(now)}")
        elif action == "start" and self.balance_usd() < pod.rate_usd_h:
            raise Problem(402, LOW_BALANCE)
        else:
            self._launch(pod, now, boot)
        return pod

    def end(self, pod: Pod, ended: str, at: datetime, change: str) -> None:
        """Put a pod into EXITED, ERROR or TERMINATED and its bill with it."""
        pod.ended, pod.ended_at, pod.change = ended, at, change
        pod.meter.stop_all(at)
        if ended != "TERMINATED" and pod.order.volume_gb:
            pod.meter.start("storage", at, pod.order.volume_gb * STOPPED_USD_GB_H)

    def _launch(self, pod: Pod, at: datetime, boot: Boot) -> None:
        if pod.ended is not None:
            self._run(pod, at)
        pod.ended = pod.ended_at = None
        pod.launched_at, pod.boot = at, boot
        pod.old_port, pod.port = pod.port, None
        pod.generation += 1
        pod.change = f"Rented by User: {_words(at)}"

    def _run(self, pod: Pod, at: datetime) -> None:
        pod.meter.start("gpu", at, pod.rate_usd_h)
        pod.meter.start("storage", at, (pod.order.disk_gb + pod.order.volume_gb) * DISK_USD_GB_H)

    def _wanted(self, order: Order) -> tuple[str, ...]:
        if order.network_volume is None:
            return order.data_centers
        home = self.network_volumes.get(order.network_volume)
        if home is None or (order.data_centers and home not in order.data_centers):
            raise Problem(400, "network volume not found in the requested data centers")
        return (home,)

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """When the credit ran out, end what the service ends at $0, at the second it happened.

        Pods with a network volume are stopped, all others are terminated with their data.
        """
        if self._settled.before(self.now, self.credit_usd):
            return
        if self.living.spent_usd(self.now) <= self.credit_usd:
            return
        empty_at = self._empty_at()
        for pod in self.pods.values():
            if pod.exists(self.now) and self._rate(pod) > 0:
                keeps = pod.order.network_volume is not None
                at = max(empty_at, pod.created_at)
                self.end(pod, "EXITED" if keeps else "TERMINATED", at, f"Exited by Runpod: {_words(at)}")

    def _empty_at(self) -> datetime:
        """The first second at which more was spent than there was, by bisection: what was spent never falls."""
        first, last = 0, int((self.now - self._began).total_seconds()) + 1
        while first < last:
            middle = (first + last) // 2
            if self._spent(self._began + timedelta(seconds=middle)) > self.credit_usd:
                last = middle
            else:
                first = middle + 1
        return min(self._began + timedelta(seconds=first), self.now)

    def _spent(self, until: datetime) -> Decimal:
        return sum((pod.meter.total_usd(until) for pod in self.pods.values()), Decimal(0))

    def _over(self, pod: Pod, now: datetime) -> bool:
        """Terminated, shown no longer, and without a port that somebody has to take away."""
        gone = pod.ended == "TERMINATED" and not pod.fading(now, self._engine.timing.destroy_s)
        return gone and pod.port is None

    def _rate(self, pod: Pod) -> Decimal:
        return pod.meter.rate_usd_h("gpu", self.now) + pod.meter.rate_usd_h("storage", self.now)

    def bill(self, start: datetime, end: datetime, bucket: timedelta, pod_id: str | None) -> list[dict[str, Any]]:
        """One record per pod and bucket with something in it; the window is widened to whole buckets first.

        The newest charges are missing for as long as the timing says.
        """
        self.settle()
        known = self.now - timedelta(seconds=self._engine.timing.charges_lag_s)
        # Nothing is billed before the account began, so a wide window costs no more than its own life.
        start = max(start, self._began)
        begin_s = start.timestamp() // bucket.total_seconds() * bucket.total_seconds()
        begin = datetime.fromtimestamp(begin_s, start.tzinfo)
        records = []
        while begin < min(end, known):
            until = min(begin + bucket, known)
            records += [
                _record(pod, begin, begin + bucket, until)
                for pod in self.pods.values()
                if pod_id in (None, pod.id)
                and pod.created_at < until
                and (pod.ended != "TERMINATED" or pod.ended_at is None or pod.ended_at > begin)
                and pod.meter.usd("gpu", until, begin) + pod.meter.usd("storage", until, begin)
            ]
            begin += bucket
        return records

    def _new_id(self) -> str:
        return "".join(self._ids.choices(ALPHABET, k=14))


def _record(pod: Pod, start: datetime, end: datetime, until: datetime) -> dict[str, Any]:
    gpu = round(pod.meter.usd("gpu", until, start), 6)
    disk = round(pod.meter.usd("storage", until, start), 6)
    return {
        "startTime": rfc3339(start),
        "endTime": rfc3339(end),
        "podId": pod.id,
        "totalAmount": float(gpu + disk),
        "gpuAmount": float(gpu),
        "cpuAmount": 0,
        "diskAmount": float(disk),
    }


def _words(at: datetime) -> str:
    return f"{at:%a %b %d %Y %H:%M:%S} GMT+0000 (Coordinated Universal Time)"
