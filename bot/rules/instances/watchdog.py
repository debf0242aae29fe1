"""Decide when an instance must be ended although the jobs did not: its approved end with everything granted on top."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bot.rules.checkpoints.verification import ANSWER, Reserved, Unverified, place
from bot.rules.instances.recovery_mode import waits_until
from bot.rules.policy.policy import Policy
from ledger.kernel.checkpoint_step import BEHIND, CheckpointStep
from ledger.kernel.end_reason import EndReason
from ledger.kernel.must_end import MustEnd


class EndOrder(StrEnum):
    """What is sent to the cloud: a stop keeps the disk that was approved on top, a termination ends everything."""

    STOP = "stop"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Ability:
    """What is possible at an instance's cloud, and whether checkpoints can be read here at all."""

    terminates: bool
    keeps_disk: bool
    reads_checkpoints: bool


def due(
    one: MustEnd, policy: Policy, able: Ability, now: datetime, *, overdue_s: float, patience_s: float
) -> EndOrder | None:
    """Return what must be sent now: an order whose time is `overdue_s` past; None while nothing is.

    Checkpoint holds and recovery mode delay it as they delay the jobs. `patience_s` is how long recovery mode delays
    an approved end that lay before it.
    """
    base = one.ordered_at if one.ending else one.deadline
    if base is None or not able.terminates or _recovers(one, now, timedelta(seconds=patience_s)):
        return None
    stop_at, end_at = _ends(one, base, policy, able)
    late = timedelta(seconds=overdue_s)
    if now >= end_at + late:
        return EndOrder.TERMINATE
    stops = stop_at is not None and now >= stop_at + late and one.status != "stopped"
    return EndOrder.STOP if stops else None


def _recovers(one: MustEnd, now: datetime, patience: timedelta) -> bool:
    if one.recovery_since is None:
        return False
    # An approved end that nobody could order yet is ordered now.
    ordered_at = one.ordered_at if one.ordered_at is not None and one.ending else now
    code: str | None = one.session_end or (None if one.ending else EndReason.RESERVATION_OVER)
    return waits_until(ordered_at, code, one.deadline, one.recovery_since, now, patience) is not None


def _ends(one: MustEnd, base: datetime, policy: Policy, able: Ability) -> tuple[datetime | None, datetime]:
    """Return when to stop it, None where it is not stopped, and when to terminate it."""
    until = one.step_until or base
    if one.step in BEHIND:
        return None, max(base, until)
    where = place(one.checkpoint) if able.reads_checkpoints else None
    preserved = one.keep_disk and able.keeps_disk
    if one.step is None and ((where is None and not preserved) or not one.used):
        return None, base
    if one.step is CheckpointStep.HELD:
        return None, until + ANSWER
    if one.step is CheckpointStep.STOPPING:
        return base, until + ANSWER
    seconds = Reserved.of(None, one.hold_s).longest_s(policy, keeps_disk=able.keeps_disk)
    saved_at = max(until, base + timedelta(seconds=seconds))
    if able.keeps_disk and (preserved or policy.checkpoint_unverified != Unverified.DESTROY):
        # The disk was approved for longer than the GPU. Nobody can verify the checkpoint now, so both are kept.
        return saved_at, saved_at + timedelta(seconds=policy.checkpoint_disk_s)
    return None, saved_at
