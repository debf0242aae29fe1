"""Decide about an unplanned end: what waiting costs, what would be lost, and what caused it.

This is the only place that decides whether a machine that stopped working, is unresponsive, idle or outbid is kept.
The table of its decisions in `docs/` is made by calling it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from bot.rules.billing.billed_time import bills_gpu
from ledger.kernel import money
from ledger.kernel.end_reason import EndReason
from ledger.kernel.steps.grace import AtRisk, Cause, GraceChoice
from ledger.kernel.vocabulary import Vocabulary
from providers.capabilities import BillingRule
from providers.contract import InstanceStatus
from providers.errors import AuthFailed, InsufficientFunds, QuotaExceeded

#: What grace may cost where the policy names no amount: this share of the approved total, and at least this amount.
SHARE: Final = Decimal("0.05")
LEAST_USD: Final = Decimal(1)
#: Codes of a check of an account that stop its machines.
ACCOUNT_CODES: Final = frozenset(kind.code for kind in (InsufficientFunds, AuthFailed, QuotaExceeded))


class UnplannedEnd(Vocabulary):
    """Name what happens to a machine that would end although nobody asked for it."""

    KEEP = "keep", "keep it in grace"
    ASK = "ask", "keep it in grace and ask"
    REPLACE = "replace", "keep its disk and launch a replacement"
    END = "end", "end it"


@dataclass(frozen=True, slots=True)
class Plight:
    """Describe a machine that would end. `spent_usd` is what its grace has cost, `limit_usd` the most that it may.

    `restarts`: its job can start on another machine; `can_replace`: the approval covers one, and this disk stays.
    """

    cause: Cause
    at_risk: AtRisk
    waiting_usd_h: Decimal
    hours_left: Decimal
    limit_usd: Decimal
    spent_usd: Decimal = Decimal(0)
    restarts: bool = False
    can_replace: bool = False
    choice: GraceChoice | None = None

    @property
    def waiting_usd(self) -> Decimal:
        """What waiting costs in all, until the approved end."""
        return money.worst(self.spent_usd + max(self.hours_left, Decimal(0)) * self.waiting_usd_h)


def decide(plight: Plight) -> UnplannedEnd:
    """Decide what happens to the machine."""
    if plight.cause in (Cause.PERSON, Cause.JOB) or plight.choice is GraceChoice.GIVE_UP:
        return UnplannedEnd.END
    if plight.at_risk is AtRisk.NOTHING or plight.waiting_usd > plight.limit_usd:
        return UnplannedEnd.END
    if plight.choice is GraceChoice.REPLACE and plight.can_replace:
        return UnplannedEnd.REPLACE
    # An account can be paid, and then the machine starts again. A machine that GPU Shopper can't see may work.
    if plight.cause in (Cause.ACCOUNT, Cause.OURS) or plight.choice is GraceChoice.WAIT:
        return UnplannedEnd.KEEP
    return UnplannedEnd.REPLACE if plight.restarts and plight.can_replace else UnplannedEnd.ASK


def limit_usd(policy_usd: Decimal | None, approved_usd: Decimal, remaining_usd: Decimal) -> Decimal:
    """Return the most that a grace may cost: as the policy says, and never more than the approval still covers."""
    most_usd = max(approved_usd * SHARE, LEAST_USD) if policy_usd is None else policy_usd
    return money.cap(max(min(most_usd, remaining_usd), Decimal(0)))


def waiting_rate(
    status: InstanceStatus | str,
    rule: BillingRule,
    price_usd_h: Decimal,
    storage_usd_h: Decimal,
    stopped_usd_h: Decimal = Decimal(0),
    *,
    pays_gpu: bool | None = None,
) -> Decimal:
    """Return dollars per hour that a machine in this state costs: nothing, its disk, or the full rate.

    `price_usd_h` includes the disk. `stopped_usd_h` is the rate of the disk while stopped, where it is another.
    `pays_gpu` is whether the GPU is billed now, where that was observed.
    """
    state = InstanceStatus(status)
    gpu_usd_h = max(price_usd_h - storage_usd_h, Decimal(0))
    if pays_gpu is None:
        pays_gpu = bills_gpu(state, rule)
    disk_usd_h = storage_usd_h
    if state is InstanceStatus.STOPPED:
        disk_usd_h = max(storage_usd_h, stopped_usd_h) if rule.storage_while_stopped else Decimal(0)
    elif state is InstanceStatus.OFFLINE and not rule.storage_while_offline:
        disk_usd_h = Decimal(0)
    return money.rate(disk_usd_h + (gpu_usd_h if pays_gpu else Decimal(0)))


def cost_until(spent_usd: Decimal, usd_h: Decimal, rated_at: datetime, now: datetime) -> Decimal:
    """Return what a grace has cost: before its present rate, and since."""
    seconds = max(int((now - rated_at).total_seconds()), 0)
    return money.worst(spent_usd + usd_h * seconds / 3600)


_CAUSES: Final[Mapping[EndReason, Cause]] = MappingProxyType(
    {
        EndReason.OUTBID: Cause.MARKET,
        EndReason.IDLE: Cause.PERSON,
        EndReason.COMPLETED: Cause.JOB,
        EndReason.WORK_FAILED: Cause.JOB,
    }
)


def cause_of(code: EndReason, account_problem: str = "") -> Cause:
    """Return the cause of an end with this reason; `account_problem` is the code of what is wrong there, or ""."""
    cause = _CAUSES.get(code, Cause.HOST)
    # When credit is used up, a cloud stops machines. It may show them as outbid, or as stopped by itself.
    stops = code in (EndReason.STOPPED_THERE, EndReason.OUTBID, EndReason.BROKEN)
    return Cause.ACCOUNT if stops and account_problem in ACCOUNT_CODES else cause


@dataclass(frozen=True, slots=True)
class Contents:
    """Say what is known of what a machine holds. `is_saved` is None where its checkpoint can't be verified now."""

    was_used: bool
    disk_survives: bool
    is_volume: bool = False
    has_checkpoints: bool = False
    is_saved: bool | None = None
    #: The machine shares a queue: the other machines run its commands, and the results are stored.
    shares_queue: bool = False


def at_risk(contents: Contents) -> AtRisk:
    """Return what would be lost with a machine."""
    if contents.is_volume:
        return AtRisk.VOLUME
    if not contents.was_used or not contents.disk_survives or contents.shares_queue:
        return AtRisk.NOTHING
    if not contents.has_checkpoints:
        return AtRisk.DISK
    if contents.is_saved is None:
        return AtRisk.UNKNOWN
    return AtRisk.WORK if contents.is_saved else AtRisk.DISK
