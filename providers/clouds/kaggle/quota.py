"""Kaggle's weekly accelerator hours, the only currency there: what is left, and when that is worth a warning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.adapter_helpers import instant
from providers.clouds.kaggle.errors import CLOUD
from providers.contract import Charge

DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)s", re.ASCII)
#: A week's share of used hours from which people are warned: 27 of the usual 30.
WARN_SHARE = Decimal("0.9")
HOUR_S = Decimal(3600)
#: From one refresh to the next.
WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Quota:
    """One week's GPU time in seconds. `reserved_s` counts as used: whether a push respects it is not documented."""

    used_s: Decimal
    reserved_s: Decimal
    allowed_s: Decimal
    refreshes_at: datetime | None

    @property
    def left_s(self) -> Decimal:
        """Seconds that a new run may still use, never below zero."""
        return max(self.allowed_s - self.used_s - self.reserved_s, Decimal(0))

    def charge(self, start: datetime, end: datetime) -> Charge:
        """The quota that was used in [start, end), as the only bill there is."""
        return Charge(CLOUD, f"quota/{start:%Y-%m-%d}", "", "quota", Decimal(0), start, end, used_s=self.used_s)

    @property
    def warning(self) -> str:
        """One sentence once nine tenths are gone, else ""."""
        if self.left_s > self.allowed_s * (1 - WARN_SHARE):
            return ""
        until = "" if self.refreshes_at is None else f"; it is filled up at {self.refreshes_at:%Y-%m-%d %H:%M} UTC"
        return f"Only {hours(self.left_s)} of {hours(self.allowed_s)} GPU hours are left this week{until}."


def gpu_quota(body: Any) -> Quota | None:
    """The GPU part of the quota answer; None when it is missing or unreadable, which means unknown, not zero.

    Durations are protobuf strings such as `108000s`. A duration of zero may be left out.
    """
    gpu = body.get("gpuQuota") if isinstance(body, dict) else None
    if not isinstance(gpu, dict):
        return None
    used, reserved = _seconds(gpu.get("timeUsed", "0s")), _seconds(gpu.get("timeReserved", "0s"))
    allowed = _seconds(gpu.get("totalTimeAllowed"))
    if used is None or reserved is None or allowed is None:
        return None
    return Quota(used, reserved, allowed, instant(body.get("quotaRefreshTime"), UTC))


def hours(seconds: Decimal) -> str:
    """Seconds as hours with at most one decimal, as people read them: `27.5`, `30`."""
    return f"{round(seconds / HOUR_S, 1).normalize():f}"


def _seconds(value: Any) -> Decimal | None:
    found = DURATION.fullmatch(value) if isinstance(value, str) else None
    return Decimal(found[1]) if found else None
