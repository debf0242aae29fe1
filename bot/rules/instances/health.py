"""Judge a running instance at a poll: whether it works, what is wrong, and when to end it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from ledger.kernel.end_reason import EndReason
from providers.contract import InstanceStatus
from providers.gpus.table import GPUS


class Trouble(NamedTuple):
    """Say why an instance that was ready does not work now: the code for programs and the sentence for people."""

    code: EndReason
    sentence: str


_ERROR = Trouble(EndReason.BROKEN, "The cloud reports that the instance failed.")
_OFFLINE = Trouble(EndReason.BROKEN, "The cloud lost contact with the machine.")
_OUTBID = Trouble(EndReason.OUTBID, "The cloud took the spot instance back, because somebody pays more for its GPU.")
_STOPPED = Trouble(EndReason.STOPPED_THERE, "The cloud stopped the instance. GPU Shopper didn't.")
_AGAIN = Trouble(EndReason.RESTARTING, "The cloud is restarting the instance, so you can't use it now.")


def other_gpus(gpu: str, count: int, seen: str | None, seen_count: int | None) -> str:
    """Name the GPUs that the cloud gave instead of the `count` approved ones, such as `1x RTX3090`; "" where they fit.

    What the cloud does not report counts as right, and so does a name that the table of GPUs does not have: that may be
    a spelling.
    """
    other = seen is not None and seen != gpu and seen in GPUS and gpu in GPUS
    fewer = bool(seen_count) and (seen_count or 0) < count
    return f"{seen_count or count}x {seen if other else gpu}" if other or fewer else ""


def trouble(status: InstanceStatus | str, *, spot: bool, other: str = "") -> Trouble | None:
    """Say what is wrong with an instance that was ready, None for nothing; `other` comes from `other_gpus`."""
    if status == InstanceStatus.RUNNING and other:
        return Trouble(EndReason.WRONG_GPUS, f"It has {other} instead of the GPUs that were approved.")
    if status == InstanceStatus.STOPPED:
        return _OUTBID if spot else _STOPPED
    found = {
        InstanceStatus.ERROR: _ERROR,
        InstanceStatus.OFFLINE: _OFFLINE,
        InstanceStatus.PENDING: _AGAIN,
        InstanceStatus.BOOTING: _AGAIN,
    }
    return found.get(InstanceStatus(status))


def given_up_at(since: datetime, grace_s: float) -> datetime:
    """Return when to end an instance in trouble: it may recover by itself for `grace_s` seconds."""
    return since + timedelta(seconds=grace_s)


def ended_sentence(found: Trouble, spent: str) -> str:
    """Write why an instance is ended after its grace, whose length in words is `spent`."""
    how = "That did not change" if found.code is EndReason.WRONG_GPUS else "It did not come back"
    return f"{found.sentence} {how} within {spent}, so it ends."
