"""The state behind the sandbox: one account, its pods, its credit. Both APIs act on this and on nothing else."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.gpus.table import canonical
from providers.sandbox.account import SandboxAccount
from providers.sandbox.engine import SandboxCloud
from providers.sandbox.network_volume import NetworkVolume, present
from providers.sandbox.runpod import faults
from providers.sandbox.runpod.faults import LOW_BALANCE, NO_CAPACITY, NO_SPOT, SPEND_LIMIT, RunPodProblem
from providers.sandbox.runpod.instance import ACTIONS, RAM_GB_PER_GPU, VCPUS_PER_GPU, Boot, Pod, rfc3339
from providers.sandbox.runpod.market import GpuType, RunPodMarket, spot_usd_h
from providers.sandbox.runpod.validation import Order

CREDIT_USD = Decimal(500)
SPEND_LIMIT_USD_H = Decimal(80)
#: Dollars per GB and hour, from RunPod's price page; a month counts as 720 hours.
DISK_USD_GB_H = Decimal("0.10") / 720
STOPPED_USD_GB_H = Decimal("0.20") / 720
VOLUME_USD_GB_H, FURTHER_USD_GB_H, VOLUME_FIRST_GB = Decimal("0.07") / 720, Decimal("0.05") / 720, Decimal(1000)
ALPHABET = string.ascii_lowercase + string.digits


class RunPodAccount(SandboxAccount[Pod]):
    """One account. Whatever reads or changes pods first brings the bill up to date."""

    def __init__(self, cloud: SandboxCloud) -> None:
        super().__init__(cloud, CREDIT_USD)
        self.market = RunPodMarket(self.engine.seed, bad_rows=self.engine.bad_rows)
        self.spend_limit_usd_h = SPEND_LIMIT_USD_H
        self.public_key = ""
        #: Every network volume that ever was, by id.
        self.network_volumes: dict[str, NetworkVolume] = {}
        self._began = self.now
        self._ids = random.Random(f"{self.engine.seed}/ids")

    # ── looking ──────────────────────────────────────────────────────────────────────────────────

    def exists(self, instance: Pod) -> bool:
        """A terminated pod is listed for a moment longer."""
        return super().exists(instance) or instance.fading(self.now)

    def listed(self) -> list[Pod]:
        """What a listing shows, newest first."""
        return sorted(super().listed(), key=lambda pod: pod.created_at, reverse=True)

    def seen(self, pod_id: str) -> Pod:
        """A pod asked for by id. Raises `Problem` 404 for one that is gone or not visible yet."""
        pod = self.pod(pod_id)
        if self.now < pod.shown_at:
            raise RunPodProblem(404, "pod not found")
        return pod

    def pod(self, pod_id: str) -> Pod:
        """A pod that exists, visible or not. Raises `Problem` 404."""
        self.settle()
        pod = self.instances.get(pod_id)
        if pod is None or not pod.exists(self.now):
            raise RunPodProblem(404, "pod not found")
        return pod

    def spent_usd(self) -> Decimal:
        """The bill of pods and volumes so far."""
        return super().spent_usd() + sum((one.usd(self.now) for one in self.network_volumes.values()), Decimal(0))

    def left_usd(self) -> Decimal:
        self.settle()
        return super().left_usd()

    # ── acting ───────────────────────────────────────────────────────────────────────────────────

    def deploy(self, order: Order, lands_in_s: float) -> Pod:
        """A new pod, billed from the moment it lands. Raises `Problem` as the service would."""
        self.settle()
        for name in faults.REFUSALS:
            if (params := self.cloud.fault(name)) is not None:
                raise faults.refusal(name, params)
        if order.start_ssh and "PUBLIC_KEY" not in order.env and self.public_key:
            order = replace(order, env={**order.env, "PUBLIC_KEY": self.public_key})
        gpu = self.market.types.get(order.gpu_id)
        if gpu is None:
            raise RunPodProblem(422, f"gpu type '{order.gpu_id}' was not found")
        price = gpu.price_usd_h.get(order.tier)
        center = self.market.place(gpu, order.tier, order.count, self._wanted(order))
        cuda = self.market.host_cuda(gpu, order.min_cuda, order.allowed_cuda)
        small = order.min_vcpus > VCPUS_PER_GPU or order.min_ram_gb > RAM_GB_PER_GPU
        if center is None or price is None or cuda is None or small:
            raise RunPodProblem(400, NO_CAPACITY)
        if order.bid_usd_h is not None:
            least, price = spot_usd_h(price), Decimal(str(order.bid_usd_h))
            if price < least:
                raise RunPodProblem(400, NO_SPOT)
        rate = price * order.count * self.price_factor()
        if self.left_usd() < rate:
            raise RunPodProblem(402, LOW_BALANCE)
        if self.rate_usd_h() + rate > self.spend_limit_usd_h:
            raise RunPodProblem(400, SPEND_LIMIT)
        return self.add(self._pod(order, gpu, rate, (center, cuda), lands_in_s))

    def _pod(self, order: Order, gpu: GpuType, rate_usd_h: Decimal, placed: tuple[str, str], lands_in_s: float) -> Pod:
        center, host_cuda = placed
        at, timing = self.now + timedelta(seconds=lands_in_s), self.engine.timing
        pod = Pod(
            ref="".join(self._ids.choices(ALPHABET, k=14)),
            name=order.name,
            gpu=canonical("runpod", gpu.id) or gpu.id,
            gpu_count=order.count,
            order=order,
            kind=gpu,
            rate_usd_h=rate_usd_h,
            data_center=center or None,
            host_cuda=host_cuda,
            # The secure tier always has one, and the older API takes the wish for one.
            no_address=order.tier == "COMMUNITY" and not order.public_ip and self.cloud.fault("no_address") is not None,
            created_at=at,
            launched_at=at,
            boot=self._first_boot(),
            shown_at=at + timedelta(seconds=timing.get_lag_s),
            listed_at=at + timedelta(seconds=self.lag_s("create_list_lag", timing.list_lag_s)),
            fades_s=timing.destroy_s,
            change=f"Rented by User: {_words(at)}",
        )
        self._run(pod, at)
        return pod

    def _first_boot(self) -> Boot:
        timing, fault = self.engine.timing, self.cloud.fault
        every_s = self.cloud.fault_value("exit_loop", "every_s", 20)
        return Boot(
            running_s=timing.boot_s,
            reachable_s=timing.boot_s + timing.reachable_s,
            running_at_once=fault("running_at_once") is not None,
            sshd_lag_s=self.lag_s("running_before_reachable", 0, 90),
            never=fault("never_boots") is not None,
            exit_every_s=None if every_s is None else float(every_s),
        )

    def next_boot(self) -> Boot:
        """How a container starts again after a start or restart."""
        timing = self.engine.timing
        stale = self.cloud.fault("stale_address") is not None
        return Boot(timing.start_s, timing.start_s + timing.reachable_s, stale_address=stale)

    def act(self, pod_id: str, action: str, boot: Boot) -> Pod:
        """One of start, stop, restart, terminate. Raises `Problem` 404, or 409 when the pod's status forbids it."""
        pod, now = self.pod(pod_id), self.now
        status = pod.status(now)
        if action not in ACTIONS[status]:
            raise RunPodProblem(409, f"action '{action}' is not allowed while the pod is {status}")
        if action == "terminate":
            self.end(pod, "TERMINATED", now, f"Terminated by user: {_words(now)}")
        elif action == "stop":
            self.end(pod, "EXITED", now, f"Exited by user: {_words(now)}")
        elif action == "start" and self.left_usd() < pod.rate_usd_h:
            raise RunPodProblem(402, LOW_BALANCE)
        else:
            self._launch(pod, now, boot)
        return pod

    def end(self, pod: Pod, ended: str, at: datetime, change: str) -> None:
        """Put a pod into EXITED, ERROR or TERMINATED and its bill with it."""
        pod.ended, pod.ended_at, pod.change = ended, at if ended == "TERMINATED" else None, change
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
        volume = present(self.network_volumes, order.network_volume, self.now)
        if volume is None or order.tier != "SECURE" or (order.data_centers and volume.region not in order.data_centers):
            raise RunPodProblem(400, "network volume not found in the requested data centers")
        return (volume.region,)

    def add_volume(self, name: str, size_gb: Decimal, region: str, lands_in_s: float = 0.0) -> NetworkVolume:
        """A new network volume, billed from the moment it lands."""
        at = self.now + timedelta(seconds=lands_in_s)
        listed_at = at + timedelta(seconds=self.lag_s("create_list_lag", self.engine.timing.list_lag_s))
        volume = NetworkVolume(
            ref="".join(self._ids.choices(ALPHABET, k=10)),
            name=name,
            size_gb=size_gb,
            region=region,
            created_at=at,
            shown_at=at,
            listed_at=listed_at,
        )
        volume.meter.start("storage", at, volume_usd_h(size_gb))
        self.network_volumes[volume.ref] = volume
        return volume

    # ── money ────────────────────────────────────────────────────────────────────────────────────

    def charge(self) -> None:
        """When the credit ran out, end what the service ends at $0, at the second it happened.

        Pods with a network volume are stopped, all others are terminated with their data.
        """
        if self.spent_usd() <= self.credit_usd:
            return
        empty_at = self._empty_at()
        for pod in self.instances.values():
            if pod.exists(self.now) and pod.meter.total_rate_usd_h(self.now) > 0:
                keeps = pod.order.network_volume is not None
                at = max(empty_at, pod.created_at)
                self.end(pod, "EXITED" if keeps else "TERMINATED", at, f"Exited by Runpod: {_words(at)}")

    def _empty_at(self) -> datetime:
        """The first second at which more was spent than there was, by bisection: what was spent never falls."""
        first, last = 0, int((self.now - self._began).total_seconds()) + 1
        while first < last:
            middle = (first + last) // 2
            until = self._began + timedelta(seconds=middle)
            billed = (*self.instances.values(), *self.network_volumes.values())
            if sum(one.meter.total_usd(until) for one in billed) > self.credit_usd:
                last = middle
            else:
                first = middle + 1
        return min(self._began + timedelta(seconds=first), self.now)

    def bill(self, start: datetime, end: datetime, bucket: timedelta, pod_id: str | None) -> list[dict[str, Any]]:
        """One record per pod and bucket with something in it."""
        return [
            _record(pod, begin, begin + bucket, until)
            for begin, until in self._buckets(start, end, bucket)
            for pod in self.instances.values()
            if pod_id in (None, pod.ref)
            and pod.created_at < until
            and (pod.ended_at is None or pod.ended_at > begin)
            and pod.meter.usd("gpu", until, begin) + pod.meter.usd("storage", until, begin)
        ]

    def volume_bill(
        self, start: datetime, end: datetime, bucket: timedelta, volume_id: str | None
    ) -> list[dict[str, Any]]:
        """One record per network volume and bucket with something in it."""
        return [
            _volume_record(volume, begin, begin + bucket, amount)
            for begin, until in self._buckets(start, end, bucket)
            for volume in self.network_volumes.values()
            if volume_id in (None, volume.ref) and (amount := volume.meter.usd("storage", until, begin))
        ]

    def _buckets(self, start: datetime, end: datetime, bucket: timedelta) -> Iterator[tuple[datetime, datetime]]:
        """Where each bucket begins and how far it is known; the window is widened to whole buckets first.

        The newest charges are missing for as long as the timing says.
        """
        self.settle()
        known = self.now - timedelta(seconds=self.engine.timing.charges_lag_s)
        # Nothing is billed before the account began, so a wide window costs no more than its own life.
        start = max(start, self._began)
        begin_s = start.timestamp() // bucket.total_seconds() * bucket.total_seconds()
        begin = datetime.fromtimestamp(begin_s, start.tzinfo)
        while begin < min(end, known):
            yield begin, min(begin + bucket, known)
            begin += bucket


