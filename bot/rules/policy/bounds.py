"""Check each value of the policy file when it is loaded, so that nothing breaks on it later in a click."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from bot.rules.values.labels import human_part

#: A year: a longer time would take a date beyond what a clock can show.
LONGEST_S: Final = 8760 * 3600
_DOLLARS: Final = 1_000_000_000
_PERSON: Final = r"[UW][A-Z0-9]{1,20}|(?:slack|consumer|operator):\S{1,80}"


@dataclass(frozen=True, slots=True)
class Range:
    """Hold the least and the greatest value of a setting, or of each item of a list or a table, and an example."""

    least: float
    most: float
    example: str

    def holds(self, value: object) -> bool:
        """Whether a number lies within; no number at all, and NaN, do not."""
        if not isinstance(value, int | float | Decimal):
            return False
        finite = value.is_finite() if isinstance(value, Decimal) else value == value
        return finite and self.least <= value <= self.most


_SECONDS: Final = Range(1, LONGEST_S, "900")
_SHARE: Final = Range(0, 1, "0.95")
_GB: Final = Range(0, 1_000_000, "20")

RANGES: Final[Mapping[str, Range]] = MappingProxyType(
    {
        "auto_approve_below_usd": Range(0, _DOLLARS, "5"),
        "auto_approve_daily_usd": Range(0, _DOLLARS, "25"),
        "external_entry_usd": Range(0, _DOLLARS, "1000"),
        "two_approvers_above_usd": Range(0, _DOLLARS, "500"),
        "confirm_above_usd": Range(0, _DOLLARS, "100"),
        "max_hours": Range(0, LONGEST_S / 3600, "12"),
        "max_hours_ever": Range(0, LONGEST_S / 3600, "720"),
        "max_wait_hours": Range(0, LONGEST_S / 3600, "168"),
        "price_tolerance": Range(1, 10, "1.10"),
        "request_ttl_s": _SECONDS,
        "remind_after_s": _SECONDS,
        "break_glass_usd": Range(0, _DOLLARS, "25"),
        "break_glass_hours": Range(0, LONGEST_S / 3600, "2"),
        "delegation_days": Range(1, 3_660, "92"),
        "escalate_after_s": Range(60, LONGEST_S, "3600"),
        "warn_before_end_s": Range(0, LONGEST_S, "[3600, 600]"),
        "volume_grace_days": Range(1, 90, "7"),
        "volume_growth": Range(1, 100, "2"),
        "volume_excess_usd": Range(0, _DOLLARS, "50"),
        "overspend_answer_s": _SECONDS,
        "suggest_move_usd": Range(0, _DOLLARS, "5"),
        "suggest_move_percent": Range(0, 100, "10"),
        "checkpoint_save_s": Range(60, 3600, "600"),
        "checkpoint_max_age_s": Range(60, LONGEST_S, "3600"),
        "checkpoint_hold_s": Range(60, 24 * 3600, "7200"),
        "checkpoint_operator_s": Range(0, 24 * 3600, "3600"),
        "checkpoint_disk_s": Range(0, 30 * 24 * 3600, "86400"),
        "grace_usd": Range(0, _DOLLARS, "5"),
        "runway_hours": Range(0, LONGEST_S / 3600, "12"),
        # A node reports every minute, and one that is late is not yet silent.
        "unresponsive_s": Range(300, LONGEST_S, "900"),
        "unresponsive_grace_s": _SECONDS,
        "idle_below_percent": Range(0, 100, "5"),
        "idle_cpu_below_percent": Range(0, 100, "2"),
        "idle_network_below_kb_s": Range(0, 10_000_000, "5"),
        "idle_s": Range(60, LONGEST_S, "1800"),
        "idle_grace_s": _SECONDS,
        "done_grace_s": _SECONDS,
        "replacements": Range(0, 100, "1"),
        "max_gpus": Range(1, 1_000, "16"),
        "max_open_requests_per_user": Range(1, 1_000, "5"),
        "max_requests_per_hour": Range(1, 1_000_000, "60"),
        # A dialog's field takes no more.
        "max_reason_chars": Range(1, 3_000, "500"),
        "min_disk_gb": Range(1, 100_000, "50"),
        # A message holds no more buttons.
        "options_shown": Range(1, 20, "5"),
        "retry_buffer": Range(0, 10, "0.10"),
        "egress_gb": _GB,
        "ingress_gb": _GB,
        "assumed_reliability": _SHARE,
        "assumed_datacenter_reliability": _SHARE,
        "loss_window_h": Range(1, LONGEST_S / 3600, "24"),
        "checkpoint_write_gb_s": Range(0.01, 1_000, "0.5"),
        "spot_interruption": Range(0, 1, "0.15"),
        "store_usd_gb_month": Range(0, 1_000, "0.023"),
        "risk_weight": Range(0, 100, "0.10"),
    }
)

#: Settings that are lists of names, what each name looks like, and a right list.
NAMES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "approvers": (_PERSON, "[U012AB3CD, operator:ada]"),
        "approver_groups": (r"S[A-Z0-9]{1,20}", "[S0614TZR7]"),
        "may_approve_not_pinged": (_PERSON, "[U012AB3CD]"),
        "never_approve": (_PERSON, "[U012AB3CD]"),
        "break_glass": (_PERSON, "[U012AB3CD]"),
        "fallback_contacts": (r"[UWCG][A-Z0-9]{1,20}", "[U012AB3CD]"),
    }
)


def is_person(text: str) -> bool:
    """Whether `text` is a Slack id or an actor's reference."""
    return re.fullmatch(_PERSON, text) is not None


def problems(settings: Any) -> Iterator[str]:
    """Say what is wrong with the settings of a policy: one sentence each, with the key and a right value."""
    for name, allowed in RANGES.items():
        for value in _items(getattr(settings, name)):
            if not allowed.holds(value):
                most = f"{allowed.most:,.0f}"
                yield f"{name} must lie between {allowed.least:g} and {most}, for example {allowed.example}"
    for name, (pattern, example) in NAMES.items():
        for text in getattr(settings, name):
            if not re.fullmatch(pattern, text):
                yield f"{name} needs ids, and {text!r} is none; for example {example}"
    try:
        human_part(settings.name_template, settings.project, "moe", 8, "RTX3090")
    except ValueError as error:
        yield f"{error}, for example {{project}}-{{model}}-{{count}}x{{gpu}}"


def _items(value: Any) -> tuple[Any, ...]:
    """Return one value, or the values of a list or a table; none for a setting without a value."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple(value.values())
    return tuple(value) if isinstance(value, tuple | list) else (value,)
