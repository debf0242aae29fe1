"""Sum up what own instances on each host showed: whether they failed, how fast their GPUs were, how long they ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from bot.rules.instances.checked_gpus import checked_gpus
from bot.rules.instances.gpu_check import FAILED_DELIVERY
from bot.rules.instances.gpu_speed import POWER_LIMITED
from ledger.kernel.end_reason import EndReason
from providers.contract import HostRecord
from providers.gpus.table import GPUS

#: Older sessions say little: hosts are repaired, moved and sold.
REMEMBERED_FOR = timedelta(days=90)
#: The newest instances that one search reads at most.
READ_AT_MOST = 2000
#: Ends for which the host is to blame. An outbid machine, or one that costs more, ran as it should.
HOST_FAILURES = FAILED_DELIVERY | {
    EndReason.LOST,
    EndReason.BROKEN,
    EndReason.BOOT_TIMEOUT,
    EndReason.RESTARTING,
    EndReason.STOPPED_THERE,
}
#: Below this share of its data sheet's rate a card is slow. Full-size cards reach 65 to 95 % of it; below half the
#: machine was not accepted at all.
SLOW_SHARE = Decimal("0.65")


@dataclass(frozen=True, slots=True)
class PastInstance:
    """Describe one instance that ran on a known host, or was to.

    `booked_s` are the GPU seconds that were booked when it was stopped; None where it never was.
    """

    cloud: str
    machine_id: str
    outcome_code: str
    reachable_at: datetime | None
    ended_at: datetime | None
    booked_s: int | None
    gpu_check: Mapping[str, Any] | None


def host_records(past: Iterable[PastInstance], now: datetime) -> dict[tuple[str, str], HostRecord]:
    """Return the record of each host by its cloud and machine id; instances that were not ready and did not fail don't
    count.
    """
    found: defaultdict[tuple[str, str], list[PastInstance]] = defaultdict(list)
    for one in past:
        if one.reachable_at is not None or one.outcome_code in HOST_FAILURES:
            found[one.cloud, one.machine_id].append(one)
    return {host: _record(every, now) for host, every in found.items()}


def _record(every: list[PastInstance], now: datetime) -> HostRecord:
    failed = [one for one in every if one.outcome_code in HOST_FAILURES]
    slow = [one for one in every if one.outcome_code not in HOST_FAILURES and _slow(one.gpu_check)]
    return HostRecord(len(every), len(failed), len(slow), sum((_hours(one, now) for one in every), Decimal(0)))


def _hours(one: PastInstance, now: datetime) -> Decimal:
    """Return the hours in which its GPUs ran; of one that was stopped only those that were booked until then."""
    if one.reachable_at is None:
        return Decimal(0)
    if one.booked_s is not None:
        return Decimal(one.booked_s) / 3600
    ran = (one.ended_at or now) - one.reachable_at
    return Decimal(max(ran // timedelta(seconds=1), 0)) / 3600


def _slow(check: Mapping[str, Any] | None) -> bool:
    """Whether the slowest GPU of a check reached too small a share of its data sheet's rate."""
    found = checked_gpus(check)
    if found is None or not found.tflops or found.gpus[0] in POWER_LIMITED:
        return False
    known = GPUS.get(found.gpus[0])
    peak = known.peak_bf16_tflops if known is not None else None
    return peak is not None and min(found.tflops) < peak * SLOW_SHARE