def _record(pod: Pod, start: datetime, end: datetime, until: datetime) -> dict[str, Any]:
    gpu = round(pod.meter.usd("gpu", until, start), 6)
    disk = round(pod.meter.usd("storage", until, start), 6)
    return {
        "startTime": rfc3339(start),
        "endTime": rfc3339(end),
        "podId": pod.ref,
        "totalAmount": float(gpu + disk),
        "gpuAmount": float(gpu),
        "cpuAmount": 0,
        "diskAmount": float(disk),
    }


def _volume_record(volume: NetworkVolume, start: datetime, end: datetime, amount: Decimal) -> dict[str, Any]:
    return {
        "startTime": rfc3339(start),
        "endTime": rfc3339(end),
        "networkVolumeId": volume.ref,
        "totalAmount": float(round(amount, 6)),
        "standardAmount": float(round(amount, 6)),
        "highPerformanceAmount": 0,
    }


def volume_usd_h(size_gb: Decimal) -> Decimal:
    """What a standard network volume costs per hour: less per GB above the first terabyte."""
    return (
        min(size_gb, VOLUME_FIRST_GB) * VOLUME_USD_GB_H + max(size_gb - VOLUME_FIRST_GB, Decimal(0)) * FURTHER_USD_GB_H
    )


def _words(at: datetime) -> str:
    return f"{at:%a %b %d %Y %H:%M:%S} GMT+0000 (Coordinated Universal Time)"
