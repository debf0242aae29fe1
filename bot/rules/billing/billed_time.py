"""Follow from when and until when the parts of an instance are billed, from one poll of its cloud to the next.

Where the cloud says when something began, that is believed. Where it does not, what happened between two polls is taken
to have happened as the cloud would bill most: a start right after the last poll that showed it not billed, a pause at
the poll that shows it. So a service that was down books what the cloud charges for that time, and not less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from providers.capabilities import BillingRule, BillingStart
from providers.contract import InstanceStatus

_BROKEN = frozenset({InstanceStatus.ERROR, InstanceStatus.OFFLINE})


@dataclass(frozen=True, slots=True)
class Billed:
    """Hold the billed time of one instance; an `until` is set while that part is paused.

    A pause is left out by moving `from` later by its length. `unbilled_at` is the last poll that showed the instance
    without its GPU being billed.
    """

    gpu_from: datetime | None = None
    gpu_until: datetime | None = None
    storage_from: datetime | None = None
    storage_until: datetime | None = None
    unbilled_at: datetime | None = None


def bills_gpu(status: InstanceStatus, rule: BillingRule, *, holds_gpu: bool = True) -> bool:
    """Whether the cloud bills the GPU of an instance in this state; never one that was given back."""
    if status is InstanceStatus.STOPPED:
        return rule.gpu_while_stopped and holds_gpu
    if status in _BROKEN:
        return rule.gpu_while_broken
    return status is InstanceStatus.RUNNING or rule.starts is BillingStart.CREATE


def look(
    before: Billed,
    status: InstanceStatus,
    started_at: datetime | None,
    rule: BillingRule,
    at: datetime,
    *,
    holds_gpu: bool = True,
) -> Billed:
    """Add what a poll at time `at` shows.

    `started_at` is when the cloud says that the current run began, if it does.
    """
    after = _storage(before, status, rule, at)
    if not bills_gpu(status, rule, holds_gpu=holds_gpu):
        paused_at = at if before.gpu_from is not None and before.gpu_until is None else before.gpu_until
        return replace(after, gpu_until=paused_at, unbilled_at=at)
    unseen = before.unbilled_at or at
    if before.gpu_from is None:
        return replace(after, gpu_from=min(started_at or unseen, at))
    if before.gpu_until is None:
        return after
    reported = started_at if started_at is not None and before.gpu_until < started_at <= at else None
    resumed_at = reported or max(unseen, before.gpu_until)
    return replace(after, gpu_from=before.gpu_from + (resumed_at - before.gpu_until), gpu_until=None)


def _storage(before: Billed, status: InstanceStatus, rule: BillingRule, at: datetime) -> Billed:
    if rule.storage_while_offline or before.storage_from is None:
        return before
    if status is InstanceStatus.OFFLINE:
        return replace(before, storage_until=before.storage_until or at)
    if before.storage_until is None:
        return before
    resumed_at = max(before.unbilled_at or at, before.storage_until)
    moved = before.storage_from + (resumed_at - before.storage_until)
    return replace(before, storage_from=moved, storage_until=None)
